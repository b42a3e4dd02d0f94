"""Checks of durations: too short for the work, too long for it, or not of this run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from rooflens import units
from rooflens.checks.context import Context, close, fold, grouped
from rooflens.checks.registry import Doubt, check, needs, of_each
from rooflens.devices import catalogued_or_none
from rooflens.records import Case, Device, Record
from rooflens.reported.figures import ReportedFigure
from rooflens.results.totals import grouped_by

LAUNCH = 0.5e-6
"""Seconds: no kernel that works is shorter; launching one costs the host several times as much."""
OVERHEAD = 100e-6
"""Seconds of host time per operation that a slow machine may need."""
FAR = 20
"""Times the bound."""
GROWTH = 0.25
"""Time that grows with a lower power of the work than this one does not follow the work."""
FIRST_SAMPLE = 5
DIGITS = 5
"""Two measurements that agree in so many digits are one."""
SAMPLES = 3
WALL = 3
PROFILED = 1.1


@check("time-below-launch", "error", "synchronize before reading the clock, or use device events")
@needs("time", "counters")
def time_below_launch(context: Context) -> Iterator[Doubt]:
    """A step or a kernel was quicker than its launches."""
    for figure, value in context.stated("time"):
        expected, device = context.expected(figure), context.device(figure)
        if not _is_gpu(device):
            continue
        options = {} if figure.recorded is None else dict(figure.recorded.options)
        together = options.get("compile") or options.get("cuda_graph")
        operations = 1 if expected is None or together else expected.operations
        least, of = operations * LAUNCH, "an operation" if operations == 1 else f"{operations} operations"
        if 0 < value * (1 + figure.precision) < least:
            yield Doubt(
                figure.subject,
                f"{units.show(value, 's')} for {of}, each at least a kernel of"
                f" {units.show(LAUNCH, 's')}: the clock was read before the device had finished",
                {"s": value, "least s": least, "operations": operations},
            )
    for case, records, seconds in _short(context):
        name = records[0].name or records[0].path
        yield Doubt(
            f"{case.label()}: {name}",
            f"{len(records)} kernels last less than {units.show(LAUNCH, 's')}, like {name!r} with"
            f" {units.show(seconds, 's')}: a unit of time was misread",
            {"kernels": len(records), "s": seconds, "least s": LAUNCH},
        )


def _short(context: Context) -> Iterator[tuple[Case, list[Record], float]]:
    """Kernels that were counted and last too short, by case, with the time of the first; an unknown device is a GPU."""
    for case, source, part in context.records.split():
        device = context.devices.get(case.device or "") or catalogued_or_none(case.device or "")
        if source == "counters" and (device is None or _is_gpu(device)):
            kernels = ((r, r.timing.median) for r in part if r.scope == "kernel" and r.timing is not None)
            if short := [(record, seconds) for record, seconds in kernels if seconds < LAUNCH]:
                yield case, [record for record, _ in short], short[0][1]


def _is_gpu(device: Device | None) -> bool:
    return device is not None and device.kind == "gpu"


@check("first-call", "warning", "warm up, synchronize, and take the median of several steps (`rooflens measure`)")
@of_each("time")
def first_call(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """A time is so far above the bound that something else was timed."""
    bound = _bound(context, figure)
    if bound and _is_unexplained(context, figure, value, bound):
        yield Doubt(
            figure.subject,
            f"{units.show(value, 's')} is {fold(value / bound)} times the bound of {units.show(bound, 's')}, more"
            " than slow kernels and launches explain: a first call (context, loading, choice of algorithms), data"
            " loading or a whole script was timed, and performance is too low by as much",
            {"s": value, "bound s": bound, "ratio": value / bound},
        )


def _bound(context: Context, figure: ReportedFigure) -> float | None:
    """The bound of a figure, in the dtype that takes longest where it does not tell its own."""
    has_dtype = figure.dtype or figure.recorded is not None
    return context.bound(figure if has_dtype else replace(figure, dtype="fp32"))


def _is_unexplained(context: Context, figure: ReportedFigure, value: float, bound: float) -> bool:
    """True if a step on a GPU took longer than slow kernels and its launches explain.

    Of an optimizer alone nobody can tell: one operation of its ``foreach`` form is many kernels.
    """
    expected = context.expected(figure)
    if expected is None or figure.phases == ("optimizer",) or not _is_gpu(context.device(figure)):
        return False
    return value > FAR * bound + expected.operations * OVERHEAD


@check("fixed-time", "error", "leave start-up, data loading and the first step out of what is timed")
@needs("time")
def fixed_time(context: Context) -> Iterator[Doubt]:
    """Times hardly differ although the work does: a fixed cost was timed."""
    for same in grouped(context.stated("time"), "group", "phase", "origin"):
        bounded = [(figure, value, bound) for figure, value in same if (bound := _bound(context, figure))]
        long = [item for item in bounded if _is_unexplained(context, *item)]
        pairs = [(one, other) for one in long for other in bounded if _is_alike(one, other)]
        if pairs:
            items = list(dict.fromkeys(item for pair in pairs for item in pair))
            values, bounds = [value for _, value, _ in items], [bound for _, _, bound in items]
            bounds_by_name = {"smallest bound s": min(bounds), "largest bound s": max(bounds)}
            yield Doubt(
                "; ".join(figure.subject for figure, _, _ in items[:4]) + ("; ..." if len(items) > 4 else ""),
                f"{len(items)} times lie between {units.show(min(values), 's')} and {units.show(max(values), 's')},"
                f" but their bounds between {units.show(min(bounds), 's')} and {units.show(max(bounds), 's')}: most of"
                " the time is a fixed cost that has nothing to do with the work",
                {"shortest s": min(values), "longest s": max(values), **bounds_by_name},
            )


def _is_alike(one: tuple[ReportedFigure, float, float], other: tuple[ReportedFigure, float, float]) -> bool:
    """True if the second time, for at least twice the work, is hardly longer than the first."""
    (_, short, small), (_, long, large) = one, other
    return large > 2 * small and long < short * (large / small) ** GROWTH


@check("first-sample", "warning", "warm up before the first sample, and keep the first call apart")
@needs("measure", "profile", "counters")
def first_sample(context: Context) -> Iterator[Doubt]:
    """The first sample is far above the others: the run was not warm."""
    for record in context.records:
        # Where the cold call was kept apart the first sample is a warm one, whatever disturbed it.
        samples = () if record.timing is None or record.timing.cold is not None else record.timing.samples
        if len(samples) >= SAMPLES and samples[0] >= FIRST_SAMPLE * median(samples[1:]) > 0:
            yield Doubt(
                f"{record.case.label()} {record.phase or ''}".strip(),
                f"the first sample of {units.show(samples[0], 's')} is {fold(samples[0] / median(samples[1:]))} times"
                " the median of the others: it is a first call, and a mean would hold it",
                {"first s": samples[0], "median of the others s": median(samples[1:]), "samples": len(samples)},
            )


@check("identical-measurements", "error", "measure again: one of them was copied")
@needs("time", "time_ratio", "flop_ratio", "performance", "measure", "profile", "counters")
def identical_measurements(context: Context) -> Iterator[Doubt]:
    """Different runs, or two measurements of one run, have the same result to the last digit."""
    for same in grouped(context.stated("time", "time_ratio", "flop_ratio", "performance"), "quantity", "group"):
        exact = (stated for stated in same if (stated[0].digits or 0) >= DIGITS)
        for value, alike in grouped_by(exact, lambda stated: stated[1]).items():
            if len({figure.case for figure, _ in alike}) > 1:
                yield _identical([figure.subject for figure, _ in alike], value)
    timed = ((r.case, r.timing.samples) for r in context.records if r.timing is not None and r.source != "estimate")
    long = (each for each in timed if len(each[1]) >= SAMPLES)
    for samples, runs in grouped_by(long, lambda each: each[1]).items():
        if len({case for case, _ in runs}) > 1:
            yield _identical([case.label() for case, _ in runs], median(samples))
    measured = (r for r in context.records if r.source == "measure" and r.timing is not None)
    for (case, phase, *_), twins in grouped_by(measured, _measured).items():
        if len(twins) > 1 and twins[0].timing is not None and len(twins[0].timing.samples) >= SAMPLES:
            seconds = twins[0].timing.median
            yield Doubt(
                f"{case.label()} {phase or ''}".strip(),
                f"{len(twins)} measurements have the same samples to the last digit: one of them stands there twice,"
                " and counts twice",
                {"value": seconds, "runs": len(twins)},
            )


def _measured(record: Record) -> tuple[Any, ...]:
    samples = () if record.timing is None else record.timing.samples
    return record.case, record.phase, record.scope, record.path, record.name, samples


def _identical(subjects: Sequence[str], value: float) -> Doubt:
    return Doubt(
        "; ".join(subjects),
        f"{len(subjects)} different runs have the same result to the last digit, {value!r}: two measurements never do",
        {"value": value, "runs": len(subjects)},
    )


@check(
    "profiled-slower",
    "info",
    "lock clocks alike, pass --clock-control none, or scale the ceilings by the clock",
    "Kernels under the profiler took longer than the step without it",
)
@check(
    "wall-time",
    "warning",
    "compare kernel time with a warmed, synchronized median; look for gaps between kernels",
    "A step took three times as long as its kernels, or more",
)
@needs("time")
def step_and_kernels(context: Context) -> Iterator[Doubt]:
    """A measured step is far longer than its kernels, or shorter than they were under the profiler."""
    for figure, value, kernels, n in _both(context):
        numbers = {"step s": value, "kernels s": kernels, "kernels": n}
        if value > WALL * kernels + n * OVERHEAD:
            message = (
                f"the step took {units.show(value, 's')}, its {n} kernels {units.show(kernels, 's')}: the device"
                " waited for something else, or start-up was timed"
            )
            yield Doubt(figure.subject, message, numbers, "wall-time")
        if kernels > PROFILED * value:
            message = (
                f"the kernels took {units.show(kernels, 's')} under the profiler, the whole step"
                f" {units.show(value, 's')} without it: the profiler held the clock at its base rate, or flushed the"
                " caches before each kernel"
            )
            yield Doubt(figure.subject, message, numbers, "profiled-slower")


def _both(context: Context) -> Iterator[tuple[ReportedFigure, float, float, int]]:
    """Measured and typed times beside the sum of the kernels that were counted of the same step."""
    counted = [(f, v) for f, v in context.stated("time") if f.origin == "counters"]
    for figure, value in context.stated("time"):
        for kernels, seconds in counted if figure.origin != "counters" else ():
            same = (kernels.step[1:], kernels.machine) == (figure.step[1:], figure.machine)
            # Who types a time does not say its options.
            if same and (figure.origin == "typed" or figure.group == kernels.group):
                part = (r for r in context.records if r.case == kernels.recorded and r.source == "counters")
                yield figure, value, seconds, sum(r.calls for r in part if r.scope == "kernel")


@check("clock-low", "info", "compare with ceilings at the clock that ran, or let the device reach its boost clock")
@of_each("clock")
def clock_low(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """The clock during the run was below the one that the ceilings assume."""
    device = context.device(figure)
    fact = None if device is None else device.facts.get("clock")
    if fact is not None and value < 0.95 * fact.value and not close(value, fact.value, figure.precision):
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'Hz')} is {value / fact.value:.2f} of the {units.show(fact.value, 'Hz')} that the"
            " ceilings assume: times under it are longer by as much",
            {"clock Hz": value, "ceilings' clock Hz": fact.value, "ratio": value / fact.value},
        )
