"""Scans are one operation: a fused kernel's floor beside what the Python code does, which is found without its loop."""

from __future__ import annotations

import ast
import json
import re
import sys
import types
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.scan_families import plain_loops
from tests.counting import Calls
from torch import Tensor, nn

import rooflens as rl
from rooflens.costs import SCANS
from rooflens.errors import ModelError
from rooflens.predict.launched_calls import launched
from rooflens.records import Record
from rooflens.roofline import bound
from rooflens.trace.code_work import code_work
from rooflens.trace.scan_functions import FUNCTIONS

transformers = pytest.importorskip("transformers")
MODELS = Path(transformers.__file__).parent / "models"


def module(name: str) -> Any:
    return import_module(f"transformers.models.{name}.modeling_{name}")


def calling(function: str, **options: Any) -> Callable[..., Any]:
    """A call of a function of transformers through its module, as the models make it."""
    name, _, own = function.partition(".")
    holder = module(name)
    return lambda _, *tensors: getattr(holder, own)(*tensors, **options)


def record(records: rl.RecordSet, name: str) -> Record:
    (found,) = [r for r in records if r.name == name]
    return found


def floor(found: Record) -> tuple[dict[str, float], float]:
    assert found.floor is not None
    assert found.floor.cause == "loop"
    return dict(found.floor.work.flops), found.floor.work.bytes["dram"]


def mamba(tokens: int, channels: int = 6, states: int = 4) -> tuple[Tensor, ...]:
    """Hidden states, dt, A, B, C, D and z of two sequences."""
    wide = (2, channels, tokens)
    return (
        *(torch.empty(wide) for _ in range(2)),
        torch.empty(channels, states),
        *(torch.empty(2, states, tokens) for _ in range(2)),
        torch.empty(channels),
        torch.empty(wide),
    )


def heads(*shapes: tuple[int, ...]) -> Callable[[int], tuple[Tensor, ...]]:
    """Tensors of these shapes, -1 standing for the tokens."""
    return lambda tokens: tuple(torch.empty([tokens if n == -1 else n for n in shape]) for shape in shapes)


# Two sequences, 3 heads of 5 (values 7), in transformers' order of dimensions.
DELTA = heads((2, -1, 3, 5), (2, -1, 3, 5), (2, -1, 3, 7), (2, -1, 3), (2, -1, 3))
KIMI = heads((2, -1, 3, 5), (2, -1, 3, 5), (2, -1, 3, 7), (2, -1, 3, 5), (2, -1, 3))
CHUNKS = heads((2, -1, 3, 5), (2, -1, 3), (3,), (2, -1, 1, 7), (2, -1, 1, 7))
LOOPS: dict[str, tuple[str, Callable[[int], tuple[Tensor, ...]], dict[str, Any]]] = {
    "mamba.mamba_selective_scan": ("selective_scan", mamba, {"return_last_state": True, "delta_softplus": True}),
    "mamba2.mamba2_chunk_scan": ("chunk_scan", CHUNKS, {"chunk_size": 4, "return_final_states": True}),
    "qwen3_next.torch_chunk_gated_delta_rule": ("gated_delta_rule", DELTA, {"chunk_size": 4}),
    "qwen3_next.torch_recurrent_gated_delta_rule": ("gated_delta_rule", DELTA, {"output_final_state": True}),
    "kimi_linear.chunk_kimi_delta_attention": ("gated_delta_rule", KIMI, {"chunk_size": 4}),
    "rwkv.rwkv_linear_attention": ("wkv", heads((6,), (6,), (2, -1, 6), (2, -1, 6)), {"return_state": True}),
    "lfm2.causal_conv1d_fn": ("short_convolution", heads((2, 6, -1), (6, 3)), {"activation": "silu"}),
}


def run_by_host(records: rl.RecordSet) -> tuple[int, int]:
    """Operations of a forward pass and views that a host launches, those of the code of scans among them."""
    calls = [(r.call, r.calls) for r in records if r.call is not None and r.phase == "forward"]
    inside = [(launched(call, "scan"), times) for call, times in calls]
    (around,) = [r.host_calls for r in records if r.host_calls is not None]
    views = sum(c.views for c in around if c.phase == "forward")
    return sum(of.operations * n for of, n in inside), views + sum(of.views * n for of, n in inside)


@pytest.mark.parametrize("name", LOOPS)
def test_the_work_of_the_code_is_that_of_its_loop(name: str) -> None:
    operation, tensors, options = LOOPS[name]
    # Five chunks of four and three tokens, or seven tokens.
    given = [tensor.requires_grad_() for tensor in tensors(23 if "chunk_size" in options else 7)]
    function = calling(name, **options)

    def first(module: nn.Module, *args: Tensor) -> Tensor:
        results = function(module, *args)
        result: Tensor = results[0] if isinstance(results, tuple) else results
        return result.sigmoid()  # whose gradient has a value for each element

    def step(device: str | None = None) -> rl.RecordSet:
        return rl.estimate(Calls(first), inputs=tuple(given), mode="train", optimizer="none", device=device)

    one = step("h100-sxm")
    with plain_loops():
        loop = step()
    assert {operation, f"{operation}_backward"} <= {r.name for r in one}
    assert loop.coverage.operations > one.coverage.operations
    assert one.coverage.uncounted == loop.coverage.uncounted == ()
    for phase in ("forward", "backward"):
        ours, theirs = one.total(phase).work, loop.total(phase).work
        assert ours is not None
        assert theirs is not None
        assert ours.flops == theirs.flops
        # Of the inputs here, which are leaves, PyTorch copies a gradient that has another layout.
        copied = theirs.bytes["dram"] - ours.bytes["dram"]
        assert 0 <= copied <= (2 * sum(t.nbytes for t in given) if phase == "backward" else 0)
    total = one.total()
    assert total.written_bound is not None
    assert total.seconds is not None
    assert total.seconds < total.written_bound.seconds


@pytest.mark.parametrize("name", ["mamba2.mamba2_chunk_scan", "lfm2.causal_conv1d_fn"])
def test_a_host_launches_what_the_loop_has(name: str) -> None:
    _, tensors, options = LOOPS[name]
    given = tensors(63 if "chunk_size" in options else 31)
    function = calling(name, **options)

    def step() -> rl.RecordSet:
        return rl.estimate(Calls(function), inputs=given)

    one = step()
    with plain_loops():
        assert run_by_host(one) == run_by_host(step())


def test_selective_scan() -> None:
    # 2 x 6 x 100 elements of 4 states. Per element 6 x 4 for the states, 1 for dt x, 2 for D and 3 for z; 4
    # exponentials and 2 for the gate. Read: x, dt, z (2 x 6 x 100 each), A (24), B, C (2 x 4 x 100 each), D (6).
    # Written: one like x.
    scan = calling("mamba.mamba_selective_scan")
    found = record(rl.estimate(Calls(scan), inputs=mamba(100)), "selective_scan")
    assert floor(found) == ({"vector.fp32": 1200 * 30, "special.fp32": 1200 * 6}, 4 * (4 * 1200 + 24 + 1600 + 6))
    # The loop by hand, with 1200 x 4 elements of (token, channel, state). Before it A dt, its exponential, dt B, and
    # that times x: 3 vector, 1 special each. In it a product, a sum, and a multiply-add with C. After it D x and the
    # sum with it (2 per element), silu (2, and 2 special), and the product with it (1).
    written = found.work
    assert written is not None
    assert written.flops == {
        "vector.fp32": 5 * 4800 + 5 * 1200,
        "special.fp32": 4800 + 2 * 1200,
        "matmul.fp32": 2 * 4800,
    }


def test_the_published_mamba_layer(tmp_path: Path) -> None:
    # One layer: width 2048, inner 4096, state 16. A fused scan reads x, dt and z in bf16, B and C, and writes y, which
    # the Python code makes fp32, as D is: nothing grows faster than the tokens. The reported 18,017 tokens/s of 48
    # layers on an H100 lie below the bound's.
    config = {
        "model_type": "mamba",
        "hidden_size": 2048,
        "num_hidden_layers": 1,
        "state_size": 16,
        "vocab_size": 1000,
        "expand": 2,
        "conv_kernel": 4,
        "time_step_rank": 128,
    }
    path = tmp_path / "mamba.json"
    path.write_text(json.dumps(config))

    def layer(tokens: int) -> tuple[rl.RecordSet, float, float]:
        options: dict[str, Any] = {"mode": "train", "optimizer": "none", "dtype": "bf16", "device": "h100-sxm"}
        records = rl.estimate(f"hf:{path}", batch=1, seq_len=tokens, **options)
        own = [r for r in records if "layers.0" in r.path and r.bound_work is not None]
        moved = sum(r.bound_work.bytes["dram"] * r.calls for r in own if r.bound_work)
        device = rl.device("h100-sxm")
        return records, moved, sum(bound(r.bound_work, device).seconds * r.calls for r in own if r.bound_work)

    (few, short, _), (many, long, seconds) = layer(1024), layer(8192)
    assert few.coverage.operations == many.coverage.operations
    assert long < 8 * short
    scan = record(many, "selective_scan")
    assert floor(scan)[1] == 8192 * (4096 * 4 * 2 + 2 * 16 * 2) + 4096 * (16 + 1 + 1) * 4
    assert 8192 / (48 * seconds) > 18_017
    assert any("fused kernels in the bound" in note for r in many for note in r.notes)


def test_memory_without_gradients_is_that_of_the_loop() -> None:
    # 500 tokens of 2 sequences, 3 channels, 4 states in fp32: the loop spreads them over the states, and keeps a result
    # for each token before it stacks them.
    def loop(given: Mapping[str, Tensor]) -> Tensor:
        wide = given["x"].unsqueeze(-1) * given["states"]
        made = [wide[:, n].sum(-1) for n in range(given["x"].shape[1])]
        return torch.stack(made, dim=1)

    x, states = torch.empty(2, 500, 3), torch.empty(4)
    assert code_work(loop, {"x": x, "states": states}, {"x": 1}, 1).scratch == 4 * 2 * 500 * 3 * (4 + 1)
    learned = {"x": x.requires_grad_(), "states": states}
    assert code_work(loop, learned, {"x": 1}, 1).scratch == 0  # a fused kernel keeps its inputs alone

    # What a turn takes is most of a short run; at the end of a long one the results, their stack and one like it are.
    def wide_turns(given: Mapping[str, Tensor]) -> Tensor:
        made = [(given["x"][:, n, :, None] * given["states"]).sum(-1) for n in range(given["x"].shape[1])]
        stacked = torch.stack(made, dim=1)
        return stacked * (stacked + 1)

    plain = {"x": torch.empty(2, 500, 3), "states": torch.empty(50)}
    assert code_work(wide_turns, plain, {"x": 1}, 1).scratch == 3 * 4 * 2 * 500 * 3

    # 80 tokens in chunks of 4: 20 sums, each of which meets all others.
    def chunks(given: Mapping[str, Tensor]) -> Tensor:
        sums: Tensor = given["x"].reshape(-1, 4).sum(1)
        return (sums[:, None] * sums).sum(1)

    assert code_work(chunks, {"x": torch.empty(80)}, {"x": 0}, 4).scratch == 4 * (20 + 20 * 20)


def test_products_of_a_matrix_state() -> None:
    # Two sequences of 200 tokens, 3 heads. The delta rule has three products of 5 x 7 per token and head; without a
    # state that comes in or goes out it may be attention: per pair twice the key and value widths, 200 x 201 / 2 pairs.
    inputs = DELTA(200)
    rule = calling("qwen3_next.torch_chunk_gated_delta_rule")
    flops, moved = floor(record(rl.estimate(Calls(rule), inputs=inputs), "gated_delta_rule"))
    macs = 2 * 200 * 3 * 3 * 5 * 7
    assert macs < 2 * 3 * 20100 * 2 * (5 + 7)
    assert flops == {"matmul.fp32": 2 * macs, "vector.fp32": 2 * 2 * 200 * 3 * 7, "special.fp32": 2 * 200 * 3}
    assert moved == 4 * 2 * 200 * 3 * (5 + 5 + 7 + 1 + 1 + 7)
    # Two tokens meet in 3 pairs.
    flops, _ = floor(record(rl.estimate(Calls(rule), inputs=DELTA(2)), "gated_delta_rule"))
    assert flops["matmul.fp32"] == 2 * 2 * 3 * 3 * 2 * (5 + 7)
    # Mamba 2: two products of 5 x 7 per token and head, with the state that is given back.
    scan = calling("mamba2.mamba2_chunk_scan", chunk_size=64, return_final_states=True)
    flops, moved = floor(record(rl.estimate(Calls(scan), inputs=CHUNKS(200)), "chunk_scan"))
    assert flops["matmul.fp32"] == 2 * 2 * 200 * 3 * 2 * 5 * 7
    assert moved == 4 * (2 * 200 * (3 * 5 * 2 + 3 + 2 * 7) + 3 + 2 * 3 * 5 * 7)


def test_elementwise_recurrences() -> None:
    wkv = calling("rwkv.rwkv_linear_attention")
    inputs = heads((6,), (6,), (2, -1, 6), (2, -1, 6))(50)
    assert floor(record(rl.estimate(Calls(wkv), inputs=inputs), "wkv")) == (
        {"vector.fp32": 13 * 600, "special.fp32": 2 * 600},
        4 * (12 + 3 * 600),
    )
    layer = module("recurrent_gemma").RecurrentGemmaRglru.__new__(module("recurrent_gemma").RecurrentGemmaRglru)
    nn.Module.__init__(layer)
    run = Calls(lambda self, *args: self.layer._rnn_scan(*args, None), layer=layer)
    inputs = (torch.empty(2, 50, 6), torch.empty(2, 50, 6), torch.empty(2, 50, 1, dtype=torch.bool))
    found = record(rl.estimate(run, inputs=inputs), "linear_recurrence")
    # x, a and the reset read, h and the last state written.
    assert floor(found) == ({"vector.fp32": 2 * 600}, 4 * 3 * 600 + 100 + 4 * 12)


def test_a_decode_step_reads_and_writes_its_states_once() -> None:
    # One token: 2 sequences, 6 channels, 4 states; then 3 heads of 5 x 7.
    update = calling("mamba.mamba_selective_state_update")
    small = [torch.empty(2, 6), torch.empty(2, 6), torch.empty(6, 4), torch.empty(2, 4), torch.empty(2, 4)]
    found = record(rl.estimate(Calls(update), inputs=(torch.empty(2, 6, 4), *small)), "selective_state_update")
    assert floor(found) == (
        {"vector.fp32": 12 * (6 * 4 + 1), "special.fp32": 12 * 4},
        4 * (2 * 48 + 3 * 12 + 24 + 2 * 8),
    )
    wide = [
        torch.empty(2, 3, 5),
        torch.empty(2, 3, 5),
        torch.empty(3, 5, 7),
        torch.empty(2, 1, 7),
        torch.empty(2, 1, 7),
    ]
    update = calling("mamba2.mamba2_selective_state_update")
    found = record(rl.estimate(Calls(update), inputs=(torch.empty(2, 3, 5, 7), *wide)), "chunk_state_update")
    flops, moved = floor(found)
    assert flops == {"matmul.fp32": 2 * 210, "vector.fp32": 2 * 210, "special.fp32": 6}
    assert moved == 4 * (2 * 210 + 3 * 30 + 105 + 2 * 14)


def test_xlstm_and_lightning_attention() -> None:
    sizes = {"hidden_size": 32, "num_heads": 2, "chunk_size": 16}
    backend = module("xlstm").xLSTMBackend(transformers.xLSTMConfig(**sizes))
    inputs = heads((2, 3, -1, 5), (2, 3, -1, 5), (2, 3, -1, 7), (2, 3, -1), (2, 3, -1))(100)
    one = rl.estimate(backend, inputs=inputs)
    with plain_loops():
        loop = rl.estimate(backend, inputs=inputs)
    assert one.total().work == loop.total().work
    flops, moved = floor(record(one, "mlstm"))
    assert flops["matmul.fp32"] == 2 * 2 * 3 * 100 * 2 * 5 * 7
    states = 2 * 3 * (5 * 7 + 5 + 1)
    assert moved == 4 * (2 * 3 * 100 * (5 + 5 + 7 + 1 + 1 + 7) + states)
    uneven = module("xlstm").xLSTMBackend(transformers.xLSTMConfig(**sizes, mode="train", return_last_states=True))
    with pytest.raises(ModelError, match="Sequence length 100 is not divisible by chunk size 16"):
        rl.estimate(uneven, inputs=inputs)
    names = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 1, "block_size": 16, "head_dim": 4}
    layer = module("minimax").MiniMaxLightningAttention(
        transformers.MiniMaxConfig(**names, layer_types=["linear_attention"]), 0
    )
    hidden = {"hidden_states": torch.empty(2, 100, 12), "position_embeddings": (), "attention_mask": None}
    one = rl.estimate(layer, inputs=((), hidden))
    with plain_loops():
        loop = rl.estimate(layer, inputs=((), hidden))
    assert one.total().work == loop.total().work
    flops, _ = floor(record(one, "lightning_attention"))
    assert flops["matmul.fp32"] == 2 * 2 * 3 * 100 * 2 * 4 * 4


ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8}
SMALL = {"hidden_size": 32, "vocab_size": 100, "pad_token_id": 0}
DELTA_RULE = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
DECODERS: dict[str, tuple[dict[str, Any], str, int]] = {
    # Elements of one state of two sequences: 64 channels by 4; 8 heads of 8 x 16; 4 heads of 8 x 8; 4 heads of 8 x 8.
    "mamba": ({**SMALL, "num_hidden_layers": 2, "state_size": 4}, "selective_state_update", 2 * 64 * 4),
    "mamba2": (
        {**SMALL, "num_hidden_layers": 2, "state_size": 16, "num_heads": 8, "head_dim": 8, "n_groups": 1, "expand": 2},
        "chunk_state_update",
        2 * 8 * 8 * 16,
    ),
    "qwen3_next": (
        {**SMALL, **ATTENTION, **DELTA_RULE, "num_hidden_layers": 2},
        "gated_delta_rule",
        2 * 4 * 8 * 8,
    ),
    "minimax": (
        {**SMALL, **ATTENTION, "num_hidden_layers": 2, "num_local_experts": 2, "num_experts_per_tok": 1}
        | {"block_size": 16, "layer_types": ["linear_attention", "full_attention"]},
        "lightning_attention",
        2 * 4 * 8 * 8,
    ),
}


@pytest.mark.parametrize("family", DECODERS)
def test_the_floor_of_a_decode_step_moves_each_state_twice(family: str, tmp_path: Path) -> None:
    configuration, operation, elements = DECODERS[family]
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({"model_type": family, **configuration}))
    options: dict[str, Any] = {"batch": 2, "seq_len": 40, "mode": "decode", "device": "h100-sxm"}
    records = rl.estimate(f"hf:{path}", **options)
    with plain_loops():
        loop = rl.estimate(f"hf:{path}", **options)
    assert records.total().work == loop.total().work
    for found in (r for r in records if r.name == operation):
        assert found.call is not None
        assert found.bound_work is not None
        beside = sum(t.nbytes for t in (*found.call.inputs, *found.call.outputs) if t.elements != elements)
        assert found.bound_work.bytes["dram"] == 2 * 4 * elements + beside
    # A new state is written where the old one was: nothing moves for its copy into the cache.
    copies = [r for r in records if r.name == "copy_" and r.call and r.call.inputs[0].elements == elements]
    assert all(r.bound_work is not None and r.bound_work.bytes["dram"] == 0 for r in copies)
    total = records.total()
    assert total.written_bound is not None
    assert total.seconds is not None
    assert total.seconds < total.written_bound.seconds


def test_results_are_those_of_the_function() -> None:
    # Values decide the number of tokens, so the step is run with values: they have to be right.
    inputs = [tensor.uniform_(0.1, 0.9) for tensor in mamba(12)]
    scan = calling("mamba.mamba_selective_scan", return_last_state=True)
    expected = [tensor.clone() for tensor in scan(nn.Module(), *inputs)]
    seen: list[Tensor] = []

    def run(_: nn.Module, *tensors: Tensor) -> Tensor:
        result: Tensor
        result, state = scan(_, *tensors)
        if result.sum().item() > 0:
            seen[:] = [result.clone(), state.clone()]
        return result

    records = rl.estimate(Calls(run), inputs=tuple(inputs))
    assert record(records, "selective_scan").floor is not None
    for ours, theirs in zip(seen, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def kernel(name: str, *parameters: str, **optional: Any) -> Any:
    """A function of another package, which runs on a GPU only."""

    def function(*_: Any, **__: Any) -> Any:
        raise AssertionError("there is no GPU here")

    function.__module__, _, function.__qualname__ = name.rpartition(".")
    place = Parameter.POSITIONAL_OR_KEYWORD
    named = [Parameter(parameter, place) for parameter in parameters]
    named += [Parameter(parameter, place, default=value) for parameter, value in optional.items()]
    function.__signature__ = Signature(named)  # type: ignore[attr-defined]
    return function


def test_kernels_of_other_packages_are_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: Any = types.ModuleType("a_model_of_a_user")
    theirs.selective_scan_fn = kernel("mamba_ssm.ops.selective_scan_fn", "u", "delta", "A", "B", "C", D=None, z=None)
    theirs.chunk_gated_delta_rule = kernel(
        "fla.ops.chunk_gated_delta_rule", "q", "k", "v", "g", "beta", output_final_state=False
    )
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)
    scan = rl.estimate(Calls(lambda _, *args: theirs.selective_scan_fn(*args)), inputs=mamba(100))
    rule = rl.estimate(
        Calls(lambda _, *args: theirs.chunk_gated_delta_rule(*args, output_final_state=True)), inputs=DELTA(100)
    )
    found = record(scan, "selective_scan")
    assert found.floor is None
    assert found.work is not None
    assert found.work.flops == {"vector.fp32": 1200 * 30, "special.fp32": 1200 * 6}
    assert [t.shape for t in (found.call.outputs if found.call else ())] == [(2, 6, 100)]
    state = record(rule, "gated_delta_rule")
    assert [t.shape for t in (state.call.outputs if state.call else ())] == [(2, 100, 3, 7), (2, 3, 5, 7)]


def test_whole_layers_of_mamba_ssm(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: Any = types.ModuleType("another_model_of_a_user")
    weights = ("conv1d_weight", "conv1d_bias", "x_proj_weight", "delta_proj_weight", "out_proj_weight", "out_proj_bias")
    theirs.mamba_inner_fn = kernel(
        "mamba_ssm.ops.mamba_inner_fn", "xz", *weights, "A", B=None, C=None, D=None, delta_bias=None
    )
    theirs.mamba_split_conv1d_scan_combined = kernel(
        "mamba_ssm.ops.mamba_split_conv1d_scan_combined",
        *("zxbcdt", "conv1d_weight", "conv1d_bias", "dt_bias", "A", "D", "chunk_size"),
        rmsnorm_weight=None,
        outproj_weight=None,
        outproj_bias=None,
        headdim=None,
        ngroups=1,
        return_final_states=False,
    )
    # Two sequences of 50 tokens. 6 channels, 4 states and taps, rank 3 of dt, 8 outputs.
    inner = (*heads((2, 12, -1), (6, 1, 4), (6,), (11, 6), (6, 3), (8, 6))(50), None, torch.empty(6, 4))
    # 3 heads of 5, one group of 7 states: 15 channels of the gate, 15 + 2 x 7 that are convolved, 3 of dt.
    split = (*heads((2, -1, 47), (29, 4), (29,), (3,), (3,), (3,))(50), 256)
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)
    options = {"D": torch.empty(6), "delta_bias": torch.empty(6)}
    one = rl.estimate(Calls(lambda _, *args: theirs.mamba_inner_fn(*args, **options)), inputs=inner)
    options = {"rmsnorm_weight": torch.empty(15), "outproj_weight": torch.empty(8, 15)}
    two = rl.estimate(
        Calls(lambda _, *args: theirs.mamba_split_conv1d_scan_combined(*args, headdim=5, **options)), inputs=split
    )
    assert one.total().macs == 100 * (6 * 4 + 6 * 11 + 3 * 6 + 6 * 8)
    scan = record(one, "selective_scan").work
    assert scan is not None
    assert scan.flops == {"vector.fp32": 600 * (6 * 4 + 1 + 2 + 3 + 1), "special.fp32": 600 * (4 + 2)}
    assert two.total().macs == 100 * (29 * 4 + 3 * 2 * 5 * 7 + 15 * 8)
    assert {r.name for r in two if r.work} >= {
        "short_convolution",
        "chunk_scan",
        "silu",
        "mul",
        "_fused_rms_norm",
        "mm",
    }


def test_a_loop_that_a_user_wrote_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def mamba_selective_scan(x: Tensor, decay: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        for place in range(x.shape[1]):
            state = decay * state + x[:, place]
        return state

    theirs: Any = types.ModuleType("a_loop_of_a_user")
    theirs.mamba_selective_scan = mamba_selective_scan
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)
    run = Calls(lambda _, *args: theirs.mamba_selective_scan(*args))
    records = rl.estimate(run, inputs=(torch.empty(2, 5, 3), torch.empty(3)))
    assert {r.name for r in records if r.work} == {"zeros_like", "mul", "add"}


def test_a_checkpoint_repeats_the_scan() -> None:
    function = calling("mamba.mamba_selective_scan")
    inputs = tuple(tensor.requires_grad_() for tensor in mamba(7))

    def run(_: nn.Module, *tensors: Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(function, None, *tensors, use_reentrant=False)

    records = rl.estimate(Calls(run), inputs=inputs, mode="train", optimizer="none")
    scanned = [(r.name, r.phase, r.recomputed) for r in records if r.kind == "scan"]
    assert scanned == [
        ("selective_scan", "forward", False),
        ("selective_scan", "backward", True),
        ("selective_scan_backward", "backward", False),
    ]


def test_every_tensor_of_every_function_is_known() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(MODELS.glob("*/modeling_*.py")):
        text = path.read_text()
        for name in FUNCTIONS:
            for match in re.finditer(rf"^def {name}\(.*?\)(?: ->[^\n]*)?:\n", text, re.MULTILINE | re.DOTALL):
                (function,) = ast.parse(f"{match.group()}    pass\n").body
                assert isinstance(function, ast.FunctionDef)
                arguments = function.args
                assert not arguments.posonlyargs
                found.setdefault(name, set()).update(a.arg for a in (*arguments.args, *arguments.kwonlyargs))
    assert found.keys() == FUNCTIONS.keys()
    options = {"chunk_size", "activation", "return_state", "dt_softplus", "delta_softplus", "dt_limit", "use_mambapy"}
    options |= {"use_associative_scan", "return_last_state", "return_final_states", "output_final_state"}
    options |= {"use_qk_l2norm_in_kernel"}
    for name, parameters in found.items():
        tensors = {t.rstrip("_012") if t.startswith("state_") else t for t in SCANS[FUNCTIONS[name].operation]}
        assert parameters - options <= tensors, name
        assert FUNCTIONS[name].tokens.keys() <= parameters
