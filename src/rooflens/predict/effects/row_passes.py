"""Softmax, losses and reductions: rows that stay in registers, or are read twice where they are long.

Constants: a suite on an H100. Sums over the inner dimensions of many short rows are bound by rows and not by bytes.
"""

from __future__ import annotations

from math import prod

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved

LONG = 4096
"""Elements of a row above which it is read twice."""


def row_passes(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a softmax, a loss or a reduction."""
    tensor = piece.call.inputs[0]
    if "softmax" in piece.call.name:
        dim = piece.call.get("dim")
        width = tensor.shape[dim] if isinstance(dim, int) and tensor.shape else 1
        return card["rows.start"] + moved(piece, card, card["rows.long" if width > LONG else "rows.share"])
    seconds = moved(piece, card, card["rows.share"])
    dims = piece.call.get("dim")
    if isinstance(dims, tuple) and dims and tensor.memory_format == "contiguous":
        inner = {int(d) % len(tensor.shape) for d in dims if isinstance(d, int)}
        if inner == set(range(len(tensor.shape) - len(inner), len(tensor.shape))):
            rows = prod(tensor.shape[: -len(inner)])
            seconds = max(seconds, rows / card.per_second("rows.rows"))
    return card["rows.start_narrow" if piece.narrow else "rows.start"] + seconds
