"""The expected seconds of one call on the device: which effect prices which family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.attention_kernels import attention
from rooflens.predict.effects.convolutions import convolution
from rooflens.predict.effects.copies import copy_or_pointwise
from rooflens.predict.effects.lookups import lookup
from rooflens.predict.effects.loops import scan
from rooflens.predict.effects.norms import norm
from rooflens.predict.effects.on_processors import on_processor
from rooflens.predict.effects.optimizers import tensor_list
from rooflens.predict.effects.pooling import pooling
from rooflens.predict.effects.products import contraction, product
from rooflens.predict.effects.recurrent_layers import recurrent
from rooflens.predict.effects.row_passes import row_passes
from rooflens.predict.effects.streams import moved, stream, stream_share
from rooflens.predict.terms import composed

Effect = Callable[[CallOnDevice, Card], float]

EFFECTS: Mapping[str, Effect] = {
    "attention": attention,
    "convolution": convolution,
    "copy": copy_or_pointwise,
    "dropout": stream,
    "elementwise": copy_or_pointwise,
    "fill": stream,
    "gather": lookup,
    "interpolation": pooling,
    "loss": row_passes,
    "matmul": product,
    "normalization": norm,
    "pooling": pooling,
    "recurrent": recurrent,
    "reduction": row_passes,
    "scan": scan,
    "softmax": row_passes,
}
"""The effect of each family; whatever is not here computes at a share of the peak, or moves at one."""
LISTS = ("_foreach_", "_fused_", "_amp_foreach")


def expected_seconds(piece: CallOnDevice, card: Card) -> float:
    """Return the expected seconds of one call on the device."""
    effect = effect_of(piece, card)
    return composed(effect.__name__, effect(piece, card))


def effect_of(piece: CallOnDevice, card: Card) -> Effect:
    """Return the effect that bounds the kernel of a call."""
    if card.launches_itself:
        return on_processor
    if piece.own < 1:
        return fused
    return tensor_list if piece.call.name.startswith(LISTS) else EFFECTS.get(piece.family, unknown)


def fused(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a call that shares a kernel: its part of the start, and what it still moves."""
    return piece.own * card["stream.start"] + moved(piece, card, stream_share(piece, card)) if piece.nbytes else 0.0


def unknown(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a call that no effect knows: its matrix work, or its bytes at a share of the bandwidth."""
    if any(name.startswith("matmul.") for name in piece.flops):
        return contraction(piece, card)
    return card["stream.start"] + moved(piece, card, card["launch.other"])
