"""Attention by the kernel that torch takes: flash in 16 bits, the memory-efficient one in fp32; one query at a time.

fp32 runs at 0.47 of the fp32 rate whatever the TF32 switch says; flash at 0.33 of the 16-bit peak at head widths of
64 (a trial on an H100), more at 128. Masks and lengths that are no multiple of 8 cost up to half more. Blocks of 128
queries of each head run in waves. Backward computes 5 products for the 4 that are counted. Decoding reads the cache.
"""

from __future__ import annotations

from math import ceil, prod

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.products import HALF, contraction
from rooflens.predict.effects.streams import moved
from rooflens.records import Tensor

FEW = 16
"""Most queries of a call that is bound by reading its keys and values."""
RECOMPUTED = 5 / 4
"""Products of a flash backward over those that are counted: Q K^T is computed again."""


def attention(piece: CallOnDevice, card: Card) -> float:
    """Seconds of scaled dot-product attention or of its gradients."""
    call = piece.call
    if not isinstance(call.get("query"), Tensor) or not isinstance(call.get("key"), Tensor):
        return contraction(piece, card)
    query, key = call.tensor("query"), call.tensor("key")
    flops = sum(n for name, n in piece.flops.items() if name.startswith("matmul."))
    reading = moved(piece, card, card["attention.decode"])
    start = card["attention.start"]
    if query.shape[-2] <= FEW and key.shape[-2] > query.shape[-2]:
        return start + reading
    rate = _rate(card, query)
    if "backward" in call.name:
        flops, rate = flops * RECOMPUTED, rate * card["attention.backward"]
    computing = flops / rate * _last_wave(card, query)
    if isinstance(call.get("mask", call.get("attn_mask")), Tensor):
        computing *= card["attention.masked"]
    elif query.shape[-2] % 8 or key.shape[-2] % 8:
        computing *= card["attention.ragged"]
    return start + max(computing, reading)


def _rate(card: Card, query: Tensor) -> float:
    """FLOP/s of the kernel for operands of a type and a head width."""
    if query.dtype not in HALF:
        return card["attention.fp32"] * (card.rates.get("vector.fp32") or card.rates["matmul.fp32"])
    peak = card.rates.get(f"matmul.{query.dtype}") or card.rates.get("matmul.fp16") or card.rates["vector.fp32"]
    narrow, wide = card["attention.flash"], card["attention.flash_wide"]
    along = min(1.0, max(0.0, (query.shape[-1] - 64) / 64))
    return peak * (narrow + along * (wide - narrow))


def _last_wave(card: Card, query: Tensor) -> float:
    """Waves of blocks over the units that they would fill: units without a block wait."""
    blocks = prod(query.shape[:-2]) * ceil(query.shape[-2] / card["attention.block"])
    waves = blocks / card.units
    return ceil(waves) / waves if waves else 1.0
