"""What time and memory of a step are spent on, case beside case: a batch or a context grows, and the causes shift."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rooflens import units
from rooflens.errors import MissingCeiling
from rooflens.records import Case, Memory, Record
from rooflens.report.charts import Bar, BarPiece, Bars, Limit
from rooflens.report.columns import CAUSE_WORDS
from rooflens.report.figures.palette import group_colours
from rooflens.report.study.cases import common_note, naming
from rooflens.report.table import percent
from rooflens.results import Evidence

MOST = 40
"""Bars of a chart: of more cases, those that need most."""
MOST_BEYOND = 1.5
"""Lengths of the longest bar up to which a capacity is a line; one farther off is told in words."""
_WORKSPACE = "workspace"
TIME_COLOURS: Mapping[str, str] = {
    "weights": "#0072b2",
    "cache": "#56b4e9",
    "activations": "#660000",
    "products": "#d55e00",
    "attention": "#cc79a7",
    "norms": "#e69f00",
    "element-wise": "#009e73",
    "other": "#b2b2b2",
}
"""What a step waits for, in the order of the bars."""
_PRODUCTS = ("matmul", "convolution")
_BY_FAMILY = {"normalization": "norms", "elementwise": "element-wise"}
"""Families that are a cause of their own, whatever they wait for."""
_READ_THE_CACHE = ("attention", "matmul", "scan")
"""Families that read what earlier tokens left, where a step decodes and they have no weights."""
TIME_NOTES = (
    "weights, cache: operations that wait for reading them; activations: for inputs and results of products",
    "products, attention: for their arithmetic",
    "other: copies, pooling, lookups, losses and the rest",
)
Amounts = Mapping[str, float]
"""How much of something each group has."""


def time_by_cause(evidence: Iterable[Evidence]) -> Bars | None:
    """Return the bound of each case by what it waits for, None where no case has a bound."""
    rows = {item.case: amounts for item in evidence if (amounts := bound_by_cause(item))}
    if not rows:
        return None
    return _bars(
        rows,
        key="time-by-cause",
        title="What the bound is spent on",
        axis="bound",
        unit="s",
        groups=TIME_COLOURS,
        notes=(*common_note(rows), *TIME_NOTES),
    )


def memory_by_cause(evidence: Iterable[Evidence]) -> Bars | None:
    """Return what is alive at the peak of each case by cause, with what its device holds; None where nobody knows."""
    rows: dict[Case, Amounts] = {}
    held: dict[str, Limit] = {}
    for item in evidence:
        memory = None if item.work is None else item.work.memory
        if memory is None or not (amounts := _bytes(memory)):
            continue
        # Without a workspace the bytes are those of every device.
        for_any = not memory.workspace
        rows.setdefault(replace(item.case, device=None) if for_any else item.case, amounts)
        if item.room is not None and item.device is not None:
            held.setdefault(item.device.title, Limit(item.device.title, item.room.memory))
    if not rows:
        return None
    causes = [words for words in CAUSE_WORDS.values() if any(words in row for row in rows.values())]
    longest = max(sum(amounts.values()) for amounts in rows.values())
    near = tuple(limit for limit in held.values() if limit.value <= MOST_BEYOND * longest)
    beyond = [f"{limit.label} {units.show(limit.value, 'B')}" for limit in held.values() if limit not in near]
    return _bars(
        rows,
        key="memory-by-cause",
        title="Memory at the peak, by cause",
        axis="estimated memory",
        unit="B",
        groups=group_colours(causes),
        notes=(*common_note(rows), *([f"far beyond every bar: {', '.join(beyond)}"] if beyond else [])),
        limits=near,
    )


def _bars(
    rows: Mapping[Case, Amounts],
    *,
    key: str,
    title: str,
    axis: str,
    unit: str,
    groups: Mapping[str, str],
    notes: Sequence[str],
    limits: tuple[Limit, ...] = (),
) -> Bars:
    named = naming(list(rows))
    order = _order(rows)
    left_out = (f"the {MOST} that need most of {len(rows)}",) if len(rows) > MOST else ()
    bars = (Bar(named(case), tuple(_pieces(rows[case], groups, unit))) for case in order)
    return Bars(
        key=key,
        title=title,
        axis=axis,
        unit=unit,
        bars=tuple(bars),
        groups=dict(groups),
        notes=(*left_out, *notes),
        limits=limits,
    )


def _order(rows: Mapping[Case, Amounts]) -> list[Case]:
    """Return the cases as they came where one step grows, else those that need most first; `MOST` of them."""
    largest = sorted(rows, key=lambda case: -sum(rows[case].values()))[:MOST]
    kinds = {(case.model, case.dtype, case.mode, case.device) for case in rows}
    if len(kinds) > 1:
        return largest
    kept = set(largest)
    return [case for case in rows if case in kept]


def _pieces(amounts: Amounts, groups: Iterable[str], unit: str) -> Iterator[BarPiece]:
    whole = sum(amounts.values())
    for name in groups:
        if amount := amounts.get(name):
            yield BarPiece(name, amount, (name, units.show(amount, unit), f"{percent(amount / whole)} of it"))


def _bytes(memory: Memory) -> Amounts:
    """Return the bytes at the peak by cause, the workspace beside them."""
    known = memory.causes | {_WORKSPACE: memory.workspace}
    return {CAUSE_WORDS[cause]: amount for cause, amount in known.items() if amount}


def bound_by_cause(item: Evidence) -> Amounts:
    """Return the bound of a case by what it waits for; nothing where the case has no bound."""
    if item.work is None or item.device is None:
        return {}
    amounts: dict[str, float] = {}
    for record in item.work.summed:
        if record.scope == "model" or record.bound_work is None:
            continue
        try:
            bound = item.work.bound(record.bound_work, item.device)
        except MissingCeiling:
            return {}
        cause = _cause(record, bound.bound_by, decodes=item.case.mode == "decode")
        amounts[cause] = amounts.get(cause, 0.0) + bound.seconds * record.calls
    return amounts


def _cause(record: Record, bound_by: str, *, decodes: bool) -> str:
    """Return what one operation waits for: its arithmetic, or whatever most of its bytes are."""
    multiplies = record.kind in (*_PRODUCTS, "attention")
    if bound_by != "dram" and multiplies:
        return "products" if record.kind in _PRODUCTS else "attention"
    moved = record.traffic
    if bound_by == "dram" and moved is not None and moved.weights >= moved.inputs + moved.outputs:
        return "weights"
    if bound_by == "dram" and decodes and record.kind in _READ_THE_CACHE:
        return "cache"
    return "activations" if multiplies else _BY_FAMILY.get(record.kind, "other")
