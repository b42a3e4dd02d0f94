"""Reports of the same step, each with some of its counters: put together by launches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from rooflens.records import Case, Record
from rooflens.running.attributing import UNREACHED, pairs
from rooflens.running.observations import CountingPlan
from rooflens.sources import counters as source
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.ncu import CollectedReport, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPart:
    """What one run of ncu counted.

    Attributes:
        read: its launches in order, and how they were read.
        counted: the numbers of the launches that it was to count, in order.
        what: what its counters tell, in words; "" of the first run, which tells all that others do not.
        lacking: of the first run, what another one should have told, and why it did not.
    """

    done: CollectedReport
    read: Future[tuple[list[KernelLaunch], source.CounterReading]]
    counted: tuple[int, ...]
    what: str = ""
    lacking: tuple[str, ...] = ()

    def by_launch(self, names: Sequence[str]) -> dict[int, KernelLaunch]:
        """Return the launches by their number in the step, whose kernels have these names, as far as they are known."""
        launches, _ = self.read.result()
        planned = [source.short(names[n]) for n in self.counted]
        ours = [source.short(launch.name) for launch in launches]
        return {self.counted[b]: launches[a] for a, b in pairs(ours, planned)}


def read_report(tool: Tool, report: Path) -> tuple[list[KernelLaunch], source.CounterReading]:
    """Return the launches in a report, in order, and how they were read; FileError if it holds none."""
    reading = source.CounterReading(repr(str(report)))
    with tool.printed(report) as lines:
        return sorted(source.parse(lines, reading), key=lambda launch: launch.line), reading


def counted_launches(
    parts: Sequence[CountedPart], names: Sequence[str], case: Case
) -> tuple[dict[int, Record], list[Record]]:
    """Return what was counted by the number of the launch, and kernels that the step does not have.

    Args:
        parts: of the same step. The first has bytes: launches that it did not reach are not counted, whatever others
            know of them.
        names: of the kernels of the step.

    Raises:
        FileError: a report holds nothing that can be read.
    """
    together = parts[0].by_launch(names)
    for part in parts[1:]:
        more = part.by_launch(names)
        for number in together.keys() & more.keys():
            for name, value in more[number].values.items():
                together[number].add(name, value)
    launches, reading = parts[0].read.result()
    known = {id(launch) for launch in together.values()}
    strange = [launch for launch in launches if id(launch) not in known]
    numbers = sorted(together)
    for line, launch in enumerate([*(together[n] for n in numbers), *strange]):
        launch.line = line  # their order in several files means nothing
    found = source.found_in([*(together[n] for n in numbers), *strange], reading, lambda _: case).records
    records = [replace(record, case=case) for record in found]
    some = {
        name
        for part in parts
        if len(part.counted) < len(parts[0].counted)
        for launch in part.read.result()[0][:1]
        for name in launch.values
    }
    if records:  # that the plan leaves out some launches is told by another note
        told = (note for note in records[0].notes if not (note.startswith(source.UNEVEN) and note.split()[6] in some))
        records[0] = replace(records[0], notes=tuple(told))
    return dict(zip(numbers, records, strict=False)), records[len(numbers) :]


def notes_on(
    tool: Tool, parts: Sequence[CountedPart], plan: CountingPlan, records: Sequence[Record], cache: str
) -> list[str]:
    """Return how a step was counted, and whether some is missing."""
    launches, kernels = len(parts[0].read.result()[0]), len(plan.stands)
    notes = [f"NOT COUNTED: {what}" for what in parts[0].lacking]
    notes.append(f"counted by ncu {tool.version}{_passes(parts)}; caches {caches(cache)}")
    if len(plan.counted) < kernels:
        for_how_many = f"{launches} launches were counted for {kernels}"
        notes.append(
            f"{for_how_many}: one of each kernel, grid, block and operands; the others take its counts (--every)"
        )
    some = next((part for part in parts if len(part.counted) < len(plan.counted)), None)
    if some is not None:
        notes.append(
            f"for {len(some.counted)} launches a further run counted mma.sync: they do tensor work without wgmma"
        )
    for part in parts:
        reached = len(part.read.result()[0])
        if reached < len(part.counted) and not part.done.whole:
            of_what = f"{part.what}: " if part.what else ""
            its = f"{reached} of {len(part.counted)} launches were counted ({why_partial(part.done)})"
            notes.append(f"partial: {of_what}{its}")
    if launches < len(plan.counted) and not parts[0].done.whole:
        notes.append(_covered(records))
    return [*notes, "times are of another run, which was not replayed"]


def caches(cache: str) -> str:
    """What became of the caches, in words."""
    return "emptied before each kernel" if cache == "all" else "left as earlier kernels left them"


def why_partial(done: CollectedReport) -> str:
    """Why a run did not count everything."""
    return "the time limit was over" if done.stopped else "; ".join(done.errors) or f"ncu ended with code {done.code}"


def _passes(parts: Sequence[CountedPart]) -> str:
    known = [part.done.passes for part in parts if part.done.passes is not None]
    if len(known) < len(parts):
        return ""
    return f", {sum(known)} passes per kernel{f' in {len(parts)} runs of the step' if len(parts) > 1 else ''}"


def _covered(records: Sequence[Record]) -> str:
    """A note on the share of the kernels' time that was counted."""
    timed = [(r, r.seconds) for r in records if r.seconds is not None and r.work is not None]
    known = sum(seconds for r, seconds in timed if UNREACHED not in r.notes)
    share = known / sum(seconds for _, seconds in timed)
    return f"the counted launches stand for {share:.1%} of the kernels' time; FLOP and bytes of the others are unknown"
