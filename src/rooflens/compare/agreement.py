"""Estimate, measurement, profile and counters of the same thing, joined: how far apart are they, and where?

Everything is joined by case, then piece by piece: phases, modules, families or operations. What has no partner stays in
the result, alone in its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from rooflens.compare.doubts import Doubtful
from rooflens.compare.uncertainty import Errors, errors_of
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import AS_IS, Case, Phase, Record, Scalar, Source
from rooflens.results import Evidence, Quantity, RecordSet, Total
from rooflens.results.partners import EstimatedCases
from rooflens.results.quantities import ALL_FLOPS, BOUND, BYTES, PREDICTED
from rooflens.results.totals import grouped_by
from rooflens.runs.options import RUNNING

JoinBy = Literal["case", "phase", "module", "family", "op"]
LEVELS: tuple[JoinBy, ...] = get_args(JoinBy)
Estimated = Literal["predicted", "bound", "flops", "dram"]
ESTIMATED: Mapping[Estimated, Quantity] = {"predicted": PREDICTED, "bound": BOUND, "flops": ALL_FLOPS, "dram": BYTES}
"""What an estimate says: the expected time, the shortest time, FLOP, and bytes to and from DRAM."""
OBSERVERS: tuple[Source, ...] = ("measure", "profile", "counters", "replay")
"""Whose time counts where several observed the same thing: times of the whole before sums of pieces."""
STATED = ("work", "stated")
"""The option of cases that hold what the user stated of kernels: neither an estimate nor observed."""

RunOptions = tuple[tuple[str, Scalar], ...]
"""How a step was run, where that tells two runs of it apart: on several GPUs, in a CUDA graph ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceKey:
    """Which piece of a case; what is left open spans all."""

    phase: Phase | None = None
    path: str = ""
    kind: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceAmounts:
    """What one source says of one piece; None is unknown, as where some FLOP were not counted.

    Attributes:
        seconds: of an estimate its bound, of an observer the time; `predicted`: seconds that an estimate expects.
        flops: recomputed ones included: of an estimate the algorithm's, of counters those executed.
        dram: bytes to and from DRAM: of an estimate the compulsory ones.
    """

    seconds: float | None = None
    predicted: float | None = None
    flops: float | None = None
    dram: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What the estimate says of a piece of a case, None where it has no such piece, and what others do, by source."""

    case: Case
    key: PieceKey
    estimated: PieceAmounts | None = None
    observed: Mapping[Source, PieceAmounts] = field(default_factory=dict)

    @property
    def paired(self) -> bool:
        """True if the estimate and somebody else know it."""
        return self.estimated is not None and bool(self.observed)

    def pair(self, quantity: Estimated) -> tuple[float, float] | None:
        """Return what was estimated and what was observed; None where either is unknown."""
        if self.estimated is None:
            return None
        estimate = self.estimated.seconds if quantity == "bound" else getattr(self.estimated, quantity)
        name = "seconds" if quantity in ("predicted", "bound") else quantity
        amounts = [getattr(self.observed[source], name) for source in OBSERVERS if source in self.observed]
        known = [amount for amount in amounts if amount is not None]
        return (estimate, known[0]) if known and estimate is not None else None

    def ratio(self, quantity: Estimated) -> float | None:
        """Return observed over estimated: measured over bound, executed over algorithmic, counted over compulsory."""
        pair = self.pair(quantity)
        return pair[1] / pair[0] if pair is not None and pair[0] else None

    def error(self, quantity: Estimated) -> float | None:
        """Return the relative error of the estimate: (estimated - observed) / observed."""
        pair = self.pair(quantity)
        return pair[0] / pair[1] - 1 if pair is not None and pair[1] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedShare:
    """How many pieces one source has, how many of them have a partner, and the share of its time that they hold.

    The time of an estimate is its bound. The share is None where times are unknown.
    """

    source: Source
    pieces: int
    joined: int
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement(Doubtful):
    """Every piece of every case, paired or not, in the order of the estimates, then of what only others saw."""

    level: JoinBy
    rows: tuple[Joined, ...]
    notes: tuple[str, ...] = ()

    @property
    def unpaired(self) -> tuple[Joined, ...]:
        """Pieces that only an estimate, or only an observer knows."""
        return tuple(row for row in self.rows if not row.paired)

    def errors(self, quantity: Estimated, rows: Iterable[Joined] | None = None) -> Errors | None:
        """Return MAPE, median, 90 % quantile and bias of an estimate's errors, over all rows or over some."""
        errors = (row.error(quantity) for row in (self.rows if rows is None else rows))
        return errors_of([error for error in errors if error is not None])

    def by(self, name: str, quantity: Estimated) -> Mapping[str, Errors]:
        """Return the errors grouped by a field of the case or of the piece (device, dtype, kind, phase ...)."""
        groups = grouped_by(self.rows, lambda row: str(getattr(row.key if hasattr(row.key, name) else row.case, name)))
        return {key: errors for key, rows in groups.items() if (errors := self.errors(quantity, rows)) is not None}

    def worst(self, quantity: Estimated, most: int = 10) -> tuple[Joined, ...]:
        """The rows in which estimate and observation are furthest apart, in seconds, FLOP or bytes."""
        apart = [(abs(pair[0] - pair[1]), n) for n, row in enumerate(self.rows) if (pair := row.pair(quantity))]
        return tuple(self.rows[n] for _, n in sorted(apart, reverse=True)[:most])

    @property
    def coverage(self) -> tuple[JoinedShare, ...]:
        """How much of each source has a partner."""
        return tuple(_shares(self.rows))


def compare_evidence(records: RecordSet, by: JoinBy = "case") -> Agreement:
    """Return estimates beside what was measured, profiled and counted of the same cases.

    A file of another tool does not know its case: it joins the only estimate that there is for its device, and a note
    says so.

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
        hint = (
            "; estimates alone are compared with --question devices, or answers of language models"
            if estimates
            else " (runs are compared two sides at a time: a folder of files is a side)"
        )
        raise Incomparable(
            f"evidence is an estimate and what was observed of the same case: {missing} is missing{hint}"
        )
    known, notes = EstimatedCases(estimates), list[str]()
    observed = (part for _, source, part in parts if source != "estimate")
    observers = grouped_by(observed, lambda part: _estimate_of(part.cases[0], known, notes))
    rows = [
        row
        for case, part in estimates.items()
        for options, those in _by_run(observers.get(case, []))
        for row in _rows(part, those, by, options)
    ]
    lost = [row for part in observers.get(None, ()) for row in _rows(None, [part], by)]
    return Agreement(level=by, rows=(*rows, *lost), notes=tuple(dict.fromkeys(notes)))


def _estimate_of(case: Case, estimates: EstimatedCases, notes: list[str]) -> Case | None:
    """Return the estimate of an observed case; add a note where the case was not known."""
    partner = estimates.partner(case)
    if partner is not None or case.dtype != AS_IS or case.batch is not None:
        return partner
    fitting = [one for one in estimates.cases if case.device is None or one.device in (None, case.device)]
    if len(fitting) != 1:
        return None
    notes.append(f"{case.model!r} does not tell its case: taken for {fitting[0].label()!r}, the only one it may be")
    return fitting[0]


def _by_run(observers: Sequence[RecordSet]) -> Iterator[tuple[RunOptions, Sequence[RecordSet]]]:
    """Yield the observers of one case; those of a source that ran it in several ways one by one, after the plainest."""
    plain: list[RecordSet] = []
    others: list[tuple[RunOptions, RecordSet]] = []
    for part in sorted(observers, key=lambda part: len(_run_options(part))):
        options = _run_options(part)
        if options and any(part.sources == other.sources for other in plain):
            others.append((options, part))
        else:
            plain.append(part)
    yield (), plain
    yield from ((options, [part]) for options, part in others)


def _run_options(observer: RecordSet) -> RunOptions:
    return tuple(option for option in observer.cases[0].options if option[0] in RUNNING)


def _rows(
    estimate: RecordSet | None, observers: Sequence[RecordSet], by: JoinBy, options: RunOptions = ()
) -> Iterator[Joined]:
    """Yield the pieces of one case, each with what the sources say of it."""
    sources = [part.sources[0] for part in observers]
    sets = [part for part in (estimate, *observers) if part is not None]
    cases = [part.cases[0] for part in sets]
    device = next((case.device for case in cases if case.device is not None), None)
    case = replace(cases[0], device=device, options=tuple(sorted({*cases[0].options, *options})))
    if len(set(sources)) < len(sources):
        twice = next(source for source in sources if sources.count(source) > 1)
        raise InvalidValue(f"{case.label()}: two sets from {twice!r} belong to it; compare one at a time")
    item = Evidence(case=case, device=sets[0].devices.get(device or ""), work=estimate, time=None)
    phases = {phase for part in sets for phase in part.phases}
    only = phases.pop() if len(phases) == 1 else None
    estimated = _estimated(item, by, only, waiting=by in ("case", "phase") and ("measure" in sources or not sources))
    observed = {part.sources[0]: _observed(replace(item, time=part), by, only) for part in observers}
    for key in dict.fromkeys((*estimated, *(key for amounts in observed.values() for key in amounts))):
        yield Joined(
            case=case,
            key=key,
            estimated=estimated.get(key),
            observed={source: amounts[key] for source, amounts in observed.items() if key in amounts},
        )


def _grouped(records: Iterable[Record], by: JoinBy, only: Phase | None) -> Mapping[PieceKey, list[Record]]:
    return grouped_by(
        (record for record in records if record.work is not None or record.timing is not None),
        lambda record: PieceKey(
            phase=only if by == "case" else record.phase or only,
            path=record.path if by in ("module", "op") else "",
            kind=record.kind if by == "family" else "",
            name=record.name if by == "op" else "",
        ),
    )


def _estimated(item: Evidence, by: JoinBy, only: Phase | None, *, waiting: bool) -> Mapping[PieceKey, PieceAmounts]:
    """Return what the estimate says.

    Args:
        waiting: expect the time of steps and phases as a clock around them sees it; else that of their pieces on the
            device, which profilers and counters see, without waiting for the host.
    """
    if item.work is None:
        return {}
    totals = {key: item.work.sum(group, item.device) for key, group in _grouped(item.work, by, only).items()}
    timed = {key: item.total(None if by == "case" else key.phase) if waiting else t for key, t in totals.items()}
    return {
        key: PieceAmounts(
            seconds=t.seconds,
            predicted=PREDICTED.of(timed[key]).value,
            flops=_all_flops(t),
            dram=BYTES.of(t).value,
        )
        for key, t in totals.items()
    }


def _observed(item: Evidence, by: JoinBy, only: Phase | None) -> Mapping[PieceKey, PieceAmounts]:
    """Return what one observer says; of phases and wholes the time is that of the evidence, which counts none twice."""
    whole = by in ("case", "phase")
    pieces = (record for record in item.time or () if whole or record.scope != "model")
    amounts: dict[PieceKey, PieceAmounts] = {}
    for key, group in _grouped(pieces, by, only).items():
        total = Total(group, None)
        measured = item.measured(None if by == "case" else key.phase) if whole else None
        amounts[key] = PieceAmounts(
            seconds=measured.seconds if measured is not None else total.measured_seconds,
            flops=_all_flops(total),
            dram=BYTES.of(total).value,
        )
    return amounts


def _all_flops(total: Total) -> float | None:
    """Return FLOP with those that are computed twice, since they are executed twice; None where some are not known."""
    work = total.as_written.work
    return None if work is None or work.missing else work.total_flops


def _shares(rows: Sequence[Joined]) -> Iterator[JoinedShare]:
    sources: tuple[Source, ...] = ("estimate", *OBSERVERS)
    for source in sources:
        known = [(row, row.estimated if source == "estimate" else row.observed.get(source)) for row in rows]
        seen = [(row.paired, amounts.seconds) for row, amounts in known if amounts is not None]
        if not seen:
            continue
        times = [seconds for _, seconds in seen if seconds is not None]
        total = sum(times) if len(times) == len(seen) else 0
        yield JoinedShare(
            source=source,
            pieces=len(seen),
            joined=sum(paired for paired, _ in seen),
            share=sum(seconds or 0 for paired, seconds in seen if paired) / total if total else None,
        )
