"""What people ask of steps and whole answers, case beside case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.table_samples import device, operation, times

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.compare import AskedNumber
from rooflens.errors import Incomparable
from rooflens.records import Case, Device, Memory, Phase, Record, Work
from rooflens.records.device import Fact
from rooflens.results import RecordSet

DECODE = Case(model="llm", device="toy", batch=4, mode="decode", options=(("price_per_hour", 3.6),))
ANSWER = replace(DECODE, mode="generate", options=(("output_len", 4), ("price_per_hour", 3.6), ("prompt_len", 10)))
SAMPLES = (5e-3, 4e-3, 6e-3, 5e-3, 5e-3, 5e-3, 5e-3, 5e-3)


def card() -> Device:
    """A device of 1 GB/s and 100 W."""
    return replace(device(), kind="gpu", facts={"power": Fact(value=100)})


def moved(case: Case, nbytes: float, phase: Phase = "forward", tokens: int | None = None, calls: int = 1) -> Record:
    one = operation(case, "", "matmul", Work(flops={"matmul.fp32": 1000}, bytes={"dram": nbytes}))
    return replace(one, phase=phase, tokens=tokens, calls=calls)


def compared(*records: Record) -> dict[tuple[str, int | None], AskedNumber]:
    rows = rl.compare(RecordSet(records, devices={"toy": card()}), question="answers")
    assert isinstance(rows, tuple)
    return {(row.name, row.case.batch): row for row in rows if isinstance(row, AskedNumber)}


def test_bound_beside_measured_and_over_the_first() -> None:
    other = replace(DECODE, batch=8)
    rows = compared(moved(DECODE, 2e6), times(DECODE, "forward", *SAMPLES), moved(other, 3e6))
    one, more = rows["tokens_per_second", 4], rows["tokens_per_second", 8]
    assert one.bound == pytest.approx(4 / 2e-3)
    assert one.measured == pytest.approx(4 / 5e-3)
    assert one.over_bound == pytest.approx(2 / 5)
    assert one.interval == pytest.approx((4 / 6e-3, 4 / 4e-3))
    assert (one.over_first, more.measured) == (1, None)
    assert more.over_first == pytest.approx(8 / 3e-3 / (4 / 2e-3))  # bounds, since one was not measured
    assert rows["cost_per_million_output_tokens", 4].measured == pytest.approx(1e-3 * 5e-3 / 4 * 1e6)
    assert ("memory", 4) not in rows  # nobody knows it


def test_a_whole_answer_has_all_of_its_answers() -> None:
    whole = Record(case=ANSWER, source="estimate", scope="model", memory=Memory(peak=100))
    steps = [moved(ANSWER, 2e6, "decode", 10, 2), moved(ANSWER, 3e6, "decode", 12)]
    rows = compared(moved(ANSWER, 6e6, "prefill"), *steps, whole)
    known = {name: row.bound for (name, _), row in rows.items()}
    assert known == {
        "time_to_first_token": pytest.approx(6e-3),
        "prompt_tokens_per_second": pytest.approx(40 / 6e-3),
        "time_per_output_token": pytest.approx(7e-3 / 3),
        "time_of_last_token": pytest.approx(3e-3),
        "time_per_answer": pytest.approx(13e-3),
        "sequence_tokens_per_second": pytest.approx(4 / 13e-3),
        "tokens_per_second": pytest.approx(16 / 13e-3),
        "cost_per_million_input_tokens": pytest.approx(1e-3 * 6e-3 / 40 * 1e6),
        "cost_per_million_output_tokens": pytest.approx(1e-3 * 7e-3 / 16 * 1e6),
        "cost_per_answer": pytest.approx(1e-3 * 13e-3 / 4),
        "memory": 100,
    }
    # Ten tokens of the prompt and four of the output.
    of_input, of_output = (known[f"cost_per_million_{way}_tokens"] or 0 for way in ("input", "output"))
    assert (10 * of_input + 4 * of_output) / 1e6 == pytest.approx(known["cost_per_answer"])


def test_prices_of_devices_make_no_other_step(tmp_path: Path) -> None:
    cheap = replace(DECODE, device="other", options=(("price_per_hour", 1.8),))
    found = RecordSet(
        [moved(DECODE, 2e6), moved(cheap, 4e6)], devices={"toy": card(), "other": replace(card(), name="other")}
    )
    by_device = rl.compare(found, question="devices", baseline="toy")
    assert [row.speedup for row in by_device.rows] == [1, 0.5]  # type: ignore[union-attr]
    path = found.save(tmp_path / "both.jsonl")
    done = CliRunner().invoke(cli, ["compare", str(path), "--question", "answers"])
    assert done.exit_code == 0
    assert "over the first" in " ".join(done.output.split())
    told = CliRunner().invoke(cli, ["compare", str(path), "--question", "answers", "--format", "json"])
    (table, *_) = json.loads(told.output)
    costs = [row for row in table["rows"] if row["name"] == "cost_per_million_output_tokens"]
    assert [row["over_first"] for row in costs] == [1, pytest.approx(1)]  # half the price, twice the time


def test_without_a_time_there_is_no_answer() -> None:
    with pytest.raises(Incomparable, match="no case has a time"):
        compared(moved(replace(DECODE, device=None), 2e6))
