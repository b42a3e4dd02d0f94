"""Streams: reading operands and writing results, from memory or from the last-level cache.

Form and constants: a trial on an H100 with 1,513 micro-measurements (warm and cold). A kernel takes a fixed time to
start and to drain; then bytes move at a share of the data sheet's bandwidth. 16-bit elements reach a smaller share.
Results that were just written are read from L2 while the working set is below 0.6 of it, and not above 1.3.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.terms import named


def stream(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a kernel that reads its operands and writes its results once."""
    return card["stream.start"] + moved(
        piece, card, card["stream.share_narrow" if piece.narrow else "stream.share_wide"]
    )


def stream_share(piece: CallOnDevice, card: Card) -> float:
    """The share of the bandwidth that elements of the call's type reach."""
    return card["stream.share_narrow" if piece.narrow else "stream.share_wide"]


def moved(piece: CallOnDevice, card: Card, share: float, times: float = 1.0) -> float:
    """Seconds in which the bytes of a call move, `times` over, at a share of the bandwidth or from L2."""
    cold = min(piece.weights, piece.nbytes)
    if cold and piece.held is not None:
        cold *= 1 - cached_share(piece.held, card)  # a small model's weights stay from step to step
    held = piece.nbytes / 2 if piece.call.name.endswith("_") else piece.nbytes  # in place: written where it was read
    return bytes_time(cold, (piece.nbytes * times) - cold, held, card, share)


def bytes_time(cold: float, warm: float, working_set: float, card: Card, share: float) -> float:
    """Seconds for bytes from memory and for bytes that an earlier kernel of the step has just touched."""
    found = cached_share(working_set, card)
    slow = 1 / (share * card.dram)
    fast = min(slow, 1 / card.per_second("stream.cached"))
    seconds = cold * slow + warm * (found * fast + (1 - found) * slow)
    return named("bytes", seconds, nbytes=cold + warm, share=share, cached=warm * found)


def cached_share(working_set: float, card: Card) -> float:
    """The share of a working set that the last-level cache still holds: all below a size, then ever less."""
    if not card.l2:
        return 0.0
    full = card["stream.full"] * card.l2
    if working_set <= full:
        return 1.0
    empty = card["stream.empty"] * card.l2
    return (empty - working_set) / (empty - full) if working_set < empty else 0.0


def cold_weights(piece: CallOnDevice, card: Card) -> float:
    """Seconds by which weights are read slower in a step than in a row of equal calls, which find them in L2."""
    if piece.held is None or not piece.weights:
        return 0.0
    lost = cached_share(piece.nbytes, card) - cached_share(piece.held, card)
    share = card["stream.share_wide"] * card.dram
    return max(0.0, lost) * piece.weights * max(0.0, 1 / share - 1 / card.per_second("stream.cached"))
