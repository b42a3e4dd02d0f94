"""What a comparison repeats of what it compares: reasons to doubt its times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """Return the doubts of those who took the times, each with its cases."""
    told = [(doubt, item.case) for item in evidence for doubt in item.doubts]
    groups = grouped_by(told, lambda each: each[0])
    return tuple(f"{doubt} ({listed([case for _, case in cases])})" for doubt, cases in groups.items())


def listed(cases: Sequence[Case]) -> str:
    """Return the first of some cases in words, and how many more there are."""
    shown = ", ".join(case.label() for case in cases[:_LISTED])
    return shown if len(cases) <= _LISTED else f"{shown} and {len(cases) - _LISTED} more"
