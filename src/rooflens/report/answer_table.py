"""What people ask of steps and whole answers: columns of a summary, and a table with a row for each whole answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rooflens.records import Case, Phase
from rooflens.report.columns import CASE, ROOM
from rooflens.report.table import COUNT, Column, Entry, Sign, Table, build
from rooflens.results import Evidence, Measured, Quantity, RecordSet, Room, Total, join
from rooflens.results.answers import (
    ANSWERS,
    COSTS,
    ENERGIES,
    ENERGY_PER_TOKEN,
    PROMPT_RATE,
    SEQUENCE_RATE,
    TIME_OF_LAST_TOKEN,
    TIME_PER_ANSWER,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKEN_RATE,
)
from rooflens.results.factors import step_time
from rooflens.results.quantities import KV_CACHE, MEMORY
from rooflens.runs.options import ANSWERING, OPTIONS
from rooflens.units import show, show_range


class AnsweredRow(Protocol):
    """A row of one phase of a case, or of all of it: then `only` is None."""

    @property
    def evidence(self) -> Evidence: ...
    @property
    def case(self) -> Case: ...
    @property
    def only(self) -> Phase | None: ...
    @property
    def total(self) -> Total | None: ...
    @property
    def measured(self) -> Measured | None: ...


def answer_column(
    quantity: Quantity, show: Literal["always", "room", "files"] = "always", *, expected: bool = False
) -> Column:
    """Return the column of what people ask of a step: a bound is the least time and the highest rate.

    With `expected`, what was not measured is the expected number where there is one.
    An energy is an upper figure of a measured time. Of a bound it is neither the least nor the most, and not shown:
    where nothing was measured, :func:`expected_columns` have it.
    """
    energy = quantity in ENERGIES

    def read(row: AnsweredRow) -> Entry:
        value = None if row.only else quantity.read(row.evidence, time="measured" if energy else None).value
        sign: Sign = ">=" if quantity.better == "less" else "<="
        if expected and not row.only and not energy and row.measured is None:
            known = quantity.read(row.evidence, time="predicted").value
            value, sign = (value, sign) if known is None else (known, "")
        if energy or (row.measured is not None and quantity.timed):
            sign = "<=" if energy else ""
        return Entry(value, "" if value is None else sign)

    return Column(quantity.name, quantity.header, quantity.unit, read, group="time", show=show)


def expected_columns(quantity: Quantity, shown: Literal["always", "files"] = "always") -> Iterator[Column]:
    """Yield the columns of what is expected of an answer, with its band, which people see behind it."""

    def read(row: AnsweredRow) -> Entry:
        if row.only:
            return Entry(None)
        known = quantity.read(row.evidence, time="predicted")
        if known.value is None:
            return Entry(None)
        number = show(known.value, quantity.unit, 3)
        band = "" if known.interval is None else f" ({show_range(*known.interval, quantity.unit)})"
        return Entry(known.value, label=f"{number}{band}")

    def end(number: int) -> Callable[[AnsweredRow], Entry]:
        def read_end(row: AnsweredRow) -> Entry:
            known = None if row.only else quantity.read(row.evidence, time="predicted").interval
            return Entry((known or (None, None))[number])

        return read_end

    name, header = f"predicted_{quantity.name}", f"expected {quantity.header}"
    yield Column(name, header, quantity.unit, read, group="time", show=shown)
    yield Column(f"{name}_low", f"{header}, 10 %", quantity.unit, end(0), group="time", show="files")
    yield Column(f"{name}_high", f"{header}, 90 %", quantity.unit, end(1), group="time", show="files")


def notes_on_tokens(rows: Sequence[AnsweredRow], *, expected: bool = False) -> Iterator[str]:
    """Yield what the answers in tokens mean, of columns that give expected ones or bounds."""
    steps = [(row, step_time(row.total, row.measured)[1]) for row in rows if row.only is None]
    bounded = [row.total for row, origin in steps if origin == "bound"]
    known = [total is not None and total.predicted_seconds is not None for total in bounded]
    if expected and any(known):
        yield "tokens per second and times of a token: by the expected time"
    if bounded and not (expected and all(known)):
        yield "<= tokens per second, >= times of a token, that the bound allows"
    wholes = [row.evidence for row, _ in steps]
    if any(ENERGY_PER_TOKEN.read(evidence, time="measured").value is not None for evidence in wholes):
        yield f"<= {ENERGY_PER_TOKEN.header}: the card at its power limit for all of the measured time"
    if any(ENERGY_PER_TOKEN.read(evidence, time="predicted").value is not None for evidence in wholes):
        yield f"expected {ENERGY_PER_TOKEN.header}: the card at its power limit all the time, an upper figure"


@dataclass(frozen=True, slots=True)
class WholeCase:
    """A case as one row."""

    evidence: Evidence
    only: Phase | None = None

    @property
    def case(self) -> Case:
        return self.evidence.case

    @property
    def total(self) -> Total | None:
        return self.evidence.total()

    @property
    def measured(self) -> Measured | None:
        return self.evidence.measured()

    @property
    def room(self) -> Room | None:
        return self.evidence.room


_LENGTHS = tuple(name for name, line in OPTIONS.items() if line.concerns == "answer")


def _option(name: str) -> Any:
    return lambda row: dict(row.case.options).get(name)


def _others(row: WholeCase) -> str | None:
    return " ".join(f"{name}={value}" for name, value in row.case.options if name not in _LENGTHS) or None


def _of_case(column: Column) -> Iterator[Column]:
    if column.key != "options":
        yield column
        return
    yield Column("prompt_len", "prompt", COUNT, _option("prompt_len"), title="{} tokens in")
    yield Column("output_len", "output", COUNT, _option("output_len"), title="{} tokens out")
    yield Column("options", "options", read=_others, align="left", title="{}", words=True)


EXPECTED = (TIME_TO_FIRST_TOKEN, TIME_PER_OUTPUT_TOKEN, TIME_PER_ANSWER, TOKEN_RATE, ENERGY_PER_TOKEN, *COSTS)
"""Answers of which the expected number is told; of all but energies beside the one that the bound allows."""
_COLUMNS = (
    *(one for column in CASE for one in _of_case(column)),
    answer_column(TIME_TO_FIRST_TOKEN),
    answer_column(TIME_PER_OUTPUT_TOKEN),
    answer_column(TIME_OF_LAST_TOKEN),
    answer_column(TIME_PER_ANSWER),
    answer_column(SEQUENCE_RATE),
    answer_column(TOKEN_RATE),
    answer_column(PROMPT_RATE, "room"),
    answer_column(ENERGY_PER_TOKEN),
    *map(answer_column, COSTS),
    *(column for quantity in EXPECTED for column in expected_columns(quantity)),
    Column("peak", MEMORY.header, MEMORY.unit, lambda row: MEMORY.read(row.evidence).value, group="fit"),
    Column("kv_cache", KV_CACHE.header, KV_CACHE.unit, lambda row: KV_CACHE.read(row.evidence).value, group="fit"),
    *ROOM,
)
_WORDS = (
    f"{TIME_PER_OUTPUT_TOKEN.header}: the mean of all after the first; {TIME_OF_LAST_TOKEN.header}: the longest",
    "tokens /s: of the output, over the time of the whole answer",
    "expected: with the 10th and the 90th percentile in brackets (docs/prediction.md)",
    f"{MEMORY.header}: the most that any step needs; {KV_CACHE.header}: at the end",
)


def whole_answers(rs: RecordSet) -> Iterator[Table]:
    """Yield a table with a row for each whole answer on a device, if there is any."""
    rows = [WholeCase(item) for item in join(rs) if item.case.mode in ANSWERING]
    if any(row.total is not None and row.total.device is not None for row in rows):
        yield build("Answers", _COLUMNS, rows, notes=[*_WORDS, *notes_on_tokens(rows)])


IN_TOKENS = tuple(dict.fromkeys(answer for mode in ("prefill", "decode") for answer in ANSWERS[mode]))
"""What a summary answers of steps in tokens."""
