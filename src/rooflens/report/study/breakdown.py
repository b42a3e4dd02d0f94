"""Where FLOP, bytes, time and memory go: by operation family, by phase, and memory by cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rooflens import units
from rooflens.compare import PhaseRatio, phase_ratios
from rooflens.errors import Incomparable
from rooflens.records import MEMORY_CAUSES, PHASES, Case, Record
from rooflens.report.charts import Bar, BarPiece, Bars
from rooflens.report.figures.palette import MOST_GROUPS, OTHER, group_colours
from rooflens.report.series import phases_table
from rooflens.report.study.cases import device_note, naming
from rooflens.report.study.content import Block, FigureBlock, Section, TableBlock
from rooflens.report.study.view import StudyView
from rooflens.report.summary import memory as memory_table
from rooflens.report.table import percent
from rooflens.results import Evidence, Total

MOST = 16
"""Steps that have a bar: those whose bound is longest, or that need most memory."""
_UNKNOWN = "no family"
_WRITTEN = "bytes of the results that operations write, whether they are kept or not"
_PHASE_COLOURS: Mapping[str, str] = {"forward": "#0072b2", "backward": "#d55e00", "optimizer": "#009e73"}
Amounts = Mapping[str, float]
"""How much of something each group has."""


def breakdown(view: StudyView) -> Section | None:
    """By family for every kind of step, by phase for training."""
    items = foremost(view.evidence)
    blocks: list[Block] = [FigureBlock(chart=chart) for chart in _by_family(items)]
    training = [item for item in items if len(item.phases) > 1]
    blocks += [FigureBlock(chart=chart) for chart in _by_phase(training)]
    ratios = _ratios(view)
    if ratios:
        blocks.append(TableBlock(key="phases", table=phases_table(ratios)))
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


def foremost(evidence: Iterable[Evidence]) -> list[Evidence]:
    """One case of each kind of step: on the first device that it was seen on, at its largest batch."""
    kinds: dict[Case, Evidence] = {}
    for item in evidence:
        if item.work is None:
            continue
        kind = replace(item.case, batch=None, device=None)
        if kind not in kinds or _prefer(item, kinds[kind]):
            kinds[kind] = item
    found = list(kinds.values())
    return sorted(found, key=lambda item: -(_seconds(item.total()) or 0.0))[:MOST] if len(found) > MOST else found


def _prefer(item: Evidence, than: Evidence) -> bool:
    """The larger batch; of equal ones that which was profiled."""
    return (item.case.batch or 0, item.profile is not None) > (than.case.batch or 0, than.profile is not None)


def _seconds(total: Total | None) -> float | None:
    return None if total is None else total.seconds


def _by_family(items: Sequence[Evidence]) -> Iterator[Bars]:
    quantities: Sequence[tuple[str, str, str, Callable[[Evidence], Amounts]]] = (
        ("flops", "FLOP", "FLOP", lambda item: _families(item, lambda total: total.flops)),
        ("bytes", "DRAM bytes", "B", lambda item: _families(item, lambda total: total.bytes.get("dram"))),
        ("bound", "Bound", "s", lambda item: _families(item, lambda total: total.seconds)),
        ("time", "Measured time", "s", _timed),
        ("memory", "Memory written", "B", lambda item: _written(item, lambda record: record.kind)),
    )
    for key, title, unit, amounts in quantities:
        rows = [(item, found) for item in items if sum((found := amounts(item)).values())]
        if rows:
            colours = _ranked([found for _, found in rows])
            yield _shares(f"{key}-by-family", f"{title} by family", rows, colours, unit)


def _by_phase(items: Sequence[Evidence]) -> Iterator[Bars]:
    quantities: Sequence[tuple[str, str, str, Callable[[Evidence], Amounts]]] = (
        ("flops", "FLOP", "FLOP", lambda item: _phases(item, lambda total: total.flops)),
        ("bytes", "DRAM bytes", "B", lambda item: _phases(item, lambda total: total.bytes.get("dram"))),
        ("bound", "Bound", "s", lambda item: _phases(item, lambda total: total.seconds)),
        ("time", "Measured time", "s", _timed_phases),
        ("memory", "Memory written", "B", lambda item: _written(item, lambda record: record.phase or "")),
    )
    for key, title, unit, amounts in quantities:
        rows = [(item, found) for item in items if sum((found := amounts(item)).values())]
        if rows:
            yield _shares(f"{key}-by-phase", f"{title} by phase", rows, _PHASE_COLOURS, unit)


def _families(item: Evidence, amount: Callable[[Total], float | None]) -> Amounts:
    records: dict[str, list[Record]] = {}
    for record in item.work or ():
        if record.work is not None:
            records.setdefault(record.kind or _UNKNOWN, []).append(record)
    if item.work is None:
        return {}
    return {name: amount(item.work.sum(group, item.device)) or 0.0 for name, group in records.items()}


def _timed(item: Evidence) -> Amounts:
    """Seconds by family, where a profile saw the pieces."""
    found: dict[str, float] = {}
    for record in item.pieces or ():
        if record.timing is not None and record.scope != "model":
            family = record.kind or _UNKNOWN
            found[family] = found.get(family, 0.0) + record.timing.median * record.calls
    return found


def _written(item: Evidence, group: Callable[[Record], str]) -> Amounts:
    """Bytes of the results that operations write; nothing where those of one are not known."""
    found: dict[str, float] = {}
    for record in item.work or ():
        if record.work is None:
            continue
        if record.traffic is None:
            return {}
        name = group(record) or _UNKNOWN
        found[name] = found.get(name, 0.0) + record.traffic.outputs * record.calls
    return found


def _phases(item: Evidence, amount: Callable[[Total], float | None]) -> Amounts:
    totals = {phase: item.total(phase) for phase in PHASES if phase in item.phases}
    return {phase: amount(total) or 0.0 for phase, total in totals.items() if total is not None}


def _timed_phases(item: Evidence) -> Amounts:
    times = {phase: item.measured(phase) for phase in PHASES if phase in item.phases}
    return {phase: time.seconds for phase, time in times.items() if time is not None}


def _ranked(found: Iterable[Amounts]) -> Mapping[str, str]:
    """Colours of families, the largest first; those for which none is left share one."""
    shares: dict[str, float] = {}
    for amounts in found:
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


def _ratios(view: StudyView) -> tuple[PhaseRatio, ...]:
    try:
        return phase_ratios(view.records)
    except Incomparable:
        return ()


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
