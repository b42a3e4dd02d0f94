"""What a comparison repeats of what it compares: reasons to doubt its times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rooflens.notebook import Displayed
from rooflens.records import Case
from rooflens.results import Evidence
from rooflens.results.totals import grouped_by

_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubtful(Displayed):
    """A comparison, or an item of one.

    Attributes:
        doubts: why its result is not to be trusted: notes and findings on what was compared.
    """

    doubts: tuple[str, ...] = ()


def doubts_of(evidence: Iterable[Evidence]) -> tuple[str, ...]:
    """Return the doubts of those who took the times, each with its cases where it is not of all."""
    items = list(evidence)
    told = [(doubt, item.case) for item in items for doubt in item.doubts]
    groups = grouped_by(told, lambda each: each[0])
    return tuple(doubt + of_some([case for _, case in its], items) for doubt, its in groups.items())


def of_sides(doubts: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the doubts of each side, those of both once."""
    sides: dict[str, list[str]] = {}
    for side, its in doubts.items():
        for doubt in its:
            sides.setdefault(doubt, []).append(side)
    return tuple(f"{'both sides' if len(named) > 1 else f'{named[0]} side'}: {doubt}" for doubt, named in sides.items())


def of_some(cases: Sequence[Case], every: Sequence[object]) -> str:
    """Return in brackets which cases something is true of, "" where it is all."""
    return f" ({listed(cases)})" if len(cases) < len(every) else ""


def listed(cases: Sequence[Case]) -> str:
    """Return the first of some cases in words, and how many more there are."""
    shown = ", ".join(case.label() for case in cases[:_LISTED])
    return shown if len(cases) <= _LISTED else f"{shown} and {len(cases) - _LISTED} more"
