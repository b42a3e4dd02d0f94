"""The way of a step over the plane while one number of its case grows: its batch, or the length of its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rooflens.records import Case, Phase, Scalar
from rooflens.report.case_names import SHORT_PHASES, differing, name_of
from rooflens.report.figures.case_pieces import Naming, Piece
from rooflens.report.figures.roofline_data import Mark, Trail

_GROW: Mapping[str, str] = {"batch": "batch {}", "img_size": "{} px", "seq_len": "{} tokens"}
"""Numbers along which a step moves, and how they read; where several of them grow, the last one is followed."""


def trails(steps: Sequence[tuple[Piece, Mark]], naming: Naming) -> Iterator[Trail]:
    """Yield a line through the marks of each step that was taken at several batches or lengths, the smallest first.

    What colours tell is left out of their names, unless these stand alone, since sizes tell the number.
    """
    cases = {piece.case for piece, _ in steps}
    number = next(
        (name for name in reversed([*_GROW]) if _several({_without(case, name) for case in cases}, cases)), None
    )
    if number is None:
        return
    rows: dict[tuple[Case, frozenset[Phase | None], object], list[tuple[float, Mark]]] = {}
    for piece, mark in steps:
        value = _value(piece.case, number)
        if isinstance(value, int | float):
            phases = frozenset(record.phase for record in piece.records)
            key = (_without(piece.case, number), phases, (mark.source, mark.device))
            rows.setdefault(key, []).append((value, mark))
    grown = {key: row for key, row in rows.items() if len({value for value, _ in row}) > 1}
    named = _naming(
        [(case, phases) for case, phases, _ in grown],
        "" if number == "batch" and naming.sizes == "batch" else naming.colours,
    )
    for (case, phases, _), row in grown.items():
        row.sort(key=lambda item: item[0])
        groups = {mark.group for _, mark in row}
        yield Trail(
            number=number,
            group=groups.pop() if len(groups) == 1 else "",
            points=tuple((mark.x, mark.y) for _, mark in row),
            name=named(case, phases),
            steps=tuple(_GROW[number].format(value) for value, _ in row),
            device=row[0][1].device,
        )


def _naming(
    kinds: Sequence[tuple[Case, frozenset[Phase | None]]], colours: str
) -> Callable[[Case, frozenset[Phase | None]], str]:
    """Return what names a trail: that in which some differ, but for what colours tell."""
    cases = [case for case, _ in kinds]
    apart = (field for field in differing(cases) if len({name_of(case, [field]) for case in cases}) > 1)
    fields = [field for field in apart if field != colours] if cases else []
    several = colours != "phase" and len({phases for _, phases in kinds}) > 1

    def named(case: Case, phases: frozenset[Phase | None]) -> str:
        phase = SHORT_PHASES[next(iter(phases)) if len(phases) == 1 else None] if several else ""
        return " ".join(filter(None, (name_of(case, fields) if fields else "", phase)))

    return named


def _several(kinds: set[Case], cases: set[Case]) -> bool:
    """True if some cases differ in nothing but the number that was taken out."""
    return len(kinds) < len(cases)


def _value(case: Case, number: str) -> Scalar | None:
    return case.batch if number == "batch" else dict(case.options).get(number)


def _without(case: Case, number: str) -> Case:
    return replace(case, batch=None) if number == "batch" else case.without({number})
