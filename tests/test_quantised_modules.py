"""What products on quantised weights of modules need: those of torchao, of transformers, and written by hand."""

from __future__ import annotations

import pytest
import torch
from benchmarks import quantised_modules
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import rooflens as rl

ROWS, INNER, OUTER = 8, 256, 384
X = torch.ones(ROWS, INNER, dtype=torch.bfloat16)
READ, WRITTEN = 2 * ROWS * INNER, 2 * ROWS * OUTER


def needed(found: rl.RecordSet) -> float:
    return sum(r.calls * r.bound_work.bytes["dram"] for r in found if r.scope == "op" and r.bound_work is not None)


class Coded(nn.Module):
    """A weight in int8 with a scale for each output, which is applied before or after the product."""

    def __init__(self, *, before: bool) -> None:
        super().__init__()
        self.before = before
        self.codes = nn.Parameter(torch.zeros(OUTER, INNER, dtype=torch.int8), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(OUTER, 1, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before:
            return x @ (self.codes.to(x.dtype) * self.scale).t()
        return (x @ self.codes.to(x.dtype).t()) * self.scale.t()


@pytest.mark.parametrize("before", [True, False])
def test_codes_are_read_as_they_are_stored(before: bool) -> None:
    found = rl.estimate(Coded(before=before), inputs=X)
    codes, scales = OUTER * INNER, 2 * OUTER
    assert needed(found) == READ + codes + scales + WRITTEN
    # As written a copy in bf16 is made and read, and scaled, or the result is read and written once more.
    copies = 2 * 2 * codes + (2 * 2 * codes if before else 2 * WRITTEN)
    written = sum(r.calls * r.work.bytes["dram"] for r in found if r.scope == "op" and r.work is not None)
    assert written == READ + codes + scales + WRITTEN + copies
    causes = {r.floor.cause for r in found if r.floor is not None}
    assert causes == {"dequantisation"}
    arithmetic = {name for r in found if r.scope == "op" and r.bound_work is not None for name in r.bound_work.flops}
    assert arithmetic == {"matmul.bf16"}  # the product dequantises as it reads, and scales as it writes
    work = found.total().work
    assert work is not None
    assert work.flops == {
        "matmul.bf16": 2 * ROWS * INNER * OUTER, "vector.fp32": codes if before else ROWS * OUTER
    }  # fmt: skip
    assert all(r.floor is None or r.floor.formula for r in found)


def test_a_wide_weight_that_is_cast_is_none_of_codes() -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(OUTER, INNER))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight.to(x.dtype).t()

    assert not [r for r in rl.estimate(Cast(), inputs=X) if r.floor is not None]


def test_what_follows_a_product_stays() -> None:
    """An activation function, and the sum with another tensor of its size, are no scaling."""
    module = Coded(before=True)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.inner(x)) + y

    found = rl.estimate(Block(), inputs=(X, torch.ones(ROWS, OUTER, dtype=torch.bfloat16)))
    assert not [r for r in found if r.floor is not None and r.name in ("relu", "add")]


def test_activations_become_codes_on_their_way() -> None:
    """With a scale for each row, as in W8A8: the product reads 16-bit activations, and codes are not written out."""

    class Dynamic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Parameter(torch.zeros(OUTER, INNER, dtype=torch.int8), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = x.abs().amax(-1, keepdim=True) / 127
            y = torch._int_mm((x / scale).round().clamp(-128, 127).to(torch.int8), self.codes.t())
            return y.to(x.dtype) * scale

    found = rl.estimate(Dynamic(), inputs=X)
    # The product writes int32; casting and scaling it takes nothing but the scales.
    assert needed(found) == READ + OUTER * INNER + 4 * ROWS * OUTER + 2 * ROWS


def test_layers_of_bitnet_read_two_bits_for_a_weight() -> None:
    pytest.importorskip("transformers.integrations.bitnet")
    found = rl.estimate(quantised_modules.bitnet(nn.Sequential(nn.Linear(INNER, OUTER, bias=False))), inputs=X)
    # Scales of the rows in bf16, the weight's own scale where both are multiplied, and that for each result.
    assert needed(found) == READ + OUTER * INNER // 4 + WRITTEN + 2 * ROWS + (2 + 2 * ROWS + 2 * ROWS)


@pytest.mark.parametrize("name", [name for name in quantised_modules.MODULES if name.startswith("torchao")])
def test_modules_of_torchao_are_as_the_option_says(name: str) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    weights, quantise = quantised_modules.MODULES[name]
    theirs = quantised_modules.of_layer(quantise(quantised_modules.layer()))
    ours = quantised_modules.of_layer(quantised_modules.layer(), weights=weights)
    assert quantised_modules.differences({"module": name, "theirs": theirs, "ours": ours}) == []


def test_the_results_of_torchao_are_as_the_option_says() -> None:
    rows = quantised_modules.read()
    assert {row["module"] for row in rows} == set(quantised_modules.MODULES)
    for row in rows:
        assert quantised_modules.differences(row) == []
        if row["of"] == "layer":
            ours = quantised_modules.of_layer(quantised_modules.layer(), weights=row["weights"])
            assert ours == row["ours"]


class _ScaledWeights(nn.Module):
    """A weight that is computed from two parameters, as weight norm and the decay of Mamba are; none is quantised."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))
        self.gain = nn.Parameter(torch.ones(8, 1))
        self.bias = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight * self.gain.exp())


@pytest.mark.parametrize("module", [_ScaledWeights(), weight_norm(nn.Linear(8, 8))])
def test_what_is_computed_from_weights_that_are_no_codes_is_no_dequantisation(module: nn.Module) -> None:
    total = rl.estimate(module, inputs=(torch.ones(4, 8),), device="t4").total()
    assert total.surplus == {}
