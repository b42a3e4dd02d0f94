"""Estimates beside what was observed: bound and prediction against measured time, achieved against attainable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rooflens import units
from rooflens.compare import compare_evidence
from rooflens.errors import Incomparable
from rooflens.report.charts import Axis, Dot, Plot, Series
from rooflens.report.comparison import agreement_tables
from rooflens.report.figures.axes import XY
from rooflens.report.figures.palette import GREY
from rooflens.report.study.cases import case_notes, case_series
from rooflens.report.study.content import Block, FigureBlock, Section, TableBlock
from rooflens.report.study.view import StudyView
from rooflens.results import Evidence

BAND = "bars: the band of the expected time, which should hold 8 of 10 measured ones"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundAndTime:
    """A step whose bound and measured time are known.

    Attributes:
        flops: all FLOP of the step; None is unknown.
        predicted, low, high: the expected seconds and their band, where a predictor gave them.
    """

    item: Evidence
    bound: float
    seconds: float
    flops: float | None
    predicted: float | None
    low: float | None
    high: float | None


def pairs(evidence: Iterable[Evidence]) -> list[BoundAndTime]:
    """Every step that was estimated on a device and timed."""
    steps = []
    for item in evidence:
        total, measured = item.total(), item.measured()
        if total is not None and total.seconds and measured is not None and measured.seconds:
            steps.append(
                BoundAndTime(
                    item=item,
                    bound=total.seconds,
                    seconds=measured.seconds,
                    flops=total.flops,
                    predicted=total.predicted_seconds,
                    low=total.predicted_low,
                    high=total.predicted_high,
                )
            )
    return steps


def agreement(view: StudyView) -> Section | None:
    """How far measured times lie from bounds and predictions."""
    steps = pairs(view.evidence)
    blocks: list[Block] = []
    if steps:
        blocks += [FigureBlock(chart=chart(steps, view.device_order)) for chart in (against_measured, achieved)]
    try:
        tables = agreement_tables(compare_evidence(view.records))
    except Incomparable:
        tables = []
    keys = {"Evidence": "evidence", "Errors of the estimates": "errors", "Furthest apart": "worst", "Joined": "joined"}
    order = sorted(tables, key=lambda table: table.title != "Errors of the estimates")
    blocks += [TableBlock(key=keys[table.title], table=table, folded=table.title == "Joined") for table in order]
    return Section(key="agreement", title="Estimated and measured", blocks=tuple(blocks)) if blocks else None


def against_measured(steps: Sequence[BoundAndTime], order: Sequence[str] = ()) -> Plot:
    """Predicted against measured with its band, where there is a prediction, else the bound against measured."""
    predicted = [pair for pair in steps if pair.predicted is not None]
    shown = predicted or steps
    points = [(pair, pair.predicted if predicted else pair.bound) for pair in shown]
    placed = [(pair, x) for pair, x in points if x]
    ends = [value for pair, x in placed for value in (x, pair.seconds)]
    ends += [value for pair in predicted for value in (pair.low, pair.high) if value]
    what, longer = ("expected", "expected") if predicted else ("bound", "its bound")
    notes = [f"on the line both are equal; above it a step takes longer than {longer}"]
    notes += [BAND] if predicted else []
    return Plot(
        key=f"{'predicted' if predicted else 'bound'}-measured",
        title=f"{what.capitalize()} against measured time",
        x=Axis.around(f"{what} time", ends, "s"),
        y=Axis.around("measured time", ends, "s"),
        series=(
            _line(min(ends), max(ends), "equal"),
            *case_series(
                [(pair.item.case, Dot(x, pair.seconds, _tip(pair), _band(pair, pair.seconds))) for pair, x in placed],
                order,
            ),
        ),
        notes=(*notes, *case_notes([pair.item.case for pair, _ in placed])),
    )


def achieved(steps: Sequence[BoundAndTime], order: Sequence[str] = ()) -> Plot:
    """FLOP/s that the bound allows against FLOP/s that were reached."""
    points = [
        (pair.item.case, Dot(pair.flops / pair.bound, pair.flops / pair.seconds, _tip(pair)))
        for pair in steps
        if pair.flops
    ]
    ends = [value for _, dot in points for value in (dot.x, dot.y)] or [1.0]
    return Plot(
        key="achieved-attainable",
        title="Achieved against attainable performance",
        x=Axis.around("attainable: FLOP over bound", ends, "FLOP/s"),
        y=Axis.around("achieved: FLOP over measured time", ends, "FLOP/s"),
        series=(_line(min(ends), max(ends), "all that the roofline allows"), *case_series(points, order)),
        notes=(
            "vertical distance from the line: what is lost to launches, tiles, clocks and everything else",
            *case_notes([case for case, *_ in points]),
        ),
    )


def _line(low: float, high: float, name: str) -> Series:
    return Series(name=name, colour=GREY, dash=(4, 3), width=1.2, path=((low, low), (high, high)), tip=(name,))


def _tip(pair: BoundAndTime) -> tuple[str, ...]:
    tip = [f"bound: {units.show(pair.bound, 's')}", f"measured: {units.show(pair.seconds, 's')}"]
    if pair.predicted is not None:
        tip.append(f"expected: {units.show(pair.predicted, 's')}")
    return (*tip, f"efficiency: {100 * pair.bound / pair.seconds:.3g} %")


def _band(pair: BoundAndTime, y: float) -> tuple[XY, XY] | None:
    """Return the ends of the band along the axis of expected times."""
    return None if pair.low is None or pair.high is None else ((pair.low, y), (pair.high, y))
