"""Which marks of a figure are named, and in which order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from rooflens.report.escape import printable
from rooflens.report.figures.axes import XY
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES
from rooflens.report.figures.drawn_marks import DrawnMark
from rooflens.report.figures.labels import SMALL, TextLine, shorten
from rooflens.report.figures.roofline_data import RooflineData

_MOST_NAMED, _SMALLEST_NAMED = 12, 0.15
_MOST_CASES, _MOST_DOTS = 40, 6
# Spots to a decade: marks that are nearer than a few points share a label.
_SAME_SPOT = 40

PointName = tuple[TextLine, list[tuple[XY, float]]]
"""The name of one of some dots, the first of which is the best: points of the data, and radii on the page."""


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


def trail_names(figure: RooflineData, drawn: Sequence[DrawnMark]) -> list[PointName]:
    """Return the names of trails, each once at any of its marks; then what grows at their ends, then between them.

    Of many models sizes tell the batch. A trail of bounds and one of times share their names.
    """
    reaches = {(one.mark.x, one.mark.y): one.reach for one in drawn}
    names: dict[str, list[XY]] = {}
    ends: dict[tuple[str, str, str], list[XY]] = {}
    between: dict[tuple[str, str, str], list[XY]] = {}
    for trail in figure.trails:
        if trail.name:
            names.setdefault(trail.name, []).extend((trail.points[-1], *trail.points[:-1]))
        if figure.sizes == "batch" and trail.number == "batch":
            continue
        last = len(trail.points) - 1
        for number, (point, step) in enumerate(zip(trail.points, trail.steps, strict=True)):
            (ends if number in (0, last) else between).setdefault((trail.group, trail.name, step), []).append(point)
    texts = [*names.items(), *((step, points) for some in (ends, between) for (*_, step), points in some.items())]
    return [
        (TextLine(shorten(printable(text)), SMALL), [(point, reaches[point]) for point in points[:_MOST_DOTS]])
        for text, points in texts[: 2 * _MOST_CASES]
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
            TextLine(shorten(printable(label)), SMALL),
            [((one.mark.x, one.mark.y), one.reach) for one in sorted(same, key=lambda one: -apart(one))[:_MOST_DOTS]],
        )
        for label, same in ranked
    ]


def point_names(figure: RooflineData, drawn: Sequence[DrawnMark]) -> list[PointName]:
    """Return the pieces to name, largest share of time first.

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
    # Numbers are short and explained below the figure: all of them are wanted.
    part = 0.0 if figure.listing else _SMALLEST_NAMED
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
