"""Depthwise convolutions: no products, one output after the other from its window.

A thread computes one output: a fixed cost and one for each tap. Channels first: (4.3 + 0.6 taps) ps on an H100;
channels last in 16 bits: (0.75 + 0.16 taps) ps, and never below 0.72 of the bandwidth (a trial on an H100). The
gradient of the input is a convolution of the same kind; that of the weights sums over all positions of a channel.
"""

from __future__ import annotations

from math import prod

from rooflens.predict.call_on_device import HALF, CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved
from rooflens.predict.terms import longest, named
from rooflens.records import Tensor


def depthwise(piece: CallOnDevice, card: Card, inputs: Tensor, weight: Tensor, result: Tensor) -> float:
    """Seconds of a depthwise convolution, or of its gradients."""
    channels_last = "channels_last" in (inputs.memory_format, weight.memory_format)
    last = inputs.dtype in HALF and channels_last
    form = "last" if last else "planar"
    taps = prod(weight.shape[2:])
    each = (card[f"depthwise.{form}_output"] + card[f"depthwise.{form}_tap"] * taps) / card.cycles
    each *= card["depthwise.wide_last"] if channels_last and not last else 1.0
    values = max(result.elements, card["depthwise.read"] * inputs.elements) if last else result.elements
    least = taps * card[f"depthwise.{form}_alone"]
    if piece.call.name != "convolution_backward":
        return _kernel(piece, card, each * values, least)
    for_input, for_weight = map(bool, piece.call.integers("output_mask")[:2])
    each *= card["depthwise.gradients_wide_last"] if channels_last and not last else 1.0
    seconds = 0.0
    if for_input:
        seconds += _kernel(piece, card, card[f"depthwise.input_{form}"] * each * inputs.elements, least)
    if for_weight:
        seconds += _kernel(piece, card, card[f"depthwise.weights_{form}"] * each * result.elements, least)
    return seconds


def _kernel(piece: CallOnDevice, card: Card, computing: float, least: float) -> float:
    results, window = named("results", computing), named("one window", least)
    return card["stream.start"] + longest(results, window, moved(piece, card, card["depthwise.share"]))
