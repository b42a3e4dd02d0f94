"""Recurrent layers: a step waits for the one before it.

Each step of a layer is a product of a few rows and some element-wise kernels; weights are read in every step. The
products of the inputs run at once before (cuDNN), so only half of the arithmetic is in the chain.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.products import full_rate
from rooflens.predict.terms import longest, named


def recurrent(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a recurrent layer or of its gradients."""
    call = piece.call
    inputs = call.tensor("input")
    steps = inputs.shape[0] if len(inputs.shape) > 2 and not call.get("batch_first") else inputs.shape[-2]
    layers = call.integer("layers") if isinstance(call.get("layers"), int) else 1
    times = 2 if "backward" in call.name else 1
    rate = full_rate(card, piece.precision)
    arithmetic = named("arithmetic", piece.matmul_flops / rate, flops=piece.matmul_flops, rate=rate)
    weights = named("weights", piece.weights * steps / card.per_second("stream.cached"))
    chain = times * layers * steps * card["recurrent.step"]
    return chain + longest(arithmetic, times * weights)
