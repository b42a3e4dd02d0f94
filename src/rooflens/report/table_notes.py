"""Notes below tables: what was counted, what a bound leaves out, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rooflens.records import Case, Cause
from rooflens.report.columns import PIECE_PREDICTED
from rooflens.report.expected_notes import expected_notes
from rooflens.report.one_step import IN_BOUND, does_more
from rooflens.report.table import ColumnNote, percent
from rooflens.results import Coverage, Evidence, Surplus, Total
from rooflens.results.parts import PieceOfCase
from rooflens.results.quantities import ratio
from rooflens.results.totals import grouped_by
from rooflens.units import show

_NAMED, _LONG = 3, 48
NO_DEVICE = "no device is named: bounds are unknown"
NAME_THE_DEVICE = "name it (--device) for bounds"
"""How a file's own note ends that says so, and why."""
FASTER = (
    "! faster than the bound: data stayed in a cache, an algorithm with less work (Winograd, FFT) ran, or a ceiling is"
    " too low"
)
LOWER_BOUND = ">= lower bound: operations without a formula are not in it"
BELOW_BOUND = ColumnNote(
    "! expected below the bound, which has all operands from DRAM: some stay in the cache between operations",
    "predicted_seconds",
)


def coverage_line(coverage: Coverage) -> str:
    """Return how much was counted, in one line; operations without a formula are named.

    >>> coverage_line(Coverage(operations=3, counted=3, uncounted=(), bytes_share=1.0))
    'counted 3 of 3 operations (100 % of bytes)'
    >>> coverage_line(Coverage(operations=3, counted=2, uncounted=("gemm",), bytes_share=None, pieces="kernels"))
    'counted all FLOP of 2 of 3 kernels; not of gemm'
    """
    share = "" if coverage.bytes_share is None else f" ({percent(coverage.bytes_share)} of bytes)"
    missing = f"; {_uncounted(coverage)}" if coverage.uncounted else ""
    what = "all FLOP of " if missing and coverage.pieces == "kernels" else ""  # some of a kernel may be known
    return f"counted {what}{coverage.counted} of {coverage.operations} {coverage.pieces}{share}{missing}"


def _uncounted(coverage: Coverage) -> str:
    """Operations without a formula are all named; names of kernels are long, and some of them are enough."""
    if coverage.pieces == "operations":
        return f"without a formula: {', '.join(coverage.uncounted)}"
    named = [name if len(name) <= _LONG else f"{name[:_LONG]}..." for name in coverage.uncounted[:_NAMED]]
    more = len(coverage.uncounted) - len(named)
    return f"not of {', '.join(named)}{f' and {more} more' if more else ''}"


def total_notes(totals: Iterable[Total]) -> Iterator[str]:
    """What a reader of these totals must know: lower bounds, and resources that the device has no rate for."""
    seen = list(totals)
    yield from _bound_notes(seen)
    yield from expected_notes(seen)
    several = dict.fromkeys(t.device.name for t in seen if t.device and t.device.count > 1 and t.bound is not None)
    if several:
        yield (
            f"no time can be expected of {', '.join(several)}: nothing says how devices share a step, and what they"
            " send each other. The bound assumes a perfect split; for copies of the model, each with its part of the"
            " batch, estimate that part on one device"
        )


def number_notes(totals: Iterable[Total | None]) -> Iterator[str]:
    """Yield why an expected time of some totals is marked, if one is, and what their work is of."""
    known = [total for total in totals if total is not None]
    yield from [IN_BOUND] if any(total.bound is not None and does_more(total) for total in known) else []
    yield from [BELOW_BOUND] if any(total.below_bound for total in known) else []


def piece_notes(of: Total, rows: Sequence[PieceOfCase]) -> Iterator[str]:
    """Yield coverage, lower bounds, and what numbers of the rows of a total need a word."""
    if of.coverage.operations:
        yield coverage_line(of.coverage)
        if of.device is None and rows:
            yield no_bounds(rows[0].case)
    yield from _bound_notes([of])
    if of.prediction is not None:
        yield ColumnNote("expected of a piece: on the device alone, without waiting for the host", PIECE_PREDICTED.key)
    yield from number_notes(row.total for row in rows)
    yield from surplus_notes([of])
    if any((row.reached or 0) > 1 for row in rows):
        yield FASTER


def _bound_notes(seen: Sequence[Total]) -> Iterator[str]:
    # Where nothing of a total is known nothing is marked, either.
    for pieces in dict.fromkeys(t.pieces for t in seen if t.missing and (t.flops, t.bound) != (None, None)):
        yield {
            "operations": LOWER_BOUND,
            "kernels": ">= lower bound: of some kernels FLOP were not counted",
        }[pieces]
    for total in seen:
        if total.bound is not None and total.device is not None:
            for resource in sorted(total.bound.skipped):
                yield f"{resource} has no ceiling on {total.device.name}: left out of the bound"


def surplus_notes(totals: Iterable[Total]) -> Iterator[str]:
    """One line that says by cause what the code of these steps does beyond what every implementation needs."""
    by_cause: dict[Cause, list[Surplus]] = {}
    seen = list(totals)
    for total in seen:
        for cause, surplus in total.surplus.items():
            by_cause.setdefault(cause, []).append(surplus)
    if by_cause:
        parts = (_surplus(cause, some, len(seen)) for cause, some in by_cause.items())
        yield f"the code as written does more than the bound: {'; '.join(parts)} (docs/floors.md)"


def recomputation_notes(totals: Iterable[Total]) -> Iterator[str]:
    """One line that says how much of the bound computes again what checkpointing did not keep; of several, the most."""
    seen = list(totals)
    shares = [share for t in seen if (share := ratio(t.recomputed_seconds, t.seconds))]
    if shares:
        several = "up to " if len(seen) > 1 else ""
        yield f"checkpointing: {several}{percent(max(shares))} of the bound computes again what the step does not keep"


def _surplus(cause: Cause, some: Sequence[Surplus], steps: int) -> str:
    """A cause with its bytes, FLOP and seconds; of several steps the largest."""
    amounts = (
        (max(each.bytes for each in some), "B"),
        (max(each.flops for each in some), "FLOP"),
        (max(each.seconds or 0 for each in some), "s"),
    )
    shown = ", ".join(show(amount, unit) for amount, unit in amounts if amount > 0)
    return f"{cause} {'up to ' if steps > 1 else ''}{shown or 'nothing'}"


def coverage_notes(evidence: Sequence[Evidence]) -> Iterator[str]:
    """The coverage of each case as a line, operations and kernels apart; of several cases the whole ones together."""
    known = [(item, total.coverage) for item in evidence if (total := item.total()) is not None]
    several = len({item.case for item, _ in known}) > 1
    for pieces, alike in grouped_by(known, lambda each: each[1].pieces).items():
        whole = [item for item, coverage in alike if not coverage.uncounted] if len(alike) > 1 else []
        if whole:
            which = "every case" if len(whole) == len(alike) else f"{len(whole)} of {len(alike)} cases"
            yield f"counted all {pieces} in {which}"
        for item, coverage in alike:
            if item not in whole:
                yield f"{item.case.label()}: {coverage_line(coverage)}" if several else coverage_line(coverage)


def no_bounds(case: Case) -> str:
    """Say why the bounds of a case are unknown."""
    if case.device is None:
        return NO_DEVICE
    return (
        f"no ceilings of {case.device} are known here: its bounds are unknown; give a device file as the roof, or"
        " measure it (--roof measured)"
    )


def device_notes(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Why a bound is unknown, and which steps do not fit into the memory of their device."""
    for item in evidence:
        if item.work is None or item.device is not None:
            continue
        yield no_bounds(item.case)
    if not all(item.room is None or item.room.fits for item in evidence):
        yield from misfits(evidence)


def misfits(evidence: Iterable[Evidence]) -> Iterator[str]:
    """Steps that do not fit into the memory of their device, the first ones by name: by how much, and the remedy.

    Then those of which nobody knows whether they do.
    """
    evidence = list(evidence)
    too_large = [(item.case, item.room) for item in evidence if item.room is not None and item.room.fits is False]
    for case, room in too_large[:_NAMED]:
        remedy = ""
        if room.largest == 0:
            remedy = "; not even one sample does"
        elif room.largest is not None:
            remedy = f"; batch {room.largest} is about the largest that fits (--largest-batch finds it exactly)"
        yield (
            f"{case.label()} does not fit: it needs {show(room.needed, 'B')} ({show(room.reserved, 'B')} of it to stay"
            f" free) of {show(room.memory, 'B')}, {show(room.excess, 'B')} too much{remedy}"
        )
    if len(too_large) > _NAMED:
        more = len(too_large) - _NAMED
        yield f"{more} more {'steps do not fit into the memory of their devices' if more > 1 else 'step does not fit'}"
    edge = [(item.case, item.room) for item in evidence if item.room is not None and item.room.borderline]
    for case, room in edge[:_NAMED]:
        yield (
            f"{case.label()} is at the borderline: it needs {show(room.needed, 'B')}, and the device has"
            f" {show(room.memory, 'B')} at least; how much more depends on its driver"
        )
