"""The roofline figure: records under the ceilings of devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rooflens.errors import InvalidValue
from rooflens.records import Case, Device
from rooflens.report.case_names import shared
from rooflens.report.figures.axes import Axis
from rooflens.report.figures.case_pieces import BY, FEW_LAUNCHES, Naming, PieceKind, launches
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES, DeviceRoof, ceiling_lines, roofs
from rooflens.report.figures.marks import MOST, Placement, on_devices, place
from rooflens.report.figures.memory_levels import definitions, intensity_label, shown_levels, without_roof
from rooflens.report.figures.palette import MOST_GROUPS, MOST_MODELS, OTHER, WHOLE
from rooflens.report.figures.roofline_data import LEVELS_TITLE, Link, Mark, RugMark, Trail
from rooflens.report.figures.saving import Figure
from rooflens.report.figures.trails import trails
from rooflens.report.model_families import FAMILIES
from rooflens.report.one_step import does_more
from rooflens.report.table_notes import BELOW_BOUND, misfits
from rooflens.results import Evidence, RecordSet, join

ABOVE = (
    "A ringed point is above its roof: Winograd or FFT convolutions, data that stay in a cache or a boost clock can do"
    " that, or a number is wrong."
)
# Room around the outermost point, so that no mark is cut and the flats are seen to go on.
_MARGIN = 2.5
_FLAT = 10.0
_DIAGONAL = 300.0
_MOST_NAMED = 4
"""Pieces that a note names."""
_SMALLEST_SHARE = 1e-4
_NOTHING_X, _NOTHING_Y = (0.1, 1e3), (1e9, 1e14)
_FEW_NAMES = 3
_MOST_LINES = 60
"""Between marks: more are a hatching."""

_COUNTED = (
    "Estimates of what was counted too are not drawn: they know one memory level. level='dram' (--level) shows both."
)
_MEANING: Mapping[PieceKind, str] = {
    "model": "one mark per case",
    "phase": "one mark per case and phase",
    "module": "one mark per module",
    "family": "one mark per operation family",
    "module-family": "one mark per module and operation family",
    "op": "one mark per operation",
    "operator": "one mark per operator, whatever its shapes",
    "kernel": "one mark per kernel launch",
}
_BY_NAME = "one mark per kernel, its launches together"
_PARTS = ("module", "family", "module-family", "op", "operator", "kernel")


def roofline_figure(
    records: RecordSet,
    by: PieceKind | None = None,
    devices: Sequence[Device] | None = None,
    level: str | Sequence[str] | None = None,
    title: str | None = None,
    top: int | None = None,
) -> Figure:
    """Return the roofline of `records`; :func:`rooflens.roofline` tells the other arguments.

    An estimate is at its work over its bound, the performance that the roofline of its parts allows. A measurement is
    at the estimated work of the same case over the measured time. Counted work is at each memory level whose bytes were
    counted, with one performance: the hierarchical roofline.

    Args:
        by: what a mark is; default: for one case on one device ``"kernel"`` where kernels were counted, else ``"op"``;
            for several ``"phase"``. Parts of a case are drawn beside its phases as wholes.
        devices: whose ceilings to draw; default: those that the cases name. An estimate that names no device is placed
            under each of them.

    Raises:
        InvalidValue: an unknown `by` or `level`, or a `top` below 1.
    """
    if by is not None and by not in BY:
        raise InvalidValue(f"cannot draw a mark for each {by!r}; known: {', '.join(BY)}")
    if top is not None and top < 1:
        raise InvalidValue(f"cannot draw {top} parts of a case; draw at least 1")
    drawn = devices_of(records) if devices is None else tuple({device.name: device for device in devices}.values())
    return evidence_figure(join(records), drawn, shown_levels(level, records, drawn), by=by, title=title, top=top)


def evidence_figure(
    evidence: Sequence[Evidence],
    devices: Sequence[Device],
    levels: tuple[str, ...] = ("dram",),
    *,
    by: PieceKind | None = None,
    title: str | None = None,
    top: int | None = None,
) -> Figure:
    """Return the roofline of evidence that was joined already; see :func:`roofline_figure`."""
    counted = {item.case for item in evidence if launches(item)} if len(levels) > 1 else set()
    hidden = [item for item in evidence if item.case in counted and item.time is None]
    evidence = [item for item in evidence if item not in hidden]
    naming = Naming.of(evidence)
    several = naming.several_cases or len({item.case.device for item in evidence} - {None} or devices) > 1
    parts: PieceKind = "kernel" if any(map(launches, evidence)) else "op"
    kind = by or ("phase" if several else parts)
    most = top or (MOST if kind == "kernel" or len(levels) > 1 else None)
    placed = place(evidence, kind, naming, devices, levels, most if kind in _PARTS else None)
    figure = _figure(evidence, kind, naming, devices, levels, placed)
    notes = (*figure.notes, *([_COUNTED] if hidden else []))
    return replace(figure, title=figure.title if title is None else title, notes=notes)


def devices_of(records: RecordSet) -> tuple[Device, ...]:
    """Return the devices that the cases of a set name, or all that it describes where they name none."""
    named = dict.fromkeys(case.device for case in records.cases if case.device in records.devices)
    return tuple(records.devices[name] for name in (named or records.devices) if name is not None)


def _figure(
    evidence: Sequence[Evidence],
    by: PieceKind,
    naming: Naming,
    devices: Sequence[Device],
    levels: tuple[str, ...],
    placed: Placement,
) -> Figure:
    several = len(levels) > 1
    cases, titles = [item.case for item in evidence], [device.title for device in devices]
    drawn = roofs(devices, placed.works, levels)
    x, y = _axes(placed, drawn, levels)
    meaning = _MEANING[by]
    if by == "kernel" and any(len(launches(item)) > FEW_LAUNCHES for item in evidence):
        meaning = _BY_NAME
    if placed.by_level:
        groups = {level: level for level in (*levels, OTHER)}
        rest: tuple[str, ...] = ()
        used = {mark.group for mark in placed.marks}
        group_title, shown = LEVELS_TITLE, tuple(level for level in levels if level in used)
    else:
        groups, rest = _groups(placed, naming, ranked=by in _PARTS)
        group_title = "operation family" if by in _PARTS else naming.colours
        shown = tuple(dict.fromkeys(groups.values()))
    meaning = f"{meaning}, at each memory level" if several else meaning
    more = [f"Grey, {len(rest)} more: {', '.join(rest)}."] if rest else []
    links, its_trails, hidden = _lines(placed, naming, whole=by not in _PARTS and not several)
    return Figure(
        title=_title(cases, titles),
        subtitle=", ".join(filter(None, [shared(cases), meaning])) if cases else "",
        levels=levels,
        x=x,
        y=y,
        devices=tuple(titles),
        ceilings=tuple(line for roof in drawn for line in ceiling_lines(roof, x, y)),
        ridges=tuple(ridge for roof in drawn for ridge in roof.ridges),
        marks=tuple(replace(mark, group=groups[mark.group]) for mark in placed.marks),
        ties=tuple(placed.ties),
        links=tuple(replace(link, group=groups[link.group]) for link in links),
        trails=tuple(replace(trail, group=groups.get(trail.group, "")) for trail in its_trails),
        whiskers=tuple(replace(whisker, group=groups[whisker.group]) for whisker in placed.whiskers),
        rug=tuple(replace(mark, group=groups[mark.group]) for mark in placed.rug),
        groups=shown,
        group_title=group_title,
        rest=rest,
        sizes="share" if by in _PARTS or several else naming.sizes,
        unplaced=tuple(placed.unplaced),
        listing=tuple(placed.listing),
        notes=(*more, *_notes(placed, evidence, devices, levels), *hidden),
    )


def _title(cases: Sequence[Case], devices: Sequence[str]) -> str:
    """Return what the figure shows: models and devices, by name where they are few."""
    subject, place = (
        " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
        if len(names) <= _FEW_NAMES
        else f"{len(names)} {plural}"
        for names, plural in ((list(dict.fromkeys(case.model for case in cases)), "models"), (devices, "devices"))
    )
    rooflines = "roofline" if len(devices) == 1 else "rooflines"
    if not subject:
        return f"{rooflines.capitalize()} of {place}" if place else "Roofline"
    return f"{subject} on the {rooflines} of {place}" if place else f"{subject}: no roofline, the device is not known"


def _groups(placed: Placement, naming: Naming, *, ranked: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return each group as itself, or as `OTHER` where no colour is left; and those that have none.

    Families of operations are ranked by time, those of models by their marks; cases keep their order.
    """
    shares: dict[str, float] = defaultdict(float)
    items: list[Mark | RugMark] = [*placed.marks, *placed.rug]
    for item in items:
        shares[item.group] += item.share
    order = [group for group in shares if group != WHOLE]
    if ranked or naming.colours == FAMILIES:
        order.sort(key=lambda group: -shares[group])
    elif naming.colours == "batch size":
        order.sort(key=lambda group: int("0" + group.removeprefix("batch ")) if group.startswith("batch ") else 0)
    most = MOST_GROUPS if ranked else MOST_MODELS
    rest = tuple(order[most - 1 :]) if len(order) > most else ()
    groups = {group: OTHER if group in rest else group for group in order}
    return groups | ({WHOLE: WHOLE} if WHOLE in shares else {}), rest


def _lines(placed: Placement, naming: Naming, *, whole: bool) -> tuple[Sequence[Link], Sequence[Trail], list[str]]:
    """Return the lines between marks as far as they can be told apart, and which are not drawn."""
    followed = list(trails(placed.steps, naming)) if whole and naming.colours != FAMILIES else []
    kept = followed if len(followed) <= _MOST_LINES else []
    if len(placed.links) <= _MOST_LINES or not whole:
        return placed.links, kept, []
    return [], kept, [f"{len(placed.links)} lines between bounds and observed times are not drawn: too many to follow."]


def _axes(placed: Placement, drawn: Sequence[DeviceRoof], levels: Sequence[str]) -> tuple[Axis, Axis]:
    """Return axes that hold every mark, every band and every ridge, and show how the roofs go on."""
    marks = placed.marks
    banded = [y for whisker in placed.whiskers for _, y in (whisker.start, whisker.end)]
    ridges = [ridge.x for roof in drawn for ridge in roof.ridges]
    lows = [mark.x / _MARGIN for mark in marks] + [ridge / (_FLAT if marks else _DIAGONAL) for ridge in ridges]
    highs = [mark.x * _MARGIN for mark in marks] + [ridge * _FLAT for ridge in ridges]
    x_low, x_high = (min(lows), max(highs)) if lows else _NOTHING_X
    peaks = [ceiling.rate for roof in drawn for ceiling in roof.compute]
    # The diagonal of a device without a peak ends nowhere: at least a decade of it must cross the figure.
    endless = [level.rate for roof in drawn for level in roof.levels if not roof.compute]
    alone = [] if marks else [level.rate * x_low for roof in drawn for level in roof.levels]
    heights = [*(mark.y for mark in marks), *banded]
    lows = [height / _MARGIN for height in heights] + [peak / _FLAT for peak in peaks]
    lows += [rate * x_high / _FLAT for rate in endless] + alone
    highs = [height * _MARGIN for height in heights] + [peak * _MARGIN for peak in peaks]
    highs += [rate * x_low * _FLAT for rate in endless]
    y_low, y_high = (min(lows), max(highs, default=0.0)) if lows else _NOTHING_Y
    if endless and not marks and not peaks:
        y_high = max(endless) * x_high
    return (
        Axis(label=intensity_label(levels), low=x_low, high=x_high),
        Axis(label="performance", low=y_low, high=y_high, unit="FLOP/s"),
    )


def _notes(
    placed: Placement, evidence: Sequence[Evidence], devices: Sequence[Device], levels: tuple[str, ...]
) -> Iterator[str]:
    """Yield what a reader must know to read the points."""
    yield from placed.left_out
    if lower := list(dict.fromkeys(placed.lower)):
        more = f" and {len(lower) - _MOST_NAMED} more" if len(lower) > _MOST_NAMED else ""
        named = f"{'; '.join(lower[:_MOST_NAMED])}{more}"
        yield f"At least: not all FLOP are known of {named}. Their marks lie further up and to the right."
    drawn = [one for item in evidence for one in on_devices(item, devices)]
    if not all(item.room is None or item.room.fits for item in drawn):
        yield from misfits(drawn)
    yield from definitions((record for item in evidence if item.work is not None for record in item.work), levels)
    yield from without_roof(devices, placed.marks)
    if any(mark.above_roof for mark in placed.marks):
        yield ABOVE
    if any(whisker.below_bound for whisker in placed.whiskers):
        yield f"{BELOW_BOUND}."
    if "dram" in levels and any((total := item.total()) is not None and does_more(total) for item in evidence):
        yield "FLOP/B: of what the bound counts; the code as written does more."
    if placed.rug:
        share = max(mark.high for mark in placed.rug)
        percent = f"{100 * share:.3g} %" if share >= _SMALLEST_SHARE else "less than 0.01 %"
        yield f"The strip at the left edge is what does no FLOP: {percent} of the time, as its height."
    known = {None, *(device.name for device in devices)}
    strangers = {item.case.device for item in evidence if item.time is not None and item.device is None} - known
    if strangers and devices:
        yield f"Observed on {', '.join(sorted(map(str, strangers)))}, whose ceilings are not known and not drawn."
    if not devices:
        named = f" ({', '.join(sorted(map(str, strangers)))} is in no catalogue)" if strangers else ""
        yield f"No device is known{named}: no ceilings are drawn."
    if len(devices) > FEW_DEVICES:
        yield "With many devices only one compute ceiling of each is drawn, the highest that its marks use."
    if not evidence and not devices:
        yield "There are no records and no devices: nothing to draw."
