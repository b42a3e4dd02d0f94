"""The pages on counting say what the formulas do: tables are those of the code, and the example runs."""

from __future__ import annotations

import doctest
from collections.abc import Mapping
from pathlib import Path

import pytest

from rooflens.costs import elementwise, families, pooling, reduction

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "counting-formulas.md"
TEXT = PAGE.read_text()


def section(heading: str) -> str:
    """The text below a heading, up to the next one."""
    _, _, rest = TEXT.partition(f"# {heading}\n")
    assert rest, f"{PAGE.name} has no section {heading!r}"
    return rest.partition("\n#")[0]


def rows(text: str) -> list[str]:
    """The rows of the table in `text`, without its head."""
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def grouped(table: Mapping[str, float | tuple[float, ...]]) -> list[str]:
    """A table of costs as the page shows it: one row per cost, with the operations that have it."""
    by_cost: dict[tuple[float, ...], list[str]] = {}
    for name, cost in table.items():
        by_cost.setdefault(cost if isinstance(cost, tuple) else (cost,), []).append(name)
    return [
        f"| {' | '.join(f'{n:g}' for n in cost)} | {', '.join(f'`{name}`' for name in sorted(names))} |"
        for cost, names in sorted(by_cost.items())
    ]


def test_every_family_has_a_row_and_no_row_is_left_over() -> None:
    assert sorted(row.split("`")[1] for row in rows(section("Families"))) == sorted(families())


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("Element-wise", elementwise.PER_ELEMENT),
        ("Reductions", reduction.PER_ELEMENT),
        ("Losses", reduction.LOSSES),
        ("Interpolation", pooling.POINTS),
    ],
)
def test_tables_of_costs_are_those_of_the_code(heading: str, table: Mapping[str, float | tuple[float, ...]]) -> None:
    expected = grouped(table)
    assert rows(section(heading)) == expected, "write:\n" + "\n".join(expected)


def test_every_operation_of_the_tables_has_a_formula() -> None:
    known = {name for names in families().values() for name in names}
    assert {*elementwise.PER_ELEMENT, *reduction.PER_ELEMENT, *reduction.LOSSES, *pooling.POINTS} <= known


def test_the_example_runs() -> None:
    failures, examples = doctest.testfile(str(DOCS / "counting.md"), module_relative=False)
    assert examples > 0
    assert failures == 0
