"""Estimate, measurement, profile and counters of the same thing, joined: how far apart are they, and where?

Everything is joined by case, then piece by piece: phases, modules, families or operations. What has no partner stays in
the result, alone in its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from rooflens.compare.statistics import Errors, errors_of
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import AS_IS, Case, Device, Phase, Record, Scalar, Source
from rooflens.results import RecordSet, Total
from rooflens.results.evidence import RUNNING, Estimates, Evidence

Level = Literal["case", "phase", "module", "family", "op"]
LEVELS: tuple[Level, ...] = get_args(Level)
Quantity = Literal["predicted", "bound", "flops", "dram"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
"""What an estimate says: the expected time, the shortest time, FLOP, and bytes to and from DRAM."""
OBSERVERS: tuple[Source, ...] = ("measure", "profile", "counters")
"""Whose time counts where several observed the same thing: times of the whole before sums of pieces."""
STATED = ("work", "stated")
"""The option of cases that hold what the user stated of kernels: neither an estimate nor observed."""

Part = tuple[Source, RecordSet]
Way = tuple[tuple[str, Scalar], ...]
"""How a step was run, where that tells two runs of it apart: on several GPUs, in a CUDA graph ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Which piece of a case; what is left open spans all."""

    phase: Phase | None = None
    path: str = ""
    kind: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What one source says of one piece; None is unknown.

    Attributes:
        seconds: of an estimate its bound, of an observer the time.
        predicted: seconds that an estimate expects.
        flops: all FLOP, recomputed ones included: of an estimate the algorithm's, of counters those executed, None
            where some were not counted.
        dram: bytes to and from DRAM: of an estimate the compulsory ones.
    """

    seconds: float | None = None
    predicted: float | None = None
    flops: float | None = None
    dram: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One piece of one case in the eyes of all that know it.

    Attributes:
        estimated: what the estimate says, None where it has no such piece.
        observed: what others say, by source.
    """

    case: Case
    key: Key
    estimated: Amounts | None = None
    observed: Mapping[Source, Amounts] = field(default_factory=dict)

    @property
    def paired(self) -> bool:
        """Whether the estimate and somebody else know it."""
        return self.estimated is not None and bool(self.observed)

    def pair(self, quantity: Quantity) -> tuple[float, float] | None:
        """What was estimated and what was observed; None where either is unknown."""
        if self.estimated is None:
            return None
        estimate = self.estimated.seconds if quantity == "bound" else getattr(self.estimated, quantity)
        seen = "seconds" if quantity in ("predicted", "bound") else quantity
        amounts = (getattr(self.observed[source], seen) for source in OBSERVERS if source in self.observed)
        observed = next((amount for amount in amounts if amount is not None), None)
        return None if estimate is None or observed is None else (estimate, observed)

    def ratio(self, quantity: Quantity) -> float | None:
        """Observed over estimated: measured over bound, executed over algorithmic, counted over compulsory."""
        pair = self.pair(quantity)
        return pair[1] / pair[0] if pair is not None and pair[0] else None

    def error(self, quantity: Quantity) -> float | None:
        """Relative error of the estimate: (estimated - observed) / observed."""
        pair = self.pair(quantity)
        return pair[0] / pair[1] - 1 if pair is not None and pair[1] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of what one source saw has a partner.

    Attributes:
        source: the estimate, or an observer.
        pieces: how many pieces it has; joined: those with a partner.
        share: share of its time (of the bound, for an estimate) in them; None where times are unknown.
    """

    source: Source
    pieces: int
    joined: int
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Every piece of every case, joined over sources.

    Attributes:
        rows: paired or not, in the order of the estimates, then of what only others saw.
        notes: what to know before using the numbers.
    """

    level: Level
    rows: tuple[Joined, ...]
    notes: tuple[str, ...] = ()

    @property
    def unpaired(self) -> tuple[Joined, ...]:
        """Pieces that only an estimate, or only an observer knows."""
        return tuple(row for row in self.rows if not row.paired)

    def errors(self, quantity: Quantity, rows: Iterable[Joined] | None = None) -> Errors | None:
        """MAPE, median, 90 % quantile and bias of an estimate's errors, over all rows or over some."""
        found = [row.error(quantity) for row in (self.rows if rows is None else rows)]
        return errors_of([error for error in found if error is not None])

    def by(self, name: str, quantity: Quantity) -> Mapping[str, Errors]:
        """The errors grouped by a field of the case or of the piece (device, dtype, kind, phase ...)."""
        groups: dict[str, list[Joined]] = {}
        for row in self.rows:
            if row.error(quantity) is not None:
                owner = row.key if hasattr(row.key, name) else row.case
                groups.setdefault(str(getattr(owner, name)), []).append(row)
        found = {key: self.errors(quantity, rows) for key, rows in groups.items()}
        return {key: errors for key, errors in found.items() if errors is not None}

    def worst(self, quantity: Quantity, most: int = 10) -> tuple[Joined, ...]:
        """The rows in which estimate and observation are furthest apart, in seconds, FLOP or bytes."""
        apart = [(abs(pair[0] - pair[1]), n) for n, row in enumerate(self.rows) if (pair := row.pair(quantity))]
        return tuple(self.rows[n] for _, n in sorted(apart, reverse=True)[:most])

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """How much of each source has a partner."""
        return tuple(_coverages(self.rows))


def compare_evidence(records: RecordSet, by: Level = "case") -> Agreement:
    """Estimates beside what was measured, profiled and counted of the same cases.

    An observer belongs to the estimate of its case (see :func:`rooflens.results.evidence.join`). A file of another tool
    does not know its case: it joins the only estimate that there is for its device, and a note says so.

    Raises:
        InvalidValue: an unknown level.
        Incomparable: there is no estimate, or nothing beside it.
    """
    if by not in LEVELS:
        raise InvalidValue(f"cannot join by {by!r}; known: {', '.join(LEVELS)}")
    parts = [part for part in records.split() if STATED not in part[0].options]
    estimates = {case: part for case, source, part in parts if source == "estimate"}
    if not estimates or len(estimates) == len(parts):
        missing = "an estimate" if not estimates else "a measurement, a profile or counters"
        hint = "" if estimates else " (runs are compared two sides at a time: a folder of files is a side)"
        raise Incomparable(
            f"evidence is an estimate and what was observed of the same case: {missing} is missing{hint}"
        )
    known, notes = Estimates(estimates), list[str]()
    beside: dict[Case | None, list[Part]] = {}
    for case, source, part in parts:
        if source != "estimate":
            beside.setdefault(_estimate_of(case, known, notes), []).append((source, part))
    rows = [
        row
        for case, part in estimates.items()
        for way, observers in _ways(beside.get(case, []))
        for row in _rows(part, observers, by, way)
    ]
    lost = [row for part in beside.get(None, ()) for row in _rows(None, [part], by)]
    return Agreement(level=by, rows=(*rows, *lost), notes=tuple(dict.fromkeys(notes)))


def _estimate_of(case: Case, estimates: Estimates, notes: list[str]) -> Case | None:
    """The estimate of an observed case; adds a note where the case was not known."""
    found = estimates.partner(case)
    if found is not None or case.dtype != AS_IS or case.batch is not None:
        return found
    fitting = [one for one in estimates.cases if case.device is None or one.device in (None, case.device)]
    if len(fitting) != 1:
        return None
    notes.append(f"{case.model!r} does not tell its case: taken for {fitting[0].label()!r}, the only one it may be")
    return fitting[0]


def _ways(observers: Sequence[Part]) -> Iterator[tuple[Way, Sequence[Part]]]:
    """The observers of one case; those of a source that ran it in several ways one by one, after the plainest."""
    plain: list[Part] = []
    others: list[tuple[Way, Part]] = []
    for source, part in sorted(observers, key=lambda observer: len(_way(observer))):
        way = _way((source, part))
        if way and any(source == known for known, _ in plain):
            others.append((way, (source, part)))
        else:
            plain.append((source, part))
    yield (), plain
    yield from ((way, [part]) for way, part in others)


def _way(observer: Part) -> Way:
    return tuple(option for option in observer[1].cases[0].options if option[0] in RUNNING)


def _rows(estimate: RecordSet | None, observers: Sequence[Part], by: Level, way: Way = ()) -> Iterator[Joined]:
    """The pieces of one case, each with what the sources say of it."""
    sources = [source for source, _ in observers]
    sets = [part for part in (estimate, *(part for _, part in observers)) if part is not None]
    named = _named(sets)
    case = replace(named, options=tuple(sorted({*named.options, *way})))
    if len(set(sources)) < len(sources):
        twice = next(source for source in sources if sources.count(source) > 1)
        raise InvalidValue(f"{case.label()}: two sets from {twice!r} belong to it; compare one at a time")
    device = next((sets[0].devices[name] for name in (case.device,) if name in sets[0].devices), None)
    seen = {phase for part in sets for phase in part.phases}
    only = seen.pop() if len(seen) == 1 else None
    estimated = {} if estimate is None else _estimated(estimate, device, by, only)
    observed = {source: _observed(case, estimate, part, by, only) for source, part in observers}
    for key in dict.fromkeys((*estimated, *(key for amounts in observed.values() for key in amounts))):
        yield Joined(
            case=case,
            key=key,
            estimated=estimated.get(key),
            observed={source: amounts[key] for source, amounts in observed.items() if key in amounts},
        )


def _named(sets: Sequence[RecordSet]) -> Case:
    """The case of the first set, on the device that any of them names."""
    cases = [part.cases[0] for part in sets]
    return replace(cases[0], device=next((case.device for case in cases if case.device is not None), None))


def _key(record: Record, by: Level, only: Phase | None) -> Key:
    phase = record.phase or only
    match by:
        case "case":
            return Key(phase=only)
        case "phase":
            return Key(phase=phase)
        case "module":
            return Key(phase=phase, path=record.path)
        case "family":
            return Key(phase=phase, kind=record.kind)
        case "op":
            return Key(phase=phase, path=record.path, name=record.name)


def _grouped(records: Iterable[Record], by: Level, only: Phase | None) -> Mapping[Key, list[Record]]:
    groups: dict[Key, list[Record]] = {}
    for record in records:
        if record.work is not None or record.timing is not None:
            groups.setdefault(_key(record, by, only), []).append(record)
    return groups


def _estimated(records: RecordSet, device: Device | None, by: Level, only: Phase | None) -> Mapping[Key, Amounts]:
    totals = {key: Total(group, device) for key, group in _grouped(records, by, only).items()}
    return {
        key: Amounts(
            seconds=total.seconds,
            predicted=total.predicted_seconds,
            flops=_all_flops(total),
            dram=total.bytes.get("dram"),
        )
        for key, total in totals.items()
    }


def _observed(
    case: Case, estimate: RecordSet | None, records: RecordSet, by: Level, only: Phase | None
) -> Mapping[Key, Amounts]:
    """What one observer says; of phases and wholes the time is that of :class:`Evidence`, which never counts twice."""
    whole = by in ("case", "phase")
    evidence = Evidence(case=case, device=None, work=estimate, time=records)
    pieces = (record for record in records if whole or record.scope != "model")
    found: dict[Key, Amounts] = {}
    for key, group in _grouped(pieces, by, only).items():
        total = Total(group, None)
        measured = evidence.measured(None if by == "case" else key.phase) if whole else None
        found[key] = Amounts(
            seconds=measured.seconds if measured is not None else total.measured_seconds,
            flops=None if total.missing else _all_flops(total),
            dram=total.bytes.get("dram"),
        )
    return found


def _all_flops(total: Total) -> float | None:
    """FLOP with those that are computed twice: they are executed twice as well."""
    works = [work for work in (total.work, total.recomputed_work) if work is not None]
    return sum(work.total_flops for work in works) if works else None


def _coverages(rows: Sequence[Joined]) -> Iterator[Coverage]:
    sources: tuple[Source, ...] = ("estimate", *OBSERVERS)
    for source in sources:
        known = [(row, row.estimated if source == "estimate" else row.observed.get(source)) for row in rows]
        seen = [(row.paired, amounts.seconds) for row, amounts in known if amounts is not None]
        if not seen:
            continue
        times = [seconds for _, seconds in seen if seconds is not None]
        total = sum(times) if len(times) == len(seen) else 0
        yield Coverage(
            source=source,
            pieces=len(seen),
            joined=sum(paired for paired, _ in seen),
            share=sum(seconds or 0 for paired, seconds in seen if paired) / total if total else None,
        )
