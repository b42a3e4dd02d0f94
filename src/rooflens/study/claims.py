"""Judging a claim over records: supported, rejected or not decidable, with the numbers and the cells against it.

Each case of the left side is held against the case of the right side that differs in nothing else. Measured times and
bounds are never mixed in one judgement: where anything of a claim was measured, or failed to be, measurements alone
judge it; estimates stand for them where nothing was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from rooflens.compare.uncertainty import METHODS, Interval
from rooflens.grouping import grouped_by
from rooflens.records import Case
from rooflens.reported import DeviceAliases
from rooflens.results import RecordSet, join
from rooflens.results.quantities import ratio
from rooflens.study.claim_values import TIMED, ClaimValue, Lack, Lacking, correlated, of_cases
from rooflens.study.grid import agrees
from rooflens.study.hypotheses import CORRELATED, QUANTITIES
from rooflens.study.matching import anyway, first_partners, matched, meets
from rooflens.study.study import Amount, Cell, Claim, Hypothesis, Relation, Side
from rooflens.units import show

Outcome = Literal["supported", "rejected", "not decidable"]
Basis = Literal["measured", "estimated"]
BASES: tuple[Basis, ...] = ("measured", "estimated")
_CLAIMED: Mapping[Amount, str] = {"every": "", "most": "more than half is claimed", "some": "one is claimed"}
_WITHIN = ("phase", "of")
"""Conditions on a part of a case, or on something over many: a case without records has neither."""


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


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What claims are judged by."""

    records: RecordSet
    aliases: DeviceAliases
    lacking: tuple[Lacking, ...]


def judge(
    hypotheses: Iterable[Hypothesis],
    records: RecordSet,
    aliases: DeviceAliases | None = None,
    left: Iterable[Cell] = (),
) -> tuple[Verdict, ...]:
    """Judge each hypothesis by the records of a study.

    Args:
        records: with the failures of the study: what failed leaves a claim undecided, it does not support it.
        aliases: the devices that words of the study for a machine stand for.
        left: cells that the study still has to run: like those that failed, they leave open what they may say.
    """
    aliases = aliases or {}
    failed = (
        Lacking(
            case=_placed(failure.case, aliases),
            source=failure.source,
            lacks="failed",
            why=f"{'skipped' if failure.skipped else 'failed'}: {failure.reason}",
        )
        for failure in records.failures
    )
    waiting = (
        Lacking(case=_placed(cell.case, aliases), source=cell.source, lacks="not run", why="is not run yet")
        for cell in left
        if cell.source != "replay"
    )
    evidence = _Evidence(records, aliases, (*failed, *waiting))
    return tuple(_verdict(hypothesis, evidence) for hypothesis in hypotheses)


def _placed(case: Case, aliases: DeviceAliases) -> Case:
    """A case on the device that the study's word for it stands for, if that is one device."""
    devices = aliases.get(case.device or "", frozenset())
    return replace(case, device=next(iter(devices))) if len(devices) == 1 else case


def _verdict(hypothesis: Hypothesis, evidence: _Evidence) -> Verdict:
    claim = hypothesis.claim
    if claim is None:
        return Verdict(hypothesis=hypothesis, outcome="not decidable", sentence="It states no claim; judge yourself.")
    measured, estimated = (_by_basis(hypothesis, claim, basis, evidence) for basis in BASES)
    if _is_tried(measured):
        return replace(measured, sentence=measured.sentence + _by_estimates_alone(measured, estimated))
    if not _is_tried(estimated) and measured.pairs:
        return measured
    if estimated.pairs and any(pair.lacks == "not run" for pair in measured.pairs):
        return replace(estimated, sentence=f"{estimated.sentence} Nothing of it is measured yet.")
    return estimated


def _by_basis(hypothesis: Hypothesis, claim: Claim, basis: Basis, evidence: _Evidence) -> Verdict:
    pairs = tuple(_pairs(claim, basis, evidence))
    verdict = Verdict(
        hypothesis=hypothesis, outcome=_outcome(claim, pairs), basis=basis if pairs else None, pairs=pairs
    )
    return replace(verdict, sentence=_sentence(verdict, claim))


def _is_tried(verdict: Verdict) -> bool:
    """True if the records hold a comparison of this kind, or the failure of one: nothing then stands for it."""
    return any(pair.lacks in (None, "failed") for pair in verdict.pairs)


def _by_estimates_alone(measured: Verdict, estimated: Verdict) -> str:
    """What estimates say of a claim that measurements leave open."""
    if measured.outcome != "not decidable" or estimated.outcome == "not decidable":
        return ""
    held, of = len(estimated.supporting), len(estimated.pairs)
    return f" By estimates alone it would be {estimated.outcome}: {held} of {of} comparisons hold."


def _held(pairs: Sequence[Pair]) -> list[bool | None]:
    """Whether a claim holds for each of what it is made for: for all its comparisons, that is."""
    groups = [[pair.holds for pair in each] for each in grouped_by(pairs, lambda pair: pair.group).values()]
    return [False if False in each else None if None in each else True for each in groups]


def _outcome(claim: Claim, pairs: Sequence[Pair]) -> Outcome:
    held = _held(pairs)
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
    # What both sides may differ in: everything else has to agree.
    free = {*claim.left.conditions, *claim.right.conditions}
    lefts, rights = (_values(claim, side, basis, evidence) for side in (claim.left, claim.right))
    if claim.left.value is not None or claim.right.value is not None:
        compared: Iterable[tuple[ClaimValue, ClaimValue]] = product(lefts, rights)
    else:
        compared = matched(lefts, rights, free, evidence.aliases)
    return (_pair(claim, left, right) for left, right in compared)


def _pair(claim: Claim, left: ClaimValue, right: ClaimValue) -> Pair:
    first, second = left.interval_times(claim.left.times), right.interval_times(claim.right.times)
    holds = None if first is None or second is None else _holds(claim.relation, first, second, claim.margin)
    lacking = next((value for value in (left, right) if value.number is None), None)
    why = "the difference is within the uncertainty of the measurements" if holds is None else ""
    about = left if left.facts else right
    return Pair(
        group=about.label if claim.every == "case" else str(anyway(about.facts, claim.every)),
        left=_times(claim.left.times, left.label),
        right=_times(claim.right.times, right.label),
        left_value=None if left.number is None else left.number * claim.left.times,
        right_value=None if right.number is None else right.number * claim.right.times,
        holds=holds,
        ratio=ratio(left.number, right.number),
        why=why if lacking is None else lacking.why,
        lacks=None if lacking is None else lacking.lacks,
    )


def _times(factor: float, label: str) -> str:
    return label if factor == 1 or not label else f"{factor:g} times {label}"


def _holds(relation: Relation, left: Interval, right: Interval, margin: float) -> bool | None:
    """True or false if a relation holds, or fails, wherever in their intervals the values lie; else None."""
    less, more = (_moved(right, share) for share in (-margin, margin))
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


def _moved(values: Interval, share: float) -> Interval:
    """An interval moved by a share of its size: down for a negative share, whatever the sign of the values."""
    ends = [value + share * abs(value) for value in values]
    if values[0] < 0 < values[1]:
        ends.append(0.0)
    return min(ends), max(ends)


def _below(one: Interval, other: Interval, *, strict: bool = False) -> bool | None:
    if one[1] < other[0] or (one[1] == other[0] and not strict):
        return True
    return False if one[0] > other[1] or (one[0] == other[1] and strict) else None


def _values(claim: Claim, side: Side, basis: Basis, evidence: _Evidence) -> list[ClaimValue]:
    """Every value that a side is about: the number that it gives, or what is known and what is lacking of its cases."""
    if side.value is not None:
        return [ClaimValue(facts={}, label="", number=side.value)]
    wanted = {**claim.where, **side.conditions}
    quantity, phase = side.quantity or claim.quantity, wanted.get("phase")
    measured, with_time = _is_measured(claim, side, basis), _mentions_time(claim)
    method = next((each for each in METHODS if each == quantity), None)
    if method is not None:
        of = [known for known in CORRELATED if agrees(known, wanted.get("of", "*"))]
        every = correlated(method, of, evidence.records, measured=measured, phase=phase)
    else:
        every = of_cases(quantity, join(evidence.records), measured=measured, phase=phase, with_time=with_time)
    # One estimate stands beside each measurement of its case.
    met = {tuple(value.facts.items()): value for value in every if meets(value.facts, wanted, evidence.aliases)}
    known = list(met.values())
    whole = {name: value for name, value in wanted.items() if name not in _WITHIN}
    lacking = [
        value
        for item in evidence.lacking
        if item.tells(quantity, measured=measured, with_time=with_time)
        and (phase in (None, "forward") or item.case.mode == "train")
        and meets((value := item.value(phase, over_models=method is not None)).facts, whole, evidence.aliases)
    ]
    if method is not None:
        return [*known, *lacking]
    # What another source tells of the same case is not lacking.
    told = {id(value) for value, _ in first_partners(lacking, known, {"source"}, evidence.aliases)}
    return [*known, *(value for value in lacking if id(value) not in told)]


def _is_measured(claim: Claim, side: Side, basis: Basis) -> bool:
    """True if a side is about what was observed: the source that it names decides, else the basis."""
    source = side.conditions.get("source", claim.where.get("source"))
    return basis == "measured" if source is None else source != "estimate"


def _mentions_time(claim: Claim) -> bool:
    quantities = (claim.quantity, claim.left.quantity, claim.right.quantity)
    conditions = {*claim.left.conditions, *claim.right.conditions, *claim.where}
    return any(quantity in TIMED for quantity in quantities) or "source" in conditions


def _sentence(verdict: Verdict, claim: Claim) -> str:
    """The outcome with its numbers."""
    if not verdict.pairs:
        return "Not decidable: the records hold no case that it is about."
    by = "by measurements" if verdict.basis == "measured" else "by estimates"
    counts = f"{len(verdict.supporting)} of {len(verdict.pairs)} comparisons hold{_amount(verdict, claim)}"
    ratios = [pair.ratio for pair in verdict.pairs if pair.ratio is not None]
    spread = ""
    if ratios:
        low, high = f"{min(ratios):.3g}", f"{max(ratios):.3g}"
        spread = f", left over right {low}{f' to {high}' if low != high else ''}{_claimed(verdict, claim)}"
    sentence = f"{verdict.outcome.capitalize()} {by}: {counts}{spread}."
    if verdict.against:
        return f"{sentence} Against it: {_counterexample(verdict, claim)}"
    return sentence + (_undecided(verdict) if verdict.outcome == "not decidable" else "")


def _amount(verdict: Verdict, claim: Claim) -> str:
    """For how many it holds and has to, where that is not said by the number of comparisons."""
    held = _held(verdict.pairs)
    words = [f"{held.count(True)} of {len(held)} by {claim.every}"] if len(held) < len(verdict.pairs) else []
    words = [*words, *filter(None, [_CLAIMED[claim.amount]])]
    return f" ({', '.join(words)})" if words else ""


def _claimed(verdict: Verdict, claim: Claim) -> str:
    """The ratio that is claimed, where it is another one than 1; of negative numbers it says nothing."""
    if any(pair.ratio is not None and pair.ratio <= 0 for pair in verdict.pairs) or claim.left.times <= 0:
        return ""
    factor = claim.right.times / claim.left.times
    low, high = (f"{factor * (1 + share):.3g}" for share in (-claim.margin, claim.margin))
    words: Mapping[Relation, str] = {
        "<": f"below {low}", ">": f"above {high}", "<=": f"at most {high}", ">=": f"at least {low}",
        "=": low if low == high else f"{low} to {high}",
    }  # fmt: skip
    return f" (claimed: {words[claim.relation]})" if low != "1" or high != "1" else ""


def _counterexample(verdict: Verdict, claim: Claim) -> str:
    """The first comparison against a claim, and how many more there are."""
    first, more = verdict.against[0], len(verdict.against) - 1
    left = _with_number(first.left, first.left_value, claim.left.quantity or claim.quantity)
    right = _with_number(first.right, first.right_value, claim.right.quantity or claim.quantity)
    return f"{left}, held against {right}" + (f", and {more} more." if more else ".")


def _undecided(verdict: Verdict) -> str:
    """What leaves a claim open: what failed before all else."""
    order = ("failed", "not run", "unknown", None)
    pairs = sorted(verdict.undecided, key=lambda pair: order.index(pair.lacks))
    if not pairs:
        return ""
    if pairs[0].lacks is None:
        return f" {pairs[0].why[:1].upper()}{pairs[0].why[1:]}."
    why = list(dict.fromkeys(pair.why for pair in pairs if pair.lacks is not None))
    return f" Undecided: {why[0]}{f', and {len(why) - 1} more' if len(why) > 1 else ''}."


def _with_number(label: str, value: float | None, quantity: str) -> str:
    """A side with its number; the number alone where the claim gives it."""
    number = "an unknown value" if value is None else show(value, QUANTITIES.get(quantity, ""))
    if quantity == "throughput" and value is not None:
        number += " samples/s"
    return f"{label} with {number}" if label else number
