"""Weights of products in fewer bits, as an option of an estimate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.costs import WEIGHT_FORMATS, Arithmetic, calculate
from rooflens.errors import InvalidValue, MissingCeiling
from rooflens.records import Record
from rooflens.records.calls import from_plain, to_plain
from rooflens.running.estimating import estimable
from rooflens.running.tracing import tracer
from rooflens.runs.options import WEIGHTS, Options
from rooflens.runs.run import Request

TINY = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
TINY |= {"intermediate_size": 256, "vocab_size": 120, "max_position_embeddings": 4096, "tie_word_embeddings": False}
LAYER = 2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128
"""Weights of a layer's products: queries and output, keys and values, gate, up and down."""
HEAD = 120 * 128


@pytest.fixture
def named(tmp_path: Path) -> Callable[..., str]:
    def write(**config: Any) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return f"hf:{path}"

    return write


def product_of(**options: Any) -> tuple[rl.RecordSet, Record]:
    """The estimate of 8 rows of 256 through a layer of 384 outputs, and the record of its product."""
    layer = torch.nn.Linear(256, 384, dtype=torch.bfloat16)
    found = rl.estimate(layer, inputs=torch.ones(8, 256, dtype=torch.bfloat16), **options)
    (product,) = (record for record in found.records if record.scope == "op")
    return found, product


def test_the_option_and_the_table_of_formats_know_the_same_names() -> None:
    assert set(WEIGHTS) == {"none", *WEIGHT_FORMATS}


@pytest.mark.parametrize(
    ("options", "codes", "scales", "beside"),
    [
        # A scale in 16 bits for each of 384 outputs, which multiplies 8 x 384 results.
        ({"weights": "int8"}, 384 * 256, 384 * 2, 8 * 384),
        # In groups each weight meets its scale.
        ({"weights": "int8", "weights_group_size": 64}, 384 * 256, 384 * 4 * 2, 384 * 256),
        # Two groups of 128 for each output, scale and zero point in 16 bits; a weight meets both.
        ({"weights": "int4"}, 384 * 256 // 2, 384 * 2 * 4, 2 * 384 * 256),
        ({"weights": "int4", "weights_group_size": 32}, 384 * 256 // 2, 384 * 8 * 4, 2 * 384 * 256),
        # 8 x 256 activations are scaled, and 8 x 384 results.
        ({"weights": "fp8"}, 384 * 256, 4, 8 * 256 + 8 * 384),
        ({"weights": "nf4"}, 384 * 256 // 2, 384 * 256 // 64 * 4, 384 * 256),
        # Scales in 8 bits, and 4 B for 256 of these.
        ({"weights": "nf4-double"}, 384 * 256 // 2, 384 * 256 // 64 + 384 * 256 // 64 // 256 * 4, 384 * 256),
        ({"weights": "mxfp4"}, 384 * 256 // 2, 384 * 256 // 32, 384 * 256),
    ],
)
def test_a_layer_reads_codes_and_scales(options: dict[str, Any], codes: int, scales: int, beside: int) -> None:
    found, product = product_of(**options)
    bias = 384 * 2
    assert product.traffic is not None
    assert product.work is not None
    assert product.traffic.weights == codes + scales + bias
    assert product.work.bytes["dram"] == codes + scales + bias + 8 * 256 * 2 + 8 * 384 * 2
    precision = "fp8" if options["weights"] == "fp8" else "bf16"
    assert product.work.flops == {f"matmul.{precision}": 2 * 8 * 256 * 384, "vector.fp32": beside + 8 * 384}
    plain, _ = product_of()
    assert found.parameters == plain.parameters == 384 * 257
    assert found.memory is not None
    assert plain.memory is not None
    # The allocator rounds blocks up to 512 bytes.
    rounded = [-(-nbytes // 512) * 512 for nbytes in (codes, scales, bias)]
    assert found.memory.parameters == sum(rounded)
    assert (plain.memory.peak or 0) - (found.memory.peak or 0) == 384 * 256 * 2 - sum(rounded[:2])
    assert dict(found.cases[0].options) == options


@pytest.mark.parametrize(
    ("weights", "codes", "stored", "scales"),
    [
        ("int8", (384, 256), torch.int8, (384,)),
        # Tiles of 8 outputs and 8 x 16 inputs, 8 codes in a number; groups of 128, outputs, scale and zero point.
        ("int4", (384 // 8, 256 // (8 * 16), 32, 4), torch.int32, (2, 384, 2)),
    ],
)
def test_what_torch_packs_itself_reads_the_same_bytes(
    weights: str, codes: tuple[int, ...], stored: torch.dtype, scales: tuple[int, ...]
) -> None:
    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes, self.scales = (
                torch.nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)
                for shape, dtype in ((codes, stored), (scales, torch.bfloat16))
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if weights == "int8":
                return torch._weight_int8pack_mm(x, self.codes, self.scales)
            return torch._weight_int4pack_mm(x, self.codes, 128, self.scales)

    packed = rl.estimate(Packed(), inputs=torch.ones(8, 256, dtype=torch.bfloat16))
    theirs = next(record for record in packed.records if record.scope == "op")
    _, ours = product_of(weights=weights)
    assert theirs.traffic is not None
    assert ours.traffic is not None
    assert theirs.traffic.weights == ours.traffic.weights - 384 * 2  # less the bias
    assert theirs.work is not None
    assert ours.work is not None
    assert theirs.work.matmul_flops == ours.work.matmul_flops


def test_a_decoding_step_reads_and_holds_quantised_weights(named: Callable[..., str]) -> None:
    model = named(model_type="llama", **TINY)

    def step(**options: Any) -> rl.RecordSet:
        return rl.estimate(model, seq_len=20, mode="decode", dtype="bf16", **options)

    def needed(found: rl.RecordSet) -> float:
        return sum(
            r.calls * r.bound_work.bytes["dram"] for r in found.records if r.scope == "op" and r.bound_work is not None
        )

    def written(found: rl.RecordSet) -> rl.Work:
        work = found.total().work
        assert work is not None
        return work

    plain, int4 = step(), step(weights="int4")
    weights = 2 * LAYER + HEAD
    saved = 2 * weights - (weights // 2 + weights // 128 * 4)
    assert written(plain).bytes["dram"] - written(int4).bytes["dram"] == saved
    assert needed(plain) - needed(int4) == saved
    assert written(plain).matmul_flops == written(int4).matmul_flops
    assert plain.parameters == int4.parameters == weights + HEAD + 5 * 128
    assert plain.kv_cache == int4.kv_cache
    # In blocks of 512: queries and output, keys and values, gate, up and down; head; embedding and five norms.
    layer = 2 * (8192 + 512) + 2 * (4096 + 512) + 3 * (16384 + 1024)
    assert int4.memory is not None
    assert int4.memory.parameters == 2 * layer + (7680 + 512) + HEAD * 2 + 5 * 512
    assert any(f"of {weights + HEAD + 640:,} parameters {weights:,}, which" in note for note in int4.notes)
    assert any(f"quantised, {HEAD:,} of them in the last layer, lm_head, which GPTQ and" in n for n in int4.notes)

    kept = step(weights="int4", weights_except="lm_head, model.layers.1.mlp, lmhead")  # one layer's, one name unknown
    stay = HEAD + 3 * 256 * 128
    quantised = weights - stay
    assert written(plain).bytes["dram"] - written(kept).bytes["dram"] == 2 * quantised - quantised // 128 * (64 + 4)
    assert any(f"of {weights + HEAD + 640:,} parameters {quantised:,}, which" in note for note in kept.notes)
    assert "weights_except: no module is called lmhead" in kept.notes
    assert ("weights_except", "lm_head, model.layers.1.mlp, lmhead") in kept.cases[0].options


def test_an_embedding_tied_to_the_last_layer_stays(named: Callable[..., str]) -> None:
    tied = named(model_type="llama", **TINY | {"tie_word_embeddings": True})
    found = rl.estimate(tied, seq_len=20, dtype="bf16", mode="prefill", weights="fp8")
    assert any(f"parameters {2 * LAYER:,}, which" in note and note.endswith("quantised") for note in found.notes)


def test_experts_that_are_hit_are_read_in_their_format(named: Callable[..., str]) -> None:
    model = named(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2, **TINY)
    found = rl.estimate(model, seq_len=20, batch=4, mode="decode", dtype="bf16", weights="int4")
    first = next(record for record in found.records if record.name == "_grouped_mm")
    # Gate and up of an expert: 128 x 512 weights in 4 bits, 4 bytes for each 128.
    expert, rest = 128 * 512 // 2 + 512 * 4, 8 * 128 * 2 + 8 * 512 * 2 + 8 * 4
    hit = 8 * (1 - (1 - 2 / 8) ** 4)
    assert first.work is not None
    assert first.bound_work is not None
    assert first.work.bytes["dram"] == 8 * expert + rest
    assert (
        first.bound_work.bytes["dram"] == int(hit * expert + rest) - (8 - 4) * 128 * 2
    )  # four tokens, by their indices
    assert first.work.flops["vector.fp32"] == 8 * 2 * 128 * 512
    assert first.bound_work.flops["vector.fp32"] == pytest.approx(hit * 2 * 128 * 512)


def test_layers_that_are_not_listed_are_quantised_too(named: Callable[..., str]) -> None:
    model = named(model_type="llama", **TINY | {"num_hidden_layers": 6})
    asked = Request(model=model, mode="decode", dtype="bf16", options=Options(seq_len=20, weights="int4"))
    work = estimable(asked)
    trace = tracer(work)
    assert trace(work.runs[0], summing=True).memory == trace(work.runs[0]).memory


@pytest.mark.parametrize(
    ("family", "options", "beside"),
    [
        # A step of one token has 4 new rows, one for each head. Keys: 32 numbers of each meet scales, values likewise.
        ("deepseek_v2", {"weights": "int8"}, 2 * 4 * 32),
        # Rows of 32 numbers become 64 latents, and the other way round: one is scaled on its way in, one after it.
        ("deepseek_v2", {"weights": "fp8"}, 2 * 4 * (32 + 64)),
        # All 64 x 256 weights meet a scale and a zero point.
        ("deepseek_v3", {"weights": "int4", "weights_group_size": 64}, 2 * 64 * 256),
    ],
)
def test_scales_are_those_of_absorbed_products(
    named: Callable[..., str], family: str, options: dict[str, Any], beside: int
) -> None:
    ranks = {"kv_lora_rank": 64, "q_lora_rank": None, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}
    sizes = {name: size for name, size in TINY.items() if name != "head_dim"} | {"num_key_value_heads": 4, **ranks}
    model = named(model_type=family, first_k_dense_replace=2, **sizes)
    found = rl.estimate(model, seq_len=500, mode="decode", dtype="bf16", **options)
    product = next(r for r in found.records if r.path.endswith("kv_b_proj") and r.bound_work is not None)
    assert product.work is not None
    assert product.bound_work is not None
    assert product.floor is not None
    assert product.bound_work.matmul_flops == 2 * (2 * 4 * 32 * 64)
    assert product.bound_work.flops["vector.fp32"] == beside
    assert f"Scales and addends of these products take {beside:,} FLOP" in product.floor.formula
    if options["weights"] == "int8":
        assert product.work.flops["vector.fp32"] == 501 * 256


def test_latents_are_absorbed_with_quantised_projections_too(named: Callable[..., str]) -> None:
    ranks = {"kv_lora_rank": 64, "q_lora_rank": None, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}
    sizes = {name: size for name, size in TINY.items() if name != "head_dim"} | {"num_key_value_heads": 4, **ranks}
    model = named(model_type="deepseek_v2", first_k_dense_replace=2, **sizes)

    def floor(**options: Any) -> dict[str, float]:
        found = rl.estimate(model, seq_len=500, mode="decode", dtype="bf16", **options)
        ops = [r for r in found.records if r.path.endswith("kv_b_proj") and r.bound_work is not None]
        assert ops
        return {"flops": ops[0].bound_work.matmul_flops, "bytes": ops[0].bound_work.bytes["dram"]}  # type: ignore[union-attr]

    plain, int8 = floor(), floor(weights="int8")
    assert plain["flops"] == int8["flops"]
    # 64 latents make 4 heads of 32 + 32 numbers: a byte less for each weight, a scale for each output.
    assert plain["bytes"] - int8["bytes"] == 64 * 256 - 256 * 2


def test_more_samples_fit() -> None:
    layer = torch.nn.Linear(4096, 4096, bias=False, dtype=torch.float16, device="meta")

    def largest(**options: Any) -> int:
        def inputs(n: int) -> torch.Tensor:
            return torch.empty(n, 4096, dtype=torch.float16, device="meta")

        return rl.largest_batch(layer, device="t4", inputs=inputs, reserve="1 GB", **options).batch or 0

    saved = 4096 * 4096 * 2 - 4096 * 4096 // 2 - 4096 * 4096 // 128 * 4
    assert largest(weights="int4") - largest() == pytest.approx(saved / (2 * 4096 * 2), abs=1)


def test_a_device_without_fp8_has_no_rate_for_it() -> None:
    with pytest.raises(MissingCeiling, match=r"matmul\.fp8"):
        product_of(weights="fp8", device="t4")


def test_the_formula_is_told_and_the_call_is_kept() -> None:
    for weights in WEIGHT_FORMATS:
        _, product = product_of(weights=weights)
        assert product.call is not None
        assert product.work is not None
        assert from_plain(to_plain(product.call)) == product.call
        told = calculate(product.call, Arithmetic())
        assert f"Weights in {weights}: " in told.formula
        assert told.cost.work == product.work
    assert "4 bits each, and 8 bits for 32 weights" in told.formula


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int2"}, "known: none, int8, int4, fp8, nf4, nf4-double, mxfp4"),
        ({"weights": "int8", "mode": "train"}, "mode 'train' changes them"),
        ({"weights_group_size": 64}, "weights is None"),
        ({"weights": "fp8", "weights_group_size": 64}, "weights is fp8"),
        ({"weights_except": "lm_head"}, "no weights are given another one"),
        ({"weights": "int8", "weights_except": " , "}, "it has to be names"),
        ({"weights": "int4", "weights_group_size": 96}, "weights_group_size may be 2, 4, 8, 16, 32, 64, 128, 256"),
        ({"weights": "int4", "weights_group_size": 512}, "sums over 256 weights"),
        ({"weights": "int4", "dtype": "amp-bf16"}, "autocast casts them first"),
    ],
)
def test_what_makes_no_sense_is_an_error_that_says_why(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        product_of(**options)


@pytest.mark.parametrize(
    ("command", "option"), [("measure", ("--weights", "int8")), ("counters", ("--weights-group-size", "64"))]
)
def test_what_rooflens_does_not_run_is_told(command: str, option: tuple[str, str]) -> None:
    ended = CliRunner().invoke(cli, [command, "resnet18", *option])
    assert ended.exit_code == 2
    assert f"{option[0]} is about weights that 'rooflens estimate' counts and rooflens does not run" in ended.output


def test_a_graph_is_counted_with_the_weights_that_it_has() -> None:
    with pytest.raises(InvalidValue, match=r"weights has no meaning for the ONNX file 'net\.onnx'"):
        rl.estimate("net.onnx", weights="int8")


def test_convolutions_stay() -> None:
    convolution = torch.nn.Conv2d(3, 8, 3)
    with pytest.raises(InvalidValue, match="and so do convolutions"):
        rl.estimate(convolution, inputs=torch.ones(1, 3, 8, 8), weights="int8")
