"""Softmax, losses and reductions: a few passes over rows that mostly stay in a cache, and a start of their own."""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved


def row_passes(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a softmax, a loss or a reduction."""
    return card["rows.start"] + moved(piece, card, card["rows.share"])
