"""Functions of torch that a trace replaces: each replacement takes what the original takes, by position and by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import pytest
import torch
import torch.nn.attention.varlen  # registers its operators
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.flex_attention import flex_attention
from torch._higher_order_ops.scan import scan_op

import rooflens as rl
from rooflens.errors import ModelError
from rooflens.trace import higher_order
from rooflens.trace.replaced_calls import _REPLACEMENTS, OPERATORS, PACKED, PADDED
from rooflens.trace.varlen_calls import KERNELS

Places = list[tuple[str, bool, bool]]
"""Parameters: name, whether by name only, whether one may be left out."""
METHODS = (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def of_schema(schema: Any) -> Places:
    """Python calls the first argument of an operator input where the schema says self."""
    return [("input" if a.name == "self" else a.name, a.kwarg_only, a.has_default_value()) for a in schema.arguments]


def of_function(function: Callable[..., Any]) -> Places:
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind is Parameter.KEYWORD_ONLY, p.default is not Parameter.empty) for p in parameters]


def original(function: Callable[..., Any]) -> Places:
    if inspect.isfunction(function):
        return of_function(function)
    return of_schema(getattr(torch.ops.aten, function.__name__).default._schema)


@pytest.mark.parametrize("function", [f for f in _REPLACEMENTS if f.__name__ not in RECURRENT and f not in METHODS])
def test_a_replacement_has_the_parameters_of_the_original(function: Callable[..., Any]) -> None:
    assert of_function(_REPLACEMENTS[function]) == original(function)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name.partition(".")[0] not in RECURRENT])
def test_a_replaced_operator_has_the_parameters_of_its_schema(name: str) -> None:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    assert of_function(OPERATORS[name]) == of_schema(operator._schema)


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_recurrent_layer_has_the_parameters_of_both_schemas(kind: str) -> None:
    packet = getattr(torch.ops.aten, kind)
    for signature, overload in ((PADDED, packet.input), (PACKED, packet.data)):
        assert list(signature.parameters) == [argument.name for argument in overload._schema.arguments]


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_is_called_by_name_takes_what_its_schema_says(name: str) -> None:
    namespace, _, own = name.partition("::")
    places = of_schema(getattr(getattr(torch.ops, namespace), own).default._schema)
    kernel = inspect.signature(KERNELS[name])
    by_place = [place for place, by_name_only, _ in places if not by_name_only]
    assert list(kernel.parameters)[: len(by_place)] == by_place
    kernel.bind(*by_place, **{place: None for place, by_name_only, _ in places if by_name_only})
    kernel.bind(**{place: None for place, _, _ in places})
    kernel.bind(**{place: None for place, _, may_be_left_out in places if not may_be_left_out})


@pytest.mark.parametrize("operation", [cond_op, scan_op, flex_attention], ids=lambda operation: operation.name())
def test_a_higher_order_operation_is_called_by_the_names_of_its_own(operation: Any) -> None:
    names = [name for name in inspect.signature(type(operation).__call__).parameters if name != "self"]
    ours = inspect.signature(higher_order._PLAIN[operation.name()]).parameters.values()
    taken = [p.name for p in ours if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    assert taken == names[: len(taken)]
    rest = {p.kind for p in ours} - {Parameter.POSITIONAL_OR_KEYWORD}
    assert Parameter.VAR_KEYWORD in rest or len(taken) == len(names)


class Calls(nn.Module):
    """A call with these inputs by position, or by name."""

    def __init__(self, function: Callable[..., Any], names: list[str], named: int, *rest: Any) -> None:
        super().__init__()
        self.function, self.names, self.named, self.rest = function, names, named, rest

    def forward(self, *inputs: Tensor) -> Any:
        values = [*inputs, *self.rest]
        cut = len(values) - self.named
        return self.function(*values[:cut], **dict(zip(self.names[cut:], values[cut:], strict=True)))


def flops(function: Callable[..., Any], names: str, inputs: tuple[Tensor, ...], *rest: Any, named: int) -> float:
    total = rl.estimate(Calls(function, names.split(), named, *rest), inputs=inputs).total()
    assert not total.missing
    return total.flops or 0


@pytest.mark.parametrize("named", [0, 2, 3])
def test_dropout_by_position_and_by_name(named: int) -> None:
    """Compare with p and scale: 2 per element."""
    assert flops(torch.dropout, "input p train", (torch.ones(5, 6),), 0.5, True, named=named) == 2 * 30


def test_the_first_argument_has_the_names_that_numpy_gives_it() -> None:
    assert flops(torch.dropout, "x p train", (torch.ones(5, 6),), 0.5, True, named=3) == 2 * 30


@pytest.mark.parametrize("named", [0, 1, 3])
def test_grouped_products_by_position_and_by_name(named: int) -> None:
    """Eight rows of 16 meet a matrix of 16 x 32 each."""
    inputs = torch.ones(8, 16, dtype=torch.bfloat16), torch.ones(2, 16, 32, dtype=torch.bfloat16)
    offsets = torch.tensor([3, 8], dtype=torch.int32)
    assert flops(torch._grouped_mm, "input mat2 offs", (*inputs, offsets), named=named) == 2 * 8 * 16 * 32


@pytest.mark.parametrize("named", [0, 4, 6])
def test_attention_by_position_and_by_name(named: int) -> None:
    """2 heads, 3 queries, 4 keys, width 5: two products, and a softmax of 6 per pair."""
    query, key = torch.ones(1, 2, 3, 5), torch.ones(1, 2, 4, 5)
    names = "query key value attn_mask dropout_p is_causal"
    counted = flops(F.scaled_dot_product_attention, names, (query, key, key), None, 0.0, False, named=named)
    assert counted == 2 * 3 * 4 * (2 * 2 * 5 + 6)


def test_what_attention_takes_by_name_only_is_refused_by_position() -> None:
    x = torch.ones(1, 2, 3, 5)
    with pytest.raises(ModelError, match="positional"):
        flops(F.scaled_dot_product_attention, "", (x, x, x), None, 0.0, False, 0.5, named=0)


@pytest.mark.parametrize("named", [0, 1, 5, 9])
def test_a_padded_layer_by_position_and_by_name(named: int) -> None:
    layer = nn.GRU(4, 3, batch_first=True)
    names = list(PADDED.parameters)
    settings = ([*layer.parameters()], True, 1, 0.0, False, False, True)
    module = Calls(torch.gru, names, named, *settings)
    total = rl.estimate(module, inputs=(torch.ones(2, 7, 4), torch.zeros(1, 2, 3))).total()
    assert total.matmul_flops == 2 * 7 * 2 * 3 * 3 * (4 + 3)


@pytest.mark.parametrize("named", [0, 1, 6, 9])
def test_a_packed_layer_by_position_and_by_name(named: int) -> None:
    layer = nn.LSTM(4, 3)
    names = list(PACKED.parameters)
    states = [torch.zeros(1, 2, 3), torch.zeros(1, 2, 3)]
    module = Calls(torch.lstm, names, named, states, [*layer.parameters()], True, 1, 0.0, False, False)
    total = rl.estimate(module, inputs=(torch.ones(5, 4), torch.tensor([2, 2, 1]))).total()
    assert total.matmul_flops == 5 * 2 * 4 * 3 * (4 + 3)


def test_the_gradient_of_an_activation_is_one_operation() -> None:
    """As derivatives.yaml of torch names them: CUDA has a kernel for each, the two that torch could take apart too."""
    gradients = {
        nn.SiLU: "silu_backward", nn.Mish: "mish_backward", nn.Hardswish: "hardswish_backward",
        nn.GELU: "gelu_backward", nn.LogSigmoid: "log_sigmoid_backward", nn.Softplus: "softplus_backward",
        nn.ELU: "elu_backward", nn.Hardsigmoid: "hardsigmoid_backward", nn.Tanh: "tanh_backward",
    }  # fmt: skip
    model = nn.Sequential(*(activation() for activation in gradients))
    model.append(nn.Hardtanh()).append(nn.SiLU(inplace=True))
    x = torch.ones(8, 16, requires_grad=True)
    records = rl.estimate(model, inputs=(x,), mode="train", optimizer="none")
    backward = [r.name for r in records if r.phase == "backward"]
    assert backward == ["ones_like", "silu_backward", "hardtanh_backward", *reversed(gradients.values())]
    silu = [r for r in records if r.name == "silu_backward"][-1]
    assert silu.work is not None
    assert silu.work.bytes["dram"] == 3 * 4 * 8 * 16, "reads the incoming gradient and its input, writes a gradient"
