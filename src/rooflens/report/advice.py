"""The table of what would make a step faster, and below it what each change costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rooflens.compare.advice import WORTH, Advice, AdvisedStep
from rooflens.report.columns import CASE
from rooflens.report.expected_notes import waits_for
from rooflens.report.table import Column, Entry, Table, build, percent
from rooflens.report.table_notes import misfits, total_notes
from rooflens.results import Measured
from rooflens.results.quantities import MEMORY
from rooflens.units import show, show_range


def _band(step: AdvisedStep) -> Entry:
    if step.band is None:
        return Entry(None)
    return Entry(step.band[0], label=show_range(*step.band, "s"))


def _gain(step: AdvisedStep) -> Entry:
    return Entry(step.gain, label=None if step.gain is None else f"{step.gain:.2f} x")


_COLUMNS = (
    *(replace(column, show="files", title="", words=False) for column in CASE),
    Column("change", "what", read="name", align="left"),
    Column("changes", "changes", read=lambda step: "; ".join(c.name for c in step.changes), show="files", align="left"),
    Column("asked", "option", read=lambda step: " ".join(c.asked for c in step.changes), show="files", align="left"),
    Column("seconds", "step", "s", group="time"),
    Column("low", "10 to 90 %", "s", _band, group="time"),
    Column("high", "high", "s", "band.1", group="time", show="files"),
    Column("gain", "per sample", read=_gain, group="time"),
    Column("regime", "waits for", read=lambda step: waits_for(step.evidence.total()), align="left", group="time"),
    Column("peak", MEMORY.header, MEMORY.unit, lambda step: MEMORY.read(step.evidence).value, group="time"),
    Column("fits", "fits", read=lambda step: Entry(step.fits, label="yes" if step.fits else "no"), group="time"),
)


def advice_table(advice: Advice) -> Table:
    """Return the step as it is, after each change, and after the best of them together."""
    case = advice.case
    rows = [advice.base, *advice.steps, *advice.together]
    all_fit = all(step.fits for step in rows)
    columns = [replace(c, show="files") if c.key == "fits" and all_fit else c for c in _COLUMNS]
    return build(f"What helps: {case.label()}", columns, rows, notes=_notes(advice))


def _notes(advice: Advice) -> Iterator[str]:
    if advice.measured is None:
        yield "step: expected time; per sample: times as fast as it is, of samples or tokens"
    else:
        yield "step: as measured, then in proportion to the expected times; per sample: times as fast as it is"
    if advice.profile is not None:
        yield _of_profile(advice.profile, used=advice.measured is not None)
    for step in advice.together:
        names = ", ".join(change.name for change in step.changes)
        yield f"{step.name}: {names}, predicted as one step and not multiplied ({_asked(step)})"
    if not advice.together:
        yield f"nothing helps by more than {100 * (WORTH - 1):.0f} %"
    for step in advice.steps:
        (change,) = step.changes
        yield f"{change.name} ({change.asked}): {change.costs}{_freed(advice.base, step)}"
    yield from misfits(step.evidence for step in advice.steps)
    for name, reason in advice.unknown:
        yield f"unknown: {name}: {reason}"
    totals = (step.evidence.total() for step in (advice.base, *advice.steps))
    yield from total_notes(total for total in totals if total is not None)


def _of_profile(profile: Measured, *, used: bool) -> str:
    """Why the time of a profile is that of the step, or is not."""
    pieces = f"the file holds times of pieces, {show(profile.seconds, 's')} together"
    if profile.span is not None and profile.idle is not None:
        idle = f"{percent(profile.idle)} of {show(profile.span, 's')} idle"
        busy = f"the device was busy for {show(profile.seconds, 's')} ({idle})"
        pieces = f"under the profiler, which slows the host, {busy}"
    if used:
        return f"{pieces}: the device decides, and its busy time is taken for that of the step"
    return f"{pieces}: that is not the step's time and is not used; measure the step, and advise on its record file"


def _freed(base: AdvisedStep, step: AdvisedStep) -> str:
    """What it frees of the memory, where that is worth a word."""
    before, after = MEMORY.read(base.evidence).value, MEMORY.read(step.evidence).value
    freed = None if before is None or after is None else before - after
    return f"; frees {show(freed, 'B')}" if freed is not None and before and freed / before > WORTH - 1 else ""


def _asked(step: AdvisedStep) -> str:
    return " ".join(change.asked for change in step.changes)
