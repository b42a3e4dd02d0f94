"""Where evidence stands on a roofline: marks, the links between them, the rug, and what has no place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rooflens import units
from rooflens.errors import MissingCeiling
from rooflens.records import Device, Source, Work
from rooflens.report.captions import SOURCE_WORDS
from rooflens.report.drawing import Link, Mark, RugMark, Unplaced
from rooflens.report.evidence import Evidence
from rooflens.report.pieces import By, Naming, Piece, pieces
from rooflens.results import Total
from rooflens.roofline import bound, point

Drawn = Mark | Link | RugMark | Unplaced


@dataclass(frozen=True, slots=True)
class Host:
    """The device under which a case stands.

    Attributes:
        device: None where it is not known.
        number: its place among the devices drawn, None where it is not drawn.
        own: what was observed, was observed on it; an estimate that holds for any device stands under each.
        first: the first of the devices of the case.
    """

    device: Device | None
    number: int | None
    own: bool
    first: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """One time of a piece: that of the bound, or an observed one; `of` is the time of the whole case."""

    source: Source
    seconds: float
    of: float
    remark: str = ""


@dataclass(slots=True)
class Placed:
    """Everything that was placed. `works` holds the work of the marks by device: it chooses the ceilings."""

    marks: list[Mark] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    rug: list[RugMark] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    works: dict[str, list[Work]] = field(default_factory=dict)


def place(evidence: Sequence[Evidence], by: By, devices: Sequence[Device], level: str) -> Placed:
    """Put every piece of `evidence` on the plane of FLOP per byte of `level` and FLOP/s.

    An estimate that names no device is placed under each of `devices`.
    """
    placed = Placed()
    naming = Naming.of(evidence)
    stands = 0
    for item in evidence:
        found = list(pieces(item, by, naming))
        for host in _hosts(item, devices):
            stands += 1
            for drawn in _place_case(item, found, host, level):
                _keep(placed, drawn)
            if host.device is not None:
                works = placed.works.setdefault(host.device.name, [])
                works += [piece.work for piece in found if piece.work is not None and not piece.whole]
    placed.rug = _stacked(placed.rug, stands)
    placed.unplaced = list(dict.fromkeys(placed.unplaced))
    return placed


def _keep(placed: Placed, drawn: Drawn) -> None:
    match drawn:
        case Mark():
            placed.marks.append(drawn)
        case Link():
            placed.links.append(drawn)
        case RugMark():
            placed.rug.append(drawn)
        case Unplaced():
            placed.unplaced.append(drawn)


def _hosts(item: Evidence, devices: Sequence[Device]) -> list[Host]:
    """The devices of a case: its own, else each that is drawn where the estimate holds for any."""
    own = next((d for d in devices if d.name == item.case.device), item.device)
    for_any = item.work is not None and item.work.cases[0].device is None
    found: Sequence[Device | None] = [own] if own is not None or not for_any or not devices else devices
    return [
        Host(
            device=device,
            number=next((n for n, d in enumerate(devices) if device is not None and d.name == device.name), None),
            own=len(found) == 1
            and (item.case.device is None or (device is not None and device.name == item.case.device)),
            first=nth == 0,
        )
        for nth, device in enumerate(found)
    ]


def _place_case(item: Evidence, found: Sequence[Piece], host: Host, level: str) -> Iterator[Drawn]:
    """The pieces of one case under one device."""
    if item.work is None:
        reason = "a time without known work has no place; estimate the same case too"
        yield Unplaced(label=item.case.label(), reason=reason)
        return
    whole, reason = _whole_bound(item, host.device)
    if reason:
        yield Unplaced(label=item.case.label(), reason=reason)
    for piece in found:
        yield from _place_piece(piece, _seen(piece, whole, host), host, level)


def _seen(piece: Piece, whole: float | None, host: Host) -> list[Seen]:
    """The times of a piece: its bound, if its case has one (`whole`), and the observed one."""
    found = []
    total = Total(piece.records, host.device)
    estimate = total.seconds if whole else None
    if whole and estimate:
        found.append(Seen("estimate", estimate, whole, f"bound by {total.bound_by}"))
    if piece.source is not None and piece.seconds and host.first:
        remark = f"efficiency {100 * estimate / piece.seconds:.3g} % of the bound" if estimate and host.own else ""
        found.append(Seen(piece.source, piece.seconds, piece.whole_seconds or piece.seconds, remark))
    return found


def _whole_bound(item: Evidence, device: Device | None) -> tuple[float | None, str]:
    """Seconds of the bound of an estimated case, or the reason why it has none."""
    if "estimate" not in item.sources:
        return None, ""
    if device is None:
        named = f"device {item.case.device!r} is not known" if item.case.device else "it names no device"
        return None, f"an estimate has no time without a device, and {named}"
    try:
        return Total(item.work or (), device).seconds, ""
    except MissingCeiling as error:
        return None, str(error)


def _place_piece(piece: Piece, seen: Sequence[Seen], host: Host, level: str) -> Iterator[Drawn]:
    work = piece.work
    if work is None or not seen:
        return
    if not work.total_flops:
        if work.missing:
            yield Unplaced(label=piece.name, reason=f"FLOP unknown: no formula for {', '.join(sorted(work.missing))}")
        elif not piece.whole:
            yield _rug_mark(piece, work, seen[-1], level)
        return
    if not work.bytes.get(level):
        yield Unplaced(label=piece.name, reason=f"its {level} bytes are not known")
        return
    marks = [_mark(piece, work, one, host, level) for one in seen]
    yield from marks
    if len(marks) > 1 and host.own:
        yield Link(group=piece.group, start=(marks[0].x, marks[0].y), end=(marks[1].x, marks[1].y))


def _mark(piece: Piece, work: Work, seen: Seen, host: Host, level: str) -> Mark:
    observed = seen.source != "estimate"
    device = None if observed and not host.own else host.device
    whole_bound = None
    if device is not None:
        try:
            whole_bound = bound(work, device)
        except MissingCeiling:
            whole_bound = None
    spot = point(work, whole_bound, seen.seconds, level)
    above = observed and whole_bound is not None and seen.seconds < whole_bound.seconds
    assert spot.intensity is not None
    assert spot.performance is not None
    return Mark(
        x=spot.intensity,
        y=spot.performance,
        share=min(1.0, seen.seconds / seen.of),
        group=piece.group,
        source=seen.source,
        device=None if device is None else host.number,
        label=piece.label,
        hover=_hover(piece, work, seen, device, level) + (("above its roof",) if above else ()),
        above_roof=above,
        whole=piece.whole,
    )


def _rug_mark(piece: Piece, work: Work, seen: Seen, level: str) -> RugMark:
    share = min(1.0, seen.seconds / seen.of)
    hover = _hover(piece, work, seen, None, level)
    return RugMark(label=piece.label, group=piece.group, share=share, low=0.0, high=share, hover=hover)


def _stacked(rug: Sequence[RugMark], stands: int) -> list[RugMark]:
    """The rug as one strip, largest share at the bottom; with several cases each has an equal part of the height."""
    low, found = 0.0, []
    for mark in sorted(rug, key=lambda mark: -mark.share):
        high = min(1.0, low + mark.share / stands)
        found.append(replace(mark, low=low, high=high))
        low = high
    return found


def _hover(piece: Piece, work: Work, seen: Seen, device: Device | None, level: str) -> tuple[str, ...]:
    """Everything that is known of a mark, a line each."""
    at_least = ">= " if work.missing else ""
    flops, nbytes = work.total_flops, work.bytes.get(level)
    return tuple(
        filter(
            None,
            (
                piece.name,
                f"{SOURCE_WORDS[seen.source]}, {piece.group}",
                f"on {device.title}" if device is not None else f"on {piece.case.device}" if piece.case.device else "",
                f"time {units.show(seen.seconds, 's')}, {100 * seen.seconds / seen.of:.3g} % of its case",
                f"work {at_least}{units.show(flops, 'FLOP')}, {level} {units.show(nbytes, 'B')}",
                f"intensity {at_least}{flops / nbytes:.4g} FLOP/B" if nbytes else "",
                f"performance {at_least}{units.show(flops / seen.seconds, 'FLOP/s')}" if flops else "no FLOP",
                seen.remark,
                f"no formula for {', '.join(sorted(work.missing))}" if work.missing else "",
            ),
        )
    )
