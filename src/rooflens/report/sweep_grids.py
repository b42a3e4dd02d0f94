"""A sweep of many cases over two sizes on one page: a small table for each number that people ask of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rooflens.records import Case, Scalar
from rooflens.report.answer_table import WholeCase, answer_column
from rooflens.report.case_names import shared
from rooflens.report.columns import at_least
from rooflens.report.table import COUNT, Column, Entry, Table, build
from rooflens.report.table_notes import LOWER_BOUND
from rooflens.results import Evidence, Quantity, RecordSet, join
from rooflens.results.answers import (
    PROMPT_RATE,
    TIME_PER_ANSWER,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKEN_RATE,
)
from rooflens.results.quantities import (
    BOUND,
    BOUND_BYTES,
    BOUND_MATMUL_FLOPS,
    BYTES,
    MATMUL_FLOPS,
    MEMORY,
    PREDICTED,
    THROUGHPUT,
    TIME,
)

MANY = 24
"""Cases from which on a page has these tables instead of a row for each."""
MOST = 20
"""Rows of one, and the last; of more, each second, third ... is shown."""
_ASKED: Mapping[str, tuple[Quantity, ...]] = {
    "prefill": (TIME_TO_FIRST_TOKEN, PROMPT_RATE),
    "decode": (TIME_PER_OUTPUT_TOKEN, TOKEN_RATE),
    "generate": (TIME_TO_FIRST_TOKEN, TIME_PER_OUTPUT_TOKEN, TIME_PER_ANSWER, TOKEN_RATE),
}
_WORK: Mapping[Quantity, Quantity] = {MATMUL_FLOPS: BOUND_MATMUL_FLOPS, BYTES: BOUND_BYTES}
"""Without a device: work of the code as written, and that of which a bound is made."""
WHERE_THE_REST_IS = "every case with every column: --format csv, or -o FILE.csv; records: -o FILE.jsonl"
_TOO_LARGE = "! more than the device's memory"

_SIGNS = {">=": ", at least (by the bound)", "<=": ", at most (by the bound)", "": ""}

_Place = tuple[Scalar | None, Scalar | None]


def sweep_grids(records: RecordSet) -> list[Table]:
    """Return the tables of many cases that differ in two sizes; none of others."""
    if len(records.cases) < MANY:
        return []
    evidence = join(records)
    axes = _axes([item.case for item in evidence])
    if axes is None or len({item.case.device for item in evidence}) > 1:
        return []
    down, across = axes
    cells = {(_value(item.case, down), _value(item.case, across)): item for item in evidence}
    if len(cells) < len(evidence):
        return []
    asked = _ASKED.get(evidence[0].case.mode, (TIME, PREDICTED, BOUND, THROUGHPUT))
    if evidence[0].case.device is None and not any(item.measured() for item in evidence):
        asked = tuple(_WORK)
    about = replace(evidence[0].case, batch=None, options=())
    words = ", ".join(filter(None, (about.model, shared([item.case for item in evidence]))))
    where = f" on {about.device}" if about.device else ""
    totals = [item.total() for item in evidence if item.measured() is None]
    expected = len(totals) == len(evidence) and all(t is not None and t.predicted_seconds is not None for t in totals)
    read = {q: {place: _entry(q, item, expected) for place, item in cells.items()} for q in (*asked, MEMORY)}

    def by(quantity: Quantity) -> str:
        return ", as expected" if expected and quantity.timed else _as_written(quantity, evidence)

    drawn = (_grid(quantity, entries, axes, by(quantity), f"{words}{where}") for quantity, entries in read.items())
    tables = [table for table in drawn if table is not None]
    return [*tables[:-1], replace(tables[-1], notes=(*tables[-1].notes, WHERE_THE_REST_IS))] if tables else []


def _as_written(quantity: Quantity, evidence: Sequence[Evidence]) -> str:
    """What the title of work says where a bound would count less of it."""
    floor = _WORK.get(quantity)
    if floor is None or all(quantity.read(item).value == floor.read(item).value for item in evidence):
        return ""
    return " as written"


def _axes(cases: Sequence[Case]) -> tuple[str, str] | None:
    """Return the two sizes in which cases differ, that with more values first; None if they differ otherwise."""
    if not cases or len({replace(case, batch=None, options=()) for case in cases}) > 1:
        return None
    values: dict[str, set[Scalar | None]] = {"batch": {case.batch for case in cases}}
    for name in {name for case in cases for name, _ in case.options}:
        values[name] = {dict(case.options).get(name) for case in cases}
    names = [name for name, those in values.items() if len(those) > 1]
    whole = all(type(value) is int for name in names for value in values[name])
    if len(names) != 2 or not whole:
        return None
    first, second = sorted(names, key=lambda name: (len(values[name]), name != "batch"), reverse=True)
    return first, second


def _value(case: Case, axis: str) -> Scalar | None:
    return case.batch if axis == "batch" else dict(case.options).get(axis)


def _grid(
    quantity: Quantity, entries: Mapping[_Place, Entry], axes: tuple[str, str], by: str, words: str
) -> Table | None:
    """Return one number of every case; None where nobody knows it."""
    down, across = axes
    if all(entry.value is None for entry in entries.values()):
        return None
    signs = {entry.sign for entry in entries.values() if entry.value is not None}
    of_all = _SIGNS[next(iter(signs))] if len(signs) == 1 and quantity.timed else ""
    lines, columns = (sorted({place[n] for place in entries}, key=_number) for n in (0, 1))
    every = -(-len(lines) // MOST)
    shown = list(dict.fromkeys((*lines[::every], lines[-1])))

    def column(value: Scalar | None) -> Column:
        def of(line: Scalar | None) -> Entry:
            entry = entries.get((line, value), Entry(None))
            return replace(entry, sign="") if of_all else entry

        return Column(f"{across}={value}", f"{across} {value}", quantity.unit, of, group="values")

    first = Column(down, down, COUNT, Entry)
    notes = [f"{len(shown)} of {len(lines)} values of {down}"] if every > 1 else []
    notes += [LOWER_BOUND] if ">=" in signs and not quantity.timed else []
    notes += [_TOO_LARGE] if any(entry.mark for entry in entries.values()) else []
    title = f"{quantity.title[0].upper()}{quantity.title[1:]}{of_all or by}: {words}"
    return build(title, (first, *map(column, columns)), shown, notes=notes)


def _number(value: Scalar | None) -> float:
    return value if isinstance(value, int | float) else 0


def _entry(quantity: Quantity, item: Evidence, expected: bool) -> Entry:
    reading = quantity.read(item)
    value = reading.value
    if quantity is MEMORY:
        return Entry(value, mark="!" if item.room is not None and item.room.fits is False else "")
    if quantity.timed:
        return answer_column(quantity, expected=expected).entry(WholeCase(item))
    return at_least(value, reading.at_least)
