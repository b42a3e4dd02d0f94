"""Run a model on the CPU as an accelerator would run it.

The CPU takes apart what a GPU runs as one operation: attention (with dropout or an unusual mask), dropout and recurrent
layers. While a model is traced, these calls are answered by operations of our own that have shapes and a backward but
compute nothing, so that each appears once, with the tensors that the accelerator saves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from rooflens.trace import fused
from rooflens.trace.autocast import raised


class AcceleratorCalls(TorchFunctionMode):
    """Answers attention, dropout and recurrent calls with one operation each, and autocasts as CUDA does."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_autocast_enabled("cpu"):
            args, kwargs = raised(func, args, kwargs)
        replacement = _REPLACEMENTS.get(func)
        if replacement is not None:
            return replacement(*args, **kwargs)
        if func in _WRAPPERS:
            with self:
                return _unchecked(func)(*args, **kwargs)
        return func(*args, **kwargs)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    _check_attention(query, key, value, enable_gqa)
    query, key, value = _autocast(query, key, value)
    if attn_mask is not None and attn_mask.is_floating_point():
        attn_mask = attn_mask.to(query.dtype)
    output: torch.Tensor
    if _saving(query, key, value):
        output = fused.Attention.apply(query, key, value, attn_mask, dropout_p, is_causal)
    else:
        output, _ = torch.ops.rooflens.attention(query, key, value, attn_mask, dropout_p, is_causal, False)
    return output


def _saving(*tensors: torch.Tensor) -> bool:
    """Whether backward will need what a call leaves behind."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _check_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, grouped: bool) -> None:
    """Refuse what torch's own attention refuses."""
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"attention shapes do not fit: query {tuple(query.shape)}, key {tuple(key.shape)},"
            f" value {tuple(value.shape)}"
        )
    if not grouped:
        torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    elif query.shape[-3] % key.shape[-3]:
        raise RuntimeError(f"{query.shape[-3]} query heads cannot share {key.shape[-3]} key heads")


def _autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors in the type to which autocast would bring the arguments of a matrix operation."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) if t.dtype == torch.float32 else t for t in tensors)


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    # On CUDA, probabilities 0 and 1 and empty inputs skip the fused kernel; so does in-place dropout.
    if not training or p == 0 or input.numel() == 0:
        return input
    if inplace or p == 1:
        return (torch.dropout_ if inplace else torch.dropout)(input, p, training)
    output: torch.Tensor = torch.native_dropout(input, p, training)[0]
    return output


def _recurrent(kind: str) -> Callable[..., Any]:
    """The replacement of `torch.lstm` and its like.

    Padded: (input, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first). Packed: (data,
    batch_sizes, states, weights, has_biases, layers, dropout, train, bidirectional).
    """

    def call(input: torch.Tensor, *rest: Any) -> Any:
        packed = not isinstance(rest[2], bool)
        batch_sizes = rest[0] if packed else None
        states, weights, _, layers, dropout, train, bidirectional, *batch_first = rest[1:] if packed else rest
        options = {
            "kind": kind,
            "layers": layers,
            "dropout": dropout,
            "train": train,
            "bidirectional": bidirectional,
            "batch_first": bool(batch_first and batch_first[0]),
        }
        states = [states] if isinstance(states, torch.Tensor) else list(states)
        tensors = _autocast(input, *states, *weights)
        if _saving(*tensors):
            results = fused.Recurrent.apply(options, len(states), batch_sizes, *tensors)
        else:
            inputs, cut = list(tensors), 1 + len(states)
            results = fused.run_recurrent(options, inputs[0], inputs[1:cut], inputs[cut:], batch_sizes, saving=False)[
                :-1
            ]
        return tuple(results)

    return call


def _batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    # Without torch's check that a channel has more than one value: a batch of one is still counted. Its shape rule
    # divides by that number less one for the running variance, so the running statistics stay out of it.
    if training and input.numel() == input.shape[1]:
        running_mean = running_var = None
    return torch.batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, torch.backends.cudnn.enabled
    )


@cache
def _unchecked(function: FunctionType) -> FunctionType:
    """`function` of torch.nn.functional without its look for overrides: its body runs where our mode sees the calls."""
    namespace = {**function.__globals__, "has_torch_function": _no_override}
    copy = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _no_override(tensors: Any) -> bool:
    return False


_REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.scaled_dot_product_attention: _attention,
    F.dropout: _dropout,
    torch.dropout: _dropout,
    F.batch_norm: _batch_norm,
    torch.lstm: _recurrent("lstm"),
    torch.gru: _recurrent("gru"),
    torch.rnn_tanh: _recurrent("rnn_tanh"),
    torch.rnn_relu: _recurrent("rnn_relu"),
}

# Python functions whose body makes calls that we replace: backward does where it recomputes a checkpoint.
_WRAPPERS: frozenset[Callable[..., Any]] = frozenset(
    {F.multi_head_attention_forward, torch.autograd.backward, torch.autograd.grad}
)
