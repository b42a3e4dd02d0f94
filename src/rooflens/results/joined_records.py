"""The records of several sets together: parts of one estimate make the whole again, runs stay side by side."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from operator import attrgetter

from rooflens.errors import InvalidValue
from rooflens.records import EVERY_PHASE, Case, Environment, Record
from rooflens.results.first_difference import first_difference
from rooflens.results.kept_records import KeptRecords, LayerMaker
from rooflens.results.several_runs import SeveralRuns, alike
from rooflens.results.totals import grouped_by


@dataclass(frozen=True, kw_only=True, eq=False)
class PartOfSet:
    """What is joined of one set.

    Attributes:
        kept: its records.
        origin: those of the set from which it was cut; its own where it was not.
        environment: where and when the records were made; None where nobody knows.
    """

    kept: KeptRecords
    origin: KeptRecords
    environment: Environment | None

    @cached_property
    def estimates(self) -> Mapping[Case, Sequence[Record]]:
        """The estimated records of those kept, by case."""
        estimated = (record for record in self.kept.summed if record.source == "estimate")
        return grouped_by(estimated, attrgetter("case"))


PlaceInEstimate = tuple[Hashable, ...]


def joined_records(sets: Sequence[PartOfSet]) -> KeptRecords:
    """Return the records of several sets, in order of appearance.

    Raises:
        InvalidValue: two sets hold different estimates of one case; the message names what differs.
    """
    holders: dict[Case, list[PartOfSet]] = {}
    observed: dict[int, dict[int, Record]] = {}  # by origin: parts share records; equal ones may be two
    for one in sets:
        for case in one.estimates:
            holders.setdefault(case, []).append(one)
        its = observed.setdefault(id(one.origin), {})
        its |= {id(record): record for record in one.kept.summed if record.source != "estimate"}
    runs, records, makers = SeveralRuns(), list[Record](), dict[Case, LayerMaker]()
    for one in sets:
        for case in one.estimates:
            if (holding := holders.pop(case, None)) is not None:
                holder, joined = (one, one.estimates[case]) if len(holding) == 1 else _joined_estimate(case, holding)
                records += joined
                makers |= {case: holder.kept.makers[case]} if case in holder.kept.makers else {}
        if run := observed.pop(id(one.origin), {}):
            records += runs.apart([*run.values()])
    return KeptRecords(summed=tuple(records), makers=makers)


def _joined_estimate(case: Case, sets: Sequence[PartOfSet]) -> tuple[PartOfSet, Sequence[Record]]:
    """Return the estimate of a case of which each set holds all or a part, and a set that makes its layers, if any."""
    first = next((one for one in sets if case in one.kept.makers), sets[0])
    sums, records = case in first.kept.makers, first.estimates[case]
    if all((case in one.kept.makers) == sums and alike(records, one.estimates[case]) for one in sets):
        return first, records
    apart: list[list[PartOfSet]] = []
    for one in sets:
        same = next((group for group in apart if _of_one_estimate(case, group[0], one)), None)
        apart.append([one]) if same is None else same.append(one)
    parts = [_united(case, [one.kept.estimate(case) for one in same]) for same in apart]
    for part, other in combinations(parts, 2):
        _check_equal(case, part, other)
    together = _united(case, parts)
    if not sums:
        origins = {id(one.origin): one.origin.estimate(case) for one in sets}.values()
        return first, _in_order(together, max(origins, key=len))
    if (stranger := _beyond(together, first.kept.estimate(case))) is not None:
        raise _different(case, f"only one has {_words(stranger)}")
    return first, records


def _of_one_estimate(case: Case, one: PartOfSet, other: PartOfSet) -> bool:
    """True if both sets are cut from one, or hold records that were made at once."""
    if one.origin is other.origin or (one.environment is not None and one.environment == other.environment):
        return True
    return one.estimates[case][0].case is other.estimates[case][0].case  # which they share since they were made


def _in_order(records: Sequence[Record], whole: Sequence[Record]) -> Sequence[Record]:
    """Return parts of an estimate in the order in which it runs; of its phases, where `whole` is a part too."""
    order = {_place(record): n for n, record in enumerate(whole)}
    if all(_place(record) in order for record in records):
        return sorted(records, key=lambda record: order[_place(record)])
    return sorted(records, key=lambda r: EVERY_PHASE.index(r.phase) if r.phase else len(EVERY_PHASE))


def _place(record: Record) -> PlaceInEstimate:
    """Where a record stands in its estimate, which has one for each place."""
    piece = (record.scope, record.phase, record.path, record.kind, record.name)
    return (*piece, record.recomputed, record.tokens, record.call)


def _united(case: Case, parts: Sequence[Sequence[Record]]) -> Sequence[Record]:
    """Return the records of parts of one estimate, those of each place from the first that has it.

    Raises:
        InvalidValue: two parts tell of one place what differs.
    """
    together: dict[PlaceInEstimate, list[Record]] = {}
    for part in parts:
        for place, records in grouped_by(part, _place).items():
            same = together.setdefault(place, records)[0]
            if not alike([same], records[:1]):
                its, theirs = replace(same, notes=()), replace(records[0], notes=())
                raise _different(case, f"{first_difference(its, theirs)} ({_words(same)})")
    return [record for records in together.values() for record in records]


def _check_equal(case: Case, one: Sequence[Record], other: Sequence[Record]) -> None:
    """Raise InvalidValue where two sets, which were made one after the other, do not hold one estimate.

    One may hold a part of the other; a whole, which has the record of the model, is no part.
    """
    _united(case, (one, other))
    wholes = [any(record.scope == "model" for record in part) for part in (one, other)]
    only = _beyond(one, other), _beyond(other, one)
    if all(only) or (wholes[1] and only[0]) or (wholes[0] and only[1]):
        told = [_words(record) for record in only if record is not None]
        raise _different(case, f"only one has {', and only the other '.join(told)}")


def _beyond(records: Sequence[Record], others: Sequence[Record]) -> Record | None:
    """The first record whose place none of the others has."""
    places = set(map(_place, others))
    return next((record for record in records if _place(record) not in places), None)


def _different(case: Case, how: str) -> InvalidValue:
    advice = "if these are two modules, give them names (name=)"
    return InvalidValue(f"the sets hold two different estimates of {case.label()!r}: {how}; {advice}")


def _words(record: Record) -> str:
    """A piece of a model in words."""
    if record.scope == "model":
        return "the model"
    sizes = ", ".join("x".join(map(str, each.shape)) for each in record.call.inputs) if record.call else ""
    called = f"{record.name or record.kind or record.scope}{f' of {sizes}' if sizes else ''}"
    return f"{called} in {record.path or 'the model'}{f', {record.phase}' if record.phase else ''}"
