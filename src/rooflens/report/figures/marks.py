"""Where evidence stands on a roofline: marks, the lines between them, the rug, and what has no place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rooflens import units
from rooflens.errors import MissingCeiling
from rooflens.predict import Prediction
from rooflens.records import Device, Point, Source, Work
from rooflens.report.case_names import SOURCE_WORDS
from rooflens.report.figures.case_pieces import Naming, Piece, PieceKind, launches, pieces
from rooflens.report.figures.memory_levels import NO_WORK, no_intensity, remarks, roof_at
from rooflens.report.figures.palette import OTHER
from rooflens.report.figures.roofline_data import Link, Mark, RugMark, Tie, Unplaced, Whisker
from rooflens.results import Evidence, RecordSet
from rooflens.roofline import point

MOST = 12
"""So many parts are drawn unless more are asked for, where each has several marks or a number."""
_PLURAL: Mapping[PieceKind, str] = {
    "module": "modules",
    "family": "families",
    "module-family": "families in modules",
    "op": "operations",
    "operator": "operators",
    "kernel": "kernels",
}
_NO_KERNELS = "no kernel was counted one by one: an estimate and a trace know operations (by op)"


@dataclass(slots=True)
class Placement:
    """Everything that was placed.

    Attributes:
        numbered: how many kernels have numbers; `listing` says what these stand for.
        left_out: what has no room on the figure, a sentence each.
        lower: the pieces that have marks and some FLOP that nobody knows.
        steps: the marks of whole cases and phases, with the pieces that they stand for.
        works: the work of the marks by device; it chooses the ceilings.
        by_level: True if the colour of a mark tells its memory level, not its group.
    """

    by_level: bool

    marks: list[Mark] = field(default_factory=list)
    steps: list[tuple[Piece, Mark]] = field(default_factory=list)
    ties: list[Tie] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    whiskers: list[Whisker] = field(default_factory=list)
    rug: list[RugMark] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    numbered: int = 0
    listing: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    lower: list[str] = field(default_factory=list)
    works: dict[str, list[Work]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CaseDevice:
    """The device under which a case stands.

    Attributes:
        records: those that hold the work of the case.
        device: None where it is not known.
        number: its place among the devices drawn, None where it is not drawn.
        own: True if the times of the case are of this device; an estimate for any device stands under each.
        first: True for the first of the devices of the case.
        too_large: the case does not fit into its memory.
    """

    records: RecordSet
    device: Device | None
    number: int | None
    own: bool
    first: bool
    too_large: bool


@dataclass(frozen=True, slots=True)
class PieceTime:
    """One time of a piece: that of its bound, or an observed one; `share` is its share of the time of the case."""

    source: Source
    seconds: float
    share: float
    remark: str


@dataclass(frozen=True, slots=True)
class PlacedPiece:
    """A piece with its times, and for each memory level why it has no intensity there ("" if it has one).

    Attributes:
        share: its share of the time of its case, None where it has no mark on the plane.
    """

    piece: Piece
    times: list[PieceTime]
    gaps: dict[str, str]
    share: float | None


def place(
    evidence: Sequence[Evidence],
    by: PieceKind,
    naming: Naming,
    devices: Sequence[Device],
    levels: Sequence[str],
    most: int | None = None,
) -> Placement:
    """Put every piece of `evidence` on the plane of FLOP per byte of each of `levels` and FLOP/s.

    An estimate that names no device is placed under each of `devices`.

    Args:
        most: how many parts of a case to place, those that take most time; None is all.
    """
    placement = Placement(by_level=len(levels) > 1 and by != "module-family")
    stands = 0
    for item in evidence:
        if by == "kernel" and not launches(item):
            placement.unplaced.append(Unplaced(label=item.case.label(), reason=_NO_KERNELS))
        if item.work is None:
            stands += 1
            placement.unplaced.append(Unplaced(label=item.case.label(), reason=NO_WORK))
            continue
        of_case = list(pieces(item, item.work, by, naming))
        places = list(_devices_of_case(item, item.work, devices))
        for under in places:
            stands += 1
            whole, reason = _whole_seconds(item, under)
            if reason:
                placement.unplaced.append(Unplaced(label=item.case.label(), reason=reason))
            expected = _expected_of_parts(of_case, under)
            timed = [_timed(piece, whole, expected, under, levels) for piece in of_case]
            kept = _draw_case(placement, timed, under, by, most)
            told = f" of {item.case.label()} ({SOURCE_WORDS[item.work.sources[0]]})" if len(evidence) > 1 else ""
            told += f" under {under.device.name}" if len(places) > 1 and under.device is not None else ""
            placement.left_out += [f"Drawn{told}: {kept}"] if kept else []
    low, strip = 0.0, []
    for mark in sorted(placement.rug, key=lambda mark: -mark.share):
        high = min(1.0, low + mark.share / stands)
        strip.append(replace(mark, low=low, high=high))
        low = high
    placement.rug = strip
    placement.unplaced = list(dict.fromkeys(placement.unplaced))
    return placement


def _devices_of_case(item: Evidence, work: RecordSet, devices: Sequence[Device]) -> list[CaseDevice]:
    """Return the device of a case, or each that is drawn where the estimate holds for any."""
    items = on_devices(item, devices)
    drawn = {device.name: device for device in devices}
    numbers = {name: number for number, name in enumerate(drawn)}
    under = [one.device if one.case.device is None else drawn.get(one.case.device, one.device) for one in items]
    return [
        CaseDevice(
            records=work,
            device=device,
            number=None if device is None else numbers.get(device.name),
            own=len(items) == 1
            and (item.case.device is None or (device is not None and device.name == item.case.device)),
            first=nth == 0,
            too_large=one.room is not None and one.room.fits is False,
        )
        for nth, (one, device) in enumerate(zip(items, under, strict=True))
    ]


def on_devices(item: Evidence, devices: Sequence[Device]) -> list[Evidence]:
    """Return a case as it is, or on each device that is drawn where its estimate holds for any."""
    known = item.device is not None or any(device.name == item.case.device for device in devices)
    of_any = not known and item.work is not None and item.work.cases[0].device is None
    return [item.on(device) for device in devices] if of_any and devices else [item]


def _whole_seconds(item: Evidence, under: CaseDevice) -> tuple[float | None, str]:
    """Return the seconds of the bound of an estimated case, or the reason why it has none."""
    if "estimate" not in under.records.sources:
        return None, ""
    if under.device is None:
        named = f"device {item.case.device!r} is not known" if item.case.device else "it names no device"
        return None, f"an estimate has no time without a device, and {named}"
    try:
        bound = under.records.under(under.device).bound
    except MissingCeiling as error:
        return None, str(error)
    return None if bound is None else bound.seconds, ""


def _expected_of_parts(of_case: Sequence[Piece], under: CaseDevice) -> float | None:
    """Return the time to expect of all parts of a case; None where it has none, or it is unknown of one of them."""
    parts = [piece for piece in of_case if not piece.whole]
    if len(parts) < 2:
        return None
    times = [under.records.sum(piece.records, under.device).predicted_seconds for piece in parts]
    return None if any(time is None for time in times) else sum(filter(None, times))


def _timed(
    piece: Piece, whole: float | None, expected: float | None, under: CaseDevice, levels: Sequence[str]
) -> PlacedPiece:
    """Return a piece with its times: its bound, if its case has one (`whole`), and the observed one.

    Its share is that of the `expected` time of all parts, where this is known of each, else that of the bound.
    """
    times = []
    total = under.records.sum(piece.records, under.device) if whole else None
    bound = None if total is None else total.bound
    if whole and total is not None and bound is not None and bound.seconds:
        share = bound.seconds / whole
        if expected and not piece.whole and total.predicted_seconds is not None:
            share = total.predicted_seconds / expected
        times.append(PieceTime("estimate", bound.seconds, share, f"bound by {bound.bound_by}"))
    if piece.source is not None and piece.seconds and under.first:
        efficiency = bound.seconds / piece.seconds if bound is not None and under.own else None
        remark = f"efficiency {100 * efficiency:.3g} % of the bound" if efficiency else ""
        share = piece.seconds / (piece.whole_seconds or piece.seconds)
        times.append(PieceTime(piece.source, piece.seconds, share, remark))
    gaps = {level: no_intensity(piece.work, piece.records, level) for level in levels}
    on_plane = piece.work is not None and piece.work.total_flops and "" in gaps.values()
    share_drawn = max((min(1.0, time.share) for time in times), default=None) if on_plane else None
    return PlacedPiece(piece, times, gaps, share_drawn)


def _draw_case(
    placement: Placement, placed: Sequence[PlacedPiece], under: CaseDevice, by: PieceKind, most: int | None
) -> str:
    """Draw wholes, what does no FLOP, and of the other parts the `most` that take most time; return what is left out.

    Kernels get numbers by their rank, since their names are too long for a plane.
    """
    ranked = [(share, one) for one in placed if not one.piece.whole and (share := one.share) is not None]
    ranked.sort(key=lambda item: -item[0])
    kept = ranked[:most]
    left_out = ranked[len(kept) :]
    numbers: dict[int, str] = {}
    if kept and by == "kernel":
        if kept[0][1].piece.label:
            placement.listing.append(f"{kept[0][1].piece.label}:")
        for number, (share, one) in enumerate(kept, placement.numbered + 1):
            numbers[id(one)] = f"{number}"
            calls = sum(record.calls for record in one.piece.records)
            text = f"{100 * share:.3g} % of the time{f', {calls} launches' if calls > 1 else ''}, {one.piece.listed}"
            placement.listing.append(f"{number}: {text}")
        placement.numbered += len(kept)
    hidden = {id(one) for _, one in left_out}
    shown = [one for one in placed if id(one) not in hidden]
    for one in shown:
        _draw_piece(placement, one, under, numbers.get(id(one), ""))
    if under.device is not None:
        works = placement.works.setdefault(under.device.name, [])
        works += [one.piece.work for one in shown if one.piece.work is not None and not one.piece.whole]
    share = 100 * sum(share for share, _ in left_out)
    return bool(left_out) * (
        f"{len(kept)} of {len(ranked)} {_PLURAL.get(by, 'parts')}, those that take most time, and"
        f" {len(left_out)} more ({share:.3g} % of the time) with top={len(ranked)} (--top)."
    )


def _draw_piece(placement: Placement, placed: PlacedPiece, under: CaseDevice, number: str) -> None:
    """Draw a piece on the plane if it has FLOP and a time; else its share, or why it cannot be placed."""
    piece, work = placed.piece, placed.piece.work
    if work is None or not placed.times:
        if piece.kernel:
            reason = f"its {'work' if work is None else 'time'} was not counted"
            placement.unplaced.append(Unplaced(label=piece.listed, reason=reason))
    elif work.total_flops:
        _draw_marks(placement, placed, work, under, number)
    elif work.missing:
        placement.unplaced.append(Unplaced(label=piece.listed, reason=f"FLOP unknown: {_missing(work)}"))
    elif not piece.whole:
        mark = _rug_mark(piece, work, placed.times[-1], list(placed.gaps))
        placement.rug.append(replace(mark, group=OTHER) if placement.by_level else mark)


def _draw_marks(placement: Placement, placed: PlacedPiece, work: Work, under: CaseDevice, number: str) -> None:
    """Draw the marks of a piece, one for each time at each level, with the lines between them."""
    piece, several = placed.piece, len(placed.gaps) > 1
    for level, reason in placed.gaps.items():
        # That a formula knows dram only goes without saying.
        if reason and (not several or work.origin != "algorithmic"):
            listed = f"kernel {number}" if number else piece.listed
            placement.unplaced.append(Unplaced(label=listed, reason=reason, level=level if several else ""))
    known = [level for level, reason in placed.gaps.items() if not reason]
    rows = [
        [
            _mark(
                piece,
                work,
                time,
                under,
                level,
                group=level if placement.by_level else piece.group,
                label=number or piece.label,
            )
            for level in known
        ]
        for time in placed.times
    ]
    if known and work.missing:
        placement.lower.append(f"kernel {number}" if number else piece.listed)
    for row in rows:
        placement.marks += row
        placement.steps += [(piece, mark) for mark in row if not several and under.own]
        if len(row) > 1:
            ends = sorted((mark.x, mark.y) for mark in row)
            placement.ties.append(Tie(start=ends[0], end=ends[-1]))
    placement.whiskers += _whiskers([] if several or not under.own else [row[0] for row in rows if row], work, piece)
    if len(rows) > 1 and under.own:
        for one, other in zip(*rows, strict=True):
            placement.links.append(Link(group=one.group, start=(one.x, one.y), end=(other.x, other.y)))


def _whiskers(marks: Sequence[Mark], work: Work, piece: Piece) -> Iterator[Whisker]:
    """Yield the band of an estimate, at its work over the expected times."""
    for mark in marks:
        if mark.source != "estimate" or piece.expected is None:
            continue
        times = (piece.expected.high, piece.expected.seconds, piece.expected.low)
        low, middle, high = ((mark.x, work.total_flops / seconds) for seconds in times)
        below = middle[1] > mark.y
        ends = {"start": low, "end": high, "middle": middle, "mark": (mark.x, mark.y)}
        yield Whisker(group=mark.group, device=mark.device, below_bound=below, **ends)


def _mark(piece: Piece, work: Work, time: PieceTime, under: CaseDevice, level: str, *, group: str, label: str) -> Mark:
    observed = time.source != "estimate"
    device = None if observed and not under.own else under.device
    roof = roof_at(level, under.records, work, device) if observed and device is not None else None
    spot = point(work, roof, time.seconds, level)
    assert spot.intensity is not None
    assert spot.performance is not None
    hover = _hover(piece, work, time, device, [level], spot)
    if roof is not None and spot.efficiency and device is not None and time.source == "counters":
        roof_name = f"the roof at {level}" if device.ceiling(level) is not None else "what the units allow"
        hover.append(f"{100 * spot.efficiency:.4g} % of {roof_name} ({roof.bound_by})")
    above = roof is not None and time.seconds < roof.seconds
    return Mark(
        x=spot.intensity,
        y=spot.performance,
        share=min(1.0, time.share),
        group=group,
        source=time.source,
        device=None if device is None else under.number,
        label=label,
        hover=(*hover, *(["above its roof"] if above else [])),
        above_roof=above,
        too_large=under.too_large and not observed,
        whole=piece.whole,
        level=level,
        batch=piece.case.batch,
    )


def _rug_mark(piece: Piece, work: Work, time: PieceTime, levels: Sequence[str]) -> RugMark:
    share = min(1.0, time.share)
    hover = tuple(_hover(piece, work, time, None, levels, None))
    return RugMark(label=piece.label, group=piece.group, share=share, low=0.0, high=share, hover=hover)


def _hover(
    piece: Piece, work: Work, time: PieceTime, device: Device | None, levels: Sequence[str], spot: Point | None
) -> list[str]:
    """Return everything that is known of a mark, a line each."""
    at_least = ">= " if work.missing else ""
    moved = [f"{level} {units.show(work.bytes.get(level), 'B')}" for level in levels]
    on = piece.case.device if device is None else device.title
    rows = [
        piece.name,
        f"{SOURCE_WORDS[time.source]}, {piece.group}",
        f"on {on}" if on else "",
        f"time {units.show(time.seconds, 's')}, {100 * time.share:.3g} % of its case",
        f"work {at_least}{', '.join([units.show(work.total_flops, 'FLOP'), *moved])}",
        "no FLOP" if spot is None else f"intensity {at_least}{spot.intensity:.4g} FLOP/B",
        "" if spot is None else f"performance {at_least}{units.show(spot.performance, 'FLOP/s')}",
        time.remark,
        _expected(piece.expected, time) if time.source == "estimate" and piece.expected is not None else "",
        _missing(work) if work.missing else "",
        *(remark for level in levels for remark in remarks(piece.records, level)),
    ]
    return list(filter(None, rows))


def _expected(expected: Prediction, bound: PieceTime) -> str:
    band = units.show_range(expected.low, expected.high, "s")
    sign = "! " if expected.seconds < bound.seconds else ""
    return f"{sign}expected {units.show(expected.seconds, 's')}, 8 of 10 measured times in {band}"


def _missing(work: Work) -> str:
    what = "no formula for" if work.origin == "algorithmic" else "not all is counted of"
    return f"{what} {', '.join(sorted(work.missing))}"
