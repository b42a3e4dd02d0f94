"""Copies and element-wise kernels that are bound by their addresses and not by bytes.

A kernel that computes an offset for each element (operands broadcast, shifted, or laid out in another order) handles a
fixed number of elements per second. Rates: a trial on an H100 (300 to 375, 210 and 140 G elements/s). Tensors that are
joined although one does not lie dense are copied element by element, each by two blocks of a unit (torch's
CatArrayBatchedCopy): one large tensor keeps half of the threads idle. Changes of type other than from fp32 to 16 bits
go element by element too. Copies that repeat elements, joins of tensors that are not dense, changes of type and GELU in
16 bits: profiles of steps on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rooflens.predict.call_on_device import CHANNELS_LAST, CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import bytes_time, stream
from rooflens.predict.terms import composed, joined, longest, named
from rooflens.records import Call, Tensor

SHORT_RUN = 2048
"""Bytes below which a run of elements that lie together is copied at a smaller share of the bandwidth."""
MANY_RUNS = {"short": 4096, "long": 32}
"""Runs from which on each joined tensor costs its time."""
COPIES = frozenset({"clone", "copy_", "_to_copy", "contiguous"})
REPEATED = 8
"""Times that the bytes of an operand fit into the result, from which on it repeats elements as a broadcast one does."""
SHIFTS = frozenset({"roll", "constant_pad_nd", "flip", "reflection_pad2d", "replication_pad2d", "im2col", "col2im"})


def copy_or_pointwise(piece: CallOnDevice, card: Card) -> float:
    """Seconds of an element-wise kernel or a copy."""
    if piece.call.name == "cat":
        return concatenation(piece, card)
    seconds, inputs = stream(piece, card), piece.call.inputs
    kind = addressing(piece.call) or _computing(piece, inputs)
    if kind is None or not inputs:
        return seconds
    elements = max(piece.main.elements, inputs[0].elements)
    if kind == "broadcast" and piece.narrow:
        kind = "broadcast_narrow"
    return longest(seconds, card["stream.start"] + one_by_one(elements, card, kind))


def _computing(piece: CallOnDevice, inputs: Sequence[Tensor]) -> str | None:
    """What holds back a kernel whose elements lie one behind the other: a change of type, or arithmetic; else None."""
    call = piece.call
    if call.name in COPIES and inputs and call.outputs and inputs[0].dtype != call.outputs[0].dtype:
        return None if inputs[0].dtype == "fp32" and piece.narrow else "cast"
    return call.name if call.name in ("gelu", "gelu_backward") and piece.narrow else None


def one_by_one(elements: float, card: Card, kind: str) -> float:
    """Seconds of elements whose addresses, or whose arithmetic, hold a kernel back."""
    return named("elements", elements / card.per_second(f"copy.{kind}"), kind=kind, elements=elements)


def passed_over(tensor: Tensor, card: Card, kind: str = "broadcast") -> float:
    """Seconds of a kernel that no trace shows: it reads a tensor, and writes as much with other addresses."""
    moving = bytes_time(0.0, 2 * tensor.nbytes, 2 * tensor.nbytes, card, card["stream.share_wide"])
    return card["stream.start"] + longest(moving, one_by_one(tensor.elements, card, kind))


def dense_copy(tensor: Tensor, card: Card) -> float:
    """Seconds of the copy that a kernel makes of an operand which does not lie dense."""
    if tensor.memory_format != "other":
        return 0.0
    last = max((d for d, size in enumerate(tensor.shape) if size > 1), default=-1)
    kind = "broadcast" if _innermost(tensor) == last else "transpose"
    return composed("dense copy", passed_over(tensor, card, kind))


def concatenation(piece: CallOnDevice, card: Card) -> float:
    """Seconds of joining tensors: bytes, and a time for each of them where there are many runs of elements to copy.

    A run is what lies together of one tensor: its channels where these come last.
    """
    out = piece.call.outputs[0]
    if any(t.elements and t.memory_format != out.memory_format for t in piece.call.inputs):
        largest = max(t.elements for t in piece.call.inputs)
        elements = longest(one_by_one(largest, card, "cat_one"), one_by_one(out.elements, card, "cat_all"))
        return longest(stream(piece, card), card["stream.start"] + elements)
    dim = piece.call.get("dim")
    axis = int(dim) % max(1, len(out.shape)) if isinstance(dim, int | float) else 0
    last = out.memory_format in CHANNELS_LAST and axis == 1
    inner = 1 if last else prod(out.shape[axis + 1 :])
    outer = out.elements // max(1, out.shape[axis] * inner)
    run = out.nbytes / max(1, outer * len(piece.call.inputs))
    kind = "short" if run < SHORT_RUN else "long"
    moving = bytes_time(0.0, piece.nbytes, piece.nbytes, card, card[f"copy.cat_{kind}"])
    each = card[f"copy.cat_each_{kind}"] * min(1.0, outer / MANY_RUNS[kind])
    return card["stream.start"] + joined(2, moving, len(piece.call.inputs) * each)


def addressing(call: Call) -> str | None:
    """How a kernel finds its elements where they do not lie one behind the other; None where they do."""
    if call.name in SHIFTS:
        return "roll" if call.name == "roll" else "shift"
    out, inputs = call.outputs[0] if call.outputs else None, call.inputs
    if out is None:
        return None
    if call.name in COPIES and 0 in (inputs[0].strides or ()) and inputs[0].shape == out.shape:
        return "expand"
    kind, size = None, out.elements
    for tensor in inputs:
        if tensor.shape != out.shape:
            kind = kind or ("broadcast" if 1 < tensor.elements < size else None)
        elif tensor.strides == out.strides or tensor.strides is None or out.strides is None:
            continue
        elif 0 in tensor.strides and tensor.nbytes < out.nbytes // REPEATED:
            kind = kind or "broadcast"
        elif _innermost(tensor) != _innermost(out):
            return "transpose"
        else:
            kind = kind or "broadcast"  # runs of elements in another order
    return kind


def _innermost(tensor: Tensor) -> int:
    """The dimension whose elements lie next to each other; -1 if there is none."""
    assert tensor.strides is not None
    for dim, (size, step) in enumerate(zip(tensor.shape, tensor.strides, strict=True)):
        if step == 1 and size > 1:
            return dim
    return -1
