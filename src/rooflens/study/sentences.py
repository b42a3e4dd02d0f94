"""Verdicts in words, with their numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from rooflens.study.claim_values import CLOCKED, moved
from rooflens.study.hypotheses import CORRELATIONS, QUANTITIES
from rooflens.study.study import Amount, Claim, Relation, Side
from rooflens.study.verdict import Verdict, held_each
from rooflens.units import show

_CLAIMED: Mapping[Amount, str] = {"every": "", "most": "more than half is claimed", "some": "one is claimed"}
_TURNED: Mapping[Relation, Relation] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def sentence_of(verdict: Verdict, claim: Claim) -> str:
    """The outcome with its numbers."""
    if not verdict.pairs:
        return "Not decidable: the records hold no case that it is about."
    by = "by measurements" if verdict.basis == "measured" else _by_estimates(verdict, claim)
    counts = f"{len(verdict.supporting)} of {len(verdict.pairs)} comparisons hold{_amount(verdict, claim)}"
    sentence = f"{verdict.outcome.capitalize()} {by}: {counts}{_found(verdict, claim)}."
    if verdict.against:
        sentence += f" Against it: {_counterexample(verdict, claim)}"
    elif verdict.outcome == "not decidable":
        sentence += _undecided(verdict)
    return sentence + _doubts(verdict)


def _by_estimates(verdict: Verdict, claim: Claim) -> str:
    """Return what judges a claim where nothing was measured: expected times or bounds, or estimates."""
    quantities = {side.quantity or claim.quantity for side in (claim.left, claim.right) if side.value is None}
    timed = bool(quantities & {*CLOCKED, *CORRELATIONS})
    times = "bounds" if not verdict.by_expected else "expected times"
    if verdict.by_expected and not quantities <= {*CORRELATIONS}:
        times += " and their bands"
    by = times if timed or verdict.by_expected else "estimates"
    return f"by {by}, as no time was measured" if timed else f"by {by}"


def _doubts(verdict: Verdict) -> str:
    """What those who took the times say against them, and in how many comparisons."""
    each = (dict.fromkeys(doubt.partition(":")[0] for doubt in pair.doubts) for pair in verdict.pairs)
    told = [
        f"{doubt} (in {n} of {len(verdict.pairs)})" for doubt, n in Counter(chain.from_iterable(each)).most_common()
    ]
    return f" Doubtful by notes on the times: {', '.join(told)}." if told else ""


def _amount(verdict: Verdict, claim: Claim) -> str:
    """For how many it holds and has to, where that is not said by the number of comparisons."""
    held = held_each(verdict.pairs)
    words = [f"{held.count(True)} of {len(held)} by {claim.every}"] if len(held) < len(verdict.pairs) else []
    words = [*words, *filter(None, [_CLAIMED[claim.amount]])]
    return f" ({', '.join(words)})" if words else ""


def _found(verdict: Verdict, claim: Claim) -> str:
    """What was found beside what is claimed: values where the claim gives a number, else left over right."""
    left, right = claim.left, claim.right
    if left.value is None and right.value is None:
        ratios = [pair.ratio for pair in verdict.pairs if pair.ratio is not None]
        claimed = "" if any(value <= 0 for value in ratios) or left.times <= 0 else _claimed_ratio(claim)
        return f", left over right {_ends([f'{each(ratios):.3g}' for each in (min, max)])}{claimed}" if ratios else ""
    side = left if right.value is not None else right
    values = [pair.left_value if side is left else pair.right_value for pair in verdict.pairs]
    known, quantity = [value / side.times for value in values if value is not None and side.times], side.quantity
    if not known or side.times < 0:
        return ""
    told = [_with_number("", each(known), quantity or claim.quantity) for each in (min, max)]
    return f", {_ends(told)} (claimed: {_claimed_value(claim, side)})"


def _ends(texts: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(texts))


def _claimed_ratio(claim: Claim) -> str:
    """The ratio that is claimed, where it is another one than 1."""
    factor = claim.right.times / claim.left.times
    low, high = (f"{factor * (1 + share):.3g}" for share in (-claim.margin, claim.margin))
    return f" (claimed: {_related(claim.relation, low, high)})" if {low, high} != {"1"} else ""


def _claimed_value(claim: Claim, side: Side) -> str:
    """What is claimed of a side that is held against a number."""
    quantity, relation = side.quantity or claim.quantity, claim.relation
    if side is claim.left:
        number = claim.right.value or 0.0
        ends = moved((number, number), -claim.margin)[0], moved((number, number), claim.margin)[1]
    else:  # the number is held against the side, a share of which is the margin
        relation, number = _TURNED.get(relation, relation), claim.left.value or 0.0
        quotients = number / (1 + claim.margin), number / (1 - claim.margin) if claim.margin < 1 else math.inf
        ends = min(quotients), max(quotients)
    return _related(relation, *(_with_number("", end / side.times, quantity) for end in ends))


def _related(relation: Relation, low: str, high: str) -> str:
    words = {"<": f"below {low}", ">": f"above {high}", "<=": f"at most {high}", ">=": f"at least {low}"}
    return words.get(relation, _ends([low, high]))


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
