"""Judging a claim over records: supported, rejected or not decidable, with the numbers and the cells against it.

Each case of the left side is held against the case of the right side that differs in nothing else. Measured times and
bounds are never mixed in one judgement: measurements decide where they can, and estimates stand for them where not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rooflens.compare import Evidence, join
from rooflens.records import Case, Scalar
from rooflens.results import RecordSet
from rooflens.study.expectations import CORRELATIONS, QUANTITIES
from rooflens.study.grid import agrees
from rooflens.study.study import Cell, Claim, Hypothesis, Relation, Side
from rooflens.study.values import TIMED, Range, Value, correlated, facts_of, of_cases
from rooflens.units import show

Outcome = Literal["supported", "rejected", "not decidable"]
Basis = Literal["measured", "estimated"]
BASES: tuple[Basis, ...] = ("measured", "estimated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One comparison of a claim.

    Attributes:
        group: what the claim is made for: a model, mostly.
        left, right: the sides in words; `right` is "" for a number of the claim's own.
        left_value, right_value: in base units, the factor of a side applied; None where it is not known.
        holds: None where it cannot be told; `why` then says what is missing.
    """

    group: str
    left: str
    right: str
    left_value: float | None
    right_value: float | None
    holds: bool | None
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """Left over right."""
        return self.left_value / self.right_value if self.left_value is not None and self.right_value else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a hypothesis.

    Attributes:
        basis: what it was judged by.
        pairs: every comparison, those against the claim included.
        sentence: the outcome in words, with its numbers.
    """

    hypothesis: Hypothesis
    outcome: Outcome
    basis: Basis | None = None
    pairs: tuple[Pair, ...] = ()
    sentence: str = ""

    @property
    def against(self) -> tuple[Pair, ...]:
        """The comparisons that speak against it."""
        return tuple(pair for pair in self.pairs if pair.holds is False)

    @property
    def undecided(self) -> tuple[Pair, ...]:
        """The comparisons that say nothing."""
        return tuple(pair for pair in self.pairs if pair.holds is None)


Names = Mapping[str, frozenset[str]]
"""Words for a machine, like ``cuda``, and the devices that they turned out to be."""


@dataclass(frozen=True, slots=True)
class _Lacking:
    """A case that the study asks for and that has no records."""

    case: Case
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What claims are judged by."""

    joined: tuple[Evidence, ...]
    records: RecordSet
    names: Names
    lacking: tuple[_Lacking, ...]

    def meets(self, facts: Mapping[str, Scalar | None], wanted: Mapping[str, Scalar]) -> bool:
        """Whether a case is one of those that are wanted."""
        return all(self._agrees(facts.get(name), value) for name, value in wanted.items())

    def _agrees(self, value: Scalar | None, wanted: Scalar) -> bool:
        if value is None:  # an option that a case does not name is off
            return wanted is False
        return agrees(value, wanted) or value in self.names.get(str(wanted), ())


def judge(
    hypotheses: Iterable[Hypothesis], records: RecordSet, names: Names | None = None, left: Iterable[Cell] = ()
) -> tuple[Verdict, ...]:
    """What the records say of each hypothesis.

    Args:
        records: of the study, with its failures: what failed leaves a claim undecided, it does not support it.
        names: what words of the study for a machine turned out to be, see :meth:`StudyFolder.names`.
        left: cells that the study still has to run: like those that failed, they leave open what they may say.
    """
    failed = [_Lacking(f.case, f.source, f"failed: {f.kind}") for f in records.failures]
    waiting = [_Lacking(cell.case, cell.source, "is not run yet") for cell in left if cell.source != "replay"]
    known = _Evidence(join(records), records, names or {}, (*failed, *waiting))
    return tuple(_verdict(hypothesis, known) for hypothesis in hypotheses)


def _verdict(hypothesis: Hypothesis, evidence: _Evidence) -> Verdict:
    claim = hypothesis.claim
    if claim is None:
        return Verdict(hypothesis=hypothesis, outcome="not decidable", sentence="It states no claim; judge yourself.")
    found: list[Verdict] = []
    for basis in BASES:
        pairs = tuple(_pairs(claim, basis, evidence))
        outcome = _outcome(claim, pairs)
        found.append(
            Verdict(
                hypothesis=hypothesis,
                outcome=outcome,
                basis=basis,
                pairs=pairs,
                sentence=_sentence(claim, outcome, basis, pairs),
            )
        )
    decided = [verdict for verdict in found if verdict.outcome != "not decidable"]
    return (decided or [verdict for verdict in found if verdict.pairs] or found)[0]


def _outcome(claim: Claim, pairs: Sequence[Pair]) -> Outcome:
    groups: dict[str, list[bool | None]] = {}
    for pair in pairs:
        groups.setdefault(pair.group, []).append(pair.holds)
    held = [False if False in each else None if None in each else True for each in groups.values()]
    yes, no = held.count(True), held.count(False)
    needed, refuted = {
        "every": (len(held), 1),
        "most": (len(held) // 2 + 1, (len(held) + 1) // 2),
        "some": (1, len(held)),
    }[claim.amount]
    if not held:
        return "not decidable"
    return "supported" if yes >= needed else "rejected" if no >= refuted else "not decidable"


def _pairs(claim: Claim, basis: Basis, evidence: _Evidence) -> Iterator[Pair]:
    lefts = list(_values(claim, claim.left, basis, evidence))
    if claim.right.value is not None:
        for left in lefts:
            yield _pair(claim, left, Value(facts={}, label="", number=claim.right.value))
        yield from _lacks(claim, claim.left, basis, evidence)
        return
    # What both sides may differ in: everything else has to agree.
    free = {*claim.left.conditions, *claim.right.conditions}
    rights = list(_values(claim, claim.right, basis, evidence))
    partners: dict[tuple[object, ...], list[Value]] = {}
    for right in rights:
        partners.setdefault(_shared(right, free), []).append(right)
    for left in lefts:
        # One that has no counterpart is not compared: the study leaves the other out, or tells below that it lacks it.
        for right in partners.get(_shared(left, free), ()):
            yield _pair(claim, left, right)
    yield from _lacks(claim, claim.left, basis, evidence)
    if claim.right.conditions != claim.left.conditions:
        yield from _lacks(claim, claim.right, basis, evidence)


def _pair(claim: Claim, left: Value, right: Value) -> Pair:
    first, second = _scaled(claim.left, left), _scaled(claim.right, right)
    unknown = next((value.label for value in (left, right) if value.number is None), None)
    holds = None if unknown is not None else _holds(claim.relation, first[0], second[0], claim.margin)
    why = "" if unknown is None else f"{unknown}: its value is not known"
    if unknown is None and holds is None:
        why = "the difference is within the uncertainty of the measurements"
    return Pair(
        group=_group(claim, left.facts, left.label),
        left=left.label,
        right=right.label,
        left_value=first[1],
        right_value=second[1],
        holds=holds,
        why=why,
    )


def _scaled(side: Side, value: Value) -> tuple[Range, float | None]:
    """The range in which a value lies, and the value, times the factor of its side."""
    if value.number is None:
        return (0.0, 0.0), None
    low, high = value.interval or (value.number, value.number)
    return (low * side.times, high * side.times), value.number * side.times


def _holds(relation: Relation, left: Range, right: Range, margin: float) -> bool | None:
    """Whether a relation holds, or fails, wherever in their ranges the two values lie; None if that would decide it."""
    less, more = (_times(right, 1 - margin), _times(right, 1 + margin))
    if relation == "<":
        return _below(left, less, strict=True)
    if relation == ">":
        return _below(more, left, strict=True)
    if relation == "<=":
        return _below(left, more)
    if relation == ">=":
        return _below(less, left)
    both = (_below(less, left), _below(left, more))
    return False if False in both else None if None in both else True


def _times(values: Range, factor: float) -> Range:
    return values[0] * factor, values[1] * factor


def _below(one: Range, other: Range, *, strict: bool = False) -> bool | None:
    if one[1] < other[0] or (one[1] == other[0] and not strict):
        return True
    return False if one[0] > other[1] or (one[0] == other[1] and strict) else None


def _values(claim: Claim, side: Side, basis: Basis, evidence: _Evidence) -> list[Value]:
    """Every value that a side is about."""
    wanted = {**claim.where, **side.conditions}
    quantity, phase = side.quantity or claim.quantity, wanted.get("phase")
    measured = _is_measured(claim, side, basis)
    if quantity in CORRELATIONS:
        every = correlated(quantity, evidence.records, measured=measured, phase=phase)
    else:
        every = of_cases(quantity, evidence.joined, measured=measured, phase=phase, with_time=_mentions_time(claim))
    # One estimate stands beside each measurement of its case.
    met = (value for value in every if evidence.meets(value.facts, wanted))
    return list({tuple(value.facts.items()): value for value in met}.values())


def _is_measured(claim: Claim, side: Side, basis: Basis) -> bool:
    """Whether a side is about what was observed: its own word for the source decides, else the basis."""
    source = side.conditions.get("source", claim.where.get("source"))
    return basis == "measured" if source is None else source != "estimate"


def _mentions_time(claim: Claim) -> bool:
    said = (claim.quantity, claim.left.quantity, claim.right.quantity)
    return any(q in TIMED for q in said) or "source" in {*claim.left.conditions, *claim.right.conditions, *claim.where}


def _shared(value: Value, free: set[str]) -> tuple[object, ...]:
    return tuple(sorted((name, str(fact)) for name, fact in value.facts.items() if name not in free))


def _group(claim: Claim, facts: Mapping[str, Scalar | None], label: str) -> str:
    return label if claim.every == "case" else str(facts.get(claim.every))


def _lacks(claim: Claim, side: Side, basis: Basis, evidence: _Evidence) -> Iterator[Pair]:
    """What a side lacks because it failed, or is not run yet."""
    measured = _is_measured(claim, side, basis)
    wanted = {name: value for name, value in {**claim.where, **side.conditions}.items() if name not in _WITHIN}
    for item in evidence.lacking:
        facts, label = facts_of(item.case) | {"source": item.source}, item.case.label()
        if (item.source != "estimate") == measured and evidence.meets(facts, wanted):
            yield Pair(
                group=_group(claim, facts, label),
                left=label,
                right="",
                left_value=None,
                right_value=None,
                holds=None,
                why=f"{label} {item.why}",
            )


_WITHIN = ("phase", "of")
"""Conditions on a part of a case, or on something over many: a failure has neither."""


def _sentence(claim: Claim, outcome: Outcome, basis: Basis, pairs: Sequence[Pair]) -> str:
    """The outcome with its numbers."""
    by = "by measurements" if basis == "measured" else "by estimates"
    held = [pair for pair in pairs if pair.holds]
    against = [pair for pair in pairs if pair.holds is False]
    if not pairs:
        return "Not decidable: the records hold no case that it is about."
    said = f"{outcome.capitalize()} {by}: {len(held)} of {len(pairs)} comparisons hold"
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    if ratios:
        spread = f"{min(ratios):.3g}" if min(ratios) == max(ratios) else f"{min(ratios):.3g} to {max(ratios):.3g}"
        said += f", left over right {spread}"
    said += "."
    if against:
        worst = against[0]
        unit = QUANTITIES.get(claim.left.quantity or claim.quantity, "")
        other = QUANTITIES.get(claim.right.quantity or claim.quantity, "")
        said += f" Against it: {worst.left} with {_shown(worst.left_value, unit)}, held against"
        said += f" {worst.right} with {_shown(worst.right_value, other)}" if worst.right else ""
        said += "" if worst.right else f" {_shown(worst.right_value, other)}"
        said += f", and {len(against) - 1} more." if len(against) > 1 else "."
    elif outcome == "not decidable":
        why = next((pair.why for pair in pairs if pair.why), "")
        said += f" {why[:1].upper()}{why[1:]}." if why else ""
    return said


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "an unknown value"
    return show(value, unit) if unit else f"{value:.4g}"
