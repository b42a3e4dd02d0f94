"""Evidence: an estimate and the measurement of the same case, side by side: the join that tables and figures read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rooflens.records import PHASES, Case, Device, Phase, Record, Scalar, Timing, Work, in_sequence
from rooflens.results import RecordSet, Total
from rooflens.roofline import point

RateOrigin = Literal["measured", "bound"]
"""Whether a throughput was measured or is the most that the bound allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured time.

    Attributes:
        seconds: the median; the sum of the medians where a step was timed in pieces.
        timing: the samples, None for a sum of pieces: its interval is unknown.
        pooled: how many measurements of the same thing the samples come from.
        pieces: it is the sum of what was timed piece by piece, without what lies between the pieces.
    """

    seconds: float
    timing: Timing | None = None
    pooled: int = 1
    pieces: bool = False

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
    def noise(self) -> float | None:
        """Interquartile range over the median."""
        return None if self.timing is None else self.timing.noise

    @property
    def cold(self) -> float | None:
        """Seconds of the first call."""
        return None if self.timing is None else self.timing.cold

    @property
    def compiling(self) -> float | None:
        """Seconds of the first call that went into compiling."""
        return None if self.timing is None else self.timing.compiling

    @property
    def samples(self) -> int | None:
        """How many samples the median comes from."""
        return None if self.timing is None else len(self.timing.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one case: work from one source, time from one source.

    Attributes:
        case: the case, on the device that either source names.
        device: the device, None where no source names one or the set does not describe it.
        work: records with work, of one case and source: an estimate, or counters.
        time: records with times, of one case and source; the same as `work` where one source saw both.
        profile: times of the pieces, where `time` was taken of the whole: both are of the same case.
    """

    case: Case
    device: Device | None
    work: RecordSet | None
    time: RecordSet | None
    profile: RecordSet | None = None
    _totals: dict[Phase | None, Total] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of work and time."""
        return tuple(dict.fromkeys(source for records in self._sets for source in records.sources))

    @property
    def pieces(self) -> RecordSet | None:
        """Records that time the pieces of the case one by one."""
        return self.time if self.profile is None else self.profile

    @property
    def _sets(self) -> list[RecordSet]:
        return [records for records in (self.work, self.time, self.profile) if records is not None]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that either source saw, in the order of a step."""
        seen = {phase for records in self._sets for phase in records.phases}
        return tuple(phase for phase in PHASES if phase in seen)

    @property
    def parameters(self) -> int | None:
        """Parameter elements of the model."""
        known = [records.parameters for records in self._sets]
        return next((n for n in known if n is not None), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on all records, once."""
        return tuple(dict.fromkeys(note for records in self._sets for note in records.notes))

    def total(self, phase: Phase | None = None) -> Total | None:
        """The work of a phase, or of the whole step, under the ceilings of the device."""
        if self.work is None:
            return None
        if self.phases == (phase,):
            phase = None
        if phase not in self._totals:
            records = (r for r in self.work if phase is None or r.phase == phase)
            self._totals[phase] = Total(records, self.device)
        return self._totals[phase]

    def measured(self, phase: Phase | None = None) -> Measured | None:
        """The time of a phase, or of the whole step.

        A step that was not timed as a whole takes the sum of its phases, provided that each of them was timed, and of
        pieces whose phase is not known.
        """
        if self.time is None:
            return None
        timed = [r for r in self.time if r.timing is not None or r.scope != "model"]
        if phase is not None and self.phases != (phase,):
            return _measured([r for r in timed if r.phase == phase])
        whole = _measured([r for r in timed if r.phase is None and r.scope == "model"])
        if whole is not None:
            return whole
        parts = [_measured([r for r in timed if r.phase == each]) for each in self.phases]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        rest = _measured([r for r in timed if r.phase is None])
        return _together(known if rest is None else [*known, rest])

    def runs(self, phase: Phase | None = None) -> tuple[Timing, ...]:
        """The samples of a phase, or of the whole step, one timing per run; none where it was timed in pieces.

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
    """One piece of evidence per case and source, with estimates put beside the measurements of their case.

    An estimate and a measurement belong together if model, batch, dtype, mode and options agree, and the device where
    both name one. A source that saw work of its own (counters) is never mixed with an estimate.
    """
    parts = list(rs.split())
    estimates = Estimates(case for case, source, _ in parts if source == "estimate")
    profiles, beside = _beside_measurements(parts)
    timed: dict[Case, list[int]] = {}
    partnered: set[int] = set()
    for number, (case, source, records) in enumerate(parts):
        found = None if source == "estimate" or _has_work(records) else estimates.partner(case)
        if found is not None:
            partnered.add(number)
            timed.setdefault(found, []).extend([] if number in beside else [number])
    found_evidence: list[Evidence] = []
    for number, (case, source, records) in enumerate(parts):
        if number in beside:
            continue
        if source == "estimate":
            joined = [
                _evidence(rs, work=records, time=parts[n][2], profile=profiles.get(n)) for n in timed.get(case, ())
            ]
            found_evidence += joined or [_evidence(rs, work=records, time=None)]
        elif number not in partnered:
            work = records if _has_work(records) else None
            found_evidence.append(_evidence(rs, work=work, time=records, profile=profiles.get(number)))
    return tuple(found_evidence)


def piecewise(rs: RecordSet) -> RecordSet | None:
    """The records that time the pieces of the only estimated case, None where there are none or several such sets."""
    found = [item.pieces for item in join(rs) if item.work is not None and item.pieces is not None]
    timed = [records for records in found if any(r.timing is not None and r.scope != "model" for r in records)]
    return timed[0] if len(timed) == 1 else None


def _beside_measurements(parts: Sequence[tuple[Case, str, RecordSet]]) -> tuple[dict[int, RecordSet], set[int]]:
    """Profiles of measured cases: the records by the number of the measurement, and their own numbers."""
    measured = {case: n for n, (case, source, _) in enumerate(parts) if source == "measure"}
    found = {
        measured[case]: (n, records)
        for n, (case, source, records) in enumerate(parts)
        if source == "profile" and case in measured
    }
    return {n: records for n, (_, records) in found.items()}, {own for own, _ in found.values()}


def efficiency(total: Total | None, seconds: float | None) -> float | None:
    """Bound over measured time; None where either is unknown."""
    if total is None or total.bound is None or total.work is None:
        return None
    return point(total.work, total.bound, seconds).efficiency


def mfu(total: Total | None, seconds: float | None) -> float | None:
    """Model FLOP utilisation: the time that the matrix work takes at peak rate, over the measured time."""
    return None if total is None else _utilisation([total.work], total.device, seconds)


def hfu(total: Total | None, seconds: float | None) -> float | None:
    """Hardware FLOP utilisation: as :func:`mfu`, with recomputed matrix work."""
    return None if total is None else _utilisation([total.work, total.recomputed_work], total.device, seconds)


def throughput(case: Case, total: Total | None, measured: Measured | None) -> tuple[float | None, RateOrigin | None]:
    """Samples per second, and whether they come from the measured time or are the most that the bound allows.

    Devices that train together have a batch each.
    """
    batch = None if case.batch is None else case.batch * int(dict(case.options).get("gpus", 1))
    if measured is not None and measured.pieces:
        return None, None  # what lies between the pieces takes time too
    if batch is not None and measured is not None and measured.seconds:
        return batch / measured.seconds, "measured"
    if batch is not None and measured is None and total is not None and total.seconds:
        return batch / total.seconds, "bound"
    return None, None


def _utilisation(works: Iterable[Work | None], device: Device | None, seconds: float | None) -> float | None:
    if device is None or not seconds:
        return None
    matrix = [
        item for work in works if work is not None for item in work.flops.items() if item[0].startswith("matmul.")
    ]
    if not matrix:
        return None
    return sum(flops / device.require(resource).rate for resource, flops in matrix) / seconds


def _evidence(
    rs: RecordSet, *, work: RecordSet | None, time: RecordSet | None, profile: RecordSet | None = None
) -> Evidence:
    cases = [records.cases[0] for records in (time, work) if records is not None]
    device = next((case.device for case in cases if case.device is not None), None)
    return Evidence(
        case=replace(cases[0], device=device),
        device=rs.devices.get(device) if device else None,
        work=work,
        time=time,
        profile=profile,
    )


def _has_work(records: RecordSet) -> bool:
    return any(r.work is not None for r in records)


COUNTING = frozenset({"causal", "fusion"})
"""Options that say how an estimate counts, and not what runs."""
RUNNING = frozenset({"cuda_graph", "flush", "gpus"})
"""Options that say how a step was run, and not what it computes."""


class Estimates:
    """The cases that were estimated, to find the partner of an observed one among thousands.

    Attributes:
        cases: all of them.
    """

    def __init__(self, cases: Iterable[Case]) -> None:
        self.cases = tuple(cases)
        self._by_step: dict[Case, list[Case]] = {}
        for case in self.cases:
            self._by_step.setdefault(_step(case), []).append(case)

    def partner(self, case: Case) -> Case | None:
        """The estimate of the same case: of the same device, else the only one whose device does not contradict."""
        alike = self._by_step.get(_step(case), [])
        if case in alike:
            return case
        fitting = [estimate for estimate in alike if same_step(estimate, case)]
        return fitting[0] if len(fitting) == 1 else None


def _step(case: Case) -> Case:
    """What cases of the same step share, and some others too."""
    return replace(case, device=None, options=_without(case.options, COUNTING | RUNNING))


def same_step(estimate: Case, case: Case) -> bool:
    """Whether an estimate is of the step that a case ran: options of counting and of timing tell no steps apart."""
    counted = replace(estimate, device=case.device, options=_without(estimate.options, COUNTING))
    same_device = estimate.device == case.device or None in (estimate.device, case.device)
    return same_device and counted == replace(case, options=_without(case.options, RUNNING))


def _without(options: Iterable[tuple[str, Scalar]], left_out: frozenset[str]) -> tuple[tuple[str, Scalar], ...]:
    return tuple(option for option in options if option[0] not in left_out)


def _measured(records: Sequence[Record]) -> Measured | None:
    """Records of one phase as one time: those of the whole model where there are any, else the sum of the pieces.

    Several records of the whole are measurements of the same thing: their samples are pooled, never added. Of pieces
    of which one was not timed, the sum is unknown.
    """
    whole = [r.timing for r in records if r.scope == "model" and r.timing is not None]
    if len(whole) == 1:
        return Measured(seconds=whole[0].median, timing=whole[0])
    if whole:
        pool = replace(
            whole[0],
            samples=tuple(s for timing in whole for s in timing.samples),
            warmup=tuple(s for timing in whole for s in timing.warmup),
        )
        return Measured(seconds=pool.median, timing=pool, pooled=len(whole))
    pieces = [None if r.timing is None else r.timing.median * r.calls for r in records]
    known = [seconds for seconds in pieces if seconds is not None]
    return Measured(seconds=sum(known), pieces=True) if known and len(known) == len(pieces) else None


def _together(parts: Sequence[Measured]) -> Measured | None:
    """The sum of some times; sample by sample where the same steps were timed, so that its interval is known."""
    if len(parts) < 2:
        return parts[0] if parts else None
    timings = [part.timing for part in parts if part.timing is not None and part.pooled == 1]
    if len(timings) == len(parts) and len({len(timing.samples) for timing in timings}) == 1:
        whole = in_sequence(timings)
        return Measured(seconds=whole.median, timing=whole)
    return Measured(seconds=sum(part.seconds for part in parts), pieces=any(part.pieces for part in parts))
