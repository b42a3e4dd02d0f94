"""Pooling and interpolation: a window is read for each output, most of it from a cache.

Channels first: bytes, or outputs with a fixed cost and one for each element of a window. Channels last: outputs alone.
Constants: a suite on an H100.
"""

from __future__ import annotations

from math import prod

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved


def pooling(piece: CallOnDevice, card: Card) -> float:
    """Seconds of pooling, interpolation, or their gradients."""
    sizes = piece.call.integers("kernel_size") if piece.call.get("kernel_size") else (2, 2)
    window = prod(sizes) if len(sizes) > 1 else sizes[0] ** 2
    if piece.main.memory_format == "channels_last":
        each = card["pooling.last_max" if "max" in piece.call.name else "pooling.last_average"] / card.cycles
    else:
        each = (card["pooling.output"] + card["pooling.tap"] * window) / card.cycles
    return card["stream.start"] + max(each * piece.main.elements, moved(piece, card, card["pooling.share"]))
