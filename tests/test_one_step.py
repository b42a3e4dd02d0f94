"""Every row of a table is of one step, and says of which: FLOP over DRAM is the FLOP/B beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.figure_samples import device, operation, records

import rooflens as rl
from rooflens.records import Case, Floor, Work
from rooflens.report.arranged import TableView
from rooflens.report.asked_tables import asked_tables
from rooflens.report.case_json import promised_json
from rooflens.report.notebook_tables import _tables
from rooflens.report.overview import tables_of
from rooflens.report.table import Table, for_people
from rooflens.results import RecordSet

TOY = device()  # 1 TB/s, 100 TFLOP/s of products, 10 TFLOP/s on the general lanes
CASE = Case(model="net", device="toy-100", batch=4)
PRODUCT = operation(CASE, "body.fc", "matmul", matmul=1e12, dram=1e9)
CACHE = replace(  # moves 10 GB; 4 GB would do
    operation(CASE, "body", "copy", vector=2e9, dram=1e10),
    floor=Floor(work=Work(flops={"vector.fp32": 1e9}, bytes={"dram": 4e9}), cause="cache copies"),
)
CAUSAL = replace(  # counted in full, of which a causal kernel does half
    operation(CASE, "body.attention", "attention", matmul=4e12, dram=1e9),
    kernel_work=Work(flops={"matmul.fp32": 2e12}, bytes={"dram": 1e9}),
)
AGAIN = replace(operation(CASE, "body.fc", "matmul", matmul=1e12, dram=1e9), phase="backward", recomputed=True)
STEPS = {
    "plain": [PRODUCT],
    "floor": [PRODUCT, CACHE],
    "causal": [PRODUCT, CAUSAL],
    "recomputed": [PRODUCT, AGAIN],
    "all": [PRODUCT, CACHE, CAUSAL, AGAIN],
}


def in_rows(table: Table) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the numbers of each row that people see, by header."""
    shown = for_people(replace(table, columns=tuple(replace(c, title="", group="x") for c in table.columns)))
    for row in (*shown.rows, *([] if shown.total is None else [shown.total])):
        numbers = {
            c.header: e.value for c, e in zip(shown.columns, row, strict=True) if isinstance(e.value, int | float)
        }
        yield f"{shown.title}: {row}", numbers


def tables(step: RecordSet) -> Iterator[Table]:
    yield from tables_of(step, depth=3)
    for by in ("phase", "model", "family", "module-family", "op", "module"):
        yield from asked_tables(step, TableView(by=by))
    yield from _tables(step.total())


@pytest.mark.parametrize("on", [TOY, None], ids=["device", "no device"])
@pytest.mark.parametrize("name", STEPS)
def test_flop_over_dram_is_the_intensity_beside_them(name: str, on: object) -> None:
    step = records(
        [one if on else replace(one, case=replace(CASE, device=None)) for one in STEPS[name]], [TOY] if on else []
    )
    seen = 0
    for table in tables(step):
        for row, numbers in in_rows(table):
            if {"FLOP", "DRAM", "FLOP/B"} <= numbers.keys():
                assert numbers["FLOP"] / numbers["DRAM"] == pytest.approx(numbers["FLOP/B"]), row
                assert numbers.get("matmul FLOP", 0) <= numbers["FLOP"], row
                seen += 1
    assert seen > 8


def test_a_step_whose_code_does_more_has_both_counts() -> None:
    """As written 1.002 TFLOP and 11 GB; 1.001 TFLOP and 5 GB will do, in 10 + 4 ms."""
    step = records(STEPS["floor"], [TOY])
    first, second = tables_of(step)[:2]
    rows = {next(str(e.value) for e in row if e.value in ("as written", "in the bound")): row for row in first.rows}
    keys = [column.key for column in first.columns]
    for counted, numbers in (("as written", (1.002e12, 11e9)), ("in the bound", (1.001e12, 5e9))):
        assert [rows[counted][keys.index(key)].value for key in ("flops", "dram_bytes")] == pytest.approx(numbers)
    assert "FLOP" not in {column.header for column in for_people(second).columns}
    total = step.total()
    assert (total.as_written.dram, total.floor.dram) == (11e9, 5e9) == (total.bytes["dram"], total.floor.bytes["dram"])
    assert total.as_written.intensity == total.intensity == pytest.approx(1.002e12 / 11e9)
    assert total.floor.intensity == pytest.approx(1.001e12 / 5e9)


def test_what_counters_saw_is_executed_and_neither_as_written_nor_in_the_bound() -> None:
    executed = replace(PRODUCT, source="counters", scope="kernel", work=Work(flops={"matmul.fp32": 3e12}, origin="executed"))  # fmt: skip  # noqa: E501
    table = tables_of(records([*STEPS["floor"], executed], [TOY]))[0]
    at, flops = ([column.key for column in table.columns].index(key) for key in ("counted", "flops"))
    assert ("executed", 3e12) in [(row[at].value, row[flops].value) for row in table.rows]
    assert "executed: what hardware counters saw" in table.notes


def test_a_step_whose_code_does_no_more_is_counted_once() -> None:
    first, second = tables_of(records(STEPS["plain"], [TOY]))[:2]
    assert (first.title, second.title) == ("Summary", "Operation families")


def test_parts_tell_by_which_cause_the_code_does_more() -> None:
    text = rl.table(records(STEPS["floor"], [TOY]), by="family", width=100)
    assert "FLOP, DRAM and FLOP/B: of what the bound counts" in text
    assert "the code as written does more than the bound: cache copies 6.000 GB, 1.000 GFLOP, 6.000 ms" in text


def test_files_have_both_under_plain_names() -> None:
    step = records(STEPS["all"], [TOY])
    phase = promised_json(step)[0]["step"]
    # As written 1 + 1 (again) + 4 TFLOP of products and 2 GFLOP in 13 GB; in the bound 4.001 TFLOP in 7 GB.
    assert (phase["flops"], phase["as_written_flops"], phase["bytes"]["dram"]) == (5_002e9, 6_002e9, 13e9)
    assert phase["intensity"] == pytest.approx(6_002 / 13)
    assert (phase["bound_flops"], phase["bound_bytes"]["dram"]) == (4_001e9, 7e9)
    assert phase["bound_intensity"] == pytest.approx(4_001 / 7)
    header, _, _, line = rl.table(step, format="csv").splitlines()
    row = dict(zip(header.split(","), line.split(","), strict=True))
    assert [float(row[key]) for key in ("flops", "dram_bytes", "bound_flops", "bound_bytes")] == [
        5_002e9,
        13e9,
        4_001e9,
        7e9,
    ]
    asked = rl.table(step, by="model", columns=["bound_bytes", "dram_bytes"], width=100)
    assert "7.000 GB" in asked
    assert "13.00 GB" in asked
