"""Models that are wrapped, exported, quantised or branch, and their state after a count. Right values by hand."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.counting import Calls, macs, train
from torch import Tensor, nn, randn
from torch.nn import functional as F
from torch.utils import checkpoint as checkpoints

import rooflens as rl


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


# Inputs and outputs --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Holder:
    tensor: Tensor
    rest: Any = None


@pytest.mark.parametrize("wrap", [Holder, lambda y: Holder(y, [Holder(y)]), lambda y: UserDict(y=y)])
def test_outputs_in_dataclasses_and_dicts_of_the_user(wrap: Callable[[Tensor], Any]) -> None:
    assert macs(Calls(lambda s, x: wrap(s.layer(x)), layer=linear(8, 4)), randn(3, 8)) == (96, 96)


def test_inputs_in_dataclasses_are_never_touched() -> None:
    x = randn(3, 8, requires_grad=True)

    def run(self: Any, given: Holder) -> Tensor:
        out: Tensor = self.layer(given.tensor.mul(2))
        given.tensor.data.zero_()
        return out

    assert macs(Calls(run, layer=linear(8, 4)), Holder(x)) == (96, 192)
    assert x.grad is None
    assert x.all()


# Wrappers ------------------------------------------------------------------------------------------------------------


def two() -> nn.Sequential:
    return nn.Sequential(linear(8, 8), nn.ReLU(), linear(8, 4))


TWO: tuple[float | None, float | None] = (5 * 64 + 5 * 32, 5 * 64 + 2 * 5 * 32)
"""Multiply-adds of `two` on 5 rows: backward has both weights and the second input."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_exported_programs_have_one_mode() -> None:
    program: Any = torch.export.export(two(), (randn(5, 8),)).module()
    assert macs(program, randn(5, 8)) == TWO
    # Inside of a model whose other parts do switch.
    drop = nn.Dropout(0.5).eval()
    outer: Any = nn.Sequential(program, drop)
    outer.training = False  # what outer.eval() does to this flag before the program refuses
    assert "native_dropout" in {record.name for record in train(outer, randn(5, 8))}
    assert [drop.training, outer.training] == [False, False]


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_parts(backend: str) -> None:
    product: Any = torch.compile(torch.matmul, backend=backend)
    assert macs(Calls(lambda s, x: product(x, s.w), w=randn(8, 4)), randn(5, 8)) == (160, 160)


def test_traced_graphs() -> None:
    traced: Any = torch.fx.symbolic_trace(two())
    assert macs(traced, randn(5, 8)) == TWO


def test_a_distributed_wrapper() -> None:
    dist: Any = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("no gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(two())
        assert macs(wrapped, randn(5, 8)) == TWO
        inside = nn.Sequential(wrapped, linear(4, 4))
        assert macs(inside, randn(5, 8)) == (5 * 64 + 5 * 32 + 80, 5 * 64 + 2 * 5 * 32 + 160)
    finally:
        dist.destroy_process_group()


# Control -------------------------------------------------------------------------------------------------------------


def test_a_branch_as_an_operation() -> None:
    def run(self: Any, x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, self.layer, lambda y: self.layer(self.layer(y)), (x,))

    module = Calls(run, layer=linear(8, 8))
    assert macs(module, torch.ones(5, 8)) == (320, 320)
    # The other branch runs the layer twice: two weight gradients and one input's.
    assert macs(module, -torch.ones(5, 8)) == (640, 960)


def test_loops_and_scans_as_operations() -> None:
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    def loop(self: Any, x: Tensor) -> Any:
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y @ self.w), (torch.tensor(0), x))[1]

    def scanned(self: Any, x: Tensor) -> Any:
        return scan(lambda state, y: (torch.tanh(state @ self.w + y), state.clone()), torch.zeros(3, 8), x)[0]

    # Three products, each with a weight gradient, and two (of 3; of 4 less the first) input gradients.
    assert macs(Calls(loop, w=randn(8, 8)), randn(5, 8)) == (3 * 320, 3 * 320 + 2 * 320)
    assert macs(Calls(scanned, w=randn(8, 8)), randn(4, 3, 8)) == (4 * 192, 4 * 192 + 3 * 192)


def copied(x: Tensor) -> Any:
    return x.detach().numpy().sum()


def viewed(x: Tensor) -> Any:
    return np.asarray(x.detach()).sum()


def listed(x: Tensor) -> Any:
    return x.tolist()[0][0]


@pytest.mark.parametrize("read", [copied, viewed, listed])
def test_values_read_by_numpy_and_python(read: Callable[[Tensor], Any]) -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) * float(read(x))
        return out

    found = train(Calls(run, layer=linear(8, 8)), randn(5, 8))
    assert found.total("forward").macs == 320
    assert any("run on the CPU with values" in note for note in found.notes)


def test_single_values_are_normalised() -> None:
    # Nothing to take statistics of, which torch refuses; the work before is counted all the same.
    for norm in (nn.GroupNorm(4, 4), nn.BatchNorm1d(4)):
        assert train(nn.Sequential(linear(8, 4), norm), randn(1, 8)).total("forward").macs == 32
    line = nn.Sequential(nn.Conv1d(3, 4, 8, bias=False), nn.InstanceNorm1d(4, affine=True, track_running_stats=True))
    assert train(line, randn(1, 3, 8)).total("forward").macs == 4 * 24


# Tensors of other kinds ----------------------------------------------------------------------------------------------


def test_jagged_batches_have_the_rows_that_they_hold() -> None:
    jagged = torch.nested.nested_tensor([randn(3, 8), randn(5, 8)], layout=torch.jagged)
    assert macs(Calls(lambda s, x: s.layer(x).values(), layer=linear(8, 4)), jagged) == (8 * 32, 8 * 32)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_strided_nested_tensors_have_the_rows_that_they_hold() -> None:
    """8 rows meet a matrix of 8 x 4."""
    module = Calls(lambda s, x: s.layer(x).values(), layer=linear(8, 4))
    assert macs(module, torch.nested.nested_tensor([randn(3, 8), randn(5, 8)])) == (8 * 32, 8 * 32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_quantised_layers() -> None:
    from torch.ao import quantization as ao

    dynamic = ao.quantize_dynamic(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)), {nn.Linear})
    lstm = ao.quantize_dynamic(nn.Sequential(nn.LSTM(5, 6, num_layers=2, bidirectional=True)), {nn.LSTM})
    static = nn.Sequential(ao.QuantStub(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5), ao.DeQuantStub()).eval()
    static.qconfig = ao.get_default_qconfig("x86")
    ao.prepare(static, inplace=True)
    static(randn(2, 3, 8, 8))
    ao.convert(static, inplace=True)
    right = {
        dynamic: (randn(5, 8), 5 * (8 * 16 + 16 * 4)),
        # 14 vectors, two directions, 4 x 6 gates: the first layer reads 5, the second the 12 of both, and 6 of its own.
        lstm: (randn(7, 2, 5), 14 * 2 * 24 * (5 + 6 + 12 + 6)),
        static: (randn(2, 3, 8, 8), 2 * (36 * 4 * 27 + 144 * 5)),
    }
    for module, (x, products) in right.items():
        found = rl.estimate(module, inputs=x)
        assert found.coverage.uncounted == ()
        work = found.total("forward").work
        assert work is not None
        assert work.flops["matmul.int8"] == 2 * products


# Left as found -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("values", [False, True])
def test_a_checkpointed_model_is_left_as_it_was(reentrant: bool, values: bool) -> None:
    """Backward runs the checkpointed module again, and must do so with twins of its parameters and buffers."""

    def run(self: Any, x: Tensor) -> Any:
        rows = int(x.shape[0] + 0 * x.sum()) if values else x.shape[0]
        return checkpoints.checkpoint(self.block, x[:rows], use_reentrant=reentrant)

    module = Calls(run, block=nn.Sequential(linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)))
    before = {name: (id(value), value.clone()) for name, value in module.state_dict(keep_vars=True).items()}
    versions = [p._version for p in module.parameters()]
    found = train(module, randn(5, 8, requires_grad=True))
    assert (found.total("forward").macs, found.total("backward").macs) == (320, 640)
    assert found.total("backward").recomputed_flops == 2 * 320
    after = module.state_dict(keep_vars=True)
    assert {name: id(value) for name, value in after.items()} == {name: number for name, (number, _) in before.items()}
    assert all(torch.equal(value, before[name][1]) for name, value in after.items())
    assert all(p.grad is None for p in module.parameters())
    assert [p._version for p in module.parameters()] == versions


def test_switches_that_a_model_turns_are_put_back() -> None:
    def run(self: Any, x: Tensor) -> Any:
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(True)
        torch.backends.cudnn.benchmark = True
        return self.layer(x)

    rl.estimate(Calls(run, layer=linear(8, 8)), inputs=randn(5, 8))
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    assert not torch.backends.cudnn.benchmark


def test_existing_gradients_stay() -> None:
    module = two()
    module(randn(5, 8)).sum().backward()
    before: list[Any] = [p.grad for p in module.parameters()]
    copies = [grad.clone() for grad in before]
    assert macs(module, randn(5, 8)) == TWO
    for parameter, grad, copy in zip(module.parameters(), before, copies, strict=True):
        assert id(parameter.grad) == id(grad)
        assert torch.equal(grad, copy)


# Custom gradients ----------------------------------------------------------------------------------------------------


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grad @ w.t() if ctx.needs_input_grad[0] else None, x.t() @ grad


def test_custom_functions() -> None:
    module = Calls(lambda s, x: Product.apply(Product.apply(x, s.a), s.b), a=randn(8, 8), b=randn(8, 8))
    assert macs(module, randn(5, 8)) == (640, 960)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_custom_function_in_a_checkpoint_is_recomputed(reentrant: bool) -> None:
    """Its forward runs with recording off, like every gradient, and is forward work all the same."""
    function = Calls(lambda s, x: Product.apply(x, s.w), w=randn(8, 8))
    ends = torch.tensor([2, 5], dtype=torch.int32)
    experts = Calls(lambda s, x: F.grouped_mm(x, s.w, offs=ends), w=randn(2, 8, 8))
    for block in (function, experts):
        module = Calls(lambda s, x: checkpoints.checkpoint(s.block, x, use_reentrant=reentrant), block=block)
        found = train(module, randn(5, 8, requires_grad=True))
        assert (found.total("forward").macs, found.total("backward").macs) == (320, 640)
        assert found.total("backward").recomputed_flops == 2 * 320


@pytest.mark.parametrize("bias", [False, True])
def test_rms_norm_is_one_operation_each_way(bias: bool) -> None:
    def penalty(self: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.layers(x).sum(), x, create_graph=True)
        return gradient.pow(2).sum()

    layers = nn.Sequential(nn.Linear(8, 8, bias=bias), nn.RMSNorm(8))
    kinds = [record.name for record in train(layers, randn(5, 8)) if "rms" in record.name]
    assert kinds == ["_fused_rms_norm", "_fused_rms_norm_backward"]
    # Differentiated twice its parts are seen: forward, back to x; then the layer's weight on both ways.
    found = train(Calls(penalty, layers=layers), randn(5, 8))
    assert found.coverage.uncounted == ()
    assert found.total("forward").macs == 640


@pytest.mark.parametrize("selective", [False, True])
def test_nested_and_selective_checkpoints(selective: bool) -> None:
    saved = [torch.ops.aten.mm.default]

    def run(self: Any, x: Tensor) -> Any:
        def inner(y: Tensor) -> Any:
            return checkpoints.checkpoint(self.b, torch.tanh(self.a(y)), use_reentrant=False)

        def outer(y: Tensor) -> Tensor:
            out: Tensor = self.b(torch.tanh(self.a(y))) if selective else inner(y)
            return out.sin()

        def contexts() -> Any:
            return checkpoints.create_selective_checkpoint_contexts(saved)

        context: dict[str, Any] = {"context_fn": contexts} if selective else {}
        return checkpoints.checkpoint(outer, x, use_reentrant=False, **context)

    found = train(Calls(run, a=linear(8, 8), b=linear(8, 8)), randn(5, 8))
    assert (found.total("forward").macs, found.total("backward").macs) == (640, 960)
    # What the policy keeps is not computed again.
    assert (found.total("backward").recomputed_flops == 0) is selective


@pytest.mark.parametrize(
    ("function", "forward"),
    [
        # Forward 160 and back to the input 160.
        (lambda s, x: torch.func.grad(lambda y: torch.tanh(y @ s.w).sum())(x), 320),
        # One row of each result: 32, and 4 times back through 8 x 4.
        (lambda s, x: torch.func.jacrev(lambda y: y @ s.w)(x[0]), 32 + 4 * 32),
        # A gradient of the weights for every one of 5 rows: 160 and 160.
        (lambda s, x: torch.func.vmap(torch.func.grad(lambda w, r: (r @ w).sum()), (None, 0))(s.w, x), 320),
        # Attention is taken apart under a transform: 25 pairs x 16, and back twice that.
        (lambda s, x: torch.func.grad(lambda y: F.scaled_dot_product_attention(y, y, y).sum())(x), 3 * 25 * 16),
    ],
)
def test_function_transforms(function: Callable[..., Any], forward: int) -> None:
    found = rl.estimate(Calls(function, w=randn(8, 4)), inputs=randn(5, 8))
    assert found.coverage.uncounted == ()
    assert found.total("forward").macs == forward


def test_attention_under_vmap_keeps_its_gradient() -> None:
    attend = Calls(lambda s, x: torch.vmap(lambda y: F.scaled_dot_product_attention(s.q(y), y, y))(x), q=linear(8, 8))
    layer, attention = 30 * 64, 3 * 2 * 25 * 16
    assert macs(attend, randn(3, 2, 5, 8)) == (layer + attention, layer + attention)
