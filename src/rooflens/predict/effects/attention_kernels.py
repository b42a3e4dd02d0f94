"""Attention by the kernel that torch takes: flash in 16 bits, the memory-efficient one in fp32; one query at a time.

A block takes 128 queries of a head (64 in fp32) and goes over the keys in blocks of as many: lengths are padded to
blocks, and a causal call computes the blocks that touch its half. Rates are per head width: twice as wide runs twice as
fast, up to 128. fp32 has one kernel, whatever the TF32 switch says. Masks cost a factor, and so do lengths that are no
multiple of 8. Backward computes 5 products for the 4 that are counted. A few queries against many keys read the cache,
whatever its length; under a mask a block goes over all keys of a head, one group after the other, and a mask of truth
values is made into numbers first, by three kernels (profiles and a suite on an H200); wide heads cost another factor
then. Other forms and constants: a suite on an H100 (77 calls; torch 2.11, whose 16-bit kernel is cuDNN's or
FlashAttention-2's).
"""

from __future__ import annotations

from math import ceil, prod

from rooflens.predict.call_on_device import HALF, CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.products import contraction, full_rate
from rooflens.predict.effects.streams import moved
from rooflens.predict.terms import longest, named
from rooflens.records import Tensor

FEW = 16
"""Most queries of a call that is bound by reading its keys and values."""
RECOMPUTED = 5 / 4
"""Products of a flash backward over those that are counted: Q K^T is computed again."""
BLOCK = {True: 128, False: 64}
"""Queries of a block, and keys: in 16 bits, and in fp32."""
VECTOR = 8
"""Keys of which there is a multiple where the fast kernels can read them."""
SHARED = 1 / 2
"""Heads over units below which a kernel shares the keys of a head among units."""
COMMON = 64
"""Head width at which constants are told; powers of the width over it tell those of others."""
PRODUCTS = 0.95
"""Of the rate of products: a kernel is never faster than those in it. An RTX A5000 runs at 84 TFLOP/s."""
WIDE = 128
"""Head width from which on a kernel gets no faster."""


def attention(piece: CallOnDevice, card: Card) -> float:
    """Seconds of scaled dot-product attention or of its gradients."""
    call = piece.call
    if not isinstance(call.get("query"), Tensor) or not isinstance(call.get("key"), Tensor):
        return contraction(piece, card)
    query, key = call.tensor("query"), call.tensor("key")
    mask = call.get("mask", call.get("attn_mask"))
    masked = isinstance(mask, Tensor)
    start = card["attention.start"]
    if isinstance(mask, Tensor) and mask.dtype == "bool" and query.dtype in HALF:
        start += card["attention.truths"]
    packed = call.name.startswith("varlen")
    if not packed and query.shape[-2] <= FEW and key.shape[-2] > query.shape[-2]:
        if masked and query.dtype in HALF:
            return start + _masked_reading(piece, card, query, key)
        return start + moved(piece, card, card["attention.decode"])
    reading = moved(piece, card, card["attention.decode"])
    flops, rate = piece.matmul_flops, _rate(card, query)
    if "backward" in call.name:
        flops, rate = flops * RECOMPUTED, rate * card["attention.backward"]
    computing = flops / rate
    padded, waves = 1.0, 1.0
    if not packed:
        causal = bool(call.get("causal", call.get("is_causal")))
        padded = padding(query.shape[-2], key.shape[-2], BLOCK[query.dtype in HALF], causal)
        waves = _waves(card, query)
        computing *= _slower(card, query, key, masked)
        computing *= padded * waves
    arithmetic = named("arithmetic", computing, flops=flops, rate=rate, padded=padded, last_wave=waves)
    return start + longest(arithmetic, reading)


def _masked_reading(piece: CallOnDevice, card: Card, query: Tensor, key: Tensor) -> float:
    """Seconds of reading a cache under a mask: bytes, or key after key in the blocks of a unit, unless keys are shared.

    The kernel shares the keys of a head among units where single queries have fewer heads than half of them, unless
    these are wide.
    """
    blocks = prod(query.shape[:-2]) / card.units
    reading = moved(piece, card, card["attention.decode_masked"])
    if query.shape[-2] == 1:
        shared = blocks < SHARED and query.shape[-1] <= WIDE
        return reading if shared else longest(reading, key.shape[-2] * card["attention.key"])
    return longest(reading, key.shape[-2] * card["attention.key_folded"] * max(1.0, blocks))


def _slower(card: Card, query: Tensor, key: Tensor, masked: bool) -> float:
    """The time with a mask, or with keys that are no whole vectors, over that without."""
    if query.dtype not in HALF:
        return card["attention.masked_wide"] if masked else 1.0
    slower = card["attention.odd"] if key.shape[-2] % VECTOR else 1.0
    if not masked:
        return slower
    slower *= card["attention.masked"] * _power(min(query.shape[-1], WIDE) / COMMON, card["attention.masked_width"])
    if query.shape[-1] > WIDE:
        slower *= card["attention.masked_beyond"]
    return slower * (card["attention.masked_odd"] if key.shape[-2] % VECTOR else 1.0)


def _rate(card: Card, query: Tensor) -> float:
    """FLOP/s of the kernel for operands of a type and a head width."""
    width = min(query.shape[-1], WIDE) / COMMON
    if query.dtype not in HALF:
        rate = card.rates.get("vector.fp32") or card.rates["matmul.fp32"]
        return rate * card["attention.fp32"] * _power(width, card["attention.fp32_width"])
    peak = card.rates.get(f"matmul.{query.dtype}") or card.rates.get("matmul.fp16") or card.rates["vector.fp32"]
    flash = peak * card["attention.flash"] * _power(width, card["attention.flash_width"])
    return min(flash, PRODUCTS * full_rate(card, query.dtype))


def _power(base: float, exponent: float) -> float:
    raised: float = base**exponent
    return raised


def padding(queries: int, keys: int, block: int, causal: bool) -> float:
    """Pairs in the blocks that a kernel computes, over the pairs that attend."""
    down, across = ceil(queries / block), ceil(keys / block)
    if not causal:
        return down * across * block * block / max(1, queries * keys)
    square = min(queries, keys)
    attending = square * (square + 1) // 2 + max(0, queries - keys) * keys
    touched = sum(min(across, row + 1) for row in range(down))
    return touched * block * block / max(1, attending)


def _waves(card: Card, query: Tensor) -> float:
    """Waves of blocks over the units that they would fill: units without a block wait."""
    blocks = prod(query.shape[:-2]) * ceil(query.shape[-2] / BLOCK[query.dtype in HALF])
    waves = blocks / card.units
    return ceil(waves) / waves if waves else 1.0
