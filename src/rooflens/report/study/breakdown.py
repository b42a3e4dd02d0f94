"""Where FLOP, bytes, time and memory go: by operation family, by phase, and memory by cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from rooflens import units
from rooflens.records import MEMORY_CAUSES, Case, Record
from rooflens.report.charts import Bar, BarPiece, Bars
from rooflens.report.figures.palette import MOST_GROUPS, OTHER, group_colours
from rooflens.report.series import phases_table
from rooflens.report.study.cases import device_note, naming
from rooflens.report.study.content import Block, FigureBlock, Section, TableBlock
from rooflens.report.study.view import StudyView
from rooflens.report.summary import memory as memory_table
from rooflens.report.table import percent
from rooflens.results import QUANTITIES, Evidence, Total
from rooflens.results.quantities import BOUND

MOST = 16
"""Steps that have a bar: those whose bound is longest, or that need most memory."""
_UNKNOWN = "no family"
_WRITTEN = "bytes of the results that operations write, whether they are kept or not"
_PHASE_COLOURS: Mapping[str, str] = {"forward": "#0072b2", "backward": "#d55e00", "optimizer": "#009e73"}
_AMOUNTS = (
    ("flops", "FLOP", "FLOP"),
    ("bytes", "DRAM bytes", "B"),
    ("bound", "Bound", "s"),
    ("time", "Measured time", "s"),
    ("memory", "Memory written", "B"),
)
"""What is broken down: its key, its title and its unit."""
Amounts = Mapping[str, float]
"""How much of something each group has."""
By = Literal["family", "phase"]


def breakdown(view: StudyView) -> Section | None:
    """By family for every kind of step, by phase for training."""
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
    chart = _by_cause(view.evidence)
    drawn = () if chart is None else (FigureBlock(chart=chart),)
    return Section(key="memory", title="Memory by cause", blocks=(*drawn, TableBlock(key="memory", table=table)))


def representatives(evidence: Iterable[Evidence]) -> list[Evidence]:
    """One case of each kind of step: on the first device that it was seen on, at its largest batch.

    Of equal batches the one that was profiled; of many kinds those whose bound is longest.
    """
    kinds: dict[Case, Evidence] = {}
    for item in evidence:
        kind = replace(item.case, batch=None, device=None)
        if item.work is not None and (kind not in kinds or _rank(item) > _rank(kinds[kind])):
            kinds[kind] = item
    items = list(kinds.values())
    return sorted(items, key=lambda item: -(BOUND.read(item).value or 0.0))[:MOST] if len(items) > MOST else items


def _rank(item: Evidence) -> tuple[int, bool]:
    return item.case.batch or 0, item.profile is not None


def _charts(items: Sequence[Evidence], by: By) -> Iterator[Bars]:
    for key, title, unit in _AMOUNTS:
        rows = [(item, amounts) for item in items if sum((amounts := _amounts(item, key, by)).values())]
        if rows:
            colours = _PHASE_COLOURS if by == "phase" else _ranked(amounts for _, amounts in rows)
            yield _shares(f"{key}-by-{by}", f"{title} by {by}", rows, colours, unit)


def _amounts(item: Evidence, key: str, by: By) -> Amounts:
    if key == "memory":
        records = [record for record in item.work or () if record.work is not None]
        if any(record.traffic is None for record in records):
            return {}  # of some operation nobody knows what it writes
        return _summed(records, by, lambda record: record.traffic.outputs if record.traffic is not None else 0.0)
    if key == "time" and by == "family":  # where a profile saw the pieces
        pieces = [record for record in item.pieces or () if record.timing is not None and record.scope != "model"]
        return _summed(pieces, by, lambda record: record.timing.median if record.timing is not None else 0.0)
    if key == "time":
        return {phase: time.seconds for phase in item.phases if (time := item.measured(phase)) is not None}
    return {name: QUANTITIES[key].of(total).value or 0.0 for name, total in _totals(item, by).items()}


def _summed(records: Iterable[Record], by: By, amount: Callable[[Record], float]) -> Amounts:
    """Amounts of one call of each record, times its calls, by family or phase."""
    amounts: dict[str, float] = {}
    for record in records:
        name = (record.kind if by == "family" else record.phase) or _UNKNOWN
        amounts[name] = amounts.get(name, 0.0) + amount(record) * record.calls
    return amounts


def _totals(item: Evidence, by: By) -> Mapping[str, Total]:
    if by == "phase":
        return {phase: total for phase in item.phases if (total := item.total(phase)) is not None}
    families: dict[str, list[Record]] = {}
    for record in item.work or ():
        if record.work is not None:
            families.setdefault(record.kind or _UNKNOWN, []).append(record)
    return {} if item.work is None else {name: item.work.sum(rs, item.device) for name, rs in families.items()}


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


def _shares(
    key: str, title: str, rows: Sequence[tuple[Evidence, Amounts]], colours: Mapping[str, str], unit: str
) -> Bars:
    named = naming([item.case for item, _ in rows])
    return Bars(
        key=key,
        title=title,
        axis="share of the step",
        unit="%",
        bars=tuple(Bar(named(item.case), tuple(_parts(amounts, colours, unit))) for item, amounts in rows),
        groups=dict(colours),
        notes=(*device_note(item.case for item, _ in rows), *([_WRITTEN] if key.startswith("memory") else [])),
    )


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


def _by_cause(evidence: Iterable[Evidence]) -> Bars | None:
    """Estimated bytes alive at the peak, cause by cause, of the steps that need most."""
    rows: dict[Case, Bar] = {}
    known = [
        (replace(item.case, device=None), item.work.memory)
        for item in evidence
        if item.work is not None and item.work.memory is not None
    ]
    causes = [cause for cause in MEMORY_CAUSES if any(getattr(memory, cause) for _, memory in known)]
    if not causes:
        return None
    colours = group_colours([cause.replace("_", " ") for cause in causes])
    named = naming([case for case, _ in known])
    for case, memory in known:
        amounts = {cause.replace("_", " "): getattr(memory, cause) or 0 for cause in causes}
        parts = (BarPiece(name, n, (name, units.show(n, "B"))) for name, n in amounts.items() if n)
        rows.setdefault(case, Bar(named(case), tuple(parts)))
    bars = sorted(rows.values(), key=lambda bar: -bar.length)
    notes = [f"the {MOST} steps that need most of {len(bars)}; the table has all"] if len(bars) > MOST else []
    return Bars(
        key="memory-by-cause",
        title="Memory at the peak, by cause",
        axis="estimated memory",
        unit="B",
        bars=tuple(bars[:MOST]),
        groups=colours,
        notes=tuple(notes),
    )
