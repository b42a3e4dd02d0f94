"""The way of a step over the plane while one number of its case grows: its batch, or the length of its context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rooflens.records import Case, Scalar
from rooflens.report.figures.case_pieces import Piece
from rooflens.report.figures.roofline_data import Mark, Trail

_GROW = ("batch", "img_size", "seq_len")
"""Numbers along which a step moves; where several of them grow, the last one is followed."""


def trails(steps: Sequence[tuple[Piece, Mark]]) -> Iterator[Trail]:
    """Yield a line through the marks of each step that was taken at several batches or lengths, the smallest first."""
    cases = {piece.case for piece, _ in steps}
    number = next((name for name in reversed(_GROW) if _several({_without(case, name) for case in cases}, cases)), None)
    if number is None:
        return
    rows: dict[tuple[object, ...], list[tuple[float, Mark]]] = {}
    for piece, mark in steps:
        value = _value(piece.case, number)
        if isinstance(value, int | float):
            phases = frozenset(record.phase for record in piece.records)
            key = (_without(piece.case, number), phases, mark.source, mark.device)
            rows.setdefault(key, []).append((value, mark))
    for row in rows.values():
        marks = [mark for _, mark in sorted(row, key=lambda item: item[0])]
        if len({value for value, _ in row}) > 1:
            groups = {mark.group for mark in marks}
            group = groups.pop() if len(groups) == 1 else ""
            yield Trail(number=number, group=group, points=tuple((mark.x, mark.y) for mark in marks))


def _several(kinds: set[Case], cases: set[Case]) -> bool:
    """True if some cases differ in nothing but the number that was taken out."""
    return len(kinds) < len(cases)


def _value(case: Case, number: str) -> Scalar | None:
    return case.batch if number == "batch" else dict(case.options).get(number)


def _without(case: Case, number: str) -> Case:
    if number == "batch":
        return replace(case, batch=None)
    return replace(case, options=tuple((name, value) for name, value in case.options if name != number))
