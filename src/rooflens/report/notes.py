"""Sentences below a table: what was counted, what was left out, what to doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rooflens.report.table import percent
from rooflens.results import Coverage, Total
from rooflens.results.evidence import Evidence

_NAMED, _LONG = 3, 48
NO_DEVICE = "no device is named: bounds are unknown"
FASTER = (
    "! faster than the bound: data stayed in a cache, an algorithm with less work (Winograd, FFT) ran, or a ceiling is"
    " too low"
)


def coverage_line(coverage: Coverage) -> str:
    """How much was counted, in one line; operations without a formula are named.

    >>> coverage_line(Coverage(operations=3, counted=3, uncounted=(), bytes_share=1.0))
    'counted 3 of 3 operations (100 % of bytes)'
    """
    share = "" if coverage.bytes_share is None else f" ({percent(coverage.bytes_share)} of bytes)"
    missing = f"; {_uncounted(coverage)}" if coverage.uncounted else ""
    return f"counted {coverage.counted} of {coverage.operations} {coverage.pieces}{share}{missing}"


def _uncounted(coverage: Coverage) -> str:
    """Operations without a formula are all named; names of kernels are long, and some of them are enough."""
    if coverage.pieces == "operations":
        return f"without a formula: {', '.join(coverage.uncounted)}"
    named = [name if len(name) <= _LONG else f"{name[:_LONG]}..." for name in coverage.uncounted[:_NAMED]]
    more = len(coverage.uncounted) - len(named)
    return f"with FLOP that were not counted: {', '.join(named)}{f' and {more} more' if more else ''}"


def total_notes(totals: Iterable[Total]) -> Iterator[str]:
    """What a reader of these totals must know: lower bounds, and resources that the device has no rate for."""
    seen = list(totals)
    for pieces in dict.fromkeys(total.pieces for total in seen if total.missing):
        yield {
            "operations": ">= lower bound: operations without a formula are not in it",
            "kernels": ">= lower bound: of some kernels FLOP were not counted",
        }[pieces]
    for total in seen:
        if total.bound is not None and total.device is not None:
            for resource in sorted(total.bound.skipped):
                yield f"{resource} has no ceiling on {total.device.name}: left out of the bound"


def coverage_notes(evidence: Sequence[Evidence]) -> Iterator[str]:
    """The coverage of one case as a line; of several, the incomplete ones by name and the others together."""
    known = [(item, total.coverage) for item in evidence if (total := item.total()) is not None]
    if len(known) == 1:
        yield coverage_line(known[0][1])
        return
    complete = [coverage for _, coverage in known if not coverage.uncounted]
    if complete:
        which = "every case" if len(complete) == len(known) else f"{len(complete)} of {len(known)} cases"
        yield f"counted all operations in {which}"
    for item, coverage in known:
        if coverage.uncounted:
            yield f"{item.case.label()}: {coverage_line(coverage)}"


def device_notes(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Why a bound is unknown."""
    for item in evidence:
        if item.work is None or item.device is not None:
            continue
        if item.case.device is None:
            yield NO_DEVICE
        else:
            yield (
                f"no ceilings of {item.case.device} are known here: its bounds are unknown; give a device file as the"
                " roof, or measure it (--roof measured)"
            )
