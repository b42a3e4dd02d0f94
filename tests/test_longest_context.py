"""The longest context that fits at a batch, and the largest batch of a whole answer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import RooflensError
from rooflens.records import Device, Fact
from rooflens.report.largest_batches import largest_sizes

pytest.importorskip("transformers")

TOKEN = 2 * 2 * 16 * 4
"""Bytes of a token in the cache: a key and a value of two heads of 16, in fp32, in one layer."""
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 64,
    "vocab_size": 120,
    "max_position_embeddings": 4096,
}


def saved(folder: Path, **config: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(LLAMA | config))
    return f"hf:{path}"


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def card(memory: float) -> Device:
    found = rl.device("a100-sxm4-40gb")
    return replace(found, facts=found.facts | {"memory": Fact(value=memory)})


def peak(model: str, **asked: Any) -> int:
    held = rl.estimate(model, device="a100-sxm4-40gb", **asked).memory
    assert held is not None
    assert held.peak is not None
    return held.peak


@pytest.mark.parametrize(("mode", "batch", "memory"), [("decode", 3, 900_000), ("prefill", 2, 700_000)])
def test_one_token_more_does_not_fit(tmp_path: Path, mode: str, batch: int, memory: int) -> None:
    model = saved(tmp_path)
    (fit,) = rl.longest_context(model, device=card(memory), batch=batch, mode=mode, reserve=0)
    context = fit.context
    assert context is not None
    assert fit.limited_by == "memory"
    assert peak(model, batch=batch, mode=mode, seq_len=context) <= memory
    assert peak(model, batch=batch, mode=mode, seq_len=context + 1) > memory
    assert (fit.batch, fit.case.batch, dict(fit.case.options)["seq_len"]) == (batch, batch, context)
    assert fit.held is not None
    assert fit.held.kv_cache is not None
    if mode == "decode":  # before the step
        assert 0 <= fit.held.kv_cache - batch * context * TOKEN <= batch * TOKEN


def test_positions_end_the_search_and_a_sliding_window_does_not_grow(tmp_path: Path) -> None:
    (fit,) = rl.longest_context(saved(tmp_path), device=card(40e9))
    assert (fit.context, fit.limited_by, fit.positions) == (4095, "positions", 4095)  # and the new token: 4096
    assert fit.in_memory == 2**20  # no more is tried: 4e10 B are 4e10 / TOKEN > 2**20 tokens
    (fit,) = rl.longest_context(saved(tmp_path), device=card(40e9), mode="prefill")
    assert fit.context == 4096
    windows = saved(tmp_path, model_type="mistral", sliding_window=16)
    (fit,) = rl.longest_context(windows, device=card(800_000), reserve=0)
    assert (fit.context, fit.limited_by) == (4095, "positions")


def test_beyond_the_positions_it_is_told_what_memory_holds(tmp_path: Path) -> None:
    model, memory = saved(tmp_path, max_position_embeddings=64), 900_000
    fits = rl.longest_context(model, device=[card(memory), replace(card(20e9), name="large")], batch=3, reserve=0)
    (fit, large), found = fits, rl.longest_context(saved(tmp_path), device=card(memory), batch=3, reserve=0)
    assert (fit.context, fit.limited_by, fit.in_memory) == (63, "positions", found.context)  # with positions for all
    assert large.in_memory == 2**20  # the first card's answers end no other search
    (line,) = (line.split() for line in rl.table(fits).splitlines() if line.startswith("memory holds  "))
    assert line == ["memory", "holds", str(found.context), ">=", str(2**20)]


def test_a_ranking_tells_a_context_beyond_the_positions_too(tmp_path: Path) -> None:
    model = saved(tmp_path, max_position_embeddings=64)
    told = CliRunner().invoke(cli, ["rank", model, "--mode", "decode", "--seq-len", "64", "--device", "t4", "-b", "1"])
    assert "a sequence has 65 tokens, and the configuration of the model names 64 positions" in unwrapped(told.output)


def test_each_batch_has_a_context_of_its_own(tmp_path: Path) -> None:
    model = saved(tmp_path)
    both = rl.longest_context(model, device=card(900_000), batch=[2, 3], reserve=0)
    alone = [rl.longest_context(model, device=card(900_000), batch=batch, reserve=0).context for batch in (2, 3)]
    assert [(fit.batch, fit.context) for fit in both] == [(2, alone[0]), (3, alone[1])]
    assert [case.batch for case in both.records.cases] == [2, 3]
    with pytest.raises(RooflensError, match="one answer, there are 2"):
        _ = both.context


def test_not_even_one_token(tmp_path: Path) -> None:
    fits = rl.longest_context(saved(tmp_path), device=card(1000), reserve=0)
    (fit,) = fits
    assert (fit.context, fit.fits, fit.reason) == (0, False, "not even one token fits")
    (failed,) = fits.records.failures
    assert failed.message.startswith("one token needs")
    assert "! not even one token fits: the peak is that of one" in largest_sizes(fits)[0].notes


def test_the_command_says_what_limits_it(tmp_path: Path) -> None:
    command = ["estimate", saved(tmp_path), "--longest-context", "--device", "t4"]
    told = CliRunner().invoke(cli, [*command, "-b", "2"])
    assert told.exit_code == 0
    assert told.output.startswith("Longest context: hf:config.json, batch 2, fp32, decode, on tesla-t4")
    assert "limited by" in told.output
    (row,) = json.loads(CliRunner().invoke(cli, [*command, "--format", "json"]).output)
    assert (row["mode"], row["batch"], row["context"], row["limited_by"]) == ("decode", 1, 4095, "positions")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--seq-len", "8"], "leave --seq-len out"),
        (["--prompt-len", "8", "--output-len", "8"], "leave --prompt-len out"),
        (["--kv-cache-len", "8"], "leave --kv-cache-len out"),
        (["--largest-batch"], "two searches"),
    ],
)
def test_what_makes_no_sense_beside_it_is_refused(more: list[str], why: str) -> None:
    refused = CliRunner().invoke(cli, ["estimate", "hf:llama", "--longest-context", "--device", "t4", *more])
    assert refused.exit_code == 2
    assert why in " ".join(refused.output.split())


def test_a_search_needs_a_device() -> None:
    refused = CliRunner().invoke(cli, ["estimate", "hf:llama", "--longest-context"])
    assert refused.exit_code == 2
    assert "--longest-context needs --device" in refused.output


def test_a_model_without_tokens_has_no_context() -> None:
    for model, mode in (("resnet18", "inference"), ("resnet18", "decode"), ("net.onnx", "decode")):
        with pytest.raises(RooflensError, match=r"language model|reads no sequences"):
            rl.longest_context(model, device="t4", mode=mode)


def test_the_largest_batch_of_a_whole_answer_has_room_for_its_end(tmp_path: Path) -> None:
    model, memory = saved(tmp_path), 3_000_000
    (fit,) = rl.largest_batch(model, device=card(memory), reserve=0, prompt_len=4, output_len=300)
    assert fit.batch
    assert peak(model, batch=fit.batch, mode="decode", seq_len=302) <= memory
    assert peak(model, batch=fit.batch + 1, mode="decode", seq_len=302) > memory
    assert fit.case.mode == "generate"
    assert fit.total is not None
    assert fit.total.seconds
