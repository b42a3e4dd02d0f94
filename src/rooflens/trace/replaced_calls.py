"""Run a model on the CPU as an accelerator would run it.

The CPU takes apart what a GPU runs as one operation: attention (with dropout or an unusual mask), dropout, recurrent
layers, RMS norms and grouped products. While a model is traced, these calls are answered by operations that have shapes
and a backward, so that each appears once, with the tensors that the accelerator saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from inspect import Parameter, Signature
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from rooflens.errors import DataDependent
from rooflens.trace import fused, higher_order
from rooflens.trace.autocast import cast_down, cast_up
from rooflens.trace.replaced_operators import Kernels
from rooflens.trace.rms_norm import RmsNorm
from rooflens.trace.varlen_calls import KERNELS, nested_attention, nested_from_list

_CPU = torch.device("cpu")


class AcceleratorCalls(TorchFunctionMode):
    """Answers these calls with one operation each."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        func, args, kwargs = _on_the_cpu(func, args, kwargs or {})
        replacement = _REPLACEMENTS.get(func)
        if isinstance(func, OpOverload | OpOverloadPacket):
            replacement = _KERNELS.get(func.name() if isinstance(func, OpOverload) else func._qualified_op_name)
        if replacement is not None:
            named = kwargs if isinstance(func, FunctionType) else {_NUMPY.get(k, k): v for k, v in kwargs.items()}
            return replacement(*args, **named)
        if isinstance(func, HigherOrderOperator):
            with self:
                return higher_order.run(func, *args, **kwargs)
        if func in _WRAPPERS:
            with self:
                return _unchecked(func)(*args, **kwargs)
        return func(*args, **kwargs)


def _on_the_cpu(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The call with its tensors where all are: an exported graph, and some models, name the device that they want."""
    if func is Tensor.cuda:
        return Tensor.to, (args[0], _CPU), {}
    if kwargs.get("device") is not None:
        kwargs = kwargs | {"device": _CPU}
    if func is Tensor.to and len(args) > 1 and isinstance(args[1], str):
        args = (args[0], _CPU, *args[2:])
    if any(isinstance(argument, torch.device) for argument in args):
        args = tuple(_CPU if isinstance(argument, torch.device) else argument for argument in args)
    return func, args, kwargs


@contextmanager
def without_mkldnn() -> Iterator[None]:
    """Without the CPU's own fused recurrent layers: their parts have formulas, forward and backward."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if query.is_nested:
        query, key, value = cast_down(query, key, value)
        return nested_attention(query, key, value, attn_mask, dropout_p, is_causal)
    if not _fusing() or not any(enabled() for enabled in _ATTENTION_KERNELS):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
    _check_attention(query, key, value, enable_gqa)
    query, key, value = cast_down(query, key, value)
    if attn_mask is not None and attn_mask.is_floating_point():
        attn_mask = attn_mask.to(query.dtype)
    return fused.attend(query, key, value, attn_mask, dropout_p, is_causal)


def _fusing() -> bool:
    """True if a call may be one operation: function transforms (vmap, grad, jvp) need its parts."""
    return bool(torch._C._functorch.peek_interpreter_stack() is None)


def _check_attention(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> None:
    """Raise where torch's own attention does."""
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = ", ".join(f"{n} {tuple(t.shape)}" for n, t in (("query", query), ("key", key), ("value", value)))
        raise RuntimeError(f"attention shapes do not fit: {shapes}")
    if not grouped:
        torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    elif query.shape[-3] % key.shape[-3]:
        raise RuntimeError(f"{query.shape[-3]} query heads cannot share {key.shape[-3]} key heads")


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    # On CUDA, probabilities 0 and 1 and empty inputs skip the fused kernel; so does in-place dropout.
    if not training or p == 0 or input.numel() == 0:
        return input
    if inplace or p == 1:
        return (torch.dropout_ if inplace else torch.dropout)(input, p, training)
    output: Tensor = torch.native_dropout(input, p, training)[0]
    return output


def _torch_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    return _dropout(input, p, train)


def _signature(*names: str) -> Signature:
    return Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])


_LAYER = ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")
PADDED = _signature("input", *_LAYER, "batch_first")
PACKED = _signature("data", "batch_sizes", *_LAYER)


def _recurrent(kind: str) -> Callable[..., Any]:
    """The replacement of `torch.lstm` and its like, for padded and for packed sequences."""
    plain = getattr(torch, kind)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not _fusing() or not torch.backends.cudnn.enabled:
            with without_mkldnn():
                return plain(*args, **kwargs)
        # Both forms take nine arguments. The fourth of the packed one is a list, and it has no batch_first.
        padded = isinstance(args[3], bool) if len(args) == len(PADDED.parameters) else "batch_first" in kwargs
        given = (PADDED if padded else PACKED).bind(*args, **kwargs).arguments
        names = ("num_layers", "dropout", "train", "bidirectional", "batch_first")
        options = fused.RecurrentOptions(kind, *(given.get(name, False) for name in names))
        states = [given["hx"]] if isinstance(given["hx"], Tensor) else list(given["hx"])
        tensors = cast_down(given["input" if padded else "data"], *states, *given["params"])
        batch_sizes = given.get("batch_sizes")
        if fused.saving(*tensors):
            results = fused.Recurrent.apply(options, len(states), batch_sizes, *tensors)
        else:
            inputs, cut = list(tensors), 1 + len(states)
            arguments = (inputs[0], inputs[1:cut], inputs[cut:], batch_sizes)
            *results, _ = torch.ops.rooflens.recurrent(*arguments, *options, False)
        return tuple(results)

    return call


def _mkldnn_rnn_layer(
    input: Tensor,
    weight0: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    hx_: Tensor,
    cx_: Tensor,
    reverse: bool,
    batch_sizes: list[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Tensor, ...]:
    """One layer of an LSTM in one direction, to which the CPU takes a whole one apart in a graph."""
    turned = reverse and not isinstance(input, FakeTensor)
    steps = 1 if batch_first else 0
    weights = [weight0, weight1, *([weight2, weight3] if has_biases else [])]
    states = [state.unsqueeze(0) for state in (hx_, cx_)]
    given = input.flip(steps) if turned else input
    output, *after = _recurrent("lstm")(given, states, weights, has_biases, 1, 0.0, train, False, batch_first)
    output = output.flip(steps) if turned else output
    return output, *(state.squeeze(0) for state in after), input.new_empty(0)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    # Without torch's check that a channel has more than one value: a batch of one is still counted. Its shape rule
    # divides by that number less one for the running variance, so the running statistics stay out of it.
    if training and input.numel() == input.shape[1]:
        running_mean = running_var = None
    return torch.batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, torch.backends.cudnn.enabled
    )


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    # As of batch norm, a group of one value is counted.
    return torch.group_norm(input, num_groups, weight, bias, eps, torch.backends.cudnn.enabled)


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if use_input_stats and input.shape[2:].numel() == 1:
        running_mean = running_var = None
    return torch.instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, torch.backends.cudnn.enabled
    )


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    shape = list(normalized_shape)
    if not _fusing() or input.is_complex() or list(input.shape[input.dim() - len(shape) :]) != shape:
        return torch.rms_norm(input, shape, weight, eps)
    input, weight = cast_up(input), None if weight is None else cast_up(weight)
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    if fused.saving(input, weight):
        output: Tensor = RmsNorm.apply(input, weight, shape, eps)
        return output
    output, _ = torch.ops.rooflens._fused_rms_norm(input, shape, weight, eps)
    return output


def _grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    return _torch_grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


def _torch_grouped_mm(
    input: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    if input.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(f"grouped products do not fit: {tuple(input.shape)} and {tuple(mat2.shape)}")
    product = fused.GroupedProduct.apply if fused.saving(input, mat2) else torch.ops.rooflens._grouped_mm
    result: Tensor = product(input, mat2, offs, out_dtype)
    return result if bias is None else result + bias


def _valued(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that gives values, which a fake tensor does not have."""

    @wraps(method)
    def call(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, FakeTensor):
            raise DataDependent(f"Tensor.{method.__name__} reads values, and an estimate has only shapes")
        return method(tensor, *args, **kwargs)

    return call


@cache
def _unchecked(function: FunctionType) -> FunctionType:
    """`function` of torch.nn.functional that ignores overrides, so that our mode sees the calls of its body."""
    namespace = {**function.__globals__, "has_torch_function": _no_override}
    copy = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _no_override(tensors: Any) -> bool:
    return False


_ATTENTION_KERNELS: tuple[Callable[[], bool], ...] = (
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.cudnn_sdp_enabled,
)
"""Where none is allowed, attention is written out: the matrix of weights reaches memory."""

_NUMPY = dict.fromkeys(("x", "a", "x1"), "input")
"""numpy's names of a first argument, which torch's own functions take too."""

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.scaled_dot_product_attention: _attention,
    F.dropout: _dropout,
    torch.dropout: _torch_dropout,
    F.batch_norm: _batch_norm,
    F.group_norm: _group_norm,
    F.instance_norm: _instance_norm,
    F.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
    F.grouped_mm: _grouped_mm,
    torch._grouped_mm: _torch_grouped_mm,
    torch._nested_tensor_from_tensor_list: nested_from_list,
    **{getattr(torch, kind): _recurrent(kind) for kind in _RECURRENT},
    **{method: _valued(method) for method in (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)},
}

_KERNELS: dict[str, Callable[..., Any]] = {**KERNELS, "aten::mkldnn_rnn_layer": _mkldnn_rnn_layer}
"""Kernels of one device that a graph may name."""

OPERATORS: Kernels = {
    "scaled_dot_product_attention": _attention,
    "dropout": _torch_dropout,
    "rms_norm": _rms_norm,
    **{f"{kind}.{form}": _recurrent(kind) for kind in _RECURRENT for form in ("input", "data")},
}
"""Operators that scripts and exported graphs call, with the replacements of the functions in front of them."""

# Python functions whose body makes calls that we replace: backward does where it recomputes a checkpoint.
_WRAPPERS: frozenset[Callable[..., Any]] = frozenset(
    {F.multi_head_attention_forward, torch.autograd.backward, torch.autograd.grad}
)
