"""The largest batch, and the longest context, whose tokens take no longer than they may."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import InvalidValue
from rooflens.results import QUANTITIES, join

pytest.importorskip("transformers")

WIDTH, WORDS, TOKENS, FP32 = 64, 120, 16, 4
HEADS = 2 * 2 * 16
"""Numbers of a token in the cache: a key and a value of two heads of 16, in one layer."""
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": WIDTH,
    "vocab_size": WORDS,
    "max_position_embeddings": 4096,
}
# Query, result, gate, up and down; key and value; logits.
WEIGHTS = FP32 * (5 * WIDTH * WIDTH + WIDTH * HEADS + WIDTH * WORDS)
BESIDE = FP32 * (5 * 2 * WIDTH + 2 * WIDTH + HEADS + WIDTH + WORDS)
"""Bytes of a sequence in and out of these products."""


def saved(folder: Path) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(LLAMA))
    return f"hf:{path}"


def bound(batch: int, tokens: int) -> float:
    """Seconds of a step of decode on an A100 with 1.555 TB/s: weights, cache, a new token, inputs and results."""
    attention = FP32 * (HEADS * (tokens + 3) + 2 * WIDTH)
    embedding = 8 + 2 * WIDTH * FP32
    return (WEIGHTS + batch * (BESIDE + attention + embedding)) / 1555e9


def expected(model: str, **asked: Any) -> float:
    (one,) = join(rl.estimate(model, device="a100-sxm4-40gb", mode="decode", **asked))
    value = QUANTITIES["time_per_output_token"].read(one, time="predicted").value
    assert value is not None
    return value


def test_the_bound_of_one_more_sequence_breaks_the_limit(tmp_path: Path) -> None:
    model, limit = saved(tmp_path), (bound(10, TOKENS) + bound(11, TOKENS)) / 2
    asked: dict[str, Any] = {"mode": "decode", "seq_len": TOKENS, "device": "a100-sxm4-40gb"}
    fits = rl.largest_batch(model, **asked, max_time_per_token=limit)
    (fit,) = fits
    assert fit.by_bound == 10
    assert (fit.batch, fit.limited_by, fit.timed_by) == (0, "time_per_output_token", "predicted")  # the host takes more
    assert fit.in_memory is not None
    assert fit.in_memory > 10
    assert "has a time per output token of" in fit.reason
    (failure,) = fits.records.failures
    assert "at most 150.2 ns is asked for" in failure.message  # 129,024 B and 10.5 x 9,960 B


def test_a_card_of_which_no_time_is_expected_keeps_the_limit_by_its_bound(tmp_path: Path) -> None:
    model, limit = saved(tmp_path), (bound(10, TOKENS) + bound(11, TOKENS)) / 2
    unknown = replace(rl.device("a100-sxm4-40gb"), name="another", title="another", kind="accelerator")
    (fit,) = rl.largest_batch(model, mode="decode", seq_len=TOKENS, device=unknown, max_time_per_token=limit)
    assert (fit.batch, fit.by_bound, fit.timed_by) == (10, 10, "bound")
    assert fit.time_limits[0].found == pytest.approx(bound(10, TOKENS))


def test_the_expected_time_of_one_more_token_breaks_the_limit(tmp_path: Path) -> None:
    model, asked = saved(tmp_path), dict[str, Any](batch=64, cuda_graph=True)
    limit = expected(model, seq_len=1500, **asked)
    (fit,) = rl.longest_context(model, device="a100-sxm4-40gb", **asked, max_time_per_token=f"{limit * 1e9} ns")
    assert fit.context is not None
    assert fit.by_bound is not None
    assert 1500 <= fit.context < fit.by_bound <= 4095
    assert expected(model, seq_len=fit.context, **asked) <= limit < expected(model, seq_len=fit.context + 1, **asked)
    assert dict(fit.case.options)["seq_len"] == fit.context
    assert "by the bound" not in rl.table(rl.longest_context(model, device="a100-sxm4-40gb", **asked))


def test_the_first_token_has_a_limit_too(tmp_path: Path) -> None:
    words = ["estimate", saved(tmp_path), "--mode", "prefill", "--seq-len", "512", "--device", "a100-sxm4-40gb"]
    words += ["--largest-batch", "--max-time-to-first-token", "50ms"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    for said in (
        "limited by time to first token",
        "time to first token: at most 50.00 ms",
        "by the bound",
        "first token",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "prefill", "max_time_per_token": 1.0}, "mode 'prefill' has none; give mode decode or generate"),
        ({"mode": "decode", "max_time_to_first_token": 1.0}, "give mode prefill or generate"),
        ({"mode": "decode", "max_time_per_token": 0}, "give a time above zero, like '50 ms'"),
        ({"mode": "decode", "max_time_per_token": "5 GB"}, "s"),
    ],
)
def test_what_is_no_limit_is_told(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        rl.largest_batch(saved(tmp_path), device="t4", **options)


def test_a_limit_without_a_search_is_told(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["estimate", saved(tmp_path), "--device", "t4", "--max-time-per-token", "1 s"])
    assert done.exit_code == 2
    assert "--max-time-per-token limits what --largest-batch or --longest-context finds" in " ".join(
        done.output.split()
    )
