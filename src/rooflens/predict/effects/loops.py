"""Scans: a kernel of a library, or the loop over tokens that stands in Python, operation after operation.

The operations of a turn are small, and find in the cache what the turn before has written. What comes before and after
the loop goes over all tokens at once: bytes come from memory. Nobody has timed such a kernel or loop here.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.products import contraction
from rooflens.predict.effects.streams import bytes_time, stream_share
from rooflens.predict.launched_calls import launched


def scan(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a scan on the device: all kernels of its loop, or one kernel."""
    kernels = launched(piece.call, piece.family).operations
    if kernels == 1:
        return contraction(piece, card)
    moving = bytes_time(0.0, piece.nbytes, piece.nbytes, card, stream_share(piece, card))
    return kernels * card["stream.start"] + moving
