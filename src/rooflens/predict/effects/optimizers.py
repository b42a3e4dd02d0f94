"""Operations on lists of tensors: foreach and fused optimizers, norms of gradients.

torch's multi_tensor_apply puts up to 110 tensors (of a list each; fewer with more lists) and 320 chunks of 65,536
elements into a launch. Small tensors waste their chunks, so many small parameters cost launches, not bytes.
"""

from __future__ import annotations

from math import ceil

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import bytes_time
from rooflens.records import Tensor

CHUNK = 65_536


def tensor_list(piece: CallOnDevice, card: Card) -> float:
    """Seconds of one operation on lists of tensors."""
    lists = [value for _, value in piece.call.arguments if isinstance(value, tuple) and value]
    tensors = [[t for t in value if isinstance(t, Tensor)] for value in lists]
    first = max(tensors, key=len, default=[])
    chunks = sum(ceil(t.elements / CHUNK) for t in first)
    depth = max(1, sum(len(some) == len(first) for some in tensors))
    per_launch = card["optimizer.tensors"] / depth
    launches = max(1, ceil(len(first) / per_launch), ceil(chunks / card["optimizer.chunks"]))
    moving = bytes_time(0.0, piece.nbytes, piece.nbytes, card, card["optimizer.share"])
    return launches * card["optimizer.start"] + moving
