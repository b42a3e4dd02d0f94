"""Traffic of operations that share a kernel, against sums by hand. All tensors here are fp32: 4 bytes an element."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.errors import InvalidValue


def dram(module: nn.Module, *inputs: torch.Tensor, mode: str = "inference", **options: Any) -> dict[str, float]:
    """DRAM bytes by phase."""
    est = rl.estimate(module, inputs=inputs, mode=mode, optimizer="none", **options)
    return {phase: est.total(phase).bytes["dram"] for phase in est.phases}


class Chain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1)


def test_a_chain_reads_its_input_and_writes_its_result() -> None:
    x = torch.randn(1000)
    assert dram(Chain(), x) == {"forward": 3 * 2 * 4000}
    assert dram(Chain(), x, fusion="pointwise") == {"forward": 2 * 4000}


@pytest.mark.parametrize("options", [{"fusion": "pointwise"}, {"compile": True}, {}])
def test_pieces_take_together_what_their_step_takes_on_the_device(options: dict[str, Any]) -> None:
    """Fused calls share a start and skip bytes, in a step as in its operations and families."""
    step = rl.estimate(Chain(), inputs=(torch.randn(1000, 1000),), device="h200", **options)
    whole = step.total().prediction
    assert whole is not None
    for level in ("op", "family"):
        each = [group.total.predicted_seconds for group in step.by(level)]
        assert sum(filter(None, each)) == pytest.approx(whole.device)


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y + x


def test_a_value_that_leaves_the_group_is_written_and_one_input_is_read_once() -> None:
    # x in, both results out; y is not read again.
    assert dram(Branches(), torch.randn(1000), fusion="pointwise") == {"forward": 3 * 4000}


class Around(nn.Module):
    """The sum needs the product, which needs the first part: the two parts cannot be one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        z: torch.Tensor = self.layer(y) + y
        return z


def test_a_group_is_not_joined_through_an_operation_outside_of_it() -> None:
    x = torch.randn(32, 64)
    size, weight = 32 * 64 * 4, 64 * 64 * 4
    # ReLU: in, out. Product: in, weight, out. Sum: two in, one out. Nothing can be fused.
    expected = {"forward": 2 * size + (2 * size + weight) + 3 * size}
    assert dram(Around(), x) == expected
    assert dram(Around(), x, fusion="pointwise") == expected


def test_what_is_saved_for_backward_is_written() -> None:
    x = torch.randn(1000, requires_grad=True)

    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(torch.exp(x))

    fused = dram(Twice(), x, mode="train", fusion="pointwise")
    # exp's result is saved twice over (for its own gradient and for the sine's), the sine's is the model's output and
    # goes into the loss, one number: x in, both out.
    assert fused["forward"] == 3 * 4000 + 4


def test_casts_and_dropout_and_normalisation_join() -> None:
    module = nn.Sequential(nn.GELU(), nn.LayerNorm(256, elementwise_affine=False), nn.ReLU())
    size = 64 * 256 * 4
    statistics = 2 * 64 * 4  # a mean and an inverse deviation per row leave the normalisation
    eager = dram(module, torch.randn(64, 256))["forward"]
    assert eager == 3 * 2 * size + statistics
    assert dram(module, torch.randn(64, 256), fusion="pointwise")["forward"] in (2 * size, 2 * size + statistics)


def test_one_group_holds_one_normalisation() -> None:
    module = nn.Sequential(*(nn.LayerNorm(256, elementwise_affine=False) for _ in range(2)))
    # Each has to see a whole row before it can write: two passes, the row between them in memory.
    fused = dram(module, torch.randn(64, 256), fusion="pointwise")["forward"]
    assert fused >= 4 * 64 * 256 * 4


class WrittenOut(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(q @ k.transpose(-1, -2) * 0.125, dim=-1)
        return weights @ v


@pytest.fixture
def heads() -> list[torch.Tensor]:
    return [torch.randn(2, 4, 256, 64, requires_grad=True) for _ in range(3)]


def test_attention_written_out_moves_its_operands_and_its_result(heads: list[torch.Tensor]) -> None:
    one, matrix = 2 * 4 * 256 * 64 * 4, 2 * 4 * 256 * 256 * 4
    eager = dram(WrittenOut(), *heads)["forward"]
    # Scores: q, k in, matrix out. Scale and softmax: in, out each. Second product: matrix and v in, result out.
    assert eager == (2 * one + matrix) + 2 * 2 * matrix + (matrix + 2 * one)
    assert dram(WrittenOut(), *heads, fusion="pointwise")["forward"] == eager - 2 * matrix
    assert dram(WrittenOut(), *heads, fusion="attention")["forward"] == 4 * one


def test_attention_written_out_keeps_its_matrix_on_the_chip_in_backward_too(heads: list[torch.Tensor]) -> None:
    one = 2 * 4 * 256 * 64 * 4
    fused = dram(WrittenOut(), *heads, mode="train", fusion="attention")
    assert fused["forward"] == 4 * one + one + 4  # and the loss, which reads the result
    # q, k, v in, three gradients out (the incoming one is a single number, expanded), and what accumulates them.
    assert fused["backward"] < 9 * one


def test_a_product_and_a_softmax_alone_are_no_attention() -> None:
    class Router(nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.softmax(torch.bmm(x, w), dim=-1)

    x, w = torch.randn(2, 64, 32), torch.randn(2, 32, 16)
    assert dram(Router(), x, w, fusion="attention") == dram(Router(), x, w, fusion="pointwise")


@pytest.mark.parametrize("model", ["resnet18", "vit_b_16"])
def test_fusion_never_adds_traffic_and_never_changes_work(model: str) -> None:
    none, pointwise, attention = (
        rl.estimate(model, batch=2, mode="train", fusion=fusion) for fusion in ("none", "pointwise", "attention")
    )
    for phase in ("forward", "backward", "optimizer"):
        totals = [est.total(phase) for est in (none, pointwise, attention)]
        assert totals[0].bytes["dram"] >= totals[1].bytes["dram"] >= totals[2].bytes["dram"] > 0
        assert len({total.flops for total in totals}) == 1
    assert dict(pointwise.cases[0].options) == {"fusion": "pointwise"}
    assert none.cases[0].options == ()


def test_unknown_fusion_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="unknown fusion 'all'; known: none, pointwise, attention"):
        rl.estimate("alexnet", fusion="all")  # type: ignore[arg-type]


def test_weights_inputs_and_outputs_are_told_apart() -> None:
    module = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 8), nn.ReLU(inplace=True))
    est = rl.estimate(module, inputs=torch.zeros(3, 5, dtype=torch.int64))
    traffic = {r.name: r.traffic for r in est if r.traffic is not None}
    rows = 3 * 5
    # 15 of the 1000 rows are fetched; indices are 8 bytes.
    assert traffic["embedding"] == rl_traffic(weights=rows * 64 * 4, inputs=rows * 8, outputs=rows * 64 * 4)
    # The bias is a weight too.
    assert traffic["addmm"] == rl_traffic(weights=(64 * 8 + 8) * 4, inputs=rows * 64 * 4, outputs=rows * 8 * 4)
    assert traffic["relu_"] == rl_traffic(weights=0, inputs=rows * 8 * 4, outputs=rows * 8 * 4)


def rl_traffic(**parts: float) -> Any:
    from rooflens.records import Traffic

    return Traffic(**parts)


def test_traffic_adds_up_to_the_works_bytes() -> None:
    for fusion in ("none", "attention"):
        est = rl.estimate("swin_t", batch=2, mode="train", fusion=fusion)
        for record in est:
            if record.work is not None and record.traffic is not None:
                parts = record.traffic
                assert parts.weights + parts.inputs + parts.outputs == record.work.bytes["dram"]
                assert min(parts.weights, parts.inputs, parts.outputs) >= 0
