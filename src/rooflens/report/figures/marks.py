"""Where evidence stands on a roofline: marks, the lines between them, the rug, and what has no place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rooflens import units
from rooflens.errors import MissingCeiling
from rooflens.records import Bound, Device, Source, Work
from rooflens.report.case_names import SOURCE_WORDS
from rooflens.report.figures.case_pieces import By, Naming, Piece, launches, pieces
from rooflens.report.figures.foremost import Drawn, Set, foremost
from rooflens.report.figures.memory_levels import missed, remarks
from rooflens.report.figures.palette import OTHER
from rooflens.report.figures.roofline_data import Link, Mark, RugMark, Tie, Unplaced
from rooflens.results import Total
from rooflens.results.evidence import Evidence
from rooflens.roofline import bound, point


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
    """Everything that was placed.

    Attributes:
        numbered: how many kernels have numbers; `listing` says what these stand for.
        left: what was left out for want of room, a sentence each.
        works: the work of the marks by device: it chooses the ceilings.
    """

    marks: list[Mark] = field(default_factory=list)
    ties: list[Tie] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    rug: list[RugMark] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    numbered: int = 0
    listing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    works: dict[str, list[Work]] = field(default_factory=dict)


def place(
    evidence: Sequence[Evidence], by: By, devices: Sequence[Device], levels: Sequence[str], most: int | None = None
) -> Placed:
    """Put every piece of `evidence` on the plane of FLOP per byte of each of `levels` and FLOP/s.

    An estimate that names no device is placed under each of `devices`.

    Args:
        most: of the parts of a case those that take most time; None: all.
    """
    placed = Placed()
    naming = Naming.of(evidence)
    stands = 0
    for item in evidence:
        if by == "kernel" and not launches(item):
            placed.unplaced.append(Unplaced(label=item.case.label(), reason=_NO_KERNELS))
        found = list(pieces(item, by, naming))
        for host in _hosts(item, devices):
            stands += 1
            shown = foremost(list(_place_case(placed, item, found, host, levels)), most, by, 1 + placed.numbered)
            placed.numbered += shown.numbered
            placed.listing += shown.listing
            placed.left += filter(None, [shown.left])
            for drawn in (drawn for one in shown.sets for drawn in one.drawn):
                _keep(placed, drawn)
            if host.device is not None:
                works = placed.works.setdefault(host.device.name, [])
                works += [s.piece.work for s in shown.sets if s.piece.work is not None and not s.piece.whole]
    placed.rug = _stacked(placed.rug, stands)
    placed.unplaced = list(dict.fromkeys(placed.unplaced))
    return placed


_NO_KERNELS = "no kernel was counted one by one: an estimate and a trace know operations (by op)"


def _keep(placed: Placed, drawn: Drawn) -> None:
    match drawn:
        case Mark():
            placed.marks.append(drawn)
        case Tie():
            placed.ties.append(drawn)
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


def _place_case(
    placed: Placed, item: Evidence, found: Sequence[Piece], host: Host, levels: Sequence[str]
) -> Iterator[Set]:
    """The pieces of one case under one device."""
    if item.work is None:
        reason = "a time without known work has no place; estimate the same case too"
        placed.unplaced.append(Unplaced(label=item.case.label(), reason=reason))
        return
    whole, reason = _whole_bound(item, host.device)
    if reason:
        placed.unplaced.append(Unplaced(label=item.case.label(), reason=reason))
    for piece in found:
        yield Set(piece, list(_place_piece(piece, _seen(piece, whole, host), host, levels)))


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


def _place_piece(piece: Piece, seen: Sequence[Seen], host: Host, levels: Sequence[str]) -> Iterator[Drawn]:
    work = piece.work
    if work is None or not seen:
        if piece.kernel:
            yield Unplaced(label=piece.listed, reason=f"its {'work' if work is None else 'time'} was not counted")
    elif work.total_flops:
        yield from _on_plane(piece, work, seen, host, levels)
    elif work.missing:
        yield Unplaced(label=piece.listed, reason=f"FLOP unknown: {_missing(work)}")
    elif not piece.whole:
        yield _rug_mark(piece, work, seen[-1], levels)


def _on_plane(piece: Piece, work: Work, seen: Sequence[Seen], host: Host, levels: Sequence[str]) -> Iterator[Drawn]:
    """The marks of work with FLOP: of each time at each level, with the lines between them."""
    known = []
    for level in levels:
        reason = _no_intensity(piece, work, level)
        if not reason:
            known.append(level)
        elif len(levels) == 1 or work.origin != "algorithmic":  # that a formula knows dram only goes without saying
            yield Unplaced(label=piece.listed, reason=reason, level=level if len(levels) > 1 else "")
    rows = [[_mark(piece, work, one, host, level, levels) for level in known] for one in seen]
    for row in rows:
        yield from row
        if len(row) > 1:
            ends = sorted((mark.x, mark.y) for mark in row)
            yield Tie(start=ends[0], end=ends[-1])
    if len(rows) > 1 and host.own:
        for one, other in zip(*rows, strict=True):
            yield Link(group=one.group, start=(one.x, one.y), end=(other.x, other.y))


def _no_intensity(piece: Piece, work: Work, level: str) -> str:
    """Why work with FLOP has no intensity at a level, "" where it has one."""
    nbytes = work.bytes.get(level)
    if nbytes is None:
        return f"its {level} bytes are not known"
    if not nbytes:
        return f"no byte passed {level}: the intensity has no end"
    return missed(piece.records, level) or ""


def _mark(piece: Piece, work: Work, seen: Seen, host: Host, level: str, levels: Sequence[str]) -> Mark:
    observed = seen.source != "estimate"
    device = None if observed and not host.own else host.device
    # Each mark is held against its own level: the others have marks of their own.
    roof = None if device is None else _roof(replace(work, bytes={level: work.bytes[level]}), device)
    spot = point(work, roof, seen.seconds, level)
    above = observed and roof is not None and seen.seconds < roof.seconds
    assert spot.intensity is not None
    assert spot.performance is not None
    hover = _hover(piece, work, seen, device, (level,))
    if roof is not None and spot.efficiency and device is not None and seen.source == "counters":
        under = f"the roof at {level}" if device.ceiling(level) is not None else "what the units allow"
        hover += (f"{100 * spot.efficiency:.4g} % of {under} ({roof.bound_by})",)
    return Mark(
        x=spot.intensity,
        y=spot.performance,
        share=min(1.0, seen.seconds / seen.of),
        group=level if len(levels) > 1 else piece.group,
        source=seen.source,
        device=None if device is None else host.number,
        label=piece.label,
        hover=hover + (("above its roof",) if above else ()),
        above_roof=above,
        whole=piece.whole,
        level=level,
    )


def _roof(work: Work, device: Device) -> Bound | None:
    try:
        return bound(work, device)
    except MissingCeiling:
        return None


def _rug_mark(piece: Piece, work: Work, seen: Seen, levels: Sequence[str]) -> RugMark:
    share = min(1.0, seen.seconds / seen.of)
    hover = _hover(piece, work, seen, None, levels)
    group = piece.group if len(levels) == 1 else OTHER
    return RugMark(label=piece.label, group=group, share=share, low=0.0, high=share, hover=hover)


def _stacked(rug: Sequence[RugMark], stands: int) -> list[RugMark]:
    """The rug as one strip, largest share at the bottom; with several cases each has an equal part of the height."""
    low, found = 0.0, []
    for mark in sorted(rug, key=lambda mark: -mark.share):
        high = min(1.0, low + mark.share / stands)
        found.append(replace(mark, low=low, high=high))
        low = high
    return found


def _hover(piece: Piece, work: Work, seen: Seen, device: Device | None, levels: Sequence[str]) -> tuple[str, ...]:
    """Everything that is known of a mark, a line each."""
    at_least = ">= " if work.missing else ""
    flops = work.total_flops
    moved = [f"{level} {units.show(work.bytes.get(level), 'B')}" for level in levels]
    return tuple(
        filter(
            None,
            (
                piece.name,
                f"{SOURCE_WORDS[seen.source]}, {piece.group}",
                f"on {device.title}" if device is not None else f"on {piece.case.device}" if piece.case.device else "",
                f"time {units.show(seen.seconds, 's')}, {100 * seen.seconds / seen.of:.3g} % of its case",
                f"work {at_least}{', '.join([units.show(flops, 'FLOP'), *moved])}",
                *(f"intensity {at_least}{flops / work.bytes[level]:.4g} FLOP/B" for level in levels if flops),
                f"performance {at_least}{units.show(flops / seen.seconds, 'FLOP/s')}" if flops else "no FLOP",
                seen.remark,
                _missing(work) if work.missing else "",
                *(remark for level in levels for remark in remarks(piece.records, level)),
            ),
        )
    )


def _missing(work: Work) -> str:
    what = "no formula for" if work.origin == "algorithmic" else "not all is counted of"
    return f"{what} {', '.join(sorted(work.missing))}"
