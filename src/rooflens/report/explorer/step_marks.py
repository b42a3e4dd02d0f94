"""Where steps stand on the roofline of the page: by bound, by expected and by observed time, at each memory level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rooflens import units
from rooflens.records import Phase
from rooflens.report.figures.axes import check_drawable
from rooflens.report.figures.memory_levels import NO_WORK, no_intensity, roof_at
from rooflens.report.table import INTENSITY, Column, Entry, text
from rooflens.results import Evidence, Total
from rooflens.roofline import point

EXPECTED = "expected"
_INTENSITY = Column("intensity", "intensity", INTENSITY)
NO_TIME = "an estimate has no time without a known device"
NO_FLOPS = "it does no FLOP, or they are not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """A step, or a phase of it, by one time at one memory level.

    Attributes:
        source: whose time it is; ``expected`` is a prediction.
        x: FLOP per byte of `level`; y: FLOP/s.
        low, high: FLOP/s by the ends of the band of an expected time.
        above_roof: quicker than the units and this level of its device allow.
        below_bound: an expected time that is below the bound.
        told: its time, intensity and performance as text.
    """

    source: str
    level: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    above_roof: bool = False
    below_bound: bool = False
    told: tuple[str, str, str]


def sources_of(item: Evidence, only: Phase | None) -> tuple[str, ...]:
    """Return who tells something of a step or of a phase of it: its sources, and expected times where it has one."""
    total = item.total(only)
    expected = total is not None and total.predicted_seconds is not None
    return (*item.sources, EXPECTED) if expected else item.sources


def step_marks(item: Evidence, only: Phase | None, levels: Sequence[str]) -> Iterator[StepMark]:
    """Yield the marks of a step or of a phase of it."""
    total = item.total(only)
    work = None if total is None else total.floor.work
    if total is None or work is None or not work.total_flops or item.work is None:
        return
    for source, seconds in _times(item, only, total):
        for level in levels:
            if no_intensity(work, total.records, level):
                continue
            observed = source not in ("estimate", EXPECTED)
            roof = roof_at(level, item.work, work, item.device) if observed and item.device is not None else None
            spot = point(work, None, seconds, level)
            x, y = spot.intensity or 0.0, spot.performance or 0.0
            check_drawable(item.case.label(), x, y)
            band = total.prediction if source == EXPECTED else None
            sign = ">= " if work.missing else ""
            below = source == EXPECTED and total.below_bound
            yield StepMark(
                source=source,
                level=level,
                x=x,
                y=y,
                low=work.total_flops / band.high if band is not None and band.high else None,
                high=work.total_flops / band.low if band is not None and band.low else None,
                above_roof=roof is not None and seconds < roof.seconds,
                below_bound=below,
                told=(
                    f"{'! ' if below else ''}{units.show(seconds, 's')}",
                    f"{sign}{text(Entry(x), _INTENSITY)} FLOP/B",
                    f"{sign}{units.show(y, 'FLOP/s')}",
                ),
            )


def why_none(item: Evidence, only: Phase | None, levels: Sequence[str]) -> str:
    """Return why a step or a phase of it has no mark at any of some levels."""
    total = item.total(only)
    work = None if total is None else total.floor.work
    if total is None or work is None:
        return NO_WORK
    if not work.total_flops:
        return NO_FLOPS
    if not list(_times(item, only, total)):
        return NO_TIME
    return "; ".join(no_intensity(work, total.records, level) for level in levels)


def _times(item: Evidence, only: Phase | None, total: Total) -> Iterator[tuple[str, float]]:
    if item.work is not None and "estimate" in item.work.sources:
        if total.seconds:
            yield "estimate", total.seconds
        if total.predicted_seconds:
            yield EXPECTED, total.predicted_seconds
    measured = item.measured(only)
    if item.time is not None and measured is not None and measured.seconds:
        yield item.time.sources[0], measured.seconds
