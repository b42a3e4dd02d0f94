"""What was executed against what the algorithm needs: counters beside the estimate of the same case."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Literal

from rooflens.records import EVERY_PHASE, Phase, Record
from rooflens.results import RecordSet, Total
from rooflens.results.partners import same_step
from rooflens.results.quantities import BYTES, ratio
from rooflens.results.totals import grouped_by

PieceOfStep = tuple[Phase | None, str]
"""A phase, and a module path or an operation family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """One family or module (`key`) in one phase.

    Attributes:
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
        works = (self.executed.as_written.work, None if self.algorithmic is None else self.algorithmic.as_written.work)
        return ratio(*(None if work is None or work.missing else work.total_flops for work in works))

    @property
    def bytes_ratio(self) -> float | None:
        """Measured DRAM bytes over compulsory ones."""
        return ratio(BYTES.of(self.executed).value, BYTES.of(self.algorithmic).value)


def executed(rs: RecordSet, by: Literal["family", "module"]) -> tuple[Executed, ...]:
    """Return every group of the only counted case, in the order of a step, then those that only the estimate has.

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
    device, add = counted[0].device(), counted[0].sum
    estimated = [r for r in estimates[0] if r.work is not None]
    launched = _in_phases([r for r in counted[0] if r.scope == "kernel"], {r.phase for r in estimated})
    fused = _fused(launched, estimated) if by == "family" else {}
    ours = grouped_by(launched, lambda r: (r.phase, r.kind if by == "family" else r.path))
    theirs = grouped_by(
        estimated, lambda r: (r.phase, fused.get((r.phase, r.path), r.kind) if by == "family" else r.path)
    )
    rows = []
    for piece in sorted(dict.fromkeys((*ours, *theirs)), key=lambda piece: (*EVERY_PHASE, None).index(piece[0])):
        records = ours.get(piece, [])
        worked = [r for r in records if r.work is not None]
        rows.append(
            Executed(
                phase=piece[0],
                key=piece[1],
                kernels=sum(r.calls for r in worked),
                seconds=add(records, None).measured_seconds,
                executed=add(worked, device),
                algorithmic=add(theirs[piece], device) if piece in theirs else None,
            )
        )
    return tuple(rows)


def _in_phases(launched: list[Record], phases: Set[Phase | None]) -> list[Record]:
    """Return the launches, in the only phase of the estimate where the counters tell of none."""
    if len(phases) != 1 or any(r.phase is not None for r in launched):
        return launched
    (only,) = phases
    return [replace(r, phase=only) for r in launched]


def _module(record: Record) -> PieceOfStep:
    return record.phase, record.path


def _fused(launched: Iterable[Record], estimated: Iterable[Record]) -> dict[PieceOfStep, str]:
    """Return the family of the only call in a module, where the estimate knows no such call but others in its place."""
    known = {piece: {r.name for r in records} for piece, records in grouped_by(estimated, _module).items()}
    families: dict[PieceOfStep, str] = {}
    for piece, records in grouped_by(launched, _module).items():
        calls = {(r.operation, r.kind) for r in records}
        if len(calls) == 1 and piece in known:
            ((operation, family),) = calls
            if operation and operation not in known[piece]:
                families[piece] = family
    return families
