"""From the records of a step, or of a part of it, to the time that they will take: two queues, host and device.

The host launches operations one after the other and the device runs them in order, so a step takes as long as the
longer queue, and more where both are about as long: in one stretch the device waits, in the next the host. A replayed
CUDA graph has no host in it. Compiled code launches what fusion leaves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rooflens.costs import Arithmetic, cost
from rooflens.predict import host
from rooflens.predict.bands import PROCESSOR_FAMILY, Regime, band
from rooflens.predict.call_on_device import NARROW, CallOnDevice, calls_on_device
from rooflens.predict.card import Card
from rooflens.predict.constants import Level
from rooflens.predict.effects.streams import cold_weights
from rooflens.predict.expected import expected_seconds
from rooflens.records import ANSWER_PHASES, Call, HostCalls, Phase, Record, Scalar, is_training

Way = Literal["eager", "compiled", "graph"]
"""How a step runs: operation by operation, compiled, or from CUDA graphs."""


def way_of(options: Mapping[str, Scalar]) -> Way:
    """Return how a case with these options runs."""
    return "graph" if options.get("cuda_graph") else "compiled" if options.get("compile") else "eager"


def fuses(options: Mapping[str, Scalar]) -> bool:
    """True if the bytes of an estimate with these options are those of fused groups."""
    return options.get("fusion", "none") != "none" or bool(options.get("compile"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The time that some work will take; derived, never stored.

    Attributes:
        seconds: the expected time.
        low, high: the measured time lies between them in 80 of 100 cases.
        level: how the constants behind it are known.
        generation: of the devices that they were read off.
        regime: what it waits for.
        device: seconds of the device's queue; `host`: of the host's, None where it is not asked for.
        families: seconds on the device by family.
    """

    seconds: float
    low: float
    high: float
    level: Level
    generation: str
    regime: Regime
    device: float
    host: float | None
    families: dict[str, float]


KnownTimes = Mapping[tuple[Call, tuple[object, ...]], float]
"""Seconds of calls that are known, by call and layout: equal calls may differ in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the step runs to which records belong.

    Attributes:
        way: eager, compiled or from graphs.
        held: bytes of its tensors at the peak; None where that is not known.
        host_calls: views and calls of modules; none where the host does not matter.
        fused: the records' bytes are those of fused groups.
        step: the records are those of a step, or of a phase.
        before: records of the phases before that one: the host may be ahead from them.
        times: of calls that were replayed on the device, by call and layout.
    """

    way: Way = "eager"
    held: float | None = None
    host_calls: tuple[HostCalls, ...] | None = None
    fused: bool = False
    step: bool = True
    before: tuple[Record, ...] = ()
    times: KnownTimes = field(default_factory=dict)

    def of_phase(self, phase: Phase | None) -> tuple[HostCalls, ...]:
        """What the host does besides launching, in one phase or in all."""
        return tuple(c for c in self.host_calls or () if phase in (None, c.phase))


ALONE = Conduct(way="graph", step=False)
"""Pieces of a step: their time on the device."""


def predicted(
    records: Sequence[Record], card: Card, conduct: Conduct = ALONE, phase: Phase | None = None
) -> Prediction | None:
    """Return the time of a step, of one phase of it, or (without a host) of pieces; None where a call is not known.

    Of a whole answer it is the sum of its phases: the first token has to be there before the next is begun. From CUDA
    graphs runs its decode alone.
    """
    working = [r for r in records if r.work is not None]
    if conduct.step and phase is None and {record.phase for record in working}.issuperset(ANSWER_PHASES):
        parts = [predicted([r for r in working if r.phase == its], card, conduct, its) for its in ANSWER_PHASES]
        expected = [part for part in parts if part is not None]
        return _in_turn(expected) if len(expected) == len(parts) else None
    if conduct.step and conduct.way == "graph" and {record.phase for record in working} == {"prefill"}:
        conduct = replace(conduct, way="eager")  # of an answer only decode is captured: its prompt is read once
    if all(r.call is None for r in working) or any(r.call is None for r in working if not r.work or not r.work.missing):
        return None
    if card.launches_itself and not _timed_on_processors(working, conduct):
        return None
    queues = [_queue(its, card, conduct) for its in _by_phase(working).values()]
    families: dict[str, float] = defaultdict(float)
    for queue in queues:
        for family, seconds in queue.families.items():
            families[family] += seconds
    device, launches = sum(queue.device for queue in queues), sum(queue.launches for queue in queues)
    kind = (_mode(working), device / max(1.0, launches))
    level: Level = "replayed" if sum(queue.replayed for queue in queues) > device / 2 else card.level
    if card.launches_itself and conduct.step:
        hosts = host.around(conduct.of_phase(phase), card)
        return _with_band(device + hosts, device, hosts, families, card, level, "in turn", kind)
    if conduct.way == "graph":
        seconds = sum(queue.seconds for queue in queues) if conduct.step else device
        return _with_band(seconds, device, None, families, card, level, "graph" if conduct.step else "pieces", kind)
    join, lead = card["launch.join"], 0.0
    if conduct.way == "compiled":
        issued, doing = [host.compiled(round(launches), card)], [sum(queue.seconds for queue in queues)]
    else:
        issued, doing = _issued(working, card, conduct), [queue.seconds for queue in queues]
        earlier = _by_phase([r for r in conduct.before if r.work is not None])
        busy = [_queue(its, card, conduct).seconds for its in earlier.values()]
        lead = _lead(_issued(conduct.before, card, conduct), busy, join)
    hosts = sum(issued)
    waited = hosts - lead  # what is launched while the device is busy with earlier phases costs nothing
    regime: Regime = "device-bound" if device > 1.6 * waited else "host-bound" if waited > 1.6 * device else "mixed"
    seconds = _norm(lead + sum(doing), hosts, join) - lead if lead else _both(issued, doing, join)
    return _with_band(seconds, device, hosts, families, card, level, regime, kind)


@dataclass(slots=True)
class _Queue:
    """What the device has to do in a phase.

    Attributes:
        families: seconds by family.
        launches: of kernels, one for each call.
        replayed: seconds of calls whose times are known.
        seconds: of all calls in a row, with what passes between them.
    """

    families: dict[str, float]
    launches: float = 0.0
    replayed: float = 0.0
    seconds: float = 0.0

    @property
    def device(self) -> float:
        """Seconds of the calls alone."""
        return sum(self.families.values())


def _by_phase(records: Sequence[Record]) -> dict[Phase | None, list[Record]]:
    """Records by phase, in the order in which the phases begin."""
    phases: dict[Phase | None, list[Record]] = {}
    for record in records:
        phases.setdefault(record.phase, []).append(record)
    return phases


def _issued(records: Sequence[Record], card: Card, conduct: Conduct) -> list[float]:
    """Seconds in which the host launches each phase, operation by operation."""
    phases = _by_phase([record for record in records if record.work is not None])
    return [host.eager(its, conduct.of_phase(phase), card) for phase, its in phases.items()]


def _queue(records: Sequence[Record], card: Card, conduct: Conduct) -> _Queue:
    """What the device has to do for the records of a phase."""
    queue = _Queue(defaultdict(float))
    for record in records:
        for piece, calls in _pieces(record, conduct):
            known = conduct.times.get((piece.call, piece.call.layout)) if conduct.times else None
            queue.families[record.kind] += calls * (
                expected_seconds(piece, card) if known is None else known + cold_weights(piece, card)
            )
            queue.replayed += calls * (known or 0.0)
            queue.launches += calls * (piece.own if piece.nbytes else 0.0)
    between = card["launch.handover" if conduct.way == "graph" else "launch.gap"]
    queue.seconds = queue.device * card["launch.among"] + queue.launches * between
    return queue


def _mode(records: Sequence[Record]) -> str:
    """The mode whose bands suit these records: a phase of an answer is a step of that mode."""
    first = records[0]
    return first.phase if first.case.mode == "generate" and first.phase is not None else first.case.mode


def _both(issued: Sequence[float], queues: Sequence[float], join: float) -> float:
    """Seconds until the device has done all: it begins a phase when it has ended the one before and the host is there.

    A host that was slow in one phase leaves the device idle, and no later phase brings that time back.
    """
    launched = done = 0.0
    for host_seconds, device_seconds in zip(issued, queues, strict=True):
        launched += host_seconds
        done = _norm(done + device_seconds, launched, join)
    return done


def _lead(issued: Sequence[float], queues: Sequence[float], join: float) -> float:
    """Seconds for which the device is still busy with some phases when the host has launched them."""
    lead = 0.0
    for host_seconds, device_seconds in zip(issued, queues, strict=True):
        lead = _norm(lead + device_seconds, host_seconds, join) - host_seconds
    return lead


def _norm(one: float, other: float, join: float) -> float:
    return float((one**join + other**join) ** (1 / join))


def _timed_on_processors(records: Sequence[Record], conduct: Conduct) -> bool:
    """True if a processor's suite has calls like these: forward passes in fp32, operation by operation."""
    as_written = conduct.way == "eager" or not conduct.step
    narrow = any(t.dtype in NARROW for r in records if r.call is not None for t in r.call.outputs)
    return as_written and not narrow and not is_training(r.phase for r in records)


def _in_turn(parts: Sequence[Prediction]) -> Prediction:
    """Return the time of phases that wait for each other, with the level and the regime of the longest."""
    longest = max(parts, key=lambda part: part.seconds)
    families = sum((Counter(part.families) for part in parts), Counter[str]())
    hosts = [part.host for part in parts if part.host is not None]
    return replace(
        longest,
        seconds=sum(part.seconds for part in parts),
        low=sum(part.low for part in parts),
        high=sum(part.high for part in parts),
        device=sum(part.device for part in parts),
        host=sum(hosts) if hosts else None,
        families=dict(families),
    )


def _pieces(record: Record, conduct: Conduct) -> Iterator[tuple[CallOnDevice, int]]:
    alone = 1.0
    if conduct.fused and record.call is not None and record.work is not None:
        moved = cost(record.call, Arithmetic()).work.bytes["dram"]
        alone = min(1.0, record.work.bytes.get("dram", 0.0) / moved) if moved else 1.0
    yield from calls_on_device(record, conduct.held, alone, compiled=conduct.fused)


def _with_band(
    seconds: float,
    device: float,
    hosts: float | None,
    families: dict[str, float],
    card: Card,
    level: Level,
    regime: Regime,
    kind: tuple[str, float],
) -> Prediction:
    own = {PROCESSOR_FAMILY: device} if card.launches_itself else families
    low, high = band(own, regime, level, *kind)
    return Prediction(
        seconds=seconds,
        low=seconds * low,
        high=seconds * high,
        level=level,
        generation=card.constants.generation,
        regime=regime,
        device=device,
        host=hosts,
        families=dict(families),
    )
