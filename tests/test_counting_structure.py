"""How layers are put together: what runs twice, never, elsewhere or again. Right values by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from tests.counting import Calls, macs, train
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import rooflens as rl
from rooflens.errors import DataDependent


def test_a_layer_that_runs_four_times() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        for _ in range(4):
            x = self.layer(x)
        return x

    once = 5 * 8 * 8
    module = Calls(run, layer=nn.Linear(8, 8, bias=False))
    # Four weight gradients, three input gradients.
    assert macs(module, torch.randn(5, 8)) == (4 * once, 7 * once)
    assert train(module, torch.randn(5, 8)).parameters == 64


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle = nn.Embedding(50, 8), nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.middle(self.table(ids)))
        return out


def test_tied_weights_are_stored_once_and_used_twice() -> None:
    ids = torch.zeros(2, 6, dtype=torch.long)
    forward = 12 * (8 * 8 + 8 * 50)  # looking up is no product
    assert macs(Tied(), ids) == (forward, 2 * forward)
    assert train(Tied(), ids).parameters == 50 * 8 + 8 * 8


def test_modules_that_never_run_have_parameters_and_no_work() -> None:
    module = Calls(lambda s, x: s.used(x), used=nn.Linear(8, 4), spare=nn.ModuleList([nn.Linear(8, 100)]))
    found = train(module, torch.randn(3, 8))
    assert (found.total("forward").macs, found.total("backward").macs) == (3 * 8 * 4, 3 * 8 * 4)
    assert found.parameters == 8 * 4 + 4 + 8 * 100 + 100
    assert not any(group.key.startswith("spare") for group in found.by("module"))


def test_nested_containers_count_each_layer_once() -> None:
    layers = [nn.Linear(8, 8, bias=False) for _ in range(3)]
    nested = nn.Sequential(nn.Sequential(nn.Sequential(layers[0]), layers[1]), layers[2])
    once = 5 * 64
    assert macs(nested, torch.randn(5, 8)) == (3 * once, 5 * once)
    assert [g.key for g in rl.estimate(nested, inputs=torch.randn(5, 8)).by("module")] == ["0.0.0", "0.1", "1"]


def test_parameters_of_the_root() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        out: Tensor = self.layer(tokens * self.scales[0])
        return out

    scales = nn.ParameterList([nn.Parameter(torch.ones(8))])
    module = Calls(run, token=torch.zeros(1, 1, 8), places=torch.zeros(1, 7, 8), layer=nn.Linear(8, 8), scales=scales)
    once = 3 * 7 * 64
    # The token needs a gradient, so the layer's input does.
    assert macs(module, torch.randn(3, 6, 8)) == (once, 2 * once)
    assert train(module, torch.randn(3, 6, 8)).parameters == 8 + 56 + 72 + 8


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head, self.extra = (nn.Linear(8, width, bias=False) for width in (8, 3, 20))

    def forward(self, x: Tensor) -> Any:
        x = self.trunk(x)
        return (self.head(x), self.extra(x)) if self.training else self.head(x)


def test_a_head_that_only_trains() -> None:
    module, x = TwoHeads(), torch.randn(5, 8)
    assert rl.estimate(module, inputs=x).total("forward").macs == 5 * (64 + 24)
    assert train(module, x).total("forward").macs == 5 * (64 + 24 + 160)


def test_batch_norm_with_a_batch_of_one_in_training() -> None:
    layers = nn.Sequential(nn.Linear(6, 10, bias=False), nn.BatchNorm1d(10), nn.Linear(10, 4, bias=False)).train()
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    found = train(layers, torch.randn(1, 6))
    assert found.total("forward").macs == 60 + 40
    assert found.total("backward").macs == 60 + 2 * 40
    assert layers.training
    assert all(torch.equal(value, before[name]) for name, value in layers.state_dict().items())
    assert all(p.grad is None for p in layers.parameters())


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 4))


# 3 rows; backward has both weights and the second input.
LAYERS = (3 * (60 + 40), 3 * (60 + 2 * 40))


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_compiled_model_costs_what_it_did() -> None:
    compiled: Any = torch.compile(layers(), backend="eager")
    assert macs(compiled, torch.randn(3, 6)) == LAYERS


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_compiled_model_keeps_the_names_of_its_layers() -> None:
    compiled: Any = torch.compile(layers(), backend="eager")
    assert [g.key for g in rl.estimate(compiled, inputs=torch.randn(3, 6)).by("module")] == ["0", "1", "2"]


def test_data_parallel_inside_a_model() -> None:
    found = macs(nn.Sequential(nn.DataParallel(layers()), nn.Linear(4, 2)), torch.randn(3, 6))
    # One more layer of 4 x 2 with both gradients.
    assert found == (LAYERS[0] + 3 * 8, LAYERS[1] + 2 * 3 * 8)


def test_data_parallel_around_a_model() -> None:
    assert macs(nn.DataParallel(layers()), torch.randn(3, 6)) == LAYERS


def test_a_model_larger_than_memory() -> None:
    # 6 x 20480^2 = 2.5e9 parameters on meta, 1000 tokens.
    layers = nn.Sequential(*(nn.Linear(20480, 20480, bias=False, device="meta") for _ in range(6)))
    found = rl.estimate(layers, inputs=torch.empty(1000, 20480, device="meta"))
    assert found.parameters == 6 * 20480**2
    assert found.total("forward").macs == 1000 * 6 * 20480**2


def test_frozen_weights_have_no_gradient() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        x = self.first(x)
        out: Tensor = self.last(self.base(x) + self.up(self.down(x)))
        return out

    parts = {"first": (16, 16), "base": (16, 16), "last": (16, 16), "down": (16, 2), "up": (2, 16)}
    module = Calls(run, **{name: nn.Linear(*shape, bias=False) for name, shape in parts.items()})
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith(("up", "down")))
    wide, narrow = 10 * 256, 10 * 32
    # Back through `last` to its input; weight and input of `up`, weight of `down`: nothing for what is frozen.
    assert macs(module, torch.randn(10, 16)) == (3 * wide + 2 * narrow, wide + 3 * narrow)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_work_stands_apart(reentrant: bool) -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return x

    blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU()) for _ in range(2))
    found = train(Calls(run, blocks=blocks), torch.randn(5, 8, requires_grad=True))
    once = 5 * 64
    assert found.total("forward").macs == 2 * once
    # Two weights and two inputs; both layers once more.
    assert found.total("backward").macs == 4 * once
    assert found.total("backward").recomputed_flops == 2 * 2 * once


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_attention_is_recomputed_as_one_operation(reentrant: bool) -> None:
    def run(self: Any, x: Tensor) -> Any:
        return checkpoint(lambda y: F.scaled_dot_product_attention(y, y, y), self.layer(x), use_reentrant=reentrant)

    found = train(Calls(run, layer=nn.Linear(8, 8, bias=False)), torch.randn(1, 5, 8))
    layer, attention = 5 * 64, 2 * 25 * 8
    assert found.coverage.uncounted == ()
    assert found.total("backward").macs == layer + 2 * attention
    assert found.total("backward").recomputed_flops == 2 * attention


def test_16_bit_models() -> None:
    layer = nn.Linear(64, 32, bias=False, dtype=torch.bfloat16)
    total = rl.estimate(layer, inputs=torch.randn(8, 64, dtype=torch.bfloat16)).total("forward")
    assert total.work is not None
    assert total.work.flops == {"matmul.bf16": 2 * 8 * 64 * 32}
    # Input, weights and output once, 2 bytes each.
    assert total.bytes == {"dram": 2 * (8 * 64 + 64 * 32 + 8 * 32)}


# Values decide -------------------------------------------------------------------------------------------------------


def loop(self: Any, x: Tensor, n: Tensor) -> Tensor:
    for _ in range(int(n)):
        x = self.layer(x)
    return x


def test_a_loop_whose_length_is_a_value() -> None:
    module = Calls(loop, layer=nn.Linear(8, 8, bias=False))
    once = 2 * 64
    assert macs(module, torch.randn(2, 8), torch.tensor(4)) == (4 * once, 7 * once)
    # The reader is told that the model was run, and why.
    (note,) = train(module, torch.randn(2, 8), torch.tensor(4)).notes
    assert re.search(r"_local_scalar_dense.*depends on values.*run on the CPU", note)


class Experts(nn.Module):
    """Each token goes to 2 of 6 experts, which are called with the tokens that chose them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 6, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).topk(2, dim=-1).indices
        out = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            rows = (chosen == n).any(dim=-1).nonzero().squeeze(-1)
            out = out.index_add(0, rows, expert(x[rows]))
        return out


def test_experts_are_counted_for_the_tokens_that_chose_them() -> None:
    found = rl.estimate(Experts(), inputs=torch.randn(20, 8))
    assert found.total("forward").macs == 20 * 8 * 6 + 20 * 2 * 64
    assert found.parameters == 48 + 6 * 64


def test_values_of_a_model_that_does_not_fit_are_refused_by_name() -> None:
    # Weights of 4 TB on meta: counted where shapes suffice, refused where a value decides: they and their copy.
    module = Calls(loop, layer=nn.Linear(10**6, 10**6, bias=False, device="meta"))
    with pytest.raises(DataDependent, match=r"Calls.*_local_scalar_dense.*depends on values.*8.* TB"):
        rl.estimate(module, inputs=(torch.empty(1, 10**6), torch.tensor(2)))
