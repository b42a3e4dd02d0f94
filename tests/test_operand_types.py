"""Operands of several types end a step where they end it in torch: fake tensors take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rooflens as rl
from rooflens.errors import ModelError

Sized = Callable[..., Tensor]


def half(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bfloat16)


def full(*shape: int) -> Tensor:
    return torch.ones(shape)


PLACES = torch.tensor([1, 2])
MIXED: dict[str, Callable[[Sized, Sized], Any]] = {
    "mm": lambda a, b: torch.mm(a(4, 4), b(4, 4)),
    "matmul": lambda a, b: a(2, 3, 4) @ b(4, 4),
    "addmm": lambda a, b: torch.addmm(a(4), a(4, 4), b(4, 4)),
    "addmm: the addend": lambda a, b: torch.addmm(b(4), a(4, 4), a(4, 4)),
    "linear": lambda a, b: F.linear(a(2, 3, 4), b(4, 4)),
    "linear with a bias": lambda a, b: F.linear(a(2, 3, 4), b(4, 4), b(4)),
    "linear: the bias": lambda a, b: F.linear(a(3, 4), a(4, 4), b(4)),
    "bmm": lambda a, b: torch.bmm(a(2, 4, 4), b(2, 4, 4)),
    "baddbmm": lambda a, b: torch.baddbmm(b(2, 4, 4), a(2, 4, 4), a(2, 4, 4)),
    "mv": lambda a, b: torch.mv(a(4, 4), b(4)),
    "addmv": lambda a, b: torch.addmv(b(4), a(4, 4), a(4)),
    "dot": lambda a, b: torch.dot(a(4), b(4)),
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a(4, 4), b(4, 4)),
    "conv2d": lambda a, b: F.conv2d(a(1, 2, 4, 4), b(2, 2, 3, 3)),
    "conv1d: the bias": lambda a, b: F.conv1d(a(1, 2, 4), a(2, 2, 3), b(2)),
    "conv_transpose2d": lambda a, b: F.conv_transpose2d(a(1, 2, 4, 4), b(2, 2, 3, 3)),
    "attention": lambda a, b: F.scaled_dot_product_attention(a(1, 1, 4, 8), b(1, 1, 4, 8), b(1, 1, 4, 8)),
    "attention: the value": lambda a, b: F.scaled_dot_product_attention(a(1, 1, 4, 8), a(1, 1, 4, 8), b(1, 1, 4, 8)),
    "multi-head attention": lambda a, b: nn.MultiheadAttention(8, 2, dtype=b(1).dtype)(*[a(3, 1, 8)] * 3),
    "lstm": lambda a, b: nn.LSTM(4, 4, dtype=b(1).dtype)(a(3, 2, 4)),
    "gru": lambda a, b: nn.GRU(4, 4, dtype=b(1).dtype)(a(3, 2, 4)),
    "gru: the state": lambda a, b: nn.GRU(4, 4, dtype=a(1).dtype)(a(3, 2, 4), b(1, 2, 4)),
    "lstm cell": lambda a, b: nn.LSTMCell(4, 4, dtype=b(1).dtype)(a(3, 4)),
    "grouped_mm": lambda a, b: torch._grouped_mm(a(4, 16), b(2, 16, 8), offs=torch.tensor([2, 4], dtype=torch.int32)),
    "index_add": lambda a, b: a(4, 4).index_add(0, PLACES, b(2, 4)),
    "index_put": lambda a, b: a(4, 4).index_put((PLACES,), b(2, 4)),
    "embedding_bag": lambda a, b: F.embedding_bag(PLACES[None], a(4, 4), per_sample_weights=b(1, 2), mode="sum"),
    "grid_sample": lambda a, b: F.grid_sample(a(1, 1, 4, 4), b(1, 2, 2, 2), align_corners=False),
    "bilinear": lambda a, b: F.bilinear(a(3, 4), b(3, 4), a(2, 4, 4)),
}
ALLOWED: dict[str, Callable[[Sized, Sized], Any]] = {
    "attention: a mask": lambda a, b: F.scaled_dot_product_attention(
        a(1, 1, 4, 8), a(1, 1, 4, 8), a(1, 1, 4, 8), b(4, 4)
    ),
    "arithmetic": lambda a, b: torch.where(a(3) > 0, a(3) * b(3), b(3)),
    "layer norm": lambda a, b: F.layer_norm(a(3, 4), (4,), b(4), b(4)),
    "copy": lambda a, b: a(4, 4)[1:2].copy_(b(1, 4)),
}


class Runs(nn.Module):
    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        self.function()
        return x + 1


@pytest.mark.parametrize(("first", "second"), [(half, full), (full, half)], ids=["bf16 first", "fp32 first"])
@pytest.mark.parametrize("name", MIXED)
def test_operands_of_two_types_end_the_step_as_in_torch(name: str, first: Sized, second: Sized) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        MIXED[name](first, second)
    with pytest.raises(ModelError, match=r"RuntimeError|ValueError"):
        rl.estimate(Runs(lambda: MIXED[name](first, second)), inputs=torch.ones(1))


@pytest.mark.parametrize("name", ALLOWED)
def test_types_that_torch_joins_are_counted(name: str) -> None:
    ALLOWED[name](half, full)
    assert rl.estimate(Runs(lambda: ALLOWED[name](half, full)), inputs=torch.ones(1)).coverage.operations > 1


@pytest.mark.parametrize("name", [name for name in MIXED if name not in ("dot", "lstm cell")])
def test_operands_of_one_type_are_counted(name: str) -> None:
    assert rl.estimate(Runs(lambda: MIXED[name](full, full)), inputs=torch.ones(1)).coverage.operations > 1


def test_a_model_that_makes_fp32_tensors_of_its_own_does_not_run_in_bf16() -> None:
    # An encoding whose frequencies are fp32 whatever the model's type, as many radiance fields have it.
    class Encoded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(12, 4)

        def forward(self, x: Tensor) -> Tensor:
            angles = x[..., None] * 2.0 ** torch.arange(2)
            first: Tensor = self.first(torch.cat([angles.sin(), angles.cos()], -1).flatten(-2))
            return first

    module, x = Encoded(), torch.ones(5, 3)
    # 5 rows of 3 x 2 x 2 = 12 numbers meet a 12 x 4 matrix.
    assert rl.estimate(module, inputs=x, dtype="fp32").total("forward").macs == 5 * 12 * 4
    with pytest.raises(RuntimeError, match="same dtype"):
        module.bfloat16()(x.bfloat16())
    message = "in module 'first': operands of addmm have to be of one type, not self torch.bfloat16, mat1 torch.float32"
    with pytest.raises(ModelError, match=message):
        rl.estimate(module, inputs=x, dtype="bf16")
    # Autocast casts, so it runs there.
    assert rl.estimate(module, inputs=x, dtype="amp-bf16").total("forward").macs == 240
