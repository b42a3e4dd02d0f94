"""Sorting, choosing the largest and counting: what finds the experts of a token, and what samples one.

A few elements are sorted by a block in its unit's own memory, more by a radix sort: several passes, each of some
kernels (torch's Sort.cpp and CUB). The largest of a row are found by a block, and sorted by further kernels. Form:
torch's kernels; constants: a suite on an H200.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved
from rooflens.predict.terms import longest, named

CHOOSING = frozenset({"sort", "argsort", "topk", "histc", "bincount", "unique", "_unique2", "multinomial", "kthvalue"})
SHORT = 4096
"""Elements that one kernel sorts."""


def choosing(piece: CallOnDevice, card: Card) -> float:
    """Seconds of sorting, of the largest elements, or of counting."""
    call = piece.call
    moving = moved(piece, card, card["rows.share"])
    if call.name in ("histc", "bincount"):
        return card["routing.count"] + moving
    width, elements = piece.row, call.inputs[0].elements
    rows = elements // max(1, width)
    if call.name in ("topk", "kthvalue"):
        return card["routing.largest"] + longest(
            moving, named("rows", rows / card.per_second("routing.rows"), rows=rows)
        )
    if width <= SHORT:
        in_turn = named("elements in turn", card.of_a_unit(width * card["routing.sort_each"]), elements=width)
        return card["routing.sort_short"] + longest(moving, in_turn)
    keys = named("keys", rows * width / card.per_second("routing.keys"), elements=rows * width)
    return card["routing.sort_long"] + longest(moving, keys)
