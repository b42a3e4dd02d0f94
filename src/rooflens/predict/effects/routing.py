"""Sorting, choosing the largest and counting: what finds the experts of a token, and what samples one.

A few elements are sorted by one kernel in the units' own memory, more by a radix sort: several passes, each of some
kernels (torch's Sort.cpp and CUB). The largest of a row are found by a block, and sorted by further kernels. Form:
torch's kernels; constants: a suite on an H200.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved
from rooflens.predict.terms import longest, named
from rooflens.records import Call

CHOOSING = frozenset({"sort", "argsort", "topk", "histc", "bincount", "unique", "_unique2", "multinomial", "kthvalue"})
SHORT = 4096
"""Elements that one kernel sorts."""


def choosing(piece: CallOnDevice, card: Card) -> float:
    """Seconds of sorting, of the largest elements, or of counting."""
    call = piece.call
    moving = moved(piece, card, card["rows.share"])
    if call.name in ("histc", "bincount"):
        return card["routing.count"] + moving
    rows, width = _rows(call)
    if call.name in ("topk", "kthvalue"):
        return card["routing.largest"] + longest(
            moving, named("rows", rows / card.per_second("routing.rows"), rows=rows)
        )
    if width <= SHORT:
        return card["routing.sort_short"] + moving
    keys = named("keys", rows * width / card.per_second("routing.keys"), elements=rows * width)
    return card["routing.sort_long"] + longest(moving, keys)


def _rows(call: Call) -> tuple[int, int]:
    """How many rows are sorted, and their elements; of no dimension that is told, the last one."""
    tensor, dim = call.inputs[0], call.get("dim", -1)
    width = tensor.shape[dim] if isinstance(dim, int) and tensor.shape else 1
    return tensor.elements // max(1, width), width
