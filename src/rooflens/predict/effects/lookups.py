"""Embeddings, gathers and scatters: rows at addresses that only the indices know.

Rows are read at a smaller share of the bandwidth than a stream. Values that are added at their places collide; the
gradient of an embedding is sorted by index first (torch's embedding_dense_backward), some kernels whatever its size.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved


def lookup(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a gather, a scatter, an embedding or its gradient."""
    name = piece.call.name
    adds = "scatter" in name or "put" in name or "add" in name
    start = card["lookup.sorted"] if name.startswith("embedding_dense_backward") else card["stream.start"]
    return start + moved(piece, card, card["lookup.scatter" if adds else "lookup.share"])
