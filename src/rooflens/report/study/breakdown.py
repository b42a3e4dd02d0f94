"""Where FLOP, bytes, time and memory go: by operation family, by phase, and memory by cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rooflens import units
from rooflens.records import Case
from rooflens.report.charts import Bar, BarPiece, Bars
from rooflens.report.figures.palette import MOST_GROUPS, OTHER, group_colours
from rooflens.report.memory_table import memory as memory_table
from rooflens.report.series import phases_table
from rooflens.report.study.cases import common_note, naming
from rooflens.report.study.causes import Amounts, memory_by_cause
from rooflens.report.study.content import Block, FigureBlock, Section, TableBlock
from rooflens.report.study.view import StudyView
from rooflens.report.table import percent
from rooflens.results import GROUP_KEYS, Evidence
from rooflens.results.quantities import ALL_FLOPS, BOUND, BYTES
from rooflens.results.totals import grouped_by

MOST = 16
"""Steps that have a bar: those whose bound is longest, or that need most memory."""
_UNKNOWN = "no family"
_WRITTEN = "bytes of the results that operations write, whether they are kept or not"
_PHASE_COLOURS: Mapping[str, str] = {
    "forward": "#0072b2",
    "backward": "#d55e00",
    "optimizer": "#009e73",
    "prefill": "#0072b2",
    "decode": "#d55e00",
}
_AMOUNTS = (
    ("flops", "FLOP", "FLOP"),
    ("bytes", "DRAM bytes", "B"),
    ("bound", "Bound", "s"),
    ("time", "Measured time", "s"),
    ("memory", "Memory written", "B"),
)
"""What is broken down: its key, its title and its unit."""
_COUNTED = (ALL_FLOPS, BYTES, BOUND)
By = Literal["family", "phase"]


def breakdown(view: StudyView) -> Section | None:
    """By family for every kind of step, by phase for training and for whole answers."""
    items = representatives(view.evidence)
    training = [item for item in items if len(item.phases) > 1]
    charts = (*_charts(items, "family"), *_charts(training, "phase"))
    blocks: list[Block] = [FigureBlock(chart=chart) for chart in charts]
    if view.phase_ratios:
        blocks.append(TableBlock(key="phases", table=phases_table(view.phase_ratios)))
    if not blocks:
        return None
    intro = (
        "Shares of one step, which need not agree: what does most FLOP need not move most bytes or take most time. Each"
        " bar is one kind of step at its largest batch."
    )
    return Section(key="breakdown", title="By family and phase", blocks=(intro, *blocks))


def memory(view: StudyView) -> Section | None:
    """What the memory at the peak is made of."""
    table = memory_table(view.records)
    if not table.rows:
        return None
    chart = memory_by_cause(view.evidence)
    drawn = () if chart is None else (FigureBlock(chart=chart),)
    return Section(key="memory", title="Memory by cause", blocks=(*drawn, TableBlock(key="memory", table=table)))


def representatives(evidence: Iterable[Evidence]) -> list[Evidence]:
    """One case of each kind of step: on the first device that it was seen on, at its largest batch.

    Of equal batches the one that was profiled; of many kinds those whose bound is longest.
    """
    kinds: dict[Case, list[Evidence]] = {}
    for item in evidence:
        if item.work is not None:
            kinds.setdefault(replace(item.case, batch=None, device=None), []).append(item)
    items = [max(those, key=lambda item: (item.case.batch or 0, item.profile is not None)) for those in kinds.values()]
    return sorted(items, key=lambda item: -(BOUND.read(item).value or 0.0))[:MOST] if len(items) > MOST else items


def shares(evidence: Iterable[Evidence], key: str, by: By) -> Bars | None:
    """Return one chart of shares, as a report has it; None where nothing is known for it."""
    items = representatives(evidence)
    if by == "phase":
        items = [item for item in items if len(item.phases) > 1]
    return next((chart for chart in _charts(items, by) if chart.key == f"{key}-by-{by}"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Divided:
    """Every amount of a step by family or phase.

    Attributes:
        amounts: as far as they are known, by their key.
        partly: of which families or phases an amount is not known, or not all of it.
    """

    case: Case
    amounts: Mapping[str, Amounts]
    partly: Mapping[str, Sequence[str]]


def _charts(items: Sequence[Evidence], by: By) -> Iterator[Bars]:
    every = [_divided(item, by) for item in items]
    for key, title, unit in _AMOUNTS:
        rows = [(step, step.amounts[key]) for step in every if sum(step.amounts[key].values())]
        if not rows:
            continue
        colours = _PHASE_COLOURS if by == "phase" else _ranked(amounts for _, amounts in rows)
        cases = [step.case for step, _ in rows]
        named = naming(cases)
        lacking = [
            f"{named(step.case)}: {title} not all known of {', '.join(step.partly[key])}"
            for step, _ in rows
            if step.partly.get(key)
        ]
        yield Bars(
            key=f"{key}-by-{by}",
            title=f"{title} by {by}",
            axis="share of the step",
            unit="%",
            bars=tuple(Bar(named(step.case), tuple(_parts(amounts, colours, unit))) for step, amounts in rows),
            groups=dict(colours),
            notes=(*common_note(cases), *([_WRITTEN] if key == "memory" else []), *lacking),
        )


def _divided(item: Evidence, by: By) -> _Divided:
    work = grouped_by((record for record in item.work or () if record.work is not None), GROUP_KEYS[by])
    totals = {
        name or _UNKNOWN: item.work.sum(records, item.device) for name, records in work.items() if item.work is not None
    }
    readings = {quantity.name: {name: quantity.of(t) for name, t in totals.items()} for quantity in _COUNTED}
    written = {
        name: [None if record.traffic is None else record.traffic.outputs * record.calls for record in total.records]
        for name, total in totals.items()
    }
    is_known = not any(None in each for each in written.values())
    if by == "phase":
        times = {str(phase): time.seconds for phase in item.phases if (time := item.measured(phase)) is not None}
    else:  # where a profile saw the pieces
        pieces = (record for record in item.pieces or () if record.timing is not None and record.scope != "model")
        timed = grouped_by(pieces, GROUP_KEYS[by])
        times = {name or _UNKNOWN: sum(record.seconds or 0.0 for record in each) for name, each in timed.items()}
    return _Divided(
        case=item.case,
        amounts={
            **{key: {name: reading.value or 0.0 for name, reading in each.items()} for key, each in readings.items()},
            "time": times,
            "memory": {name: sum(filter(None, each)) for name, each in written.items()} if is_known else {},
        },
        partly={
            key: [name for name, reading in each.items() if reading.value is None or reading.at_least]
            for key, each in readings.items()
        },
    )


def _ranked(rows: Iterable[Amounts]) -> Mapping[str, str]:
    """Colours of families, the largest first; those for which none is left share one."""
    shares: dict[str, float] = {}
    for amounts in rows:
        whole = sum(amounts.values())
        for name, amount in amounts.items():
            shares[name] = shares.get(name, 0.0) + amount / whole
    order = sorted(shares, key=lambda name: -shares[name])
    kept = order if len(order) <= MOST_GROUPS else [*order[: MOST_GROUPS - 1], OTHER]
    colours = group_colours(kept)
    return {name: colours[name] for name in kept}


def _parts(amounts: Amounts, colours: Mapping[str, str], unit: str) -> Iterator[BarPiece]:
    whole = sum(amounts.values())
    for name in colours:
        amount = amounts.get(name, 0.0)
        if amount:
            share = amount / whole
            yield BarPiece(name, share, (name, units.show(amount, unit), f"{percent(share)} of the step"))
    rest = sum(amount for name, amount in amounts.items() if name not in colours)
    if rest:
        yield BarPiece(OTHER, rest / whole, (OTHER, units.show(rest, unit), f"{percent(rest / whole)} of the step"))
