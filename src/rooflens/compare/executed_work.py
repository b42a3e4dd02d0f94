"""What was executed against what the algorithm needs: counters beside the estimate of the same case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Literal

from rooflens.records import PHASES, Phase, Record
from rooflens.results import RecordSet, Total
from rooflens.results.partners import same_step

Level = Literal["family", "module"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """One family or module in one phase.

    Attributes:
        key: operation family or module path.
        kernels: launches that were counted.
        seconds: their time; None where one is unknown.
        executed: what they did; its `missing` names those whose FLOP are not all known.
        algorithmic: what the estimate says; None where it has nothing of this name.
    """

    phase: Phase | None
    key: str
    kernels: int
    seconds: float | None
    executed: Total
    algorithmic: Total | None

    @property
    def flops_ratio(self) -> float | None:
        """Executed over algorithmic FLOP, recomputed ones in both; None where one of them is unknown or zero."""
        if self.algorithmic is None or self.executed.missing:
            return None
        return _ratio(_flops(self.executed), _flops(self.algorithmic))

    @property
    def bytes_ratio(self) -> float | None:
        """Measured DRAM bytes over compulsory ones."""
        if self.algorithmic is None:
            return None
        return _ratio(self.executed.bytes.get("dram"), self.algorithmic.bytes.get("dram"))


def executed(rs: RecordSet, by: Level) -> tuple[Executed, ...]:
    """Every group of the only counted case, phases in the order of a step, then the groups that only the estimate has.

    A kernel counts where its operation lies. Where one call on the device does all that a module does (multi-head
    attention with its projections), the estimate's operations of that module count as the family of that call. What
    the estimate has and no kernel was launched for (fused into another, or free on the device) has zero kernels.

    Returns:
        Nothing where the set does not hold the counters of one case and its estimate.
    """
    counted = [records for _, source, records in rs.split() if source == "counters" and any(r.work for r in records)]
    if len(counted) != 1:
        return ()
    (case,) = counted[0].cases
    estimates = [records for its, source, records in rs.split() if source == "estimate" and same_step(its, case)]
    if len(estimates) != 1:
        return ()
    device = counted[0].device()
    estimated = [r for r in estimates[0] if r.work is not None]
    launched = _in_phases([r for r in counted[0] if r.scope == "kernel"], {r.phase for r in estimated})
    ours = _grouped(launched, lambda r: r.kind if by == "family" else r.path)
    fused = _fused(launched, estimated)
    theirs = _grouped(estimated, lambda r: fused.get((r.phase, r.path), r.kind) if by == "family" else r.path)
    return tuple(
        Executed(
            phase=phase,
            key=key,
            kernels=sum(r.calls for r in ours.get((phase, key), ()) if r.work is not None),
            seconds=_seconds(ours.get((phase, key), ())),
            executed=counted[0].sum((r for r in ours.get((phase, key), ()) if r.work is not None), device),
            algorithmic=counted[0].sum(theirs[phase, key], device) if (phase, key) in theirs else None,
        )
        for phase, key in _keys(ours, theirs)
    )


def _in_phases(launched: list[Record], phases: Set[Phase | None]) -> list[Record]:
    """The launches, in the only phase of the estimate where the counters tell of none."""
    if len(phases) != 1 or any(r.phase is not None for r in launched):
        return launched
    (only,) = phases
    return [replace(r, phase=only) for r in launched]


Places = dict[tuple[Phase | None, str], list[Record]]


def _grouped(records: Iterable[Record], key: Callable[[Record], str]) -> Places:
    found: Places = {}
    for record in records:
        found.setdefault((record.phase, key(record)), []).append(record)
    return found


def _fused(launched: Iterable[Record], estimated: Iterable[Record]) -> dict[tuple[Phase | None, str], str]:
    """The family of the only call in a module, where the estimate knows no such call but others in its place."""
    known = {place: {r.name for r in records} for place, records in _grouped(estimated, lambda r: r.path).items()}
    found: dict[tuple[Phase | None, str], str] = {}
    for place, records in _grouped(launched, lambda r: r.path).items():
        calls = {(r.operation, r.kind) for r in records}
        if len(calls) == 1 and place in known:
            ((operation, family),) = calls
            if operation and operation not in known[place]:
                found[place] = family
    return found


def _keys(
    ours: Mapping[tuple[Phase | None, str], object], theirs: Mapping[tuple[Phase | None, str], object]
) -> Iterator[tuple[Phase | None, str]]:
    for phase in (*PHASES, None):
        yield from (key for key in dict.fromkeys((*ours, *theirs)) if key[0] == phase)


def _seconds(records: Iterable[Record]) -> float | None:
    timings = [(r.timing, r.calls) for r in records]
    known = [timing.median * calls for timing, calls in timings if timing is not None]
    return sum(known) if known and len(known) == len(timings) else None


def _flops(total: Total) -> float | None:
    works = [work for work in (total.work, total.recomputed_work) if work is not None]
    return sum(work.total_flops for work in works) if works else None


def _ratio(part: float | None, of: float | None) -> float | None:
    return part / of if part is not None and of else None
