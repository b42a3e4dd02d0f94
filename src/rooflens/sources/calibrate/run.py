"""All parts of a calibration, one after the other, within a time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from rooflens.errors import first_line
from rooflens.progress import Progress
from rooflens.records import Device, Fact
from rooflens.sources.calibrate import caches, lanes, links, memory, overhead
from rooflens.sources.calibrate.assemble import assembled
from rooflens.sources.calibrate.matrix import matrix, precisions
from rooflens.sources.calibrate.pinned import pinned
from rooflens.sources.calibrate.plan import PLANS, SECONDS
from rooflens.sources.calibrate.trial import TROUBLE, Bench, Found, timers

USED = 0.7
"""Part of the time that parts may plan with; the rest is for allocating, building and overrunning."""
LATE, LATE_SECONDS = 0.9, 1.0
"""Until when, as a part of the time, one for which others left none still gets some, and how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing to find out.

    Attributes:
        share: of the time, against the other parts.
        run: from what to run it with, seconds, and what earlier parts found.
    """

    name: str
    share: float
    run: Callable[[Bench, float, Found], Found]


def calibrate(
    where: str,
    name: str,
    title: str,
    known: Device | None = None,
    progress: Progress | None = None,
    *,
    budget: float | None = None,
    quick: bool = False,
) -> Device:
    """Measure the ceilings of this machine.

    Args:
        where: ``cpu`` or ``cuda``.
        name: slug for a device that the catalogue does not know.
        title: what it is called.
        known: the catalogue's entry for this machine, which gives the rates that are not measured here.
        progress: told the share that is done, and what is being done.
        budget: seconds for all of it.
        quick: fewer shapes and sizes, in a fraction of the time.

    Returns:
        A device whose ceilings have origin ``measured``, called ``NAME-measured``, with overheads and single bandwidths
        as facts. What could not be measured is named in its notes, and keeps the catalogue's rate where there is one.
    """
    plan = PLANS[where, quick]
    seconds = budget if budget is not None else SECONDS["quick" if quick else "full"]
    with pinned(where) as pinning, torch.no_grad():
        timer, wall, steady = timers(where)
        bench = Bench(where=where, plan=plan, pinning=pinning, timer=timer, wall=wall, steady=steady, known=known)
        found = run(parts(where, plan.compiled), bench, seconds, progress)
    found += Found(facts=_memory(where), notes=(f"torch {torch.__version__}, {pinning.words}",))
    return assembled(found, where=where, name=name, title=title, known=known)


def run(
    wanted: Sequence[Part],
    bench: Bench,
    seconds: float,
    progress: Progress | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Found:
    """Every part in turn. One that fails, or for which no time is left, becomes a note that names it."""
    begun = now()
    end, last = begun + USED * seconds, begun + LATE * seconds
    found = Found()
    total = sum(part.share for part in wanted)
    done = 0.0
    for part in wanted:
        if progress is not None:
            progress(done / total, part.name)
        share = (end - now()) * part.share / (total - done)
        if share <= 0 and now() >= last:
            found += Found(notes=(f"{part.name} not measured: no time left",))
        else:
            found += _tried(part, bench, share if share > 0 else LATE_SECONDS, found)
        done += part.share
    if progress is not None:
        progress(1.0, "done")
    return found


def _tried(part: Part, bench: Bench, seconds: float, found: Found) -> Found:
    try:
        return part.run(bench, seconds, found)
    except TROUBLE as error:
        return Found(notes=(f"{part.name} not measured: {type(error).__name__}: {first_line(error)}",))
    finally:
        gc.collect()
        if bench.where == "cuda":
            torch.cuda.empty_cache()


def parts(where: str, compiled: bool = True) -> list[Part]:
    """What there is to find out, the most wanted first; kernels of our own last: a bad one spoils what follows."""
    return [
        *(
            Part(name=f"matmul.{p}", share=8 if p == "bf16" else 4, run=_alone(partial(matrix, p)))
            for p in precisions(where)
        ),
        Part(name="dram", share=8, run=_alone(memory.dram)),
        Part(name="overhead", share=1, run=_alone(overhead.overhead)),
        *(_links() if where == "cuda" else ()),
        *(_lanes(compiled) if compiled or where == "cpu" else ()),
        *(_caches(where) if compiled or where == "cpu" else ()),
    ]


def _alone(part: Callable[[Bench, float], Found]) -> Callable[[Bench, float, Found], Found]:
    """A part that needs nothing of the earlier ones."""
    return lambda bench, seconds, _: part(bench, seconds)


def _links() -> Iterator[Part]:
    yield Part(name="pcie", share=3, run=_alone(links.host))
    if torch.cuda.device_count() > 1:
        yield Part(name="nvlink", share=2, run=lambda b, s, found: links.peers(b, s, found.rates.get("pcie")))


def _lanes(compiled: bool) -> Iterator[Part]:
    yield Part(name="special.fp32", share=2, run=_alone(lanes.special))
    if compiled:
        for precision in ("fp32", "fp64"):
            yield Part(name=f"vector.{precision}", share=2, run=_alone(partial(lanes.vector, precision)))


def _caches(where: str) -> Iterator[Part]:
    if where == "cpu":
        yield Part(name="l1 and l2", share=4, run=_alone(caches.core_caches))
    else:
        yield Part(name="l2", share=3, run=_alone(caches.card_l2))
        yield Part(name="l1", share=3, run=_alone(caches.card_l1))


def _memory(where: str) -> dict[str, Fact]:
    if where == "cpu":
        return {}
    total = torch.cuda.get_device_properties(0).total_memory
    return {"memory": Fact(value=float(total), origin="measured", reference="CUDA runtime")}
