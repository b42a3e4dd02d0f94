"""Figures that somebody typed into a CSV file: one number per line, with the case that it belongs to."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path

from rooflens import units
from rooflens.errors import FiguresError, UnitError
from rooflens.opening import opened, read_text, text_of
from rooflens.records import AS_IS, DTYPES, PRECISIONS
from rooflens.reported.figures import QUANTITIES, STEPS, ReportedFigure

COLUMNS = ("report", "model", "device", "batch", "dtype", "phase", "quantity", "value", "unit", "how")
NEEDED = frozenset({"quantity", "value"})
_TYPES = (*DTYPES, AS_IS, *(p for p in PRECISIONS if p not in DTYPES))
_MULTIPLES = ("k", "M", "G", "T")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_BATCHES = re.compile(r"\d{1,12}(?:\s*[,;]\s*\d{1,12})+", re.ASCII)
_BATCH = re.compile(r"([0-9]{1,12})(?:\s+[^\W\d_]+)?")
_TOKENS = re.compile(r"\b([0-9]{1,7}) tokens?\b")
_IMAGE = re.compile(r"\b([0-9]{2,4})\s*[xX×]\s*\1\b")


def holds_figures(path: Path) -> bool:
    """True if a file is such a table: its first line names at least the columns ``quantity`` and ``value``."""
    with opened(path, error=FiguresError) as file:
        first = text_of(file.read(10_000)).partition("\n")[0]
    return NEEDED <= {cell.strip().strip('"').lower() for cell in first.split(",")}


FORMULA_SIGNS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""Signs with which a cell begins that a spreadsheet runs, in both widths."""


def as_typed(cell: str) -> str:
    """Return a cell without the apostrophe that keeps spreadsheets from running it.

    >>> as_typed("'=net"), as_typed("'net'")
    ('=net', "'net'")
    """
    rest = cell.removeprefix("'")
    return rest if rest != cell and rest.lstrip().lstrip("'").lstrip()[:1] in FORMULA_SIGNS else cell


def read_figures(path: Path) -> tuple[ReportedFigure, ...]:
    """The figures of a CSV file with the columns `COLUMNS`, of which only ``quantity`` and ``value`` are needed.

    FiguresError if the file cannot be read, or a cell is damaged; the line is named.
    """
    return tuple(_figures(path.name, StringIO(read_text(path, error=FiguresError), newline="")))


def _figures(name: str, lines: Iterable[str]) -> Iterator[ReportedFigure]:
    reader = csv.reader(lines, strict=True)
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        _check_header(name, header)
        for cells in reader:
            place = f"{name}, line {reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise FiguresError(f"{place}: {len(cells)} cells below {len(header)} columns; quote text with commas")
            yield _figure(place, {column: as_typed(cell).strip() for column, cell in zip(header, cells, strict=True)})
    except csv.Error as error:
        raise FiguresError(f"{name}, line {reader.line_num}: {error}") from error


def _check_header(name: str, header: Sequence[str]) -> None:
    unknown = [column for column in header if column not in COLUMNS]
    twice = [column for column in header if header.count(column) > 1]
    missing = sorted(NEEDED - set(header))
    known = f"known: {', '.join(COLUMNS)}"
    if unknown:
        raise FiguresError(f"{name}, line 1: unknown column {unknown[0]!r}; {known}")
    if twice or missing:
        what = f"column {twice[0]!r} stands twice" if twice else f"there is no column {missing[0]!r}"
        raise FiguresError(f"{name}, line 1: {what}; {known}")


def _figure(place: str, row: Mapping[str, str]) -> ReportedFigure:
    def cell(column: str) -> str:
        return row.get(column, "")

    quantity = cell("quantity").lower()
    if not quantity:
        raise FiguresError(f"{place}: the quantity is missing; known: {', '.join(QUANTITIES)}")
    dtype, phase = cell("dtype").lower(), cell("phase").lower().replace(" ", "")
    for what, word, known in (("dtype", dtype, _TYPES), ("phase", phase, STEPS)):
        if word and word not in known:
            raise FiguresError(f"{place}: unknown {what} {word!r}; known: {', '.join(known)}")
    size, tokens = (pattern.search(cell("how")) for pattern in (_IMAGE, _TOKENS))
    return ReportedFigure(
        quantity=quantity,
        value=_value(place, quantity, cell("value"), cell("unit")),
        group=f"report {cell('report')}" if cell("report") else "",
        model=cell("model"),
        device=cell("device"),
        batch=_batch(place, cell("batch")),
        dtype=dtype,
        phase=phase,
        image=int(size[1]) if size is not None else None,
        tokens=int(tokens[1]) if tokens is not None else None,
        digits=_digits(cell("value")),
        precision=_precision(cell("value")),
        unit=cell("unit"),
        how=cell("how"),
        place=place,
    )


def _value(place: str, quantity: str, text: str, unit: str) -> float | None:
    """The number in base units, or as it stands where the quantity has none; None for an empty cell and a failure."""
    if not text or quantity == "failure":
        return None
    if _NUMBER.fullmatch(text) is None:
        raise FiguresError(
            f"{place}: {text!r} is no number; write digits with a decimal point and no separators, like 1.5e9"
        )
    number, base = float(text), QUANTITIES.get(quantity)
    if not math.isfinite(number) or (number == 0 and re.search("[1-9]", re.split("[eE]", text)[0])):
        raise FiguresError(f"{place}: {text} is beyond what a number can hold")
    if base is None or not unit:
        return number
    if not base:
        return number * _multiple(place, quantity, unit)
    try:
        size = units.parse(f"{text.lstrip('+-')} {unit}", base)
    except UnitError as error:
        raise FiguresError(f"{place}: {quantity} {error}") from error
    return -size if number < 0 else size


def _multiple(place: str, quantity: str, unit: str) -> float:
    """What a unit of a quantity stands for that has none: 1, or a prefix of a number of elements."""
    known = {"1": 1.0, **({p: units.DECIMAL[p] for p in _MULTIPLES} if quantity == "parameters" else {})}
    if unit not in known:
        raise FiguresError(f"{place}: {quantity} cannot have the unit {unit!r}; known: {', '.join(known)}, or none")
    return known[unit]


def _precision(text: str) -> float:
    """Half a unit of the last digit, over the number.

    Zeros at the end of a whole number may be rounding, but who writes 900 or 1e9 means two digits at least.
    """
    mantissa, *exponent = re.split("[eE]", text.lstrip("+-"))
    whole, _, decimals = mantissa.partition(".")
    number = float(mantissa) if _NUMBER.fullmatch(mantissa) else 0.0
    if not number:
        return 0.0
    zeros = 0 if decimals else len(whole) - len(whole.rstrip("0"))
    places = -len(decimals) if "." in mantissa else min(zeros, len(whole.lstrip("0")) - 2) if zeros or exponent else 0
    return 0.5 * 10.0**places / number


def _digits(text: str) -> int:
    """Significant digits of a number as it was written; zeros at the end of a whole number may be rounding."""
    mantissa = re.split("[eE]", text)[0].lstrip("+-")
    digits = mantissa.replace(".", "").lstrip("0")
    return max(1, len(digits if "." in mantissa else digits.rstrip("0")))


def _batch(place: str, text: str) -> int | None:
    """Samples per step: ``256`` or ``10 images``; None for an empty cell, or where several are named (``1,64``)."""
    if not text or _BATCHES.fullmatch(text):
        return None
    match = _BATCH.fullmatch(text)
    if match is None or not int(match[1]):
        raise FiguresError(f"{place}: {text!r} is no batch; write 256, '256 images' or '1,64,256'")
    return int(match[1])
