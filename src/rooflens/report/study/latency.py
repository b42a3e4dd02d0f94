"""By what a latency can be known: FLOP and parameters, correlations, exponents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rooflens import units
from rooflens.compare import Correlation
from rooflens.compare.growth import BATCH, exponents
from rooflens.compare.timed_cases import Compared, TimedCase, quantity_of, timed_cases
from rooflens.errors import Incomparable
from rooflens.records import Case
from rooflens.report.charts import Axis, Dot, HeatCell, HeatMap, Plot
from rooflens.report.figures.axes import XY
from rooflens.report.series import METHOD_WORDS, TIME_NAMES, correlation_table, exponent_table
from rooflens.report.study.agreement import BAND
from rooflens.report.study.cases import case_notes, case_series, naming
from rooflens.report.study.content import Block, FigureBlock, Section, TableBlock
from rooflens.report.study.view import StudyView
from rooflens.report.table_notes import misfits

MOST_ROWS = 24
"""Settings that a heat map shows."""
_TOO_FEW = (
    "Correlations with latency are left out: so few models tell nothing from chance. 'rooflens compare --question"
    " correlation' shows them."
)
_SHOWN: tuple[Compared, ...] = ("flops", "parameters")


def latency(view: StudyView) -> Section | None:
    """Latency against FLOP and parameters, and how it correlates with each quantity."""
    try:
        known = timed_cases(view.records)
    except Incomparable:
        return None
    blocks: list[Block] = [FigureBlock(chart=chart) for x in _SHOWN if (chart := against(known, x, view.device_order))]
    telling = [item for item in view.correlations if any(one.p is not None for one in item.coefficients.values())]
    if telling:
        blocks.append(FigureBlock(chart=heat_map(telling)))
        blocks.append(TableBlock(key="correlations", table=correlation_table(telling)))
    elif view.correlations:
        blocks.append(_TOO_FEW)
    grown = exponents(view.records, BATCH)
    if grown:
        blocks.append(TableBlock(key="exponents", table=exponent_table(grown), folded=len(grown) > MOST_ROWS))
    return Section(key="latency", title="What predicts the time", blocks=tuple(blocks)) if blocks else None


def against(known: Sequence[TimedCase], x: Compared, order: Sequence[str] = ()) -> Plot | None:
    """Latency against a quantity: one mark per case, one colour and shape per device."""
    title, unit = quantity_of(x).title, quantity_of(x).unit
    points = [(case, case.value(x), case.seconds) for case in known]
    placed = [(case, a, b) for case, a, b in points if a and b]
    if len(placed) < 2:
        return None
    time = TIME_NAMES[known[0].time].removeprefix("the ")
    dots = [
        (
            c.case,
            Dot(
                a,
                b,
                (f"{title}: {units.show(a, unit)}", f"{time}: {units.show(b, 's')}"),
                _band(c, a),
                crossed=c.evidence.room is not None and c.evidence.room.fits is False,
            ),
        )
        for c, a, b in placed
    ]
    return Plot(
        key=f"latency-{x.replace('_', '-')}",
        title=f"Latency against {title}",
        x=Axis.around(f"{title} of a step" if unit else title, [a for _, a, _ in placed], unit),
        y=Axis.around(time, [y for _, dot in dots for y in (dot.y, *(end[1] for end in dot.bar or ()))], "s"),
        series=case_series(dots, order),
        notes=(
            *([BAND] if known[0].time == "predicted" else []),
            *case_notes([case for case, _ in dots]),
            *misfits(case.evidence for case, _, _ in placed),
        ),
    )


def _band(case: TimedCase, x: float) -> tuple[XY, XY] | None:
    """Return the ends of the band along the axis of times, where these are expected ones."""
    total = case.evidence.total(case.phase) if case.time == "predicted" else None
    if total is None or total.predicted_low is None or total.predicted_high is None:
        return None
    return (x, total.predicted_low), (x, total.predicted_high)


def heat_map(every: Sequence[Correlation]) -> HeatMap:
    """Spearman's rank correlation of each quantity with latency, setting by setting."""
    columns = list(dict.fromkeys(item.quantity for item in every))
    settings: dict[Case, dict[Compared, Correlation]] = {}
    for item in every:
        settings.setdefault(item.setting, {})[item.quantity] = item
    named = naming(list(settings))
    shown = list(settings.items())[:MOST_ROWS]
    notes = ["Spearman's rank correlation over the models of a setting: 1 where more always takes longer"]
    notes += [f"latency is {TIME_NAMES[every[0].time]}"] if every else []
    if len(settings) > MOST_ROWS:
        notes.append(f"the first {MOST_ROWS} of {len(settings)} settings; the table has all")
    return HeatMap(
        key="correlation",
        title="Rank correlation with latency",
        columns=tuple(quantity_of(column).title for column in columns),
        rows=tuple((named(setting), tuple(_cell(cells.get(column)) for column in columns)) for setting, cells in shown),
        notes=tuple(notes),
    )


def _cell(item: Correlation | None) -> HeatCell:
    rho = None if item is None else item.coefficients.get("spearman")
    if item is None or rho is None:
        return HeatCell(None, "-")
    return HeatCell(rho.value, f"{rho.value:.2f}", tuple(_tip(item)))


def _tip(item: Correlation) -> Iterator[str]:
    yield f"{quantity_of(item.quantity).title} and latency, {len(item.points)} models"
    for method, coefficient in item.coefficients.items():
        low, high = coefficient.interval or (None, None)
        between = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
        p = "too few models for a p-value" if coefficient.p is None else f"p = {coefficient.p:.2g}"
        yield f"{METHOD_WORDS[method]} {coefficient.value:.2f}{between}, {p}"
