"""Own measurements of language models: what a file of them says, and what is measured next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import measured_decoders
from benchmarks.measured_decoders import (
    cases,
    key,
    read,
    run_of,
    table_of_answers,
    table_of_models,
    table_of_regimes,
    training,
    wanted,
)

import rooflens as rl

ROOT = Path(__file__).parents[1]
GRAPHED = {"cuda_graph": True}
GRAPH = {"model": "net", "mode": "decode", "seq_len": 512, "batch": 1, "cuda_graph": True}
EAGER = {"model": "net", "mode": "decode", "seq_len": 512, "batch": 8}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines: list[dict[str, Any]] = [
        {**GRAPH, "seconds": 0.004, "peak": None},
        {**GRAPH, "floor": 0.001, "as_written": 0.002, "estimated": 780, "kept": 200},
        {**EAGER, "error": "out of memory"},
        {**EAGER, "seconds": 0.010, "peak": 1000},
        {**EAGER, "floor": 0.005, "as_written": 0.006, "estimated": 1010},
        {**GRAPH, "seconds": 0.005, "peak": 1000},  # again, now with a peak
        {**EAGER, "batch": 64, "error": "the time limit was over"},
    ]
    path = tmp_path / "rows.ndjson"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_later_lines_say_more_of_a_case_or_say_it_anew(file: Path) -> None:
    graph, eager, failed = read(file)
    assert (graph["seconds"], graph["peak"], graph["floor"]) == (0.005, 1000, 0.001)
    assert (eager["seconds"], eager["estimated"]) == (0.010, 1010)
    assert "seconds" not in failed


def test_what_is_missing_or_has_no_peak_is_measured_once_in_its_order() -> None:
    done = {**EAGER, "seconds": 0.01, "peak": 1000, "dense": True}
    known = [{**GRAPH, "seconds": 0.004, "peak": None}, done]
    static = {**GRAPH, "kv_cache": "static"}
    assert wanted([GRAPH, EAGER, static, GRAPH], known) == [GRAPH, static]
    cut = {name: value for name, value in done.items() if name != "dense"}
    assert wanted([EAGER, static], [cut, {**static, "seconds": 0.01, "peak": 9}]) == [EAGER]


def test_tables_have_ratios_of_what_was_measured_and_estimated(file: Path) -> None:
    # The graph: 0.001 of 0.005 s, 780 and 200 of a second cache for 1000; eager: 0.005 of 0.010 s and 1010 for 1000.
    assert list(table_of_models(file)) == [
        "None of 2 steps is below the floor.",
        "",
        "| model | step | tokens | batch | rows | floor over time | peak, estimated over measured |",
        "|---|---|---|---|---:|---:|---:|",
        "| net | decode, CUDA graph, growing cache | 512 | 1 | 1 | 0.20 | 0.980 |",
        "| net | decode, eager, growing cache | 512 | 8 | 1 | 0.50 | 1.010 |",
    ]
    assert list(table_of_regimes(file))[2:] == [
        "| decode | CUDA graph, growing cache | 1 | 1 | 0.20 | 0.20 |",
        "| decode | eager, growing cache | 8 | 1 | 0.50 | 0.50 |",
    ]


def test_peaks_with_a_static_cache_are_those_of_the_libraries_that_run() -> None:
    rows = [row for row in read(ROOT / "benchmarks" / "results" / "decoders-h100.ndjson") if "weights" in row]
    assert {row["by"] for row in rows} == {"torch 2.11.0, transformers 5.17.0"}
    # The output weights are those of the embedding, and are kept once more in 8 bits: 128,256 words of 2,048 numbers.
    assert {row["kept"] for row in rows} == {128256 * 2048}
    off = {row["kernel"]: abs((measured_decoders.peak_ratio(row) or 0) - 1) for row in rows if row["batch"] == 1}
    assert off["_scaled_mm"] < 0.001
    assert off["_weight_int8pack_mm"] < 0.001
    assert off["_int_mm"] < 0.01


def test_a_captured_step_keeps_the_cache_that_it_reads(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "vocab_size": 120}
    (tmp_path / "net.json").write_text(json.dumps(config))
    row = {"model": f"hf:{tmp_path / 'net.json'}", "mode": "decode", "seq_len": 16, "batch": 3}
    plain, captured = (measured_decoders.estimated(row | more, rl.device("h200-sxm")) for more in ({}, GRAPHED))
    assert "kept" not in plain
    # Keys and values of 2 layers, 17 tokens of 3 sequences, 2 heads of 16 numbers in 2 bytes.
    assert captured["kept"] == 2 * 2 * 17 * 3 * 2 * 16 * 2
    assert captured["floor"] == plain["floor"]


def test_whole_answers_tell_the_first_token_and_each_further_one(tmp_path: Path) -> None:
    case = {"model": "net", "mode": "generate", "prompt_len": 16, "output_len": 5, "batch": 2, "kv_cache": "static"}
    timed = {"seconds": 0.012, "prefill measured_seconds": 0.004, "decode measured_seconds": 0.008}
    floors = {"floor": 0.005, "prefill seconds": 0.001, "decode seconds": 0.004}
    path = tmp_path / "rows.ndjson"
    path.write_text("".join(f"{json.dumps({**case, **more})}\n" for more in (timed, floors)))
    # Four steps follow the first token: 8 ms of them are 2 ms each.
    assert list(table_of_answers(path))[2:] == [
        "| net | eager, static cache | 16 + 5 | 2 | 4.0 ms | 0.25 | 2.00 ms | 0.50 |"
    ]
    assert "| net | generate, eager, static cache | 16 + 5 | 2 | 1 | 0.42 | – |" in list(table_of_models(path))


def test_a_time_below_its_floor_ends_with_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured_decoders.told(file) == 0
    with file.open("a") as lines:
        lines.write(json.dumps({**EAGER, "seconds": 0.004, "peak": 1000}) + "\n")
    assert measured_decoders.told(file) == 1
    assert "1 of 2 steps is below the floor" in capsys.readouterr().out


def test_every_case_of_the_list_is_one_that_can_be_asked_for() -> None:
    listed = list(cases())
    assert len({key(row) for row in listed}) >= 70
    assert {row["model"] for row in listed} == {
        "llama-3.2-1b",
        "llama-3-8b",
        "qwen2.5-0.5b",
        "gemma-3-1b",
        "hf:olmoe",
        "mamba-130m",
    }
    for row in listed:
        assert run_of(row).dtype == "bf16"


def test_training_on_a_card_is_above_its_floor_and_on_its_page() -> None:
    results = ROOT / "benchmarks" / "results" / "training-h100.ndjson"
    told, _, *table = table_of_models(results)
    assert told == "None of 10 steps is below the floor."
    assert "\n".join(table) in (ROOT / "docs" / "evidence.md").read_text()
    assert all(abs(measured_decoders.peak_ratio(row) - 1) < 0.05 for row in read(results))  # type: ignore[operator]
    assert {key(row) for row in training()} == {key(row) for row in read(results)}
    for row in training():
        run_of(row).case()


@pytest.mark.parametrize(("card", "steps"), [("h100", 50), ("h200", 52)])
def test_steps_on_cards_are_above_their_floors_and_peaks_within_five_percent(card: str, steps: int) -> None:
    results = ROOT / "benchmarks" / "results" / f"decoders-{card}.ndjson"
    told, _, *table = table_of_models(results)
    assert told == f"None of {steps} steps is below the floor."
    assert "\n".join(table) in (ROOT / "docs" / "evidence.md").read_text()
    ratios = [ratio for row in read(results) if (ratio := measured_decoders.peak_ratio(row)) is not None]
    assert len(ratios) > 15
    assert all(abs(ratio - 1) < 0.05 for ratio in ratios)
