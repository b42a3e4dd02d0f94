"""Tables as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from rooflens.report.escape import latex, markdown, markdown_block, spreadsheet
from rooflens.report.table import Row, Table, Value, for_people, text

_LINE, _GAP, _SHORT, _LEAST = 85, 2, 25, 0.2
"""Of LaTeX tables: characters of a line and between columns; words that no line need be broken in; what is left at
least, as a share of the line, for those that need it."""


def as_markdown(tables: Sequence[Table]) -> str:
    """GitHub's pipe tables, each with a heading and its notes as a list."""
    return "\n".join(_markdown(for_people(table)) for table in tables)


def as_latex(tables: Sequence[Table]) -> str:
    """Floating tables in the style of the booktabs package, notes below."""
    return "\n".join(_latex(for_people(table)) for table in tables)


def as_csv(table: Table) -> str:
    """RFC 4180: one header, raw numbers in base units, nothing where a value is unknown.

    Sums and notes are left out, so that a column can be added up. A name that a spreadsheet would run as a formula is
    preceded by an apostrophe.
    """
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([spreadsheet(column.key) for column in table.columns])
    writer.writerows([_csv_value(cell.value) for cell in row] for row in table.rows)
    return file.getvalue()


def as_json(value: object) -> str:
    """Indented ASCII JSON that ends with a line break; a number that JSON cannot write is null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False) + "\n"


def json_rows(table: Table) -> list[dict[str, Value]]:
    """Return one object per row, by the keys of the columns."""
    return [{column.key: cell.value for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]


def json_table(table: Table) -> dict[str, Any]:
    """Return a table among several: its title, rows and notes."""
    return {"title": table.title, "rows": json_rows(table), "notes": list(table.notes)}


def _csv_value(value: Value) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    return spreadsheet(value) if isinstance(value, str) else value


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [
        f"### {markdown(table.title)}",
        "",
        line([markdown(column.header) for column in table.columns]),
        line(["---:" if column.align == "right" else ":---" for column in table.columns]),
        *(line(_cells(table, row, markdown, "&emsp;")) for row in table.rows),
    ]
    if table.total is not None:
        lines.append(line([f"**{cell}**" for cell in _cells(table, table.total, markdown, "&emsp;")]))
    if table.remarks:
        lines += ["", *(f"- {markdown_block(note)}" for note in table.remarks)]
    return "\n".join([*lines, ""])


def _latex(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"    {' & '.join(cells)} \\\\"

    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{latex(table.title)}}}",
        f"  \\begin{{tabular}}{{{_alignment(table)}}}",
        r"    \toprule",
        line([latex(column.header) for column in table.columns]),
        r"    \midrule",
        *(line(_cells(table, row, latex, r"\quad ")) for row in table.rows),
    ]
    if table.total is not None:
        lines += [r"    \midrule", line(_cells(table, table.total, latex, r"\quad "))]
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    lines += [f"  \\par\\footnotesize {latex(note)}" for note in table.remarks]
    return "\n".join([*lines, r"\end{table}", ""])


def _alignment(table: Table) -> str:
    """Return the columns of a table: as wide as their cells, unless these make it wider than a page.

    Then columns of words share what numbers and short words leave, as paragraphs.
    """
    rows = [*table.rows, *([] if table.total is None else [table.total])]
    longest = [
        max(len(words) for words in (column.header, *(text(row[n], column) for row in rows)))
        for n, column in enumerate(table.columns)
    ]
    words = [n for n, column in enumerate(table.columns) if column.align == "left" and longest[n] > _SHORT]
    if sum(longest) + _GAP * len(longest) <= _LINE or not words:
        return "".join(column.align[0] for column in table.columns)
    taken = sum(length for n, length in enumerate(longest) if n not in words) + _GAP * len(longest)
    left = max(_LEAST, 1 - taken / _LINE)
    shares = {n: left * longest[n] / sum(longest[each] for each in words) for n in words}
    return "".join(
        f"p{{{shares[n]:.2f}\\linewidth}}" if n in shares else column.align[0] for n, column in enumerate(table.columns)
    )


def _cells(table: Table, row: Row, escape: Callable[[str], str], indent: str) -> list[str]:
    # Marks and signs are ours and harmless in Markdown; LaTeX needs them escaped.
    own = latex if escape is latex else str
    return [
        indent * cell.indent + " ".join(filter(None, [own(cell.mark), own(cell.sign), escape(text(cell, column))]))
        for cell, column in zip(row, table.columns, strict=True)
    ]
