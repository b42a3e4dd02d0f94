"""Throughput against batch, and the devices beside each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from rooflens import units
from rooflens.compare import Sweep
from rooflens.records import Case
from rooflens.report.charts import Axis, Dot, Plot, Series
from rooflens.report.comparison import devices_tables
from rooflens.report.series import sweep_table
from rooflens.report.study.cases import CaseLooks, common_note, naming
from rooflens.report.study.content import FigureBlock, Section, TableBlock
from rooflens.report.study.view import StudyView

_MOST_NAMED = 3
_LETTERS, _LEAST_NAMES, _MOST_NAMES = 58, 0.15, 0.45
"""Letters across a plane, and the least and the most of it that names at the right take."""
MOST_LINES = 40
"""Sweeps that are drawn: those of the highest throughput."""
MOST_WITH_BOUNDS = 12
"""Sweeps beside which there is room for a line of what the bound allows each."""
SAMPLES = "samples per second"
EXPECTED_BAND = "by expected times; bars: the band, which should hold 8 of 10 measured ones"


def throughput(view: StudyView) -> Section | None:
    """How throughput grows with the batch, and where it stops growing."""
    known = [sweep for sweep in view.sweeps if len(sweep.rates) > 1]
    if not known:
        return None
    blocks = (
        FigureBlock(chart=against_batch(known, view.device_order)),
        TableBlock(key="throughput", table=sweep_table(known)),
    )
    return Section(key="throughput", title="Throughput", blocks=blocks)


def against_batch(known: Sequence[Sweep], order: Sequence[str] = ()) -> Plot:
    """A line per model, dtype and device, named beside it; dashes are what only the bound allows."""
    cases = [sweep.case for sweep in known]
    named, label = naming(cases), _rate_label(cases)
    better = {sweep.case for sweep in known if sweep.origin != "bound"}
    bounds_too = len(better) <= MOST_WITH_BOUNDS
    drawn = [sweep for sweep in known if bounds_too or sweep.origin != "bound" or sweep.case not in better]
    shown = sorted(drawn, key=lambda sweep: -(sweep.best or (0, 0.0))[1])[:MOST_LINES]
    with_dashes = bounds_too or any(sweep.origin == "bound" for sweep in shown)
    looks = (CaseLooks.of if with_dashes else CaseLooks.of_many_lines)([sweep.case for sweep in shown], order)
    # Expected ones first: a legend shows the first line of its name.
    told = {sweep.case for sweep in shown if sweep.origin != "bound"}
    series = [
        _line(sweep, looks, named(sweep.case), label, 1 if label == SAMPLES else _tokens(sweep.case) or 1, told)
        for sweep in sorted(shown, key=lambda sweep: sweep.origin == "bound")
    ]
    ends = [y for its in series for dot in its.dots for y in (dot.y, *(end[1] for end in dot.bar or ()))]
    ends += [y for its in series for _, y in its.path]
    series = [*looks.legend(), *series] if looks.dashes else [*series, *looks.legend()]
    notes = list(common_note(cases))
    notes += [EXPECTED_BAND] if any(sweep.bands for sweep in shown) else []
    notes += ["dashed: the most that the bound allows"] if any(sweep.origin == "bound" for sweep in shown) else []
    notes += [*looks.notes(), *_too_large(shown, named)]
    notes += [] if len(drawn) == len(known) else ["what the bound allows is in the table: here are lines enough"]
    if len(drawn) > MOST_LINES:
        notes.append(f"the {MOST_LINES} of highest throughput of {len(drawn)}; the table has all")
    return Plot(
        key="throughput-batch",
        title="Throughput against batch",
        x=_batches(
            [float(batch) for sweep in shown for batch, _ in sweep.rates],
            max(len(dot.label) for its in series for dot in (*its.dots, Dot(1, 1))),
        ),
        y=Axis.around(label, ends),
        series=tuple(series),
        notes=tuple(notes),
    )


def _line(sweep: Sweep, looks: CaseLooks, name: str, label: str, scale: int, told: Collection[Case]) -> Series:
    """The line of a sweep with its marks; a bound is dashed.

    Args:
        told: cases that have a better line than their bound, which then has no name.
    """
    bands = dict(sweep.bands)
    at_bound = sweep.origin == "bound"
    dots = []
    for batch, rate in sweep.rates:
        low, high = bands.get(batch, (None, None))
        bar = None if low is None or high is None else ((batch, low * scale), (batch, high * scale))
        tip = (name, f"batch {batch}: {units.show(rate * scale)} {label}", *_said(sweep, batch))
        mark = Dot(batch, rate * scale, tip, bar, crossed=batch in sweep.too_large)
        dots.append(looks.dot(sweep.case, mark))
    if at_bound and sweep.case in told:
        dots = [replace(dot, label="") for dot in dots]
    look = looks.series(sweep.case)
    return replace(
        look,
        path=tuple((dot.x, dot.y) for dot in dots),
        dash=(3, 2) if at_bound else look.dash,
        width=1.2,
        dots=tuple(dots),
    )


def _rate_label(cases: Sequence[Case]) -> str:
    """What a rate counts: tokens where every case has them, else samples."""
    if any(_tokens(case) is None for case in cases):
        return SAMPLES
    prompts = {case.mode == "prefill" for case in cases}
    return "prompt tokens per second" if prompts == {True} else "tokens per second"


def _tokens(case: Case) -> int | None:
    """Tokens of a sample of a step, None where it has none or nobody says how many."""
    option = {"prefill": "seq_len", "train": "seq_len", "generate": "output_len"}.get(case.mode)
    tokens = 1 if case.mode == "decode" else dict(case.options).get(option or "")
    return tokens if isinstance(tokens, int) else None


def _too_large(shown: Sequence[Sweep], named: Callable[[Case], str]) -> Iterator[str]:
    """Which lines have batches that do not fit, each once."""
    too_large = list({sweep.case: sweep for sweep in shown if sweep.too_large}.values())
    for sweep in too_large[:_MOST_NAMED]:
        batches = ", ".join(map(str, sweep.too_large))
        yield f"{named(sweep.case)}: batch {batches} does not fit into the device's memory (crossed out)"
    if len(too_large) > _MOST_NAMED:
        yield f"{len(too_large) - _MOST_NAMED} more lines have batches that do not fit; the table names them"


def _said(sweep: Sweep, batch: int) -> Iterator[str]:
    """What a dot must say of itself."""
    if sweep.origin == "bound":
        yield "at its bound"
    elif sweep.origin == "predicted":
        yield "expected"
    if batch in sweep.too_large:
        yield "does not fit into the memory"


def _batches(batches: list[float], letters: int) -> Axis:
    """Return an axis with room for names of so many letters at the right ends of lines."""
    around = Axis.around("batch", batches, margin=1.2)
    share = min(_MOST_NAMES, max(_LEAST_NAMES, (letters + 3) / _LETTERS))
    return replace(around, high=around.high * (around.high / around.low) ** (share / (1 - share)))


def devices(view: StudyView) -> Section | None:
    """The same steps on several devices."""
    if view.devices is None:
        return None
    first, *others = devices_tables(view.devices)
    blocks = (
        TableBlock(key="devices", table=first),
        *(TableBlock(key="alone", table=table, folded=True) for table in others),
    )
    return Section(key="devices", title="Devices", blocks=blocks)
