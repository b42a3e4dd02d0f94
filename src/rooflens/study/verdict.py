"""Pair and Verdict: what became of a hypothesis, comparison by comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rooflens.results.totals import grouped_by
from rooflens.study.claim_values import Lack
from rooflens.study.hypotheses import QUANTITIES
from rooflens.study.study import Hypothesis

Outcome = Literal["supported", "rejected", "not decidable"]
Basis = Literal["measured", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One comparison of a claim.

    Attributes:
        group: what the claim is made for: a model, mostly.
        left, right: the sides in words; "" for a number that the claim gives.
        left_value, right_value: in base units, the factor of a side applied; None where it is not known.
        ratio: left over right, without factors; None where it is not known.
        holds: None where it cannot be told; `why` then says what is missing.
        lacks: why a side has no number: its cell failed, is not run yet, or does not tell it; None where both have one.
        doubts: notes of those who took the times of either side that say why they are to be doubted.
    """

    group: str
    left: str
    right: str
    left_value: float | None
    right_value: float | None
    holds: bool | None
    ratio: float | None = None
    why: str = ""
    lacks: Lack | None = None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a hypothesis.

    Attributes:
        basis: what it was judged by; `by_expected`: estimates are those of expected times.
        pairs: every comparison, those against the claim included.
        sentence: the outcome in words, with its numbers.
    """

    hypothesis: Hypothesis
    outcome: Outcome
    basis: Basis | None = None
    by_expected: bool = False
    pairs: tuple[Pair, ...] = ()
    sentence: str = ""

    @property
    def units(self) -> tuple[str, str]:
        """The base units of the left and of the right side: their quantities may differ."""
        claim = self.hypothesis.claim
        if claim is None:
            return "", ""
        left, right = (QUANTITIES.get(side.quantity or claim.quantity, "") for side in (claim.left, claim.right))
        return left, right

    @property
    def supporting(self) -> tuple[Pair, ...]:
        """The comparisons that hold."""
        return tuple(pair for pair in self.pairs if pair.holds)

    @property
    def against(self) -> tuple[Pair, ...]:
        """The comparisons that speak against it."""
        return tuple(pair for pair in self.pairs if pair.holds is False)

    @property
    def undecided(self) -> tuple[Pair, ...]:
        """The comparisons that say nothing."""
        return tuple(pair for pair in self.pairs if pair.holds is None)


def held_each(pairs: Sequence[Pair]) -> list[bool | None]:
    """Whether a claim holds for each of what it is made for: for all its comparisons, that is."""
    groups = [[pair.holds for pair in each] for each in grouped_by(pairs, lambda pair: pair.group).values()]
    return [False if False in each else None if None in each else True for each in groups]
