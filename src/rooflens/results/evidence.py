"""Evidence: an estimate and what was observed of the same case, joined. Tables, figures, checks and claims read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum
from operator import mul
from statistics import median

from rooflens.predict import KnownTimes, way_of
from rooflens.records import (
    AS_IS,
    EVERY_PHASE,
    Case,
    Device,
    Failure,
    Phase,
    Record,
    Source,
    Timing,
    in_sequence,
)
from rooflens.results.partners import EstimatedCases
from rooflens.results.recorded_shapes import mismatch
from rooflens.results.recordset import RecordSet
from rooflens.results.room import Room, room_of
from rooflens.results.totals import Total, grouped_by, sum_of_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured time.

    Attributes:
        seconds: the median; the sum of the medians where a step was timed in pieces.
        timing: the samples, of `pooled` measurements; None for a sum of pieces: its interval is unknown.
        pieces: it is that of what was timed piece by piece, without what lies between the pieces.
        summed: the sum of the pieces' times, where `seconds` counts the time once in which several of them ran.
        span: from the start of the first piece on the device to the end of the last, where a profiler saw both.
        idle: the share of the span in which the device did nothing.
    """

    seconds: float
    timing: Timing | None = None
    pooled: int = 1
    pieces: bool = False
    summed: float | None = None
    span: float | None = None
    idle: float | None = None

    @property
    def interval(self) -> tuple[float, float] | tuple[None, None]:
        """95 % interval of the median, both ends None where it is unknown."""
        return (self.timing.interval if self.timing is not None else None) or (None, None)

    @property
    def spread(self) -> float | None:
        """Half the interval over the median."""
        low, high = self.interval
        return (high - low) / 2 / self.seconds if low is not None and high is not None and self.seconds else None

    @property
    def samples(self) -> int | None:
        """How many samples the median comes from."""
        return None if self.timing is None else len(self.timing.samples)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of one case: work from one source, time from one source. Each number of it is computed once.

    Attributes:
        case: the case, on the device that either source names.
        device: the device, None where no source names one or the set does not describe it.
        work: records with work, of one case and source: an estimate, or counters.
        time: records with times, of one case and source; the same as `work` where one source saw both.
        profile: times of the pieces, where `time` was taken of the whole: both are of the same case.
        estimate: of the same step, where `work` is what was observed.
        apart: why no estimate stands beside a profile or counters, where there are estimates.
    """

    case: Case
    device: Device | None
    work: RecordSet | None
    time: RecordSet | None
    profile: RecordSet | None = None
    estimate: RecordSet | None = None
    apart: str | None = None
    _measured: dict[Phase | None, Measured | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _sets(self) -> tuple[RecordSet, ...]:
        return tuple(records for records in (self.work, self.time, self.profile) if records is not None)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The sources of work and time."""
        return tuple(dict.fromkeys(source for records in self._sets for source in records.sources))

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that any source saw, in the order of a step."""
        seen = {phase for records in self._sets for phase in records.phases}
        return tuple(phase for phase in EVERY_PHASE if phase in seen)

    @property
    def parameters(self) -> int | None:
        """Parameter elements of the model."""
        return next((n for records in self._sets if (n := records.parameters) is not None), None)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Why it stands apart, and the notes on all records, once."""
        told = (note for records in self._sets for note in records.notes)
        return tuple(dict.fromkeys((*filter(None, (self.apart,)), *told)))

    @property
    def pieces(self) -> RecordSet | None:
        """Records that time the pieces of the case one by one."""
        return self.time if self.profile is None else self.profile

    @property
    def parts(self) -> tuple[Phase | None, ...]:
        """What tables have a row for: each phase where there are several, and the whole step (None)."""
        return (*self.phases, None) if len(self.phases) > 1 else (None,)

    @property
    def unnamed(self) -> bool:
        """True if neither a file of another tool nor its reader told which step ran: batch and dtype are unknown."""
        from_tool = self.sources in (("profile",), ("counters",))
        return from_tool and self.case.batch is None and self.case.dtype == AS_IS

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why its times are to be doubted, in the words of who took them, once."""
        timed = (records for records in (self.time, self.profile) if records is not None)
        return tuple(dict.fromkeys(doubt for records in timed for record in records for doubt in record.doubts))

    @cached_property
    def room(self) -> Room | None:
        """Whether the estimated step fits into its device's memory; None where one of the two is not known."""
        held = None if self.work is None or "estimate" not in self.work.sources else self.work.memory
        if held is None or self.device is None:
            return None
        return room_of(held, self.case, self.device, ran=self.time is not None)

    def on(self, device: Device) -> Evidence:
        """Return what an estimate that names no device says of one."""
        return replace(self, case=replace(self.case, device=device.name), device=device, time=None, profile=None)

    def total(self, phase: Phase | None = None) -> Total | None:
        """Return the work of a phase, or of the whole step, under the ceilings of the device."""
        if self.work is None:
            return None
        return self.work.under(self.device, self._narrowed(phase), way_of(dict(self.case.options)), self._replayed)

    def model_total(self, phase: Phase | None = None) -> Total | None:
        """Return the work by formulas, also where `total` is what kernels executed.

        None where no estimate tells it, or kernels of some phases alone were seen.
        """
        if self.estimate is None:
            total = self.total(phase)
            return None if total is None or (total.work is not None and total.work.origin == "executed") else total
        only, seen = self._narrowed(phase), {r.phase for r in self.work or () if r.work is not None}
        partly = only is None and None not in seen and not seen.issuperset(self.estimate.phases)
        return None if partly else self.estimate.under(self.device, only)

    def _narrowed(self, phase: Phase | None) -> Phase | None:
        """Return None, the whole step, for its only phase."""
        return None if self.phases == (phase,) else phase

    @cached_property
    def _replayed(self) -> KnownTimes | None:
        """The times of calls that were replayed, where that is what was observed."""
        if self.time is None or self.time.sources != ("replay",):
            return None
        timed = ((r.call, r.timing) for r in self.time if r.call is not None and r.timing is not None)
        return {(call, call.layout): timing.median for call, timing in timed}

    def measured(self, phase: Phase | None = None) -> Measured | None:
        """Return the time of a phase, or of the whole step.

        A step that was not timed as a whole takes the time in which any of its pieces ran. Where nobody knows that, it
        takes the sum of its phases, provided that each of them was timed, and of pieces whose phase is not known.
        """
        if self.time is None:
            return None
        if phase not in self._measured:
            timed = [r for r in self.time if r.timing is not None or r.scope != "model"]
            if phase is not None and self.phases != (phase,):
                self._measured[phase] = _measured([r for r in timed if r.phase == phase])
            else:
                busy = [r for r in self.time if r.busy is not None]
                pieces = [r for r in timed if r.scope != "model"]
                self._measured[phase] = _busy(busy, _whole_step(timed, self.phases), pieces)
        return self._measured[phase]

    def runs(self, phase: Phase | None = None) -> tuple[Timing, ...]:
        """Return the samples of a phase, or of the whole step, one timing per run; none where it was timed in pieces.

        A step that was timed phase by phase is the sum of its phases, sample by sample.
        """
        timed = [(r.phase, r.timing) for r in self.time or () if r.timing is not None and r.scope == "model"]
        if phase is not None and self.phases != (phase,):
            return tuple(timing for its, timing in timed if its == phase)
        whole = tuple(timing for its, timing in timed if its is None)
        if whole:
            return whole
        each = [[timing for its, timing in timed if its == known] for known in self.phases]
        if len({len(timings) for timings in each}) != 1:
            return ()
        steps = list(zip(*each, strict=True))
        same = all(len({len(timing.samples) for timing in step}) == 1 for step in steps)
        return tuple(map(in_sequence, steps)) if same else ()


def join(rs: RecordSet) -> tuple[Evidence, ...]:
    """Return one piece of evidence per case and source, with estimates beside the measurements of their case.

    An estimate and a measurement belong together if model, batch, dtype, mode and options agree, and the device where
    both name one. A source that saw work of its own (counters) is never mixed with an estimate. A set is joined once.
    """
    return rs.once(_join)


def _join(rs: RecordSet) -> tuple[Evidence, ...]:
    parts = rs.split()
    measured = {case for case, source, _ in parts if source == "measure"}
    profiles = {case: records for case, source, records in parts if source == "profile" and case in measured}
    estimates = {case: records for case, source, records in parts if source == "estimate"}
    known = EstimatedCases(estimates) if 0 < len(estimates) < len(parts) else None
    partners = {
        records: _partner(case, source, records, estimates, known)
        for case, source, records in parts
        if source != "estimate" and profiles.get(case) is not records  # which stands beside its measurement
    }
    # Work that was observed is never mixed with an estimate.
    without = (records for records in partners if not _has_work(records))
    beside = grouped_by(without, lambda records: partners[records][0])
    evidence = list[Evidence]()
    for case, source, records in parts:
        pairs: list[tuple[RecordSet | None, RecordSet | None]] = []
        if source == "estimate":
            pairs = [(records, time) for time in beside.get(case, [None])]
        elif records in partners and (_has_work(records) or partners[records][0] is None):
            pairs = [(records if _has_work(records) else None, records)]
        for work, time in pairs:
            cases = [each.cases[0] for each in (time, work) if each is not None]
            device = next((case.device for case in cases if case.device is not None), None)
            partner, apart = (None, None) if time is None else partners[time]
            evidence.append(
                Evidence(
                    case=cases[0] if cases[0].device == device else replace(cases[0], device=device),
                    device=rs.devices.get(device) if device else None,
                    work=work,
                    time=time,
                    profile=profiles.get(time.cases[0]) if time is not None and time.sources == ("measure",) else None,
                    estimate=None if partner is None or work is not time else estimates[partner],
                    apart=apart,
                )
            )
    return tuple(evidence)


def _partner(
    case: Case, source: Source, records: RecordSet, estimates: Mapping[Case, RecordSet], known: EstimatedCases | None
) -> tuple[Case | None, str | None]:
    """Return the estimate that stands beside what was observed; or None, and why, where some estimate might."""
    if known is None:
        return None, None
    partner, apart = known.partner(case), None
    if source in ("profile", "counters") and partner is None:
        apart = f"no estimate stands beside it: {known.contradiction(case)}"
    if source == "profile" and partner is not None:
        differs = mismatch(records, estimates[partner], partner.mode)
        if differs is not None:
            apart = f"the estimate of {partner.label()} is of another step and does not stand beside it: {differs}"
    return (None if apart else partner), apart


def _has_work(records: RecordSet) -> bool:
    return any(record.work is not None for record in records.summed)


def only_failed(rs: RecordSet, evidence: Sequence[Evidence]) -> tuple[Failure, ...]:
    """Return the first failure of each case of which there is no evidence."""
    known = {item.case for item in evidence}
    first: dict[Case, Failure] = {}
    for failure in rs.failures:
        if failure.case not in known:
            first.setdefault(failure.case, failure)
    return tuple(first.values())


def piecewise(rs: RecordSet) -> RecordSet | None:
    """Return the records that time the pieces of the only estimated case, None where there are none or several sets."""
    known = [item.pieces for item in join(rs) if item.work is not None and item.pieces is not None]
    timed = [records for records in known if any(r.timing is not None and r.scope != "model" for r in records)]
    return timed[0] if len(timed) == 1 else None


def _whole_step(timed: Sequence[Record], phases: Sequence[Phase]) -> Measured | None:
    """Return the time of a whole step, the sum of its phases where it was not timed as a whole."""
    whole = _measured([r for r in timed if r.phase is None and r.scope == "model"])
    if whole is not None:
        return whole
    each = [_measured([r for r in timed if r.phase == phase]) for phase in phases]
    known = [part for part in each if part is not None]
    if len(known) < len(each):
        return None
    rest = _measured([r for r in timed if r.phase is None])
    return _together(known if rest is None else [*known, rest])


def _busy(profiles: Sequence[Record], step: Measured | None, pieces: Sequence[Record]) -> Measured | None:
    """Return the time of a step that was timed piece by piece: that in which any piece ran, where it is known."""
    if not profiles or (step is not None and not step.pieces):
        return step
    pool = _pooled([r.busy for r in profiles if r.busy is not None])
    spans = [r.span for r in profiles if r.span is not None]
    span = _pooled(spans).median if len(spans) == len(profiles) else None
    summed = _summed(pieces) if step is not None and len(profiles) == 1 else None
    idle = 1 - pool.median / span if span else None
    return Measured(
        seconds=pool.median, timing=pool, pooled=len(profiles), pieces=True, summed=summed, span=span, idle=idle
    )


def _summed(pieces: Sequence[Record]) -> float | None:
    """The sum of the times of pieces: the median of the sums of each step, where all were seen in the same steps."""
    timed = [(r.timing, r.calls) for r in pieces if r.timing is not None]
    if len(timed) < len(pieces) or len({len(timing.samples) for timing, _ in timed}) != 1:
        return sum_of_all(r.seconds for r in pieces)
    steps = zip(*(timing.samples for timing, _ in timed), strict=True)
    return median(fsum(map(mul, samples, (calls for _, calls in timed))) for samples in steps)


def _pooled(timings: Sequence[Timing]) -> Timing:
    """The samples of several measurements of one thing as those of one."""
    samples = tuple(sample for timing in timings for sample in timing.samples)
    return replace(timings[0], samples=samples, warmup=tuple(s for timing in timings for s in timing.warmup))


def _measured(records: Sequence[Record]) -> Measured | None:
    """Records of one phase as one time: those of the whole model where there are any, else the sum of the pieces.

    Several records of the whole are measurements of the same thing: their samples are pooled, never added. Of pieces
    of which one was not timed, the sum is unknown.
    """
    whole = [r.timing for r in records if r.scope == "model" and r.timing is not None]
    if len(whole) == 1:
        return Measured(seconds=whole[0].median, timing=whole[0])
    if whole:
        pool = _pooled(whole)
        return Measured(seconds=pool.median, timing=pool, pooled=len(whole))
    seconds = sum_of_all(r.seconds for r in records)
    return None if seconds is None else Measured(seconds=seconds, pieces=True)


def _together(parts: Sequence[Measured]) -> Measured | None:
    """The sum of some times; sample by sample where the same steps were timed, so that its interval is known."""
    if len(parts) < 2:
        return parts[0] if parts else None
    timings = [part.timing for part in parts if part.timing is not None and part.pooled == 1]
    if len(timings) == len(parts) and len({len(timing.samples) for timing in timings}) == 1:
        whole = in_sequence(timings)
        return Measured(seconds=whole.median, timing=whole)
    return Measured(seconds=sum(part.seconds for part in parts), pieces=any(part.pieces for part in parts))
