"""Operations on lists of tensors: foreach and fused optimizers, norms of gradients.

torch's multi_tensor_apply puts up to 110 tensors into a launch (64, 48, 36, 30 of two to five lists, results included)
and 320 chunks of 65,536 elements, each of which a block takes alone. Small tensors waste their chunks, so many small
parameters cost launches, not bytes; and where few chunks fill a launch, it lasts as long as a block with its chunk.
The start of a launch is from a suite on an H100, the rate of a block from optimizers of six models on an H200.
"""

from __future__ import annotations

from math import ceil

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import bytes_time
from rooflens.predict.terms import named
from rooflens.records import Tensor

CHUNK, MOST_CHUNKS = 65_536, 320
MOST_TENSORS = (110, 64, 48, 36, 30)
"""Tensors of each list in a launch, by the number of lists."""


def tensor_list(piece: CallOnDevice, card: Card) -> float:
    """Seconds of one operation on lists of tensors."""
    given = [value for _, value in piece.call.arguments if isinstance(value, tuple) and value]
    tensors = [[t for t in value if isinstance(t, Tensor)] for value in given]
    first = max(tensors, key=len, default=[])
    chunks = sum(ceil(t.elements / CHUNK) for t in first)
    lists = sum(len(some) == len(first) for some in tensors) + (not piece.call.name.endswith("_"))
    most = MOST_TENSORS[min(max(1, lists), len(MOST_TENSORS)) - 1]
    launches = max(1, ceil(len(first) / most), ceil(chunks / MOST_CHUNKS))
    moving = bytes_time(0.0, piece.nbytes, piece.nbytes, card, card["optimizer.share"])
    idle = 1 - min(1.0, chunks / launches / MOST_CHUNKS)
    largest = min(CHUNK, max((t.elements for t in first), default=0))
    last = named("last chunks", card.of_a_unit(largest / card["optimizer.block"]), chunks=chunks)
    return launches * (card["optimizer.start"] + idle * last) + moving
