"""The roofline figure: records under the ceilings of devices, as data that matplotlib and plotly draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rooflens.errors import InvalidValue
from rooflens.records import Device
from rooflens.report.case_names import subtitle as describe
from rooflens.report.case_names import title as headline
from rooflens.report.figures.case_pieces import BY, FEW_LAUNCHES, WHOLE, By, Naming, launches
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES, Roof, lines, ridges, roofs
from rooflens.report.figures.foremost import MOST
from rooflens.report.figures.marks import Placed, place
from rooflens.report.figures.memory_levels import chosen, definitions, without_roof
from rooflens.report.figures.palette import MOST_GROUPS, OTHER
from rooflens.report.figures.roofline_data import Axis, Figure, Link, Mark, Ridge, RugMark
from rooflens.results import RecordSet
from rooflens.results.evidence import Evidence, join

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
    "kernel": "one mark per kernel launch",
}
_BY_NAME = "one mark per kernel, its launches together"
_PARTS = ("module", "family", "op", "kernel")

Grouped = TypeVar("Grouped", Mark, Link, RugMark)


def roofline_figure(
    records: RecordSet,
    by: By | None = None,
    devices: Sequence[Device] | None = None,
    level: str | Sequence[str] | None = None,
    title: str | None = None,
    top: int | None = None,
) -> Figure:
    """The roofline of `records`, as data.

    An estimate stands at its work over its bound, the performance that the roofline of its parts allows. A measurement
    stands at the estimated work of the same case over the measured time. Counted work stands at each memory level whose
    bytes were counted, with one performance: the hierarchical roofline.

    Args:
        by: what a mark is. ``"model"``: a case; ``"phase"``: a phase of a case; ``"module"``, ``"family"``, ``"op"``,
            ``"kernel"``: a part of a case, beside its phases as wholes. Default: for one case on one device
            ``"kernel"`` where kernels were counted, else ``"op"``; for several ``"phase"``.
        devices: whose ceilings to draw; default: those that the cases name. An estimate that names no device is placed
            under each of them. Where no record names a device and none is given, those that the set describes.
        level: memory levels of the intensities and of the diagonals; default: all whose bytes some record knows.
        top: how many parts of a case to draw, those that take most time. Default: all of them; 12 of kernels, and of
            any parts on several levels.

    Raises:
        InvalidValue: an unknown `by` or `level`, or a `top` below 1.
    """
    if by is not None and by not in BY:
        raise InvalidValue(f"cannot draw a mark for each {by!r}; known: {', '.join(BY)}")
    if top is not None and top < 1:
        raise InvalidValue(f"cannot draw the foremost {top} parts; draw at least 1")
    drawn = devices_of(records) if devices is None else tuple({device.name: device for device in devices}.values())
    levels = chosen(level, records, drawn)
    evidence = join(records)
    kind = by or _default_by(evidence, drawn)
    most = top or (MOST if kind == "kernel" or len(levels) > 1 else None)
    placed = place(evidence, kind, drawn, levels, most if kind in _PARTS else None)
    found = roofs(drawn, placed.works, levels)
    return _compose(evidence, kind, drawn, levels, title, placed, found)


def devices_of(records: RecordSet) -> tuple[Device, ...]:
    """The devices that the cases of a set name, or all that it describes where they name none."""
    named = dict.fromkeys(case.device for case in records.cases if case.device in records.devices)
    return tuple(records.devices[name] for name in (named or records.devices) if name is not None)


def _default_by(evidence: Sequence[Evidence], devices: Sequence[Device]) -> By:
    cases = {replace(item.case, device=None) for item in evidence}
    named = {item.case.device for item in evidence} - {None}
    if len(cases) > 1 or len(named or devices) > 1:
        return "phase"
    return "kernel" if any(launches(item) for item in evidence) else "op"


def _compose(
    evidence: Sequence[Evidence],
    by: By,
    devices: Sequence[Device],
    levels: tuple[str, ...],
    title: str | None,
    placed: Placed,
    found: Sequence[Roof],
) -> Figure:
    several = len(levels) > 1
    groups = {level: level for level in (*levels, OTHER)} if several else _groups(placed, ranked=by in _PARTS)
    shown = {mark.group for mark in placed.marks}
    cases = [item.case for item in evidence]
    titles = [device.title for device in devices]
    points = tuple(ridge for roof in found for ridge in ridges(roof))
    x, y = _axes(placed.marks, points, found, levels)
    return Figure(
        title=headline(cases, titles) if title is None else title,
        subtitle=describe(cases, _meaning(by, evidence, several=several)) if cases else "",
        levels=levels,
        x=x,
        y=y,
        devices=tuple(titles),
        ceilings=tuple(line for roof in found for line in lines(roof, x, y)),
        ridges=points,
        marks=_coloured(placed.marks, groups),
        ties=tuple(placed.ties),
        links=_coloured(placed.links, groups),
        rug=_coloured(placed.rug, groups),
        groups=tuple(filter(shown.__contains__, levels)) if several else tuple(dict.fromkeys(groups.values())),
        group_title=_group_title(by, evidence, several=several),
        unplaced=tuple(placed.unplaced),
        listing=tuple(placed.listing),
        notes=tuple(_notes(placed, found, evidence, devices, levels)),
    )


def _meaning(by: By, evidence: Sequence[Evidence], *, several: bool) -> str:
    """What a mark is."""
    many = by == "kernel" and any(len(launches(item)) > FEW_LAUNCHES for item in evidence)
    return (_BY_NAME if many else _MEANING[by]) + (", at each memory level" if several else "")


def _group_title(by: By, evidence: Sequence[Evidence], *, several: bool) -> str:
    if several:
        return "memory level"
    return "operation family" if by in _PARTS else Naming.of(evidence).colours


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


def _axes(
    marks: Sequence[Mark], points: Sequence[Ridge], found: Sequence[Roof], levels: Sequence[str]
) -> tuple[Axis, Axis]:
    """Axes that hold every mark and every ridge, and show how the roofs go on."""
    x_low, x_high = _span(
        [mark.x / _MARGIN for mark in marks] + [ridge.x / (_FLAT if marks else _DIAGONAL) for ridge in points],
        [mark.x * _MARGIN for mark in marks] + [ridge.x * _FLAT for ridge in points],
        _NOTHING_X,
    )
    peaks = [ceiling.rate for roof in found for ceiling in roof.compute]
    # The diagonal of a device without a peak ends nowhere: at least a decade of it must cross the figure.
    endless = [level.rate for roof in found for level in roof.levels if not roof.compute]
    alone = [] if marks else [level.rate * x_low for roof in found for level in roof.levels]
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
    return (
        Axis(label=f"arithmetic intensity ({_per_byte(levels)})", low=x_low, high=x_high),
        Axis(label="performance (FLOP/s)", low=y_low, high=y_high),
    )


def _per_byte(levels: Sequence[str]) -> str:
    if len(levels) > 1:
        return "FLOP per byte of the named level"
    return f"FLOP per {'DRAM' if levels[0] == 'dram' else levels[0]} byte"


def _span(low: Sequence[float], high: Sequence[float], otherwise: tuple[float, float]) -> tuple[float, float]:
    return (min(low), max(high)) if low else otherwise


def _notes(
    placed: Placed,
    found: Sequence[Roof],
    evidence: Sequence[Evidence],
    devices: Sequence[Device],
    levels: tuple[str, ...],
) -> Iterator[str]:
    """What a reader must know to read the points."""
    yield from placed.left
    yield from definitions((record for item in evidence for record in item.work or ()), levels)
    yield from without_roof(devices, placed.marks)
    if any(mark.above_roof for mark in placed.marks):
        yield ABOVE
    if placed.rug:
        share = max(mark.high for mark in placed.rug)
        percent = f"{100 * share:.3g} %" if share >= _SMALLEST_SHARE else "less than 0.01 %"
        yield f"The strip at the left edge is what does no FLOP: {percent} of the time, as its height."
    strangers = {item.case.device for item in evidence if item.time is not None and item.device is None} - {
        None,
        *(device.name for device in devices),
    }
    if strangers and found:
        yield f"Observed on {', '.join(sorted(map(str, strangers)))}, whose ceilings are not known and not drawn."
    if not found:
        yield "No device is known: no ceilings are drawn."
    if len(found) > FEW_DEVICES:
        yield "With many devices only one compute ceiling of each is drawn, that of the precision in use."
    if not evidence and not found:
        yield "There are no records and no devices: nothing to draw."
