"""Judging a claim over records: supported, rejected or not decidable, with the numbers and the cells against it.

Each case of the left side is held against the case of the right side that differs in nothing else. Measured times and
bounds are never mixed in one judgement: where anything of a claim was measured, or failed to be, measurements alone
judge it; estimates stand for them where nothing was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from rooflens.compare.uncertainty import METHODS, Interval
from rooflens.records import ANSWER_PHASES, Case, Scalar
from rooflens.reported import DeviceAliases
from rooflens.results import RecordSet, Time, join
from rooflens.results.quantities import ratio
from rooflens.runs.options import ANSWERING
from rooflens.runs.run import recorded_name
from rooflens.study.claim_values import EXPECTED, TIMED, ClaimValue, Lacking, correlated, moved, of_cases
from rooflens.study.grid import agrees
from rooflens.study.hypotheses import CORRELATED
from rooflens.study.matching import anyway, first_partners, matched, meets
from rooflens.study.sentences import sentence_of
from rooflens.study.study import Cell, Claim, Hypothesis, Relation, Side
from rooflens.study.verdict import Basis, Outcome, Pair, Verdict, held_each

_WITHIN = ("phase", "of")
"""Conditions on a part of a case, or on something over many: a case without records has neither."""
_WITHIN_REACH: Mapping[Time, str] = {
    "measured": "the difference is within the uncertainty of the measurements",
    "predicted": "the bands of the expected times overlap",
}
"""Why a comparison of known numbers is open."""
_FEW_MODELS = "the interval of the correlation is wide: more models would decide it"


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
    """A case as its records name it: on the device that the study's word for it stands for, if that is one device."""
    case = replace(case, model=recorded_name(case.model, below_here=False))
    devices = aliases.get(case.device or "", frozenset())
    return replace(case, device=next(iter(devices))) if len(devices) == 1 else case


def _verdict(hypothesis: Hypothesis, evidence: _Evidence) -> Verdict:
    claim = hypothesis.claim
    if claim is None:
        return Verdict(hypothesis=hypothesis, outcome="not decidable", sentence="It states no claim; judge yourself.")
    measured, estimated = _by_basis(hypothesis, claim, "measured", evidence), _by_estimates(hypothesis, claim, evidence)
    if _is_tried(measured):
        return replace(measured, sentence=measured.sentence + _by_estimates_alone(measured, estimated))
    if not _is_tried(estimated) and measured.pairs:
        return measured
    if estimated.pairs and any(pair.lacks == "not run" for pair in measured.pairs):
        return replace(estimated, sentence=f"{estimated.sentence} Nothing of it is measured yet.")
    return estimated


def _by_estimates(hypothesis: Hypothesis, claim: Claim, evidence: _Evidence) -> Verdict:
    """By expected times, where a claim is on what they tell and they tell as much as the bounds do, else by bounds."""

    def tells(verdict: Verdict) -> tuple[int, int]:
        return sum(pair.lacks is None for pair in verdict.pairs), len(verdict.pairs)

    bounds = _by_basis(hypothesis, claim, "bound", evidence)
    quantities = {side.quantity or claim.quantity for side in (claim.left, claim.right) if side.value is None}
    if not quantities & EXPECTED:
        return bounds
    expected = _by_basis(hypothesis, claim, "predicted", evidence)
    return expected if tells(expected) >= tells(bounds) else bounds


def _by_basis(hypothesis: Hypothesis, claim: Claim, time: Time, evidence: _Evidence) -> Verdict:
    pairs = tuple(_pairs(claim, time, evidence))
    basis: Basis = "measured" if time == "measured" else "estimated"
    verdict = Verdict(
        hypothesis=hypothesis,
        outcome=_outcome(claim, pairs),
        basis=basis if pairs else None,
        by_expected=time == "predicted",
        pairs=pairs,
    )
    return replace(verdict, sentence=sentence_of(verdict, claim))


def _is_tried(verdict: Verdict) -> bool:
    """True if the records hold a comparison of this kind, or the failure of one: nothing then stands for it."""
    return any(pair.lacks in (None, "failed") for pair in verdict.pairs)


def _by_estimates_alone(measured: Verdict, estimated: Verdict) -> str:
    """What estimates say of a claim that measurements leave open."""
    if measured.outcome != "not decidable" or estimated.outcome == "not decidable":
        return ""
    held, of = len(estimated.supporting), len(estimated.pairs)
    return f" By estimates alone it would be {estimated.outcome}: {held} of {of} comparisons hold."


def _outcome(claim: Claim, pairs: Sequence[Pair]) -> Outcome:
    held = held_each(pairs)
    yes, no = held.count(True), held.count(False)
    needed, refuted = {
        "every": (len(held), 1),
        "most": (len(held) // 2 + 1, (len(held) + 1) // 2),
        "some": (1, len(held)),
    }[claim.amount]
    if not held:
        return "not decidable"
    return "supported" if yes >= needed else "rejected" if no >= refuted else "not decidable"


def _pairs(claim: Claim, time: Time, evidence: _Evidence) -> Iterator[Pair]:
    # What both sides may differ in: everything else has to agree.
    free = {*claim.left.conditions, *claim.right.conditions}
    lefts, rights = (_values(claim, side, time, evidence) for side in (claim.left, claim.right))
    if claim.left.value is not None or claim.right.value is not None:
        compared: Iterable[tuple[ClaimValue, ClaimValue]] = product(lefts, rights)
    else:
        compared = matched(lefts, rights, free, evidence.aliases)
    over_models = time != "measured" and {claim.quantity, claim.left.quantity, claim.right.quantity} & {*METHODS}
    open_ = _FEW_MODELS if over_models else _WITHIN_REACH.get(time, "")
    return (_pair(claim, left, right, open_) for left, right in compared)


def _pair(claim: Claim, left: ClaimValue, right: ClaimValue, open_: str) -> Pair:
    first, second = left.interval_times(claim.left.times), right.interval_times(claim.right.times)
    holds = None if first is None or second is None else _holds(claim.relation, first, second, claim.margin)
    lacking = next((value for value in (left, right) if value.number is None), None)
    why = open_ if holds is None else ""
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
        doubts=tuple(dict.fromkeys((*left.doubts, *right.doubts))),
    )


def _times(factor: float, label: str) -> str:
    return label if factor == 1 or not label else f"{factor:g} times {label}"


def _holds(relation: Relation, left: Interval, right: Interval, margin: float) -> bool | None:
    """True or false if a relation holds, or fails, wherever in their intervals the values lie; else None."""
    less, more = (moved(right, share) for share in (-margin, margin))
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


def _below(one: Interval, other: Interval, *, strict: bool = False) -> bool | None:
    if one[1] < other[0] or (one[1] == other[0] and not strict):
        return True
    return False if one[0] > other[1] or (one[0] == other[1] and strict) else None


def _values(claim: Claim, side: Side, time: Time, evidence: _Evidence) -> list[ClaimValue]:
    """Every value that a side is about: the number that it gives, or what is known and what is lacking of its cases."""
    if side.value is not None:
        return [ClaimValue(facts={}, label="", number=side.value)]
    wanted = {**claim.where, **side.conditions}
    quantity, phase = side.quantity or claim.quantity, wanted.get("phase")
    measured, with_time = _is_measured(claim, side, time), _mentions_time(claim)
    by: Time = "measured" if measured else "predicted" if time == "predicted" and quantity in EXPECTED else "bound"
    method = next((each for each in METHODS if each == quantity), None)
    if method is not None:
        of = [known for known in CORRELATED if agrees(known, wanted.get("of", "*"))]
        every = correlated(method, of, evidence.records, time=by, phase=phase)
    else:
        every = of_cases(quantity, join(evidence.records), time=by, phase=phase, with_time=with_time)
    # One estimate stands beside each measurement of its case.
    met = {tuple(value.facts.items()): value for value in every if meets(value.facts, wanted, evidence.aliases)}
    known = list(met.values())
    whole = {name: value for name, value in wanted.items() if name not in _WITHIN}
    lacking = [
        value
        for item in evidence.lacking
        if item.tells(quantity, measured=measured, with_time=with_time)
        and _may_have(item.case, phase)
        and meets((value := item.value(phase, over_models=method is not None)).facts, whole, evidence.aliases)
    ]
    if method is not None:
        return [*known, *lacking]
    # What another source tells of the same case is not lacking.
    told = {id(value) for value, _ in first_partners(lacking, known, {"source"}, evidence.aliases)}
    return [*known, *(value for value in lacking if id(value) not in told)]


def _may_have(case: Case, phase: Scalar | None) -> bool:
    """True if a case of which nothing is known may have a phase."""
    if case.mode in ANSWERING or phase in ANSWER_PHASES:
        return phase is None or (case.mode in ANSWERING and phase in ANSWER_PHASES)
    return phase in (None, "forward") or case.mode == "train"


def _is_measured(claim: Claim, side: Side, time: Time) -> bool:
    """True if a side is about what was observed: the source that it names decides, else the time."""
    source = side.conditions.get("source", claim.where.get("source"))
    return time == "measured" if source is None else source != "estimate"


def _mentions_time(claim: Claim) -> bool:
    quantities = (claim.quantity, claim.left.quantity, claim.right.quantity)
    conditions = {*claim.left.conditions, *claim.right.conditions, *claim.where}
    return any(quantity in TIMED for quantity in quantities) or "source" in conditions
