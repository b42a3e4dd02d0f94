"""Makes the operands of a call, and what runs it, from its description alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from rooflens.models.dtypes import FLOATING_TYPES
from rooflens.records import Argument, Call, Tensor, dense_strides

TYPES: Mapping[str, torch.dtype] = FLOATING_TYPES | {
    name: getattr(torch, name) for name in ("int64", "int32", "int16", "int8", "uint8", "bool")
}
"""Element types that a replay makes values of."""
NAMES = {
    f"torch.{name}": getattr(torch, name)
    for name in ("float32", "float64", "float16", "bfloat16", "int64", "contiguous_format", "preserve_format",
                 "channels_last", "channels_last_3d", "strided")
}  # fmt: skip
"""Values of arguments that the trace writes as text."""

Runner = Callable[[], Any]


class Untimed(Exception):
    """A call that cannot be replayed, and why."""


def runner(call: Call, where: str = "cuda") -> Runner:
    """Return what runs a call on operands of its shapes, types and layouts.

    Raises:
        Untimed: nothing here knows how to call it.
    """
    bound = _bound(call)

    def value(argument: Argument) -> Any:
        if isinstance(argument, Tensor):
            return operand(argument, bound, where)
        if isinstance(argument, tuple):
            return [value(item) for item in argument]
        return NAMES.get(argument, argument) if isinstance(argument, str) else argument

    given = {name: where if name == "device" else value(argument) for name, argument in call.arguments}
    own = OWN.get(call.name)
    if own is not None:
        return own(given)
    operation = _overload(call.name, given)
    return lambda: operation(**given)


def operand(tensor: Tensor, bound: int, where: str) -> torch.Tensor:
    """Return a tensor of a description on a device: random numbers, whole ones below a bound."""
    dtype = TYPES.get(tensor.dtype)
    if dtype is None or tensor.stored is not None:
        raise Untimed(f"no values of type {tensor.dtype} are made")
    strides = dense_strides(tensor.shape) if tensor.strides is None else tensor.strides
    reach = [(size - 1) * step for size, step in zip(tensor.shape, strides, strict=True)]
    size = 0 if 0 in tensor.shape else 1 + sum(reach)
    if dtype.is_floating_point:  # random ones: equal numbers take less power, and run faster
        data = torch.empty(size, dtype=dtype, device=where).normal_()
    elif dtype is torch.bool:
        data = torch.rand(size, device=where) < 0.5
    else:
        data = torch.randint(0, max(1, bound), (size,), device=where, dtype=dtype)
    return data.as_strided(tensor.shape, strides)


def _bound(call: Call) -> int:
    """A number that every index of a call may have: below each size of the tensor that is indexed."""
    size = _indexed(call)
    if size is not None:
        return size
    first = next((t for t in call.inputs if t.dtype in ("fp32", "fp16", "bf16", "fp64") and t.shape), None)
    if call.name.startswith(("embedding", "nll_loss")) and first is not None:
        return first.shape[-1] if call.name.startswith("nll_loss") else first.shape[0]
    return 1 if first is None else min(first.shape)


def _indexed(call: Call) -> int | None:
    """The size of the only dimension that a call indexes; None of others."""
    tensor, indices, dim = call.get("self"), call.get("indices"), call.get("dim")
    if not isinstance(tensor, Tensor) or not call.name.startswith("index"):
        return None
    if isinstance(indices, tuple) and len(indices) == 1:
        return tensor.shape[0]
    return tensor.shape[dim] if isinstance(dim, int) and "index" in dict(call.arguments) else None


def _overload(name: str, given: Mapping[str, Any]) -> Callable[..., Any]:
    """The overload of an ATen operation that has all these arguments, and needs no others."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        raise Untimed(f"there is no aten::{name}")
    for each in packet.overloads():
        overload: torch._ops.OpOverload[..., Any] = getattr(packet, each)
        schema = overload._schema
        arguments = {a.name: a for a in schema.arguments}
        if given.keys() - arguments.keys() or any(a.is_out for a in schema.arguments):
            continue
        if any(not a.has_default_value() and n not in given for n, a in arguments.items()):
            continue
        if all(_fits(str(arguments[n].type), v) for n, v in given.items()):
            return overload
    raise Untimed(f"no overload of aten::{name} takes {', '.join(given)}")


def _fits(kind: str, value: Any) -> bool:
    """True if an argument of a type may have a value, as far as tensors and lists go."""
    if isinstance(value, torch.Tensor):
        return "Tensor" in kind and "List" not in kind
    if isinstance(value, list):
        tensors = any(isinstance(item, torch.Tensor) for item in value)
        return "List" in kind and ("Tensor" in kind) == tensors
    return value is None or not ("Tensor" in kind or "List" in kind)


# Operations that the trace shows in another form than the one that a GPU runs -----------------------------------------


def _attention(given: Mapping[str, Any]) -> Runner:
    query, key = given["query"], given["key"]
    grouped = query.dim() > 3 and query.shape[-3] != key.shape[-3]
    return lambda: F.scaled_dot_product_attention(
        query, key, given["value"], given.get("mask"), 0.0, bool(given.get("causal")), enable_gqa=grouped
    )


def _gradients(forward: Runner, sources: list[torch.Tensor]) -> Runner:
    """The gradients of something that runs once here."""
    with torch.enable_grad():
        out = forward()
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, sources, grad, retain_graph=True)


def _attention_backward(given: Mapping[str, Any]) -> Runner:
    operands = {name: given[name].detach().requires_grad_() for name in ("query", "key", "value")}
    return _gradients(_attention({**given, **operands}), list(operands.values()))


def _batch_norm(given: Mapping[str, Any]) -> Runner:
    names = ("input", "weight", "bias", "running_mean", "running_var")
    tensors = [given.get(name) for name in names]
    if tensors[4] is not None:
        tensors[4] = tensors[4].abs() + 1
    training = bool(given.get("training"))
    normalise: Any = torch.batch_norm
    return lambda: normalise(*tensors, training, 0.1, 1e-5, True)


def _batch_norm_backward(given: Mapping[str, Any]) -> Runner:
    sources = [given[name].detach().requires_grad_() for name in ("input", "weight")]
    bias = torch.zeros_like(sources[1]).requires_grad_()
    named = {"input": sources[0], "weight": sources[1], "bias": bias, "training": bool(given.get("train", True))}
    statistics = (
        {} if named["training"] else {"running_mean": given["running_mean"], "running_var": given["running_var"]}
    )
    return _gradients(_batch_norm({**named, **statistics}), [*sources, bias])


def _grouped_mm(given: Mapping[str, Any]) -> Runner:
    """Products of groups of rows, which are dealt out at random, as by a router that nobody has trained."""
    left, matrices = given["self"], given["mat2"]
    if left.dim() != 2 or matrices.dim() != 3:
        raise Untimed("groups of another dimension than rows are not made")
    groups = torch.randint(len(matrices), (len(left),), device=left.device)
    ends = torch.bincount(groups, minlength=len(matrices)).cumsum(0).to(torch.int32)
    product: Any = getattr(F, "grouped_mm", None) or torch._grouped_mm
    return lambda: product(left, matrices, offs=ends)


OWN: Mapping[str, Callable[[Mapping[str, Any]], Runner]] = {
    "attention": _attention,
    "attention_backward": _attention_backward,
    "_grouped_mm": _grouped_mm,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
}


def operand_bytes(call: Call) -> int:
    """Bytes that a call's operands and results take, about."""
    return sum(t.nbytes for t in (*call.inputs, *call.outputs))
