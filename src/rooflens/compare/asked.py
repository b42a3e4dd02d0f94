"""What people ask of steps and whole answers, case beside case: by the bound, as measured, and over the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rooflens.compare.doubts import Doubtful
from rooflens.compare.uncertainty import Interval
from rooflens.errors import Incomparable
from rooflens.records import Case
from rooflens.results import Evidence, Quantity, RecordSet, join
from rooflens.results.answers import ANSWERS, SAMPLED
from rooflens.results.quantities import MEMORY, THROUGHPUT, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedNumber(Doubtful):
    """One answer of one case; None is unknown.

    Attributes:
        name, title, unit: of the quantity; `better`: whether more of it is better, or less.
        bound: by the bound: the least time, the highest rate, the lowest cost; of an energy unknown.
        measured: from the measured time; `interval`: at 95 %.
        predicted: from the expected time; `band`: 10th to 90th percentile.
        over_bound: measured over bound.
        over_first: over the same answer of the first case that has it: measured ones where both are, else expected,
            else bounds.
    """

    case: Case
    name: str
    title: str
    unit: str
    better: Literal["more", "less", ""]
    bound: float | None
    measured: float | None
    interval: Interval | None = None
    predicted: float | None = None
    band: Interval | None = None
    over_bound: float | None = None
    over_first: float | None = None


def asked_numbers(records: RecordSet) -> tuple[AskedNumber, ...]:
    """Return what people ask of each case, answer by answer, each in the order of the cases.

    Raises:
        Incomparable: no case has a time.
    """
    evidence = [item for item in join(records) if item.case.mode in ANSWERS or item.case.mode in SAMPLED]
    every = dict.fromkeys(quantity for item in evidence for quantity in _asked(item))
    rows = tuple(row for quantity in every for row in _rows(quantity, evidence))
    if not rows:
        raise Incomparable("no case has a time: this takes measurements, or estimates on a device")
    return rows


def _asked(item: Evidence) -> tuple[Quantity, ...]:
    return (*(ANSWERS.get(item.case.mode) or (THROUGHPUT, *SAMPLED[item.case.mode])), MEMORY)


def _rows(quantity: Quantity, evidence: list[Evidence]) -> Iterator[AskedNumber]:
    first: tuple[float | None, ...] | None = None
    for item in evidence:
        if quantity not in _asked(item):
            continue
        bound, observed, expected = (quantity.read(item, time=time) for time in ("bound", "measured", "predicted"))
        values = (observed.value, expected.value, bound.value if quantity.of_bound else None)
        if values == (None, None, None):
            continue
        first = first or values
        ratios = (ratio(ours, its) for ours, its in zip(values, first, strict=True))
        yield AskedNumber(
            case=item.case,
            name=quantity.name,
            title=quantity.title,
            unit=quantity.unit,
            better=quantity.better,
            bound=bound.value,
            measured=observed.value,
            interval=observed.interval,
            predicted=expected.value if quantity.timed else None,
            band=expected.interval,
            over_bound=ratio(observed.value, bound.value),
            over_first=next((over for over in ratios if over is not None), None),
        )
