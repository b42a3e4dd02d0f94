"""Optimizers in one kernel, and what autocast does as on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.counting import Calls
from torch import Tensor, nn, randn
from torch.nn import functional as F

import rooflens as rl
from rooflens.costs import cost
from rooflens.models import Step, sum_of_outputs
from rooflens.trace import trace

WEIGHTS = 8 * 4


def update(optimizer: str, *, fused: bool, scaled: bool = False) -> list[Any]:
    step = Step(
        name="layer",
        module=nn.Linear(8, 4, bias=False),
        args=(randn(3, 8),),
        mode="train",
        loss=sum_of_outputs,
        optimizer=optimizer,
        fused=fused,
        autocast=torch.float16 if scaled else None,
    )
    return [operation.call for operation in trace(step).operations if operation.phase == "optimizer"]


@pytest.mark.parametrize(
    ("optimizer", "vector", "special", "numbers"),
    [
        # weight decay, momentum and update, 2 each; p, g and b are read, p and b written.
        ("sgd", 6, 0, 3 + 2),
        # m: 3, v: 4, sqrt(v) / c + eps: 2 and a root, p - lr m / d: 3; p, g, m, v read, p, m, v written.
        ("adam", 12, 1, 4 + 3),
        ("adamw", 13, 1, 4 + 3),  # p (1 - lr decay)
    ],
)
def test_fused_optimizers_do_the_same_work_in_one_kernel(
    optimizer: str, vector: int, special: int, numbers: int
) -> None:
    (kernel,) = update(optimizer, fused=True)
    work = cost(kernel).work
    assert work.missing == frozenset()
    assert work.flops == {"vector.fp32": vector * WEIGHTS} | ({"special.fp32": special * WEIGHTS} if special else {})
    steps = 4 if optimizer != "sgd" else 0  # Adam's count of steps
    assert work.bytes == {"dram": 4 * numbers * WEIGHTS + steps}
    one_at_a_time = [cost(call).work for call in update(optimizer, fused=False)]
    assert sum(w.flops.get("vector.fp32", 0) for w in one_at_a_time) == vector * WEIGHTS
    assert sum(w.bytes["dram"] for w in one_at_a_time) > work.bytes["dram"]


def test_a_fused_optimizer_takes_the_scale_from_the_gradients() -> None:
    check, kernel = update("adam", fused=True, scaled=True)
    assert check.name == "_amp_foreach_non_finite_check_and_unscale_"
    assert cost(kernel).work.flops["vector.fp32"] == 13 * WEIGHTS


# Autocast ------------------------------------------------------------------------------------------------------------


def results(function: Callable[..., Any], *inputs: Tensor) -> dict[str, str]:
    """The element type of the last result of each operation under autocast."""
    found = rl.estimate(Calls(lambda s, *x: function(*x)), inputs=inputs, dtype="amp-bf16")
    return {r.name: r.call.outputs[0].dtype for r in found if r.call is not None and r.name != "_to_copy"}


@pytest.mark.parametrize(
    ("name", "function", "shapes"),
    [
        ("mv", torch.mv, [(4, 4), (4,)]),
        ("addmv", torch.addmv, [(4,), (4, 4), (4,)]),
        ("addr", torch.addr, [(4, 4), (4,), (4,)]),
        ("bmm", lambda a, b: torch.einsum("ij,jk->ik", a, b), [(4, 4), (4, 4)]),
        ("baddbmm", torch.baddbmm, [(2, 4, 4), (2, 4, 4), (2, 4, 4)]),
        ("convolution", F.conv_transpose1d, [(2, 4, 4), (4, 4, 2)]),
        ("mm", lambda a, b: torch.linalg.multi_dot([a, b, a]), [(4, 4), (4, 4)]),
        ("attention", F.scaled_dot_product_attention, [(2, 4, 4), (2, 4, 4), (2, 4, 4)]),
    ],
)
def test_products_go_down(name: str, function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> None:
    assert results(function, *map(randn, shapes))[name] == "bf16"


@pytest.mark.parametrize(
    ("name", "function", "shapes"),
    [
        ("dot", torch.dot, [(4,), (4,)]),
        ("mm", lambda a, b: torch.tensordot(a, b, 1), [(4, 4), (4, 4)]),
        ("_trilinear", F.bilinear, [(2, 4), (2, 4), (3, 4, 4)]),
    ],
)
def test_what_takes_the_widest_type_stays(
    name: str, function: Callable[..., Any], shapes: list[tuple[int, ...]]
) -> None:
    assert results(function, *map(randn, shapes))[name] == "fp32"


LAYER = nn.Linear(4, 4, bias=False)


@pytest.mark.parametrize(
    "after",
    [
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.rms_norm(x, (4,)),
        lambda x: x.softmax(-1),
        lambda x: x.prod(),
        lambda x: x.cumsum(0),
        torch.linalg.vector_norm,
        lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
        lambda x: F.smooth_l1_loss(x, x),
        lambda x: F.kl_div(x, x, reduction="batchmean"),
        lambda x: torch.cdist(x, x),
        lambda x: torch.zeros(4, 4).scatter_add(0, torch.zeros(4, 4, dtype=torch.int64), x),
    ],
)
def test_what_cuda_brings_up(after: Callable[[Tensor], Tensor]) -> None:
    assert list(results(lambda x: after(LAYER(x)), randn(4, 4)).values())[-1] == "fp32"


@pytest.mark.parametrize(
    "after",
    [
        lambda x: F.avg_pool3d(x.expand(4, 4, 4, 4), 2),
        lambda x: F.adaptive_avg_pool3d(x.expand(4, 4, 4, 4), 2),
        lambda x: F.pad(x[None, None], (1, 1, 1, 1), mode="replicate"),
        lambda x: F.interpolate(x[None, None], size=(2, 2), mode="area"),
        F.gelu,
    ],
)
def test_what_cuda_leaves(after: Callable[[Tensor], Tensor]) -> None:
    assert list(results(lambda x: after(LAYER(x)), randn(4, 4)).values())[-1] == "bf16"


class _Steps(nn.Module):
    """Goes on as long as its state is small, which its weights decide."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(4, 4, bias=False)
        nn.init.constant_(self.step.weight, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = self.step(x)  # each element becomes 4 x 0.5 times as large
            if not bool(x.max() < 7):
                break
        return x


class _Routed(nn.Module):
    """Each expert gets the rows that the router's weights send to it, and raises where a row is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(2, 2, bias=False)
        self.experts = nn.ModuleList([nn.Linear(2, 8), nn.Linear(2, 16)])
        with torch.no_grad():
            self.router.weight.copy_(torch.eye(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.router(x)
        assert torch.isfinite(scores).all()
        results: list[torch.Tensor] = [expert(x[scores.argmax(1) == i]) for i, expert in enumerate(self.experts)]
        return torch.stack([scores.sum(), *(result.sum() for result in results)])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_the_optimizer_has_not_moved_the_weights_that_decide_what_runs(optimizer: str) -> None:
    # Memory that was freed full of numbers that are none is what new tensors get.
    rubbish = [torch.full((64,), torch.nan) for _ in range(200)]
    del rubbish
    # From 1 to 2, 4 and 8: three products of 3 x 4 by 4 x 4. Backward: the weight three times, the input twice.
    steps = rl.estimate(_Steps(), inputs=torch.ones(3, 4), mode="train", optimizer=optimizer)
    assert steps.total("forward").macs == 3 * 48
    assert steps.total("backward").macs == 5 * 48
    # Five rows to the first expert, two to the second, all through the router.
    rows = torch.tensor([[2.0, 1.0]] * 5 + [[1.0, 2.0]] * 2)
    routed = rl.estimate(_Routed(), inputs=rows, mode="train", optimizer=optimizer)
    assert routed.total("forward").macs == 7 * 4 + 5 * 16 + 2 * 32
    assert routed.total("backward").macs == 7 * 4 + 5 * 16 + 2 * 32
