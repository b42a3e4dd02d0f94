"""Formulas of custom operators: registered by a script or a package, counted like those of rooflens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.test_readers import distribution, run
from torch import Tensor, nn

import rooflens as rl
from rooflens.costs import register_operation
from rooflens.costs.profiler_names import is_known, short
from rooflens.costs.registry import ENTRIES, Uncounted
from rooflens.errors import InvalidValue

BATCH, IN, OUT = 5, 7, 3
PRODUCT = 2 * BATCH * IN * OUT


@torch.library.custom_op("rooflens_tests::product", mutates_args=())
def product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


@product.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


@torch.library.custom_op("rooflens_tests::product_backward", mutates_args=())
def product_backward(gradient: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    return gradient @ right.T, left.T @ gradient


@product_backward.register_fake
def _(gradient: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(left), torch.empty_like(right)


def _backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    gradients: tuple[Tensor, Tensor] = product_backward(gradient, *context.saved_tensors)
    return gradients


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


product.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("rooflens_tests::convolution_like", mutates_args=())
def convolution_like(x: Tensor, stride: int) -> Tensor:
    return x[::stride].clone()


@convolution_like.register_fake
def _(x: Tensor, stride: int) -> Tensor:
    return torch.empty_like(x[::stride])


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(IN, OUT))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = product(x, self.weight)
        return result


class Checkpointed(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=False)


def counted(module: nn.Module) -> rl.RecordSet:
    return rl.estimate(module, inputs=torch.empty(BATCH, IN, requires_grad=True), mode="train", optimizer="none")


def forward(call: rl.Call) -> rl.Demand:
    (m, k), (_, n) = call.tensor("left").shape, call.tensor("right").shape
    return rl.Demand(flops={"matmul.fp32": 2 * m * k * n})


def backward(call: rl.Call) -> rl.Demand:
    (m, n), (_, k) = call.tensor("gradient").shape, call.tensor("left").shape
    return rl.Demand(flops={"matmul.fp32": 2 * 2 * m * k * n})


def test_a_custom_operator_counts_once_its_formula_is_registered() -> None:
    before = counted(Layer())
    assert set(before.coverage.uncounted) == {"product", "product_backward"}
    rl.register_operation("rooflens_tests::product", family="matmul")(forward)
    rl.register_operation("rooflens_tests::product_backward", family="matmul")(backward)
    after = counted(Layer())
    assert after.coverage.uncounted == ()
    assert after.total("forward").matmul_flops == PRODUCT
    assert after.total("backward").matmul_flops == 2 * PRODUCT  # without the loss, which is a sum
    names = {r.name: (r.kind, r.phase) for r in after if r.scope == "op" and "::" in r.name}
    assert names == {
        "rooflens_tests::product": ("matmul", "forward"),
        "rooflens_tests::product_backward": ("matmul", "backward"),
    }
    # forward: x and weight in, the product out; all are fp32
    (record,) = (r for r in after if r.name == "rooflens_tests::product")
    assert record.work is not None
    assert record.work.bytes == {"dram": 4 * (BATCH * IN + IN * OUT + BATCH * OUT)}


def test_bytes_of_a_formula_stand_for_those_of_the_operands() -> None:
    rl.register_operation("rooflens_tests::product")(lambda call: rl.Demand(flops={"vector.fp32": 1}, bytes=11))
    (record,) = (r for r in counted(Layer()) if r.name == "rooflens_tests::product")
    assert record.work is not None
    assert (record.kind, record.work.flops, record.work.bytes) == ("custom", {"vector.fp32": 1}, {"dram": 11})


@pytest.mark.parametrize("phases", [("forward",), ("forward", "backward")])
def test_an_operator_of_forward_is_recomputed_where_backward_calls_it(phases: tuple[Any, ...]) -> None:
    """A call in backward that no checkpoint makes is not known to be a recomputation, but by the phases."""

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            result: Tensor = product(x, weight)
            return result

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
            x, weight = ctx.saved_tensors
            return x * product(x, weight).sum(), weight

    class Twice(Layer):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = Again.apply(x, self.weight)
            return result

    rl.register_operation("rooflens_tests::product", phases=phases)(forward)
    records = [r for r in counted(Twice()) if r.name == "rooflens_tests::product"]
    assert [(r.phase, r.recomputed) for r in records] == [
        ("forward", False),
        ("backward", phases == ("forward",)),
    ]


def test_a_checkpoint_recomputes_a_custom_operator() -> None:
    rl.register_operation("rooflens_tests::product")(forward)
    records = [r for r in counted(Checkpointed()) if r.name == "rooflens_tests::product"]
    assert [(r.phase, r.recomputed) for r in records] == [("forward", False), ("backward", True)]


def _divides(call: rl.Call) -> rl.Demand:
    return rl.Demand(flops={"vector.fp32": call.tensor("left").elements / 0})


@pytest.mark.parametrize(
    ("formula", "cause", "reason"),
    [
        (lambda call: rl.Demand(flops={"vector.fp32": call.tensor("x").elements}), KeyError, "has no argument 'x'"),
        (_divides, ZeroDivisionError, "ZeroDivisionError: "),
        (rl.Demand, TypeError, "takes 1 positional argument but 2 were given"),
        (lambda call: rl.Demand(flops={"vectr.fp32": 1}), InvalidValue, "unknown compute resource 'vectr.fp32'"),
        (lambda call: rl.Demand(flops={"vector.fp32": -1}), InvalidValue, "work cannot have -1 FLOP"),
        (lambda call: rl.Demand(flops=dict.fromkeys(["vector.fp32"], call.name)), TypeError, "'<=' not supported"),
        (lambda call: rl.Demand(bytes=float("nan")), InvalidValue, "work cannot have nan bytes"),
        (lambda call: None, AttributeError, "'NoneType' object has no attribute"),
    ],
)
def test_an_error_in_a_formula_names_the_operator(formula: Any, cause: type[Exception], reason: str) -> None:
    rl.register_operation("rooflens_tests::product")(formula)
    for fails in (lambda: counted(Layer()), lambda: rl.explain("rooflens_tests::product", shapes=["5x7", "7x3"])):
        with pytest.raises(InvalidValue) as caught:
            fails()
        assert str(caught.value).startswith("the formula registered for 'rooflens_tests::product' fails: ")
        assert reason in str(caught.value)
        assert type(caught.value.__cause__) is cause


def test_an_error_in_a_formula_of_rooflens_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENTRIES, "mm", replace(ENTRIES["mm"], formula=_divides))
    with pytest.raises(KeyError, match="'mm' has no argument 'left'"):
        rl.explain("mm", shapes=["5x7", "7x3"])


def test_a_formula_may_not_cover_a_call() -> None:
    def uncovered(call: rl.Call) -> rl.Demand:
        raise Uncounted("it has no closed form")

    rl.register_operation("rooflens_tests::product")(uncovered)
    assert "rooflens_tests::product" in counted(Layer()).coverage.uncounted
    (operation,) = rl.explain("rooflens_tests::product", shapes=["5x7", "7x3"]).operations
    assert operation.calculation.uncounted == "it has no closed form"


def test_a_custom_operator_is_explained() -> None:
    rl.register_operation("rooflens_tests::product", family="matmul")(forward)
    rl.register_operation("rooflens_tests::product_backward", family="matmul")(backward)
    by_place = rl.explain("rooflens_tests::product", shapes=[(BATCH, IN), (IN, OUT)])
    by_name = rl.explain("rooflens_tests::product", left="5x7", right="7x3")
    assert by_place.text == by_name.text
    (operation,) = by_place.operations
    assert operation.work.flops == {"matmul.fp32": PRODUCT}
    assert [term.expression for term in operation.calculation.flops] == ["2 x 5 x 7 (left) x 3 (right)"]
    gradients = rl.explain("rooflens_tests::product", left="5x7", right="7x3", phase="backward").operations
    assert [o.work.flops for o in gradients if o.calculation.call.name.startswith("rooflens_tests")] == [
        {"matmul.fp32": 2 * PRODUCT}
    ]
    with pytest.raises(InvalidValue, match="rooflens_tests::product needs the shape of right"):
        rl.explain("rooflens_tests::product", left="5x7")


def test_a_custom_operator_has_no_defaults_but_its_own() -> None:
    """Torch's convolutions take stride 1 where none is given; nobody knows what this operator takes."""
    with pytest.raises(InvalidValue, match=r"convolution_like needs stride \(a whole number\)"):
        rl.explain("rooflens_tests::convolution_like", x="5x7")
    (operation,) = rl.explain("rooflens_tests::convolution_like", x="5x7", stride=2).operations
    assert operation.work.missing == {"convolution_like"}


def test_a_profile_has_the_same_name_for_it() -> None:
    assert (short("rooflens_tests::product"), is_known("rooflens_tests::product")) == ("product", False)
    rl.register_operation("rooflens_tests::product")(forward)
    assert (short("rooflens_tests::product"), is_known("rooflens_tests::product")) == ("rooflens_tests::product", True)


def test_a_name_twice_is_an_error_and_one_definition_twice_is_not() -> None:
    rl.register_operation("rooflens_tests::product")(forward)
    rl.register_operation("rooflens_tests::product")(forward)
    with pytest.raises(InvalidValue, match=r"'rooflens_tests::product' has a formula, in family 'custom'"):
        rl.register_operation("rooflens_tests::product")(backward)
    rl.register_operation("rooflens_tests::product", family="mine", replace=True)(backward)
    assert ENTRIES["rooflens_tests::product"].family == "mine"


def test_a_formula_of_rooflens_is_replaced_on_purpose_only() -> None:
    with pytest.raises(InvalidValue, match=r"'aten::mm' has a formula, in family 'matmul'; replace=True replaces it"):
        rl.register_operation("aten::mm")(forward)
    assert ENTRIES["mm"].formula is not forward


def test_an_operator_of_torch_without_a_formula_gets_one() -> None:
    class Sinc(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = torch.special.bessel_j0(x)
            return result

    assert rl.estimate(Sinc(), inputs=torch.empty(4)).coverage.uncounted == ("special_bessel_j0",)
    rl.register_operation("aten::special_bessel_j0", family="elementwise")(
        lambda call: rl.Demand(flops={"special.fp32": call.tensor("self").elements})
    )
    total = rl.estimate(Sinc(), inputs=torch.empty(4)).total()
    assert (total.flops, total.missing) == (4, frozenset())


@pytest.mark.parametrize("name", ["product", "a::b::c", "mylib::gemm.out", "::gemm", "mylib::"])
def test_a_name_needs_its_namespace(name: str) -> None:
    with pytest.raises(InvalidValue, match="is no operator's name; write namespace and name"):
        rl.register_operation(name)


@pytest.mark.parametrize("phases", [(), ("forwards",)])
def test_a_phase_is_one_of_three(phases: Any) -> None:
    with pytest.raises(InvalidValue, match="known: forward, backward, optimizer"):
        register_operation("rooflens_tests::product", phases=phases)


PLUGIN = """
import rooflens as rl

@rl.register_operation("fromplugin::triple")
def triple(call):
    return rl.Demand(flops={"vector.fp32": 3 * call.tensor("x").elements})

def more():
    rl.register_operation("fromplugin::other")(triple)

def broken():
    raise OSError("no such kernel")
"""


def test_a_package_adds_operations(tmp_path: Path) -> None:
    """By a module that registers, and by a function; one that fails is named and left out."""
    named = {"a": "ops_plugin", "b": "ops_plugin:more", "c": "ops_plugin:broken"}
    points = "\n".join(["[rooflens.operations]", *(f"{name} = {value}" for name, value in named.items())])
    distribution(tmp_path, "ops_plugin", PLUGIN, points)
    code = """
import torch
import rooflens as rl

for name in ("triple", "other", "unknown"):
    schema = "(Tensor x) -> Tensor"
    op = torch.library.custom_op(f"fromplugin::{name}", lambda x: x.clone(), mutates_args=(), schema=schema)
    op.register_fake(torch.empty_like)

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.fromplugin.unknown(torch.ops.fromplugin.other(torch.ops.fromplugin.triple(x)))

found = rl.estimate(Net(), inputs=torch.empty(10))
print(found.total().flops, found.coverage.uncounted)
print(rl.explain("fromplugin::triple", x=(10,)).operations[0].work.flops)
"""
    done = run(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["60 ('unknown',)", "{'vector.fp32': 30}"]
    assert (
        "the plug-in 'c' (rooflens.operations: ops_plugin:broken) is left out: OSError: no such kernel" in done.stderr
    )
