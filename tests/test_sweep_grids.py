"""Sweeps over two sizes on one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.test_whole_answers import LLAMA, saved

import rooflens as rl
from rooflens.records import Fact, Floor
from rooflens.report import sweep_grids
from rooflens.report.case_json import promised_json

pytest.importorskip("transformers")
BATCHES = [1, 2, 4]


def estimated(folder: Path, **asked: Any) -> rl.RecordSet:
    given: dict[str, Any] = {"mode": "decode", "batch": BATCHES, "seq_len": [8, 16, 24], "device": "h100-sxm"}
    return rl.estimate(saved(folder, LLAMA), **(given | asked))


def test_many_cases_are_a_table_for_each_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = estimated(tmp_path)
    assert "Time per output token, as expected" not in rl.table(found)  # these are few
    monkeypatch.setattr(sweep_grids, "MANY", 9)
    each, rates, memory = sweep_grids.sweep_grids(found)
    assert each.title.startswith("Time per output token, as expected: hf:llama.json, fp32, decode")
    assert rates.title.startswith("Tokens per second of all sequences, as expected")
    assert [column.key for column in each.columns] == ["seq_len", "batch=1", "batch=2", "batch=4"]
    by_case = {(c["case"]["batch"], c["case"]["options"]["seq_len"]): c for c in promised_json(found)}
    for table, name in ((each, "time_per_output_token"), (rates, "tokens_per_second")):
        told = {(b, row[0].value): row[n].value for row in table.rows for n, b in enumerate(BATCHES, 1)}
        assert told == {place: case["predicted_answers"][name]["value"] for place, case in by_case.items()}
    assert memory.rows[2][3].value == by_case[4, 24]["memory"]["peak"]
    shown = rl.table(found)
    assert max(map(len, shown.splitlines())) <= 80
    assert "every case with every column: --format csv" in " ".join(shown.split())
    assert rl.table(found, format="csv").count("\n") == 10  # files have a row for each case


def test_long_tables_show_each_second_row_and_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_grids, "MANY", 4)
    monkeypatch.setattr(sweep_grids, "MOST", 2)
    work, *_ = sweep_grids.sweep_grids(estimated(tmp_path, device=None, batch=[1, 2], seq_len=[8, 9, 10, 11]))
    assert work.title.startswith("Matmul FLOP: ")  # without a device there is no time
    assert [row[0].value for row in work.rows] == [8, 10, 11]
    assert "3 of 4 values of seq_len" in work.notes


def test_without_a_device_titles_and_signs_tell_of_what_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def cases(*, missing: bool, floor: float) -> rl.RecordSet:
        records = []
        for batch, size in ((1, 8), (1, 9), (2, 8), (2, 9)):
            case = rl.Case(model="net", batch=batch, options=(("img_size", size),))
            work = rl.Work(
                flops={"matmul.fp32": 10}, bytes={"dram": 100}, missing=frozenset({"fft"} if missing else ())
            )
            less = Floor(work=replace(work, bytes={"dram": floor}), cause="optimizer passes")
            records.append(rl.Record(case=case, source="estimate", scope="op", name="mm", work=work, floor=less))
        return rl.RecordSet(records)

    monkeypatch.setattr(sweep_grids, "MANY", 4)
    flops, moved = sweep_grids.sweep_grids(cases(missing=False, floor=60))
    assert flops.title == "Matmul FLOP: net, fp32, inference"
    assert moved.title == "DRAM bytes as written: net, fp32, inference"
    flops, moved = sweep_grids.sweep_grids(cases(missing=True, floor=100))
    assert moved.title == "DRAM bytes: net, fp32, inference"
    assert {entry.sign for row in flops.rows for entry in row[1:]} == {">="}
    assert ">= lower bound: operations without a formula are not in it" in flops.notes


def test_what_does_not_fit_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_grids, "MANY", 4)
    found = rl.device("a100-sxm4-40gb")
    card = replace(found, facts=found.facts | {"memory": Fact(value=1_000)})
    *_, memory = sweep_grids.sweep_grids(estimated(tmp_path, device=card, batch=[1, 2], seq_len=[8, 9]))
    assert {entry.mark for row in memory.rows for entry in row[1:]} == {"!"}
    assert memory.notes[0] == "! more than the device's memory"


@pytest.mark.parametrize("asked", [{"batch": 1}, {"device": ["t4", "h100-sxm"]}, {"dtype": ["fp32", "bf16"]}])
def test_other_sets_keep_a_row_for_each_case(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_grids, "MANY", 3)
    assert sweep_grids.sweep_grids(estimated(tmp_path, seq_len=[8, 9, 10], **asked)) == []
