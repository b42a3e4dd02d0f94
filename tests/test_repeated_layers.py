"""Equal layers run once: every number is the one of a trace in which each layer runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rooflens as rl
from rooflens.models import Example, Step, make_step, sum_of_outputs, workload
from rooflens.records import Access, Trace
from rooflens.running import estimating, lengths
from rooflens.runs.options import Options
from rooflens.runs.run import Request
from rooflens.sources.estimate import repeated
from rooflens.trace import trace
from rooflens.trace.copies import FakeCopies
from rooflens.trace.repeated_layers import RepeatedLayers
from rooflens.trace.tracer import _run

WIDTHS = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48}
WIDTHS |= {"vocab_size": 100, "max_position_embeddings": 64, "num_hidden_layers": 6}
SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": WIDTHS,
    "gemma3_text": WIDTHS
    | {"num_hidden_layers": 9}
    | {"sliding_window": 8, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 3},
    "mixtral": WIDTHS | {"num_local_experts": 4},
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 6, "vocab_size": 100},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 6, "vocab_size": 100, "state_size": 8},
    "qwen3_next": WIDTHS
    | {"num_experts": 4, "num_experts_per_tok": 2, "layer_types": ["linear_attention", "full_attention"] * 3},
    "deepseek_v4": {"hidden_size": 32, "num_attention_heads": 4, "head_dim": 16, "q_lora_rank": 16, "vocab_size": 100}
    | {"moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 6}
    | {"o_groups": 2, "o_lora_rank": 16, "index_n_heads": 2, "index_head_dim": 8, "hc_mult": 2, "hc_sinkhorn_iters": 1}
    | {"sliding_window": 8, "compress_rates": {SPARSE: 4, HEAVY: 8}, "layer_types": [SPARSE, HEAVY] * 3}
    | {"mlp_layer_types": ["moe"] * 6},
    "t5": {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 6, "vocab_size": 100},
}
RUNNING = {
    "llama": 2,
    "gemma3_text": 4,
    "mixtral": 2,
    "gpt2": 2,
    "mamba": 3,
    "qwen3_next": 4,
    "deepseek_v4": 4,
    "t5": 6,
}
"""Layers that run: two of each kind; and of T5, whose first ones hold the biases, three in encoder and decoder."""
MASKING = {("t5", "prefill"): 3}
"""Further ones, which make a mask of their own: those of T5's decoder, where it reads more than a token."""


def whole(step: Step) -> Trace:
    """The trace in which every layer runs."""
    return _run(step, FakeCopies(step.cast, step.channels_last, step.known))


def flow(traced: Trace) -> object:
    """Which operation reads and writes which memory, by the order in which the blocks appear, and which of it lasts."""
    numbers: dict[int, int] = {}

    def of(accesses: tuple[Access, ...]) -> list[tuple[int, int, int]]:
        return [(numbers.setdefault(a.block, len(numbers)), a.nbytes, a.elements) for a in accesses]

    told = [(of(operation.reads), of(operation.writes)) for operation in traced.operations]
    lasting = sorted(numbers[block] for block in traced.lasting if block in numbers)
    cached = sorted((numbers.get(part.block, -1), part.elements, part.nbytes) for part in traced.cache)
    masks = [(numbers.get(mask.block), mask.pairs) for mask in traced.masks]
    return told, lasting, cached, masks


def check_equal(step: Step) -> Trace:
    ours, theirs = trace(step), whole(step)
    assert ours.operations == theirs.operations
    assert [o.call.layout for o in ours.operations] == [o.call.layout for o in theirs.operations]
    assert flow(ours) == flow(theirs)
    for name in ("memory", "held", "host_calls", "kv_cache", "parameters", "parameter_blocks", "notes"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert repeated(ours) == repeated(theirs)
    return ours


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many layers took over what others did, for each trace in which some could."""
    counts: list[int] = []
    finish = RepeatedLayers.finish

    def counted(self: RepeatedLayers, cache: Any) -> Any:
        counts.append(len(self._taken))
        return finish(self, cache)

    monkeypatch.setattr(RepeatedLayers, "finish", counted)
    return counts


@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_family_counts_the_same(family: str, mode: str, tmp_path: Path, taken: list[int]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": family, **FAMILIES[family]}))
    options = Options(seq_len=12)
    asked = workload(Request(model=f"hf:{path}", batch=2, dtype="bf16", mode=mode, options=options))
    check_equal(asked.untouched_steps()(asked.runs[0]))
    layers = FAMILIES[family].get("num_hidden_layers", 6) * (2 if family == "t5" else 1)
    assert taken[0] == layers - RUNNING[family] - MASKING.get((family, mode), 0)


def step_of(module: nn.Module, *args: Any, mode: str = "inference") -> Step:
    return make_step("m", module, Example(args=args), dtype="as-is", mode=mode, loss=sum_of_outputs, optimizer="none")


RAN: list[nn.Module] = []
"""The blocks that have run; a list of a module would be put back after a trace."""


class Block(nn.Module):
    """A layer that says when it runs."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16, bias)

    def forward(self, x: Tensor) -> Tensor:
        RAN.append(self)
        y: Tensor = x + self.linear(x)
        return y


class Stack(nn.Module):
    """Layers, and the function that runs them."""

    def __init__(self, layers: list[nn.Module], run: Callable[[nn.ModuleList, Tensor], Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.run = run

    def forward(self, x: Tensor) -> Any:
        return self.run(self.layers, x)


def in_turn(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def test_two_of_six_equal_layers_run_and_all_are_counted() -> None:
    RAN.clear()
    stack = Stack([Block() for _ in range(6)], in_turn)
    traced = trace(step_of(stack, torch.randn(4, 16)))
    assert list(stack.layers)[:2] == RAN
    assert [(o.call.name, o.path) for o in traced.operations] == [
        entry for n in range(6) for entry in (("addmm", f"layers.{n}.linear"), ("add", f"layers.{n}"))
    ]
    weights = {o.reads[2].block for o in traced.operations if o.call.name == "addmm"}
    assert len(weights) == 6
    assert not any("forward" in vars(layer) for layer in stack.layers)
    check_equal(step_of(stack, torch.randn(4, 16)))


def test_the_code_around_the_layers_runs_as_it_is(taken: list[int]) -> None:
    def halved_by_the_fifth(layers: nn.ModuleList, x: Tensor) -> Tensor:
        for n, layer in enumerate(layers):
            x = layer(x[::2] if n == 4 else x)
        return x

    check_equal(step_of(Stack([Block() for _ in range(9)], halved_by_the_fifth), torch.randn(4, 16)))
    assert taken[0] == 2 + 2  # of the four before it, and of the four after it; its own rows lie apart in memory


def test_layers_with_other_parts_or_values_run(taken: list[int]) -> None:
    mixed: list[nn.Module] = [Block(bias=n % 2 == 0) for n in range(8)]
    mixed[4].linear.eps = 1e-3  # type: ignore[union-attr]
    check_equal(step_of(Stack(mixed, in_turn), torch.randn(4, 16)))
    assert taken[0] == 1 + 2  # of the layers 0, 2, 6 with a bias, and of the four without one


class Placed(Block):
    """A layer that does more from a place on."""

    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu() if self.layer_idx > 2 else super().forward(x)


class Asking(nn.Module):
    """A part that does more from a place on."""

    def forward(self, x: Tensor, place: int) -> Tensor:
        return x.relu() if place > 2 else x


class Handing(Block):
    """A layer that hands its place to a part."""

    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx, self.part = layer_idx, Asking()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.part(super().forward(x), self.layer_idx)
        return out


def test_layers_whose_code_asks_for_their_place_run(taken: list[int]) -> None:
    traced = check_equal(step_of(Stack([Placed(n) for n in range(6)], in_turn), torch.randn(4, 16)))
    assert taken == [0, 0]
    check_equal(step_of(Stack([Handing(n) for n in range(6)], in_turn), torch.randn(4, 16)))
    assert taken == [0, 0] * 2
    assert [o.call.name for o in traced.operations].count("relu") == 3


def test_what_a_layer_hands_on_beside_its_result_is_seen(taken: list[int]) -> None:
    kept: list[Tensor] = []

    class Keeping(Block):
        def forward(self, x: Tensor) -> Tensor:
            kept.append(self.linear(x))
            return x + 1

    def summed(layers: nn.ModuleList, x: Tensor) -> Tensor:
        total = in_turn(layers, x) + sum(kept)
        kept.clear()
        return total

    traced = check_equal(step_of(Stack([Keeping() for _ in range(5)], summed), torch.randn(4, 16)))
    assert taken[0] > 0  # and was found out
    assert [o.call.name for o in traced.operations].count("add") == 5 + 5 + 1


def test_layers_with_hooks_or_called_more_than_once(taken: list[int]) -> None:
    hooked = [Block() for _ in range(5)]
    hooked[3].linear.register_forward_hook(lambda module, args, output: output.relu())
    check_equal(step_of(Stack([*hooked], in_turn), torch.randn(4, 16)))
    assert taken[0] == 2

    def twice(layers: nn.ModuleList, x: Tensor) -> Tensor:
        return in_turn(layers, in_turn(layers, x))

    check_equal(step_of(Stack([Block() for _ in range(4)], twice), torch.randn(4, 16)))


def test_results_that_share_memory_are_not_made_again() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 32)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            first, second = self.linear(x).chunk(2, -1)
            return first, second

    def run(layers: nn.ModuleList, x: Tensor) -> Tensor:
        for layer in layers:
            first, second = layer(x)
            x = first + second
        return x

    check_equal(step_of(Stack([Halves() for _ in range(5)], run), torch.randn(4, 16)))


def test_layers_in_place_and_of_a_convolution() -> None:
    block = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)) for _ in range(5)]
    traced = check_equal(step_of(nn.Sequential(*block), torch.randn(2, 4, 8, 8)))
    assert [o.call.name for o in traced.operations].count("convolution") == 5


GLM: dict[str, Any] = WIDTHS | {"n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 5}
GLM |= {"n_shared_experts": 1, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1, "partial_rotary_factor": 0.5}


@pytest.mark.parametrize(
    ("family", "mode"),
    [
        *(("llama", "prefill"), ("llama", "decode"), ("gemma3_text", "prefill"), ("gemma3_text", "decode")),
        ("glm4_moe", "decode"),  # two stacks, one behind the other
    ],
)
def test_a_sweep_has_the_sums_of_layers_and_each_layer_when_it_is_asked(
    family: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    kinds = {"layer_types": ["sliding_attention", "full_attention"] * 5} if family == "gemma3_text" else {}
    config = GLM if family == "glm4_moe" else FAMILIES[family]
    path.write_text(json.dumps({"model_type": family, **config, **kinds, "num_hidden_layers": 10}))
    asked: dict[str, Any] = {"batch": [1, 3], "seq_len": 12, "mode": mode, "dtype": "bf16", "device": "h100-sxm"}
    each = rl.estimate(f"hf:{path}", **asked)
    monkeypatch.setattr(estimating, "MANY", 2)
    sums = rl.estimate(f"hf:{path}", **asked)
    assert len(sums.summed) < len(each.records)
    for (case, _, ours), (same, _, theirs) in zip(sums.split(), each.split(), strict=True):
        mine, its = ours.total(), theirs.total()
        assert case == same
        assert (mine.work, mine.bytes, mine.coverage) == (its.work, its.bytes, its.coverage)
        assert mine.seconds == pytest.approx(its.seconds, rel=1e-12)
        assert mine.predicted_seconds == pytest.approx(its.predicted_seconds, rel=1e-12)
        assert {c: s.bytes for c, s in mine.surplus.items()} == {c: s.bytes for c, s in its.surplus.items()}
        facts = [(of.memory, of.kv_cache, of.parameters, of.notes, of.phases) for of in (ours, theirs)]
        assert facts[0] == facts[1]
    assert sums.where(batch=3).records == each.where(batch=3).records
    assert (
        sums.where(batch=1, path="model.layers.5.mlp").records == each.where(batch=1, path="model.layers.5.mlp").records
    )
    both = sums + each
    assert both.cases == each.cases
    assert both.records == each.records


def test_lengths_that_lie_on_a_line_are_traced_at_its_ends_and_in_its_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", **WIDTHS}))
    asked: dict[str, Any] = {"seq_len": [20, 24, 28, 30, 33, 40, 51, 60], "mode": "decode", "device": "h100-sxm"}
    monkeypatch.setattr(estimating, "MANY", 8)
    ran: list[int] = []

    def counted(of: Any, run: Any, *, summing: bool = False) -> Any:
        ran.append(run.options.seq_len or 0)
        return of(run, summing=summing)

    plain = lengths.tracer
    monkeypatch.setattr(lengths, "tracer", lambda of: partial(counted, plain(of)))
    on_a_line = rl.estimate(f"hf:{path}", **asked)
    assert sorted(ran) == [20, 40, 41, 60]  # both ends, the middle and the length behind it
    each = on_a_line.records
    assert len(ran) == 4  # each layer's records come from the same traces
    monkeypatch.setattr(lengths, "FEWEST", 9)

    def numbers(records: Any) -> list[Any]:
        """Without modules: what they take and give is only known of lengths that were traced."""
        return [replace(record, modules=None) for record in records]

    assert numbers(on_a_line.summed) == numbers(rl.estimate(f"hf:{path}", **asked).summed)
    monkeypatch.setattr(estimating, "MANY", 9)
    assert numbers(each) == numbers(rl.estimate(f"hf:{path}", **asked).records)
