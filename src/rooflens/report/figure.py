"""The roofline figure: records under the ceilings of devices, as data that matplotlib and plotly draw.

figure = roofline_figure(records)
figure.save("resnet18.png")
figure.save("resnet18.html")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rooflens.errors import InvalidValue
from rooflens.records import LEVELS, LINKS, Device
from rooflens.report.captions import subtitle as describe
from rooflens.report.captions import title as headline
from rooflens.report.ceilings import FEW_DEVICES, Roof, lines, ridges, roofs
from rooflens.report.drawing import Axis, CeilingLine, Figure, Link, Mark, Ridge, RugMark, Unplaced, save
from rooflens.report.evidence import Evidence, join
from rooflens.report.marks import Placed, place
from rooflens.report.palette import MOST_GROUPS, OTHER
from rooflens.report.pieces import BY, WHOLE, By, Naming
from rooflens.results import RecordSet

__all__ = ["Axis", "CeilingLine", "Figure", "Link", "Mark", "Ridge", "RugMark", "Unplaced", "roofline_figure", "save"]

ABOVE = (
    "A ringed point is above its roof: Winograd or FFT convolutions, data that stay in a cache or a boost clock can do"
    " that, or a number is wrong."
)
# Room around the outermost point, so that no mark is cut and the flats are seen to go on.
_MARGIN = 2.5
_FLAT = 10.0
_DIAGONAL = 300.0
_SMALLEST_SHARE = 1e-4
_NOTHING_X, _NOTHING_Y = (0.1, 1e3), (1e9, 1e14)

_MEANING: Mapping[By, str] = {
    "model": "one mark per case",
    "phase": "one mark per case and phase",
    "module": "one mark per module",
    "family": "one mark per operation family",
    "op": "one mark per operation",
}
_PARTS = ("module", "family", "op")

Grouped = TypeVar("Grouped", Mark, Link, RugMark)


def roofline_figure(
    records: RecordSet,
    by: By | None = None,
    devices: Sequence[Device] | None = None,
    level: str = "dram",
    title: str | None = None,
) -> Figure:
    """The roofline of `records`, as data.

    An estimate stands at its work over its bound, the performance that the roofline of its parts allows. A measurement
    stands at the estimated work of the same case over the measured time.

    Args:
        by: what a mark is. ``"model"``: a case; ``"phase"``: a phase of a case; ``"module"``, ``"family"``, ``"op"``: a
            part of a case, beside its phases as wholes. Default: ``"op"`` for one case on one device, else ``"phase"``.
        devices: whose ceilings to draw; default: those that the cases name. An estimate that names no device is placed
            under each of them. Where no record names a device and none is given, those that the set describes.
        level: memory level of the intensity and of the diagonals.

    Raises:
        InvalidValue: an unknown `by` or `level`.
    """
    if by is not None and by not in BY:
        raise InvalidValue(f"cannot draw a mark for each {by!r}; known: {', '.join(BY)}")
    if level not in LEVELS + LINKS:
        raise InvalidValue(f"unknown level {level!r}; known: {', '.join(LEVELS + LINKS)}")
    drawn = _devices(records) if devices is None else tuple({device.name: device for device in devices}.values())
    evidence = join(records)
    kind = by or _default_by(evidence, drawn)
    placed = place(evidence, kind, drawn, level)
    found = roofs(drawn, placed.works, level)
    return _compose(evidence, kind, drawn, level, title, placed, found)


def _devices(records: RecordSet) -> tuple[Device, ...]:
    named = dict.fromkeys(case.device for case in records.cases if case.device in records.devices)
    return tuple(records.devices[name] for name in (named or records.devices) if name is not None)


def _default_by(evidence: Sequence[Evidence], devices: Sequence[Device]) -> By:
    cases = {replace(item.case, device=None) for item in evidence}
    named = {item.case.device for item in evidence} - {None}
    return "op" if len(cases) == 1 and len(named or devices) <= 1 else "phase"


def _compose(
    evidence: Sequence[Evidence],
    by: By,
    devices: Sequence[Device],
    level: str,
    title: str | None,
    placed: Placed,
    found: Sequence[Roof],
) -> Figure:
    groups = _groups(placed, ranked=by in _PARTS)
    cases = [item.case for item in evidence]
    titles = [device.title for device in devices]
    points = tuple(ridge for roof in found for ridge in ridges(roof))
    x, y = _axes(placed.marks, points, found, level)
    return Figure(
        title=headline(cases, titles) if title is None else title,
        subtitle=describe(cases, _MEANING[by]) if cases else "",
        level=level,
        x=x,
        y=y,
        devices=tuple(titles),
        ceilings=tuple(line for roof in found for line in lines(roof, x, y)),
        ridges=points,
        marks=_coloured(placed.marks, groups),
        links=_coloured(placed.links, groups),
        rug=_coloured(placed.rug, groups),
        groups=tuple(dict.fromkeys(groups.values())),
        group_title="operation family" if by in _PARTS else Naming.of(evidence).colours,
        unplaced=tuple(placed.unplaced),
        notes=tuple(_notes(placed, found, evidence, [device.name for device in devices])),
    )


def _groups(placed: Placed, *, ranked: bool) -> dict[str, str]:
    """Each group to itself, or to `OTHER` where no colour is left: families by their time, cases as they came."""
    shares: dict[str, float] = defaultdict(float)
    items: list[Mark | RugMark] = [*placed.marks, *placed.rug]
    for item in items:
        shares[item.group] += item.share
    order = [group for group in shares if group != WHOLE]
    if ranked:
        order.sort(key=lambda group: -shares[group])
    kept = order if len(order) <= MOST_GROUPS else order[: MOST_GROUPS - 1]
    return {group: group if group in kept else OTHER for group in order} | ({WHOLE: WHOLE} if WHOLE in shares else {})


def _coloured(items: Iterable[Grouped], groups: Mapping[str, str]) -> tuple[Grouped, ...]:
    return tuple(replace(item, group=groups[item.group]) for item in items)


def _axes(marks: Sequence[Mark], points: Sequence[Ridge], found: Sequence[Roof], level: str) -> tuple[Axis, Axis]:
    """Axes that hold every mark and every ridge, and show how the roofs go on."""
    x_low, x_high = _span(
        [mark.x / _MARGIN for mark in marks] + [ridge.x / (_FLAT if marks else _DIAGONAL) for ridge in points],
        [mark.x * _MARGIN for mark in marks] + [ridge.x * _FLAT for ridge in points],
        _NOTHING_X,
    )
    peaks = [ceiling.rate for roof in found for ceiling in roof.compute]
    # The diagonal of a device without a peak ends nowhere: at least a decade of it must cross the figure.
    endless = [roof.level.rate for roof in found if roof.level is not None and not roof.compute]
    alone = [] if marks else [roof.level.rate * x_low for roof in found if roof.level is not None]
    y_low, y_high = _span(
        [mark.y / _MARGIN for mark in marks]
        + [peak / _FLAT for peak in peaks]
        + [r * x_high / _FLAT for r in endless]
        + alone,
        [mark.y * _MARGIN for mark in marks]
        + [peak * _MARGIN for peak in peaks]
        + [r * x_low * _FLAT for r in endless],
        _NOTHING_Y,
    )
    if endless and not marks and not peaks:
        y_high = max(endless) * x_high
    name = level.upper() if level == "dram" else level
    return (
        Axis(label=f"arithmetic intensity (FLOP per {name} byte)", low=x_low, high=x_high),
        Axis(label="performance (FLOP/s)", low=y_low, high=y_high),
    )


def _span(low: Sequence[float], high: Sequence[float], otherwise: tuple[float, float]) -> tuple[float, float]:
    return (min(low), max(high)) if low else otherwise


def _notes(placed: Placed, found: Sequence[Roof], evidence: Sequence[Evidence], names: Iterable[str]) -> Iterator[str]:
    """What a reader must know to read the points."""
    if any(mark.above_roof for mark in placed.marks):
        yield ABOVE
    if placed.rug:
        share = max(mark.high for mark in placed.rug)
        percent = f"{100 * share:.3g} %" if share >= _SMALLEST_SHARE else "less than 0.01 %"
        yield f"The strip at the left edge is what does no FLOP: {percent} of the time, as its height."
    strangers = {item.case.device for item in evidence if item.time is not None and item.device is None} - {
        None,
        *names,
    }
    if strangers and found:
        yield f"Observed on {', '.join(sorted(map(str, strangers)))}, whose ceilings are not known and not drawn."
    if not found:
        yield "No device is known: no ceilings are drawn."
    if len(found) > FEW_DEVICES:
        yield "With many devices only one compute ceiling of each is drawn, that of the precision in use."
    if not evidence and not found:
        yield "There are no records and no devices: nothing to draw."
