"""No table breaks a word: every word of every table is found whole, at any width."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len
from tests.test_render import VIEWS

from rooflens.records import Case, Ceiling, Device, Record, Scaling, Timing
from rooflens.report.render import _Grid, _layout, render
from rooflens.report.scaling import scaling
from rooflens.report.table import PERCENT, Column, Table, build, for_people
from rooflens.results import RecordSet

WIDTHS = (40, 60, 80, 100, 120, 160)


def two_gpus(batches: int) -> Table:
    """Cases that two devices train together: a table of 13 columns without groups."""
    device = Device(
        name="toy", title="a card", vendor="nvidia", kind="gpu", arch="", facts={},
        ceilings=(Ceiling(resource="nvlink", rate=9e11, silicon="link", origin="user", reference="by hand"),),
    )  # fmt: skip

    def timing(seconds: float) -> Timing:
        return Timing(samples=(seconds,) * 3, origin="monotonic")

    found = Scaling(
        devices=2, alone=timing(0.0412), together=timing(0.0437), reduce=timing(0.00123), gradient_bytes=102_228_128,
        peaks=(7_123_456_789, 7_223_456_789),
    )  # fmt: skip
    case = Case(model="resnet50", device="toy", batch=1, dtype="amp-bf16", mode="train", options=(("gpus", 2),))
    records = [
        Record(case=replace(case, batch=2**n), source="measure", scope="model", scaling=found) for n in range(batches)
    ]
    return scaling(RecordSet(records, devices={"toy": device}))


LONG = build(
    "Kernels",
    (
        Column("name", "name of the kernel", align="left"),
        Column("where", "module", align="left"),
        *(Column(f"share {n}", f"share of ceiling {n}", PERCENT) for n in range(9)),
    ),
    [
        {"name": f"void cutlass::Kernel<{'half,' * 9}float>::run{n}", "where": "model.layers.11.self_attn.q_proj"}
        | {f"share {i}": 0.5 for i in range(9)}
        for n in range(6)
    ],
)
TABLES = VIEWS | {"scaling": two_gpus(1), "scaling of several": two_gpus(7), "long names": LONG}


def words(grids: list[_Grid]) -> set[str]:
    """Words of headers and values; parts of a long one may stand below each other."""
    cells = [cell for grid in grids for line in (grid.headers, *grid.lines) for cell in line]
    return {word for cell in cells for word in cell.split() if len(word) <= 24}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_no_word_is_broken(name: str, width: int) -> None:
    lines = render(TABLES[name], "table", width=width).splitlines()
    assert max(map(cell_len, lines)) <= width
    shown = for_people(TABLES[name])
    grids, hidden = _layout(shown, width)
    assert words(grids) - {word for line in lines for word in line.split()} == set()
    assert all(grid.needs <= width for grid in grids) or width < 60
    (told,) = [" ".join(lines).partition("hidden (terminal too narrow): ")[2]] if hidden else [""]
    assert all(shown.columns[i].header in told for i in hidden)


def test_one_row_that_is_too_wide_stands_upright() -> None:
    lines = render(two_gpus(1), "table", width=80).splitlines()
    upright = {" ".join(line.split()) for line in lines}
    # 41.2 ms alone, 43.7 ms together.
    assert {"devices 2", "gradients 102.2 MB", "scaling efficiency 94.3 %", "not hidden 2.500 ms"} <= upright
    assert not any(line.startswith("hidden") for line in lines)


def test_several_rows_are_split() -> None:
    lines = render(two_gpus(7), "table", width=60).splitlines()
    assert sum(line.startswith("batch  ") for line in lines) == 3
    assert all(sum(line.split()[:1] == [str(2**n)] for line in lines) == 3 for n in range(7))


def test_long_names_are_folded_behind_signs() -> None:
    lines = render(LONG, "table", width=100).splitlines()
    assert any(line.startswith("void cutlass::Kernel<half,  ") for line in lines)
    assert any("  model.layers.11.  " in line for line in lines)
    assert any("  self_attn.q_proj" in line for line in lines)


def test_notes_of_several_tables_are_said_once_at_the_end() -> None:
    table = replace(LONG, notes=("what both say",))
    shown = render([table, replace(table, notes=("what both say", "what one says"))], "table", width=200)
    assert shown.count("what both say") == 1
    assert shown.endswith("what one says\n\nwhat both say\n")
