"""Which marks of a figure are named, and in which order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from rooflens import units
from rooflens.report.escape import printable
from rooflens.report.figures.axes import XY
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES
from rooflens.report.figures.drawn_marks import DrawnMark
from rooflens.report.figures.labels import LONGEST_CASE, SMALL, TextLine, shorten
from rooflens.report.figures.palette import GREY
from rooflens.report.figures.roofline_data import RooflineData

_MOST_NAMED, _SMALLEST_NAMED = 12, 0.15
_MOST_CASES, _MOST_DOTS = 40, 6
# Spots to a decade: marks that are nearer than a few points share a label.
_SAME_SPOT = 40
_HIDDEN = 0.5
"""Of the radius of a mark: one that is nearer to another is taken for it."""
_MOST_JOINED = 3

PointName = tuple[TextLine, list[tuple[XY, float]]]
"""The name of one of some dots, the first of which is the best: points of the data, and radii on the page."""


def names_of(
    figure: RooflineData,
    at: Callable[[XY], XY],
    marks: Sequence[DrawnMark],
    letters: float,
    *,
    ridges_last: bool,
) -> list[list[PointName]]:
    """Return the names that marks and ridges should have, those first that matter most; one list may be joined.

    Args:
        at: a point of the data on the page.
        letters: the largest type.
    """
    if figure.hierarchical:
        kinds = [[name] for name in piece_names(figure, marks)]
    else:
        few = len(figure.devices) <= FEW_DEVICES
        points = dict.fromkeys((ridge.x, ridge.y) for ridge in figure.ridges if few)
        ridges = [[(TextLine(f"ridge {units.show(x, 'FLOP/B')}", SMALL, GREY), [((x, y), 3.0)])] for x, y in points]
        on_trails = {point for trail in figure.trails for point in trail.points}
        others = [drawn for drawn in marks if (drawn.mark.x, drawn.mark.y) not in on_trails]
        kinds = trail_names(figure, marks)
        told = {row.text for kind in kinds for row, _ in kind}
        if figure.sizes == "share":
            kinds += [[name] for name in point_names(figure, others)]
        else:
            kinds.append([name for name in case_names(at, others) if name[0].text not in told])
        kinds = [*kinds, *ridges] if ridges_last else [*ridges, *kinds]
    return [[(replace(row, size=min(row.size, letters)), dots) for row, dots in kind] for kind in kinds]


def piece_names(figure: RooflineData, drawn: Sequence[DrawnMark]) -> list[PointName]:
    """Return the pieces of a figure of several levels: each has one name, right of its marks or at another of them.

    Wholes are named first, but for a figure of families in modules, which are many.
    """
    pieces: dict[tuple[object, ...], list[DrawnMark]] = {}
    for one in drawn:
        mark = one.mark
        pieces.setdefault((mark.label, mark.device, mark.source, mark.whole, mark.y), []).append(one)
    names = []
    first = figure.levels_coloured
    for same in sorted(pieces.values(), key=lambda same: (same[0].mark.whole != first, -same[0].mark.share)):
        ordered = sorted(same, key=lambda one: -one.mark.x)
        dots = [((one.mark.x, one.mark.y), one.reach) for one in (ordered[0], *reversed(ordered[1:]))]
        names.append((TextLine(shorten(printable(same[0].mark.label)), SMALL), dots))
    return names


def trail_names(figure: RooflineData, drawn: Sequence[DrawnMark]) -> list[list[PointName]]:
    """Return the names of trails, each once at any of its marks; then what grows at their ends, then between them.

    Of many models sizes tell the batch. A trail of bounds and one of times share their names, and so do those of many
    devices.
    """
    reaches = {(one.mark.x, one.mark.y): one.reach for one in drawn}
    names: dict[str, list[XY]] = {}
    few = len(figure.devices) <= FEW_DEVICES
    ends: dict[tuple[object, ...], dict[str, list[XY]]] = {}
    between: dict[tuple[object, ...], dict[str, list[XY]]] = {}
    for trail in figure.trails:
        if trail.name:
            names.setdefault(trail.name, []).extend((trail.points[-1], *trail.points[:-1]))
        if figure.sizes == "batch" and trail.number == "batch":
            continue
        last = len(trail.points) - 1
        for number, (point, step) in enumerate(zip(trail.points, trail.steps, strict=True)):
            key = (trail.group, trail.name, few and trail.device)
            own = (ends if number in (0, last) else between).setdefault(key, {})
            own.setdefault(step, []).append(point)
    steps = [list(own.items()) for some in (ends, between) for own in some.values()]
    texts = [*([item] for item in names.items()), *steps]
    return [
        [(_case_line(text), [(point, reaches[point]) for point in points[:_MOST_DOTS]]) for text, points in kind]
        for kind in texts[: 2 * _MOST_CASES]
    ]


def case_names(at: Callable[[XY], XY], drawn: Sequence[DrawnMark]) -> list[PointName]:
    """Return the names of whole cases, each once, at any of its marks: those first that stand apart from the others.

    On several devices a case has one name too, since the rims tell the devices.
    """
    cases: dict[str, list[DrawnMark]] = {}
    for one in drawn:
        cases.setdefault(one.mark.label, []).append(one)
    places = {id(one): at((one.mark.x, one.mark.y)) for one in drawn}
    middle_x, middle_y = (fmean(place[axis] for place in places.values()) for axis in (0, 1)) if places else (0.0, 0.0)

    def apart(one: DrawnMark) -> float:
        return math.hypot(places[id(one)][0] - middle_x, places[id(one)][1] - middle_y)

    ranked = sorted(cases.items(), key=lambda item: -max(map(apart, item[1])))[:_MOST_CASES]
    return [
        (
            _case_line(label),
            [((one.mark.x, one.mark.y), one.reach) for one in sorted(same, key=lambda one: -apart(one))[:_MOST_DOTS]],
        )
        for label, same in ranked
    ]


def _case_line(text: str) -> TextLine:
    """Return the name of a whole case, whose end and beginning both tell it apart."""
    return TextLine(shorten(printable(text), LONGEST_CASE), SMALL)


def point_names(figure: RooflineData, drawn: Sequence[DrawnMark]) -> list[PointName]:
    """Return the pieces to name, largest share of time first; of many those with a share that is worth it.

    Marks at one spot are named together. An estimated and an observed point are named once, and so is a case on many
    devices, where it is quickest: there the rims tell the devices.
    """
    many = len(figure.devices) > FEW_DEVICES
    alike: dict[tuple[object, ...], list[DrawnMark]] = {}
    for one in drawn:
        mark = one.mark
        spot = (round(_SAME_SPOT * math.log10(mark.x)), round(_SAME_SPOT * math.log10(mark.y)))
        alike.setdefault((spot, mark.group, mark.source, mark.device, mark.whole), []).append(one)
    shares = [(sum(one.mark.share for one in same), same) for same in alike.values()]
    # Numbers are short and explained below the figure: all of them are wanted. So are names that are few.
    part = 0.0 if figure.listing or len(shares) <= _MOST_NAMED else _SMALLEST_NAMED
    least = part * max((share for share, same in shares if not same[0].mark.whole), default=0.0)
    shares.sort(key=lambda item: (not item[1][0].mark.whole, -item[0], -item[1][0].mark.y if many else 0.0))
    names: dict[tuple[str, int | None], PointName] = {}
    for share, same in shares:
        first = max(same, key=lambda one: one.mark.share)
        mark = first.mark
        if mark.whole or share >= least:
            more = f" +{len(same) - 1} alike" if len(same) > 1 else ""
            row = TextLine(shorten(printable(mark.label)) + more, SMALL)
            key = (mark.label, None if many else mark.device)
            names.setdefault(key, (row, [((mark.x, mark.y), first.reach)]))
    return list(names.values())[: None if figure.listing else _MOST_NAMED]


def merged(names: Sequence[PointName], at: Callable[[XY], XY]) -> list[tuple[PointName, list[PointName]]]:
    """Return the names, those as one whose marks lie on one another, and beside each the names of which it is made."""
    groups: list[list[PointName]] = []
    for name in names:
        same = next(
            (group for group in groups if name[0].colour == group[0][0].colour and _on(name, group[0], at)), None
        )
        if same is None:
            groups.append([name])
        else:
            same.append(name)
    return [(_joined(group), group) for group in groups]


def _on(name: PointName, other: PointName, at: Callable[[XY], XY]) -> bool:
    """True if every mark of a name lies on one of the other."""
    return all(
        any(math.dist(at(point), at(beside)) < _HIDDEN * min(radius, reach) for beside, reach in other[1])
        for point, radius in name[1]
    )


def _joined(group: Sequence[PointName]) -> PointName:
    """Return several names as one, at the marks of the first; the word with which all begin stands once."""
    first, dots = group[0]
    texts = list(dict.fromkeys(line.text for line, _ in group))
    if len(texts) == 1:
        return group[0]
    word = f"{first.text.split(' ')[0]} "
    if all(text.startswith(word) for text in texts):
        texts = sorted((text.removeprefix(word) for text in texts), key=lambda text: (len(text), text))
        texts[0] = word + texts[0]
    more = len(texts) - _MOST_JOINED
    shown = texts if more < 2 else [*texts[:_MOST_JOINED], f"{more} more"]
    return replace(first, text=", ".join(shown)), dots
