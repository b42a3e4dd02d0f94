"""MFU and HFU of training steps: by hand, in every output, and against what LLM-foundry published."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from benchmarks.decoder_floors import MODELS, whole
from benchmarks.decoders import CARDS
from torch import nn
from torch.utils.checkpoint import checkpoint

import rooflens as rl
from rooflens.records import Record, Timing
from rooflens.results import RecordSet

MEASURED = Path(__file__).parents[2] / "shared" / "data" / "measured" / "llm-foundry" / "parsed.csv"
ROWS, WIDTH = 32, 128
PRODUCT = 2 * ROWS * WIDTH * WIDTH
PEAK = rl.device("h100-sxm").require("matmul.fp32").rate
STEP = 1e-3


class Net(nn.Module):
    """Two layers without biases; the second one is checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh()) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        again: torch.Tensor = checkpoint(self.second, self.first(x), use_reentrant=False)
        return again


@pytest.fixture(scope="module")
def both() -> RecordSet:
    """The estimate of a step, and a time of 1 ms for it."""
    est = rl.estimate(Net(), inputs=torch.ones(ROWS, WIDTH), mode="train", dtype="fp32", device="h100-sxm")
    (case,) = est.cases
    times = {"forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    measured = [
        Record(
            case=case,
            source="measure",
            scope="model",
            phase=phase,  # type: ignore[arg-type]
            timing=Timing(samples=(share * STEP,), origin="cuda-events"),
        )
        for phase, share in times.items()
    ]
    return RecordSet([*est.records, *measured], devices=est.devices)


# Forward has two products; backward two for the second layer, one for the first (the input needs no gradient), and one
# again: tanh needs its result.
MFU, HFU = 5 * PRODUCT / PEAK / STEP, 6 * PRODUCT / PEAK / STEP


def test_json_has_both_by_phase(both: RecordSet) -> None:
    (case,) = json.loads(rl.table(both, format="json"))
    assert case["step"]["mfu"] == pytest.approx(MFU)
    assert case["step"]["hfu"] == pytest.approx(HFU)
    assert case["phases"]["backward"]["mfu"] == pytest.approx(3 * PRODUCT / PEAK / (0.6 * STEP))
    assert case["phases"]["backward"]["hfu"] == pytest.approx(4 * PRODUCT / PEAK / (0.6 * STEP))
    assert case["phases"]["optimizer"]["mfu"] is None
    assert case["step"]["attainable_mfu"] == pytest.approx(5 * PRODUCT / PEAK / case["step"]["seconds"])


def test_tables_of_training_show_them(both: RecordSet) -> None:
    rows = {line.split("  ")[0].strip() for line in rl.table(both).splitlines()}
    assert {"MFU", "HFU", "MFU at this code's bound"} <= rows
    inference = rl.estimate(nn.Linear(4, 4), inputs=torch.ones(2, 4), device="h100-sxm", dtype="fp32")
    assert "MFU" not in rl.table(inference)


def test_an_explanation_has_the_formula_with_its_numbers(both: RecordSet) -> None:
    text = " ".join(rl.explain(both, path="").text.split())
    model, again = 5 * PRODUCT, PRODUCT
    assert f"model matmul.fp32, {model:,} FLOP / 66.90 TFLOP/s" in text
    assert f"again matmul.fp32, {again:,} FLOP / 66.90 TFLOP/s" in text
    assert f"MFU measured {model / PEAK * 1e9:.2f} ns / 1.000 ms = {100 * MFU:.3g} %" in text
    assert f"/ 1.000 ms = {100 * HFU:.3g} %" in text
    assert "MFU at this code's bound" in text
    # A phase has its own; a part of the model has none.
    assert f"model matmul.fp32, {2 * PRODUCT:,} FLOP" in " ".join(
        rl.explain(both, path="", phase="forward").text.split()
    )
    assert "MFU" not in rl.explain(both, path="first").text


def test_training_of_sequences_is_answered_in_tokens_too(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 64, "n_positions": 16}
    (tmp_path / "config.json").write_text(json.dumps(config | {"bos_token_id": 0, "eos_token_id": 0}))
    step = {"batch": 2, "seq_len": 8, "mode": "train", "accumulation_steps": 3, "device": "t4"}
    found = rl.estimate(f"hf:{tmp_path / 'config.json'}", **step)  # type: ignore[arg-type]
    (case,) = json.loads(rl.table(found, format="json"))
    assert case["answers"]["tokens_per_second"] == pytest.approx(2 * 8 * 3 / case["step"]["seconds"])
    text = " ".join(rl.explain(found, path="").text.split())
    assert "samples of a step (6) x tokens of a sequence (8) / time of the step" in text


@pytest.fixture(scope="module")
def published() -> list[dict[str, str]]:
    if not MEASURED.exists():
        pytest.skip("the public tables are not here")
    with MEASURED.open(newline="") as file:
        return list(csv.DictReader(file))


def convention(row: dict[str, str]) -> int:
    """FLOP of a token as LLM-foundry counts them: 6 for each parameter, and attention in full."""
    layers, width = (int(MODELS[row["Model"]][size]) for size in ("n_layer", "n_embd"))
    return 6 * int(row["NumParams"]) + 12 * layers * width * int(row["SeqLen (T)"])


def test_their_mfu_follows_from_their_times_and_our_peaks(published: list[dict[str, str]]) -> None:
    assert len(published) > 200
    for row in published:
        peak = rl.device(CARDS[row["GPU"]]).require("matmul.fp8" if "fp8" in row["Precision"] else "matmul.bf16").rate
        ours = float(row["Throughput (T/s/GPU)"]) * convention(row) / peak
        # Throughputs and shares are rounded: 0.25 % at the most.
        assert 100 * ours == pytest.approx(float(row["MFU"]), rel=0.0025), row
        # Their HFU takes a whole forward pass again, and a step as three of them. torch stops before the last product
        # of each block, and nobody runs the output layer again, so ours is lower.
        again = row["Activation Checkpointing"] == "True"
        assert float(row["HFU"]) == pytest.approx(float(row["MFU"]) * (4 / 3 if again else 1), rel=0.001)


@pytest.mark.parametrize(("model", "tokens"), [("125m", 1024), ("7b", 2048)])
def test_our_model_flop_are_theirs_less_what_multiplies_nothing(
    model: str, tokens: int, published: list[dict[str, str]]
) -> None:
    pytest.importorskip("transformers")
    row = next(row for row in published if row["Model"] == model and row["SeqLen (T)"] == str(tokens))
    width, layers = MODELS[model]["n_embd"], MODELS[model]["n_layer"]
    # 6 N counts parameters that are in no product: places of tokens, and per layer biases (3 + 1 + 4 + 1 widths) and
    # two norms of a weight and a bias; the last norm.
    others = tokens * width + layers * 13 * width + 2 * width
    ours = whole(model, lambda r: r.work.matmul_flops * r.calls, "train", 1, tokens)
    assert ours == tokens * (convention(row) - 6 * others)
