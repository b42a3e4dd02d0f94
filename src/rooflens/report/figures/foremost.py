"""The parts of a case that a figure has room for: those that take most time; kernels under numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rooflens.report.figures.case_pieces import By, Piece
from rooflens.report.figures.roofline_data import Link, Mark, RugMark, Tie, Unplaced

Drawn = Mark | Tie | Link | RugMark | Unplaced

MOST = 12
"""So many parts are drawn unless more are asked for, where each has several marks or a number."""
_PLURAL: Mapping[By, str] = {"module": "modules", "family": "families", "op": "operations", "kernel": "kernels"}


@dataclass(slots=True)
class Set:
    """What is drawn of one piece."""

    piece: Piece
    drawn: list[Drawn]

    @property
    def share(self) -> float | None:
        """Its part of the time of its case, None where it has no mark on the plane."""
        return max((item.share for item in self.drawn if isinstance(item, Mark)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foremost:
    """The sets that are drawn, how many of them have numbers, what these stand for, and what was left out."""

    sets: list[Set]
    numbered: int = 0
    listing: list[str] = field(default_factory=list)
    left: str = ""


def foremost(sets: Sequence[Set], most: int | None, by: By, first: int = 1) -> Foremost:
    """Keep wholes, what does no FLOP, and of the other parts the `most` that take most time (None: all of them).

    Kernels get numbers by their rank, since their names are too long for a plane.

    Args:
        first: the first number that is free.
    """
    parts = [one for one in sets if not one.piece.whole and one.share is not None]
    ranked = sorted(parts, key=lambda one: -(one.share or 0.0))
    kept, rest = ranked[:most], ranked[len(ranked) if most is None else most :]
    out = {id(one) for one in rest}
    shown = [one for one in sets if id(one) not in out]
    left = _left(kept, rest, by) if rest else ""
    if not kept or not kept[0].piece.kernel:
        return Foremost(sets=shown, left=left)
    listing = [f"{kept[0].piece.label}:"] if kept[0].piece.label else []
    for number, one in enumerate(kept, first):
        listing.append(f"{number}: {_title(one)}")
        one.drawn = list(_renamed(one.drawn, f"{number}"))
    return Foremost(sets=shown, numbered=len(kept), listing=listing, left=left)


def _left(kept: Sequence[Set], rest: Sequence[Set], by: By) -> str:
    share = 100 * sum(one.share or 0.0 for one in rest)
    number = len(kept) + len(rest)
    return (
        f"Drawn: {len(kept)} of {number} {_PLURAL.get(by, 'parts')}, those that take most time, and {len(rest)} more"
        f" ({share:.3g} % of the time) with top={number} (--top)."
    )


def _title(one: Set) -> str:
    """Time and name of a kernel."""
    calls = sum(record.calls for record in one.piece.records)
    launches = f", {calls} launches" if calls > 1 else ""
    return f"{100 * (one.share or 0.0):.3g} % of the time{launches}, {one.piece.listed}"


def _renamed(drawn: Sequence[Drawn], name: str) -> Iterator[Drawn]:
    for item in drawn:
        match item:
            case Mark():
                yield replace(item, label=name)
            case Unplaced():
                yield replace(item, label=f"kernel {name}")
            case _:
                yield item
