"""Names of the sizes of an operation's tensors, and calls whose sizes remember them.

Only names: an operation that is not in the tables is explained with the names of its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rooflens.costs.expression import BYTE, Expression, Integer, Product, Spelled, Sum, TensorBytes, expression_of
from rooflens.costs.scans import SCANS
from rooflens.records import Argument, Call, Tensor
from rooflens.records.calls import ELEMENT_BYTES

_CONVOLUTION = {
    "input": "N C_in in*",
    "self": "N C_in in*",
    "weight": "C_out C_in/groups kernel*",
    "grad_output": "N C_out out*",
    "result": "N C_out out*",
}
_TRANSPOSED = _CONVOLUTION | {"weight": "C_in C_out/groups kernel*"}
_ATTENTION = {
    "query": "batch* heads queries width",
    "key": "batch* key_heads keys width",
    "value": "batch* key_heads keys value_width",
    **dict.fromkeys(("output", "grad", "result"), "batch* heads queries value_width"),
}
_RECURRENT = {"input": "vectors* features", "weights": "gates inputs"}
_LEFT, _RIGHT, _RESULT = "batch* m k", "batch* k n", "batch* m n"

SIZES: Mapping[str, Mapping[str, str]] = {
    "convolution": _CONVOLUTION,
    "convolution_backward": _CONVOLUTION,
    "mm": {"self": _LEFT, "mat2": _RIGHT, "result": _RESULT},
    "bmm": {"self": _LEFT, "mat2": _RIGHT, "result": _RESULT},
    "addmm": {"mat1": _LEFT, "mat2": _RIGHT, "result": _RESULT},
    "baddbmm": {"batch1": _LEFT, "batch2": _RIGHT, "result": _RESULT},
    "mv": {"self": "m k", "vec": "k", "result": "m"},
    "dot": {"self": "k", "tensor": "k"},
    "attention": _ATTENTION,
    "attention_backward": _ATTENTION,
    "recurrent": _RECURRENT,
    "recurrent_backward": _RECURRENT,
    "native_batch_norm": {"input": "N C positions*"},
    "native_batch_norm_backward": {"input": "N C positions*"},
    "native_layer_norm": {"rstd": "rows*"},
}
"""By operation and tensor the names of its sizes, outermost first; a name with a star stands for all that are left."""

RESULTS: Mapping[str, tuple[str, ...]] = {
    "native_batch_norm": ("result", "save_mean", "save_invstd"),
    "native_layer_norm": ("result", "mean", "rstd"),
    "native_group_norm": ("result", "mean", "rstd"),
    "max_pool2d_with_indices": ("result", "indices"),
    "attention": ("result", "logsumexp"),
    "native_dropout": ("result", "mask"),
}
GRADIENTS: Mapping[str, tuple[str, ...]] = {
    "attention_backward": ("query", "key", "value", "mask"),
    "recurrent_backward": ("input", "states", "weights"),
    **{f"{name}_backward": tensors for name, tensors in SCANS.items()},
}
"""Of which arguments the gradients are, a list of tensors having one for each. Elsewhere input, weight and bias."""


def spelled(call: Call) -> Call:
    """The call with sizes that remember their names, so that work remembers how it was computed."""
    names = _TRANSPOSED if call.get("transposed") else SIZES.get(call.name, {})
    arguments = tuple((name, _argument(value, name, names)) for name, value in call.arguments)
    outputs = tuple(_tensor(tensor, name, names) for tensor, name in zip(call.outputs, result_names(call), strict=True))
    draft = replace(call, arguments=arguments, outputs=outputs)
    written = outputs or (draft.tensors("self") if call.name.endswith("_") and call.get("self") else ())
    return replace(
        draft,
        reads=_total(call.reads, draft.inputs, "the same memory, read once"),
        writes=_total(call.writes, written, "the same memory, written once"),
    )


def result_names(call: Call) -> tuple[str, ...]:
    """Names of the outputs: result, result_2 ... where the operation has no names of its own."""
    if call.name.startswith("_foreach_"):
        return ("result",) * len(call.outputs)
    wanted = call.get("needed", call.get("output_mask"))
    if isinstance(wanted, tuple):
        sources = GRADIENTS.get(call.name, ("input", "weight", "bias"))
        each = [s for s in sources for _ in range(len(call.tensors(s)) if isinstance(call.get(s), tuple) else 1)]
        named = [f"grad_{source}" for source, want in zip(each, wanted, strict=False) if want]
    else:
        named = list(RESULTS.get(call.name, ("result",)))
    numbers = range(len(named) + 1, len(call.outputs) + 1)
    return (*named, *(f"result_{number}" for number in numbers))[: len(call.outputs)]


def _argument(value: Argument, name: str, names: Mapping[str, str]) -> Argument:
    if isinstance(value, Tensor):
        return _tensor(value, name, names)
    if isinstance(value, tuple):
        return tuple(_argument(item, name, names) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Spelled.of(value, name)
    return value


def _tensor(tensor: Tensor, name: str, names: Mapping[str, str]) -> Tensor:
    labels = _labels(names[name].split(), len(tensor.shape)) if name in names else [name] * len(tensor.shape)
    shape = tuple(Spelled.of(size, label) for size, label in zip(tensor.shape, labels, strict=True))
    return replace(tensor, shape=shape, nbytes=Spelled(tensor.nbytes, TensorBytes(name, _stored(tensor, shape))))


def _labels(names: list[str], sizes: int) -> list[str]:
    """One name per size: the starred one is repeated or left out as it fits.

    Where there are more names than sizes, those at the end count if the star is in front, else the first ones.
    """
    spare = max(0, sizes - (len(names) - 1))
    labels = [label for name in names for label in ([name[:-1]] * spare if name.endswith("*") else [name])]
    fitting = labels[len(labels) - sizes :] if names[0].endswith("*") else labels[:sizes]
    return [*fitting, *[""] * (sizes - len(fitting))]


def _stored(tensor: Tensor, shape: tuple[Spelled, ...]) -> Expression:
    """Elements times bytes of each; a plain number where a dimension is stored once."""
    each = tensor.nbytes // max(1, tensor.elements)
    if each * tensor.elements != tensor.nbytes or each != ELEMENT_BYTES.get(tensor.dtype, each):
        return Integer(tensor.nbytes, BYTE)
    return Product((*(expression_of(size) for size in shape), Integer(each, BYTE)))


def _total(nbytes: int, tensors: tuple[Tensor, ...], why: str) -> int:
    """The bytes of distinct tensors: the sum of all, and the difference."""
    total = sum(tensor.nbytes for tensor in tensors)
    missing = nbytes - total
    if missing:
        amount = TensorBytes(why if missing < 0 else "changed in place", Integer(abs(missing), BYTE))
        total += Spelled(missing, Sum(((-1 if missing < 0 else 1, amount),)))
    return total
