"""What the page holds of records: every number and every text of it. The page only filters, sorts and draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from rooflens import units
from rooflens.records import MEMORY_CAUSES, Case, Device, Failure, Memory, Phase
from rooflens.report.case_names import PHASE_WORDS, SOURCE_WORDS, short_device
from rooflens.report.columns import CASE, cause_columns
from rooflens.report.escape import printable
from rooflens.report.explorer.encoded import Numbered, encoded
from rooflens.report.explorer.step_marks import EXPECTED, StepMark, sources_of, step_marks, why_none
from rooflens.report.figures.axes import Axis, tick_text
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES, used
from rooflens.report.figures.memory_levels import intensity_label, shown_levels
from rooflens.report.figures.palette import SHAPES, Symbol
from rooflens.report.memory_table import WITH_WORKSPACE
from rooflens.report.study.causes import TIME_COLOURS, TIME_NOTES, bound_by_cause
from rooflens.report.summary import summary
from rooflens.report.table import Column, Entry, Table, build, percent
from rooflens.report.table_notes import BELOW_BOUND
from rooflens.results import QUANTITIES, Evidence, RecordSet, Room, join
from rooflens.results.evidence import only_failed
from rooflens.results.quantities import BOUND, PREDICTED, TIME
from rooflens.roofline import ridge

WHOLE = PHASE_WORDS[None]
_SOURCES = {"estimate": "estimated (bound)", EXPECTED: EXPECTED} | {
    source: words for source, words in SOURCE_WORDS.items() if source != "estimate"
}
"""What the page calls who tells something, in the order of its choices."""
_OBSERVED = ("measure", "counters", "profile", "replay")
_TOLD_BY = {
    "seconds": ("estimate", "counters"),
    "bound_by": ("estimate", "counters"),
    "as_written_seconds": ("estimate",),
    "whole_model_seconds": ("estimate", "counters"),
    "predicted_seconds": (EXPECTED,),
    "predicted_low": (EXPECTED,),
    "predicted_high": (EXPECTED,),
    "measured_seconds": _OBSERVED,
    "summed_seconds": _OBSERVED,
    "span_seconds": _OBSERVED,
    "idle_share": _OBSERVED,
    "measured_spread": _OBSERVED,
}
"""Columns that belong to some sources: they are hidden while none of these is chosen."""
_RANKS = {"measured_seconds": TIME, "predicted_seconds": PREDICTED, "seconds": BOUND} | dict(QUANTITIES)
"""Columns by which steps can be ranked, those that people ask for first."""
_SETTING = ("batch", "options", "dtype", "mode")
"""What steps share that compare; given up in this order where no two of them share all."""
_DECADES = range(-60, 61)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The memory of a step, and that of its device."""

    case: Case
    memory: Memory
    measured: int | None
    room: Room | None


def _fits(room: Room | None) -> Entry:
    if room is not None and room.borderline:
        return Entry(None, label="borderline")
    fits = None if room is None else room.fits
    return Entry(fits, label=None if fits is None else "yes" if fits else "no")


_HELD = (
    *CASE,
    Column("peak", "peak", "B", "memory.peak", group="memory"),
    *cause_columns("memory"),
    Column("workspace", "workspace", "B", "memory.workspace", group="memory", if_any=True),
    Column("needed", "needed", "B", "room.needed", group="memory"),
    Column("device_memory", "memory of the device", "B", "room.memory", group="memory"),
    Column("fits", "fits", read=lambda held: _fits(held.room), align="left", group="memory"),
    Column("memory_excess", "exceeds memory by", "B", "room.excess", group="memory", if_any=True),
    Column("measured_peak", "measured peak", "B", "measured", group="memory"),
)


class _Rows:
    """The steps of a set, and their phases where they have several: the rows of its summary; failed ones come last."""

    def __init__(self, records: RecordSet) -> None:
        evidence = join(records)
        self.known: list[tuple[Evidence, Phase | None]] = [(item, only) for item in evidence for only in item.parts]
        self.failed: tuple[Failure, ...] = only_failed(records, evidence)
        self.cases = [*(item.case for item, _ in self.known), *(failure.case for failure in self.failed)]
        known = {item.device.name: item.device for item, _ in self.known if item.device is not None}
        self.devices: list[Device] = [*known.values()]

    @cached_property
    def device_names(self) -> dict[str, str]:
        """What people call each device: its short name, where no other one has it."""
        names = dict.fromkeys(filter(None, (*(case.device for case in self.cases), *(d.name for d in self.devices))))
        shorts = [short_device(name) for name in names]
        return {name: short if shorts.count(short) == 1 else name for name, short in zip(names, shorts, strict=True)}

    @cached_property
    def parts(self) -> list[str]:
        """Which part of its step each row is about."""
        return [*(PHASE_WORDS[only] for _, only in self.known), *(WHOLE for _ in self.failed)]

    @cached_property
    def sources(self) -> list[tuple[str, ...]]:
        """Who tells something of each row."""
        return [
            *(sources_of(item, only) for item, only in self.known),
            *((failure.source,) for failure in self.failed),
        ]


def explored(records: RecordSet) -> dict[str, Any]:
    """Return what the page holds: the rows of :func:`~rooflens.report.summary.summary`, where each can be drawn, the
    memory of steps, and by what they can be chosen. Texts are printable, and numbers are those of the records.
    """
    rows = _Rows(records)
    table = summary(records)
    facets = _facets(rows)
    ranks = list(_ranks(table))
    levels = shown_levels(None, records.summed, rows.devices[:FEW_DEVICES]) if rows.known else ("dram",)
    return {
        "count": len(table.rows),
        "facets": facets,
        "sources": _sources(rows),
        "columns": _columns(table),
        "ranks": ranks,
        "firstRank": _first_rank(table, ranks, facets),
        "memory": _memory(rows),
        "spent": _spent(rows),
        "devices": [_device(device, rows.device_names[device.name], levels) for device in rows.devices],
        "fewDevices": FEW_DEVICES,
        **_drawn(rows, levels),
        "notes": _notes(rows, table),
    }


def _facets(rows: _Rows) -> list[dict[str, Any]]:
    """By what people choose; of each row the number of its value."""
    read = {
        "model": ("Model", "{}", [case.model for case in rows.cases]),
        "batch": ("Batch", "batch {}", ["" if case.batch is None else str(case.batch) for case in rows.cases]),
        "dtype": ("Dtype", "{}", [case.dtype for case in rows.cases]),
        "mode": ("Mode", "{}", [case.mode for case in rows.cases]),
        "options": ("Options", "{}", [" ".join(f"{n}={v}" for n, v in case.options) for case in rows.cases]),
        "device": ("Device", "on {}", [rows.device_names.get(case.device or "", "") for case in rows.cases]),
        "part": ("Part of the step", "{}", rows.parts),
    }
    first = _comparable({key: read[key][2][: len(rows.known)] for key in _SETTING}, rows.parts)
    first |= {"part": WHOLE} if set(rows.parts) - {WHOLE} else {}
    return [
        _facet(key, title, pattern, texts, first.get(key) if len(set(texts)) > 1 else None)
        for key, (title, pattern, texts) in read.items()
    ]


def _comparable(texts: Mapping[str, Sequence[str]], parts: Sequence[str]) -> dict[str, str]:
    """Return the setting that most whole steps share, by which the page begins: they differ in model and device alone.

    Where no two share one, batches are left to differ, then options and the others too. Of settings with as many steps
    the last one is taken: batches grow, and a card is not busy with the first.
    """
    for left in range(len(_SETTING)):
        keys = _SETTING[left:]
        settings: list[tuple[str, ...]] = list(zip(*(texts[key] for key in keys), strict=True))
        counted = Counter(setting for setting, part in zip(settings, parts, strict=False) if part == WHOLE)
        most = max(reversed(counted), key=lambda setting: counted[setting], default=())
        if counted[most] > 1:
            return dict(zip(keys, most, strict=True))
    return {}


def _facet(key: str, title: str, pattern: str, texts: Sequence[str], first: str | None) -> dict[str, Any]:
    order = sorted(set(texts), key=lambda text: int(text or 0)) if key == "batch" else list(dict.fromkeys(texts))
    if key == "part":
        order.sort(key=lambda text: text != WHOLE)
    numbers = {text: number for number, text in enumerate(order)}
    return {
        "key": key,
        "title": title,
        "pattern": pattern,
        "values": [printable(text) for text in order],
        "of": [numbers[text] for text in texts],
        "first": [] if first is None else [printable(first)],
    }


def _sources(rows: _Rows) -> dict[str, Any]:
    seen = {source for some in rows.sources for source in some}
    kept = [source for source in _SOURCES if source in seen]
    return {
        "keys": kept,
        "titles": [_SOURCES[source] for source in kept],
        "shapes": [_shape(source) for source in kept],
        "of": [sum(1 << kept.index(source) for source in some) for some in rows.sources],
    }


def _shape(source: str) -> Symbol:
    """Return the symbol of a source; a cross of an expected time, which nobody observed."""
    return next((shape for known, shape in SHAPES.items() if known == source), "cross")


def _columns(table: Table) -> list[dict[str, Any]]:
    return [{**column, "toldBy": _TOLD_BY.get(column["key"], ())} for column in encoded(table)]


def _ranks(table: Table) -> Iterator[dict[str, Any]]:
    """Yield by which columns steps can be ranked, and which of their values are better."""
    keys = [column.key for column in table.columns]
    for key, quantity in _RANKS.items():
        if key in keys and quantity.better:
            number = keys.index(key)
            if any(row[number].value is not None for row in table.rows):
                yield {"column": number, "better": quantity.better, "title": quantity.title}


def _first_rank(table: Table, ranks: Sequence[Mapping[str, Any]], facets: Sequence[Mapping[str, Any]]) -> str:
    """Return the key of the column by which steps are ranked at first: known of half of the rows shown, or of most."""
    opened = [
        row
        for number, row in enumerate(table.rows)
        if all(not facet["first"] or facet["values"][facet["of"][number]] in facet["first"] for facet in facets)
    ]
    known = [(sum(row[rank["column"]].value is not None for row in opened), rank["column"]) for rank in ranks]
    most = max((count for count, _ in known), default=0)
    enough = (column for count, column in known if count >= most / 2)
    return next((table.columns[column].key for column in enough), "")


def _memory(rows: _Rows) -> dict[str, Any]:
    """The memory of each whole step that was estimated, by cause; `row` is its row among all."""
    held = [
        (number, _held(item, item.work.memory))
        for number, (item, only) in enumerate(rows.known)
        if only is None and item.work is not None and item.work.memory is not None
    ]
    table = build("Memory at the peak", _HELD, (its for _, its in held), notes=[WITH_WORKSPACE] if held else [])
    return {
        "row": [number for number, _ in held],
        "columns": encoded(table),
        "causes": [*MEMORY_CAUSES, "workspace"],
        "notes": list(table.notes),
    }


def _spent(rows: _Rows) -> dict[str, Any]:
    """What the bound of each whole step is spent on: shares, in numbers and in words."""
    known = [
        (number, amounts, sum(amounts.values()))
        for number, (item, only) in enumerate(rows.known)
        if only is None and (amounts := bound_by_cause(item)) and sum(amounts.values())
    ]
    return {
        "causes": list(TIME_COLOURS),
        "row": [number for number, *_ in known],
        "shares": [[round(amounts.get(cause, 0) / whole, 4) for cause in TIME_COLOURS] for _, amounts, whole in known],
        "text": [
            ", ".join(f"{cause} {percent(amounts[cause] / whole)}" for cause in TIME_COLOURS if amounts.get(cause))
            for _, amounts, whole in known
        ],
        "notes": list(TIME_NOTES),
    }


def _held(item: Evidence, memory: Memory) -> _Held:
    measured = None if item.time is None or item.time is item.work else item.time.memory
    return _Held(case=item.case, memory=memory, measured=measured.peak if measured else None, room=item.room)


def _device(device: Device, name: str, levels: Sequence[str]) -> dict[str, Any]:
    """The ceilings of a device, and where they meet."""
    diagonals = [ceiling for level in levels if (ceiling := device.ceiling(level)) is not None]
    flats = [ceiling for ceiling in device.ceilings if ceiling.computes]
    return {
        "name": printable(name),
        "title": printable(device.title),
        "roofs": [
            {
                "resource": ceiling.resource,
                "flat": ceiling.computes,
                "rate": ceiling.rate,
                "text": units.show(ceiling.rate, "FLOP/s" if ceiling.computes else "B/s"),
                "origin": ceiling.origin + ("" if ceiling.verified else ", unverified"),
            }
            for ceiling in (*diagonals, *flats)
        ],
        "ridges": {f"{flat.resource} {level.resource}": ridge(flat, level) for level in diagonals for flat in flats},
    }


def _drawn(rows: _Rows, levels: Sequence[str]) -> dict[str, Any]:
    """Marks, row by row, and what drawing them takes: devices, ceilings, ticks; and why a row has none."""
    numbers = {device.name: number for number, device in enumerate(rows.devices)}
    marks: list[tuple[int, StepMark]] = []
    uses, reasons, on = Numbered[tuple[str, ...]](), Numbered[str](), list[int]()
    for row, (item, only) in enumerate(rows.known):
        own = list(step_marks(item, only, levels))
        marks += [(row, spot) for spot in own]
        reasons.add("" if own else why_none(item, only, levels))
        total = item.total(only)
        needed = None if total is None or not own else total.floor.work
        uses.add(() if needed is None or item.device is None else tuple(used([needed], item.device)))
        on.append(-1 if item.device is None else numbers[item.device.name])
    for failure in rows.failed:
        reasons.add(f"failed: {printable(failure.reason)}")
        uses.add(())
        on.append(-1)
    held = [field.name for field in fields(StepMark)]
    return {
        "levels": levels,
        "axes": {"x": {level: intensity_label([level]) for level in levels}, "y": "performance (FLOP/s)"},
        "marks": {"row": [row for row, _ in marks]} | {name: [getattr(s, name) for _, s in marks] for name in held},
        "uses": uses.shown(list),
        "without": reasons.shown(str),
        "belowBound": BELOW_BOUND,
        "on": on,
        "ticks": _ticks([spot for _, spot in marks], rows.devices),
    }


def _ticks(marks: Sequence[StepMark], devices: Sequence[Device]) -> dict[str, list[tuple[float, str]]]:
    """Ticks of both axes, many more than are shown at a time."""
    rates = [ceiling.rate for device in devices for ceiling in device.ceilings]
    shown = {}
    for name, unit, known in (
        ("x", "", [mark.x for mark in marks] or [1.0]),
        ("y", "FLOP/s", [mark.y for mark in marks] + rates or [1e12]),
    ):
        low, high = min(known) / 1e4, max(known) * 1e4
        axis = Axis(label=name, low=low, high=high, unit=unit)
        values = (float(f"{factor}e{power}") for power in _DECADES for factor in (1, 2, 5))
        shown[name] = [(value, tick_text(axis, value)) for value in values if low <= value <= high]
    return shown


def _notes(rows: _Rows, table: Table) -> dict[str, Any]:
    """What a reader must know: of all rows, and of each."""
    own = [item.notes for item, _ in rows.known] + [(failure.message,) for failure in rows.failed]
    of_rows = Numbered[tuple[str, ...]]()
    for notes in own:
        of_rows.add(notes)
    return {
        "all": [printable(note) for note in table.notes],
        **of_rows.shown(lambda notes: [printable(note) for note in notes]),
    }
