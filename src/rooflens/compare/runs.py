"""Two runs of the same steps: what got slower or faster, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from rooflens.compare.doubts import Doubtful, doubts_of, listed, of_sides, of_some
from rooflens.compare.environments import Difference, differences
from rooflens.compare.uncertainty import IN_PIECES, RatioChange, typical
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import Case, Failure, Phase
from rooflens.results import RecordSet
from rooflens.results.evidence import Evidence, join
from rooflens.results.totals import grouped_by
from rooflens.runs.options import OPTIONS

Direction = Literal["slower", "faster", "no difference", "not decided", "unknown"]
MATTERS = 0.05
"""The smallest difference that "no difference" excludes, as a share."""
FIELDS = tuple(field.name for field in fields(Case))
"""What `across` may name."""
SIDES = ("first", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange(Doubtful):
    """One step, or one phase of it, before and after.

    Attributes:
        before: the case on the first side; after: on the second: another one only in the fields compared across.
        phase: None is the whole step.
        before_seconds: see :func:`typical`; the sum where it was timed in pieces.
        p: p-value adjusted for the other rows of its kind (whole steps, or phases); None where nothing can be tested.
    """

    before: Case
    after: Case
    phase: Phase | None
    before_seconds: float
    after_seconds: float
    change: RatioChange
    p: float | None = None

    @property
    def significant(self) -> bool | None:
        """True if more than chance tells the sides apart; None where there are too few values to say."""
        return self.change.significant(self.p)

    @property
    def direction(self) -> Direction:
        """The verdict in a word."""
        if self.significant is None or self.change.ratio is None:
            return "unknown"
        if not self.significant:
            low, high = self.change.interval or (1.0, 1.0)
            return "no difference" if 1 / (1 + MATTERS) <= low and high <= 1 + MATTERS else "not decided"
        return "slower" if self.change.ratio > 1 else "faster"

    def slower_than(self, threshold: float) -> bool:
        """True if it is slower by more than `threshold` (0.05 is 5 %), and significantly slower."""
        return self.direction == "slower" and self.change.ratio is not None and self.change.ratio > 1 + threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison(Doubtful):
    """Two sets of runs.

    Attributes:
        changes: one per case that both sides hold, and one per phase where a step has several: phases come first.
        only_before: timed cases without a partner; `only_after`: likewise.
        failed: what failed on the second side and was timed on the first.
        differences: in what the environments differ.
    """

    changes: tuple[RunChange, ...]
    only_before: tuple[Case, ...] = ()
    only_after: tuple[Case, ...] = ()
    failed: tuple[Failure, ...] = ()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[RunChange, ...]:
        """The whole steps."""
        return tuple(item for item in self.changes if item.phase is None)

    def slower_than(self, threshold: float) -> tuple[RunChange, ...]:
        """Return the whole steps that are slower by more than `threshold` (0.05 is 5 %), and significantly slower."""
        return tuple(item for item in self.steps if item.slower_than(threshold))


def compare_runs(
    before: RecordSet, after: RecordSet, *, across: Collection[str] = (), force: bool = False
) -> RunComparison:
    """Return the same steps timed twice, case by case.

    Cases are partners if they agree in every field that is not named in `across`; a device that one side does not name
    is no difference. Several records of a case are several runs of it.

    Args:
        across: fields of the case, or options, that may differ, like ``("dtype",)``. Sides that differ in one option
            alone are compared across it, and a note says so.
        force: compare although the environments forbid it.

    Raises:
        InvalidValue: `across` names no field, or makes several cases of one side alike.
        Incomparable: no case has a partner, or the environments differ in what decides times.
    """
    across = [name.replace("-", "_") for name in across]
    unknown = [name for name in across if name not in (*FIELDS, *OPTIONS)]
    if unknown:
        raise InvalidValue(
            f"cannot compare across {unknown[0]!r}; known: {', '.join(FIELDS)}, or the name of an option"
        )
    one, other = ([item for item in join(side) if item.measured() is not None] for side in (before, after))
    pairs, told = _pairs(one, other, across), ""
    if not pairs and not across and (option := _only_option(one, other)):
        pairs = _pairs(one, other, [option])
        told = f"the sides differ in {option}, and are compared across it (--across {option})"
    if not pairs:
        raise Incomparable(_nothing_in_common(one, other))
    unlike = differences(before, after, pairs)
    if "device" in across:
        unlike = tuple(replace(item, forbids=False) if item.what in ("card", "cpu") else item for item in unlike)
    forbidding = [item for item in unlike if item.forbids]
    if forbidding and not force:
        raise Incomparable(
            f"the two sides are different experiments: {'; '.join(map(str, forbidding))}. Measure both alike, or"
            " compare them all the same (--force, force=True)"
        )
    only_before = _without(one, [pair[0] for pair in pairs])
    changes = _with_adjusted([row for pair in pairs for row in _rows(*pair)])
    steps = [row for row in changes if row.phase is None]
    doubts = (*_unknown(before, after), *_repeated(pairs), *_undecided(steps))
    return RunComparison(
        changes=changes,
        only_before=only_before,
        only_after=_without(other, [pair[1] for pair in pairs]),
        failed=tuple(failure for failure in after.failures if failure.case in only_before),
        differences=unlike,
        notes=(*([told] if told else []), *doubts, *_methods(steps)),
        doubts=doubts,
    )


def _pairs(
    before: Sequence[Evidence], after: Sequence[Evidence], across: Collection[str]
) -> list[tuple[Evidence, Evidence]]:
    """Return each case with its partner: the same case, else the only one that does not contradict it."""
    names = [name for name in FIELDS if name not in (*across, "device", "options")]

    def shared(item: Evidence) -> tuple[object, ...]:
        options = () if "options" in across else [each for each in item.case.options if each[0] not in across]
        return (*options, *(getattr(item.case, name) for name in names))

    def alike(one: Evidence, items: Mapping[tuple[object, ...], list[Evidence]]) -> list[Evidence]:
        fitting = items.get(shared(one), [])
        return [other for other in fitting if "device" in across or _same_device(one.case, other.case)]

    ours, theirs = (grouped_by(side, shared) for side in (before, after))
    pairs = []
    for item in before:
        fitting = alike(item, theirs)
        same = [other for other in fitting if other.case == item.case]
        rivals = [] if same or not fitting else alike(fitting[0], ours)
        if len(several := max(same or fitting, rivals, key=len)) > 1:
            raise InvalidValue(
                f"{item.case.label()!r} has no single partner: {listed([one.case for one in several])} are alike but"
                " for what is compared across; narrow the sets with where(...), or give each its own file"
            )
        pairs += [(item, partner) for partner in same or fitting]
    return pairs


def _only_option(before: Iterable[Evidence], after: Iterable[Evidence]) -> str | None:
    """Return the only option of which the two sides share no value; None where there are several, or none."""
    one, other = ([dict(item.case.options) for item in side] for side in (before, after))
    names = dict.fromkeys(name for options in (*one, *other) for name in options)
    unlike = [n for n in names if {o.get(n) for o in one}.isdisjoint(o.get(n) for o in other)]
    return unlike[0] if len(unlike) == 1 else None


def _same_device(one: Case, other: Case) -> bool:
    return one.device == other.device or None in (one.device, other.device)


def _without(side: Iterable[Evidence], paired: Collection[Evidence]) -> tuple[Case, ...]:
    known = {id(item) for item in paired}
    return tuple(item.case for item in side if id(item) not in known)


def _rows(one: Evidence, other: Evidence) -> Iterator[RunChange]:
    from rooflens.compare.statistics import change  # scipy takes a second to load

    phases = [phase for phase in one.phases if phase in other.phases] if len(one.phases) > 1 else []
    for phase in (*phases, None):
        before, after = one.measured(phase), other.measured(phase)
        if before is None or after is None:
            continue
        samples = [[timing.samples for timing in item.runs(phase)] for item in (one, other)]
        if all(samples):
            seconds, changed = (typical(samples[0]), typical(samples[1])), change(*samples)
        else:
            seconds = (before.seconds, after.seconds)
            ratio = after.seconds / before.seconds if before.seconds else None
            changed = RatioChange(ratio=ratio, values=None, undecided=IN_PIECES)
        yield RunChange(
            before=one.case,
            after=other.case,
            phase=phase,
            before_seconds=seconds[0],
            after_seconds=seconds[1],
            change=changed,
            doubts=tuple(dict.fromkeys((*one.doubts, *other.doubts))),
        )


def _with_adjusted(rows: Sequence[RunChange]) -> tuple[RunChange, ...]:
    """Return each p-value adjusted for its company: many tests at once find something by chance."""
    from rooflens.compare.statistics import adjusted  # scipy takes a second to load

    better: dict[int, float] = {}
    for whole in (True, False):
        tested = [(n, row.change.p) for n, row in enumerate(rows) if (row.phase is None) == whole]
        known = [(n, p) for n, p in tested if p is not None]
        better |= dict(zip((n for n, _ in known), adjusted([p for _, p in known]), strict=True))
    return tuple(replace(row, p=better.get(n)) for n, row in enumerate(rows))


def _unknown(before: RecordSet, after: RecordSet) -> Iterator[str]:
    for which, side in zip(SIDES, (before, after), strict=True):
        if side.environment is None:
            yield f"the {which} side tells nothing of its environment: whether both were measured alike is not known"


def _methods(steps: Sequence[RunChange]) -> Iterator[str]:
    if any(row.change.unit == "samples" and row.change.p is not None for row in steps):
        yield (
            "one run a side: what differs from run to run is in no interval; measure each side several times (a folder"
            " of record files is one side)"
        )


def _repeated(pairs: Sequence[tuple[Evidence, Evidence]]) -> Iterator[str]:
    """What makes the times of a side doubtful."""
    told: dict[str, list[str]] = {}
    for n, which in enumerate(SIDES):
        items = [pair[n] for pair in pairs]
        told[which] = [doubt for doubt in doubts_of(items) if not doubt.startswith("not steady")]
        if drifting := [item.case for item in items if any(timing.drift for timing in item.runs())]:
            told[which].append(f"not steady, so that the median depends on when it was taken{of_some(drifting, items)}")
    yield from of_sides(told)


def _undecided(steps: Sequence[RunChange]) -> Iterator[str]:
    for why, rows in grouped_by(steps, lambda row: row.change.undecided).items():
        if why:
            yield f"{why}: nothing can be said about chance{of_some([row.before for row in rows], steps)}"


def _nothing_in_common(before: Sequence[Evidence], after: Sequence[Evidence]) -> str:
    for which, side in zip(SIDES, (before, after), strict=True):
        if not side:
            return f"the {which} side holds no measured time: there is nothing to compare (rooflens measure makes one)"
    if {item.case.model for item in before}.isdisjoint(item.case.model for item in after):
        remedy = "compare the same models, or across them (--across model)"
    elif unlike := _unlike(before, after):
        remedy = f"the sides differ in {' and '.join(unlike)}: compare across it (--across {unlike[0]})"
        if "device" in unlike:
            remedy += ", or compare devices (--question devices)"
    else:
        remedy = "measure the same cases on both sides"
    sides = (listed([item.case for item in side]) for side in (before, after))
    return f"no case has a partner: {' against '.join(sides)}; {remedy}"


def _unlike(before: Sequence[Evidence], after: Sequence[Evidence]) -> list[str]:
    """Fields of which the two sides share no value."""
    return [
        name
        for name in FIELDS
        if {getattr(item.case, name) for item in before}.isdisjoint(getattr(item.case, name) for item in after)
    ]
