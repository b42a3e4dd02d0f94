"""Embeddings, gathers and scatters: rows at addresses that only the indices know.

Rows are read at a smaller share of the bandwidth than a stream. Values that are added at their places collide; the
gradient of an embedding is sorted by index first (torch's embedding_dense_backward), some kernels whatever its size.
In 16 bits each sum at a place is an exchange that may have to be tried again: elements count, not bytes.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved
from rooflens.predict.terms import longest, named
from rooflens.records import Call

ADDING = ("index_add", "scatter_add")
"""Names of calls that add values at places without sorting these."""


def lookup(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a gather, a scatter, an embedding or its gradient."""
    name = piece.call.name
    adds = "scatter" in name or "put" in name or "add" in name
    start = card["lookup.sorted"] if name.startswith("embedding_dense_backward") else card["stream.start"]
    moving = moved(piece, card, card["lookup.scatter" if adds else "lookup.share"])
    if piece.narrow and name.startswith(ADDING):
        added = _added(piece.call)
        return start + longest(moving, named("sums", added / card.per_second("lookup.added_half"), elements=added))
    return start + moving


def _added(call: Call) -> int:
    """Elements that are added at places."""
    return call.tensor("source" if call.name.startswith("index_add") else "src").elements
