"""Copies and element-wise kernels that are bound by their addresses and not by bytes.

A kernel that computes an offset for each element (operands broadcast, shifted, or laid out in another order) handles a
fixed number of elements per second. Rates: a trial on an H100 (300 to 375, 210 and 140 G elements/s).
"""

from __future__ import annotations

from rooflens.predict.card import Card
from rooflens.predict.effects.streams import stream
from rooflens.predict.piece import Piece
from rooflens.records import Call, Tensor

SHIFTS = frozenset({"roll", "constant_pad_nd", "flip", "reflection_pad2d", "replication_pad2d", "im2col", "col2im"})


def copy_or_pointwise(piece: Piece, card: Card) -> float:
    """Seconds of an element-wise kernel or a copy."""
    seconds = stream(piece, card)
    kind = addressing(piece.call)
    if kind is None:
        return seconds
    elements = max(t.elements for t in (piece.main, *piece.call.inputs[:1]))
    return max(seconds, card["stream.start"] + piece.own * elements / card.per_second(f"copy.{kind}"))


def addressing(call: Call) -> str | None:
    """How a kernel finds its elements where they do not lie one behind the other: transpose, shift or broadcast."""
    if call.name in SHIFTS:
        return "shift"
    out = call.outputs[0] if call.outputs else None
    if out is None or out.elements < 2:
        return None
    kind = None
    for tensor in call.inputs:
        if tensor.elements < 2 or tensor.elements > out.elements:
            continue
        if tensor.elements < out.elements or tensor.nbytes * out.elements < out.nbytes * tensor.elements // 8:
            kind = kind or "broadcast"
        elif _innermost(tensor) != _innermost(out) and None not in (_innermost(tensor), _innermost(out)):
            kind = "transpose"
    return kind


def _innermost(tensor: Tensor) -> int | None:
    """The dimension whose elements lie next to each other; None if it is not known or does not matter."""
    if tensor.strides is None:
        return None
    near = [dim for dim, size in enumerate(tensor.shape) if size > 1 and tensor.strides[dim] == 1]
    return near[0] if near else -1
