"""Pooling and interpolation: a window is read for each output, most of it from a cache.

Channels first: bytes, or outputs with a fixed cost and one for each element of a window. Channels last: outputs, for a
maximum whatever its window; its kernel takes long to start. Constants: a suite and 14 models on an H100.
"""

from __future__ import annotations

from math import prod

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved
from rooflens.predict.terms import longest, named


def pooling(piece: CallOnDevice, card: Card) -> float:
    """Seconds of pooling, interpolation, or their gradients."""
    elements, most = window(piece), "max" in piece.call.name
    if piece.main.memory_format != "channels_last":
        each = card["pooling.output"] + card["pooling.tap"] * elements
        least = 0.0
    elif most:
        each, least = card["pooling.last_max"], card["pooling.last_start"]
    else:
        each, least = card["pooling.last_average"] + card["pooling.last_tap"] * elements, 0.0
    computing = named("results", each * piece.main.elements / card.cycles, elements=piece.main.elements)
    return longest(least, card["stream.start"] + longest(computing, moved(piece, card, card["pooling.share"])))


def window(piece: CallOnDevice) -> float:
    """Elements that a result is made of."""
    if not piece.call.get("kernel_size"):
        return max(1.0, piece.call.inputs[0].elements / max(1, piece.main.elements))
    sizes = piece.call.integers("kernel_size")
    return float(prod(sizes) if len(sizes) > 1 else sizes[0] ** 2)
