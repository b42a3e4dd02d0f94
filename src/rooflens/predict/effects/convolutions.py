"""Convolutions as implicit matrix products, with the copies into the layout that the kernels want.

Positions of the result x output channels, summed over input channels x taps. Tensor-core kernels work with channels
last: from channels-first tensors cuDNN copies input, weights and result (not for 1x1 with stride 1). fp32 kernels take
channels first; cuDNN 9 runs small 3x3 ones by FFT, earlier versions by Winograd. Gradients are products of their own:
that of the input over output channels x taps, that of the weights over all positions. Forms: a trial on an H100.
"""

from __future__ import annotations

from math import prod

from rooflens.predict.card import Card
from rooflens.predict.effects.depthwise import depthwise
from rooflens.predict.effects.products import HALF, contraction, product_time
from rooflens.predict.piece import Piece
from rooflens.records import Call, Tensor

PLAIN = frozenset({"convolution", "_convolution", "cudnn_convolution", "convolution_overrideable"})
STEM = 4
"""Most input channels of a stem: its kernels cannot load whole vectors."""


def convolution(piece: Piece, card: Card) -> float:
    """Seconds of a convolution, or of its gradients."""
    call = piece.call
    backward = call.name == "convolution_backward"
    if not backward and call.name not in PLAIN:
        return contraction(piece, card)
    inputs, weight = call.tensor("input"), call.tensor("weight")
    result = call.tensor("grad_output") if backward else call.outputs[0]
    groups = call.integer("groups")
    if call.get("transposed"):
        inputs, result = result, inputs  # a transposed convolution is the gradient of a plain one
    if groups > 1 and weight.shape[1] == 1:
        return depthwise(piece, card, inputs, weight, result)
    asked = tuple(map(bool, call.integers("output_mask")[:2])) if backward else (True,)
    sizes = _sizes(inputs, weight, result, groups, backward, bool(call.get("transposed")))
    parts = [one for one, want in zip(sizes, asked, strict=True) if want]
    seconds = sum(_part(piece, card, part, groups, len(parts)) for part in parts)
    seconds *= _algorithm(piece, card, weight, result)
    return seconds + _relayout(piece, card, len(parts))


def _sizes(
    inputs: Tensor, weight: Tensor, result: Tensor, groups: int, backward: bool, transposed: bool
) -> tuple[tuple[int, int, int], ...]:
    """(rows, columns, depth) in a group of forward, or of the gradients of input and weight."""
    taps = prod(weight.shape[2:])
    inner, outer = inputs.shape[1] // groups, result.shape[1] // groups
    positions = result.shape[0] * prod(result.shape[2:])
    pixels = inputs.shape[0] * prod(inputs.shape[2:])
    forward = (positions, outer, inner * taps)
    # Every pixel meets the taps whose stride reaches it.
    to_input = (pixels, inner, max(1, round(outer * taps * positions / pixels)))
    to_weight = (outer, inner * taps, positions)
    if not backward:
        return (to_input,) if transposed else (forward,)
    return (forward, to_weight) if transposed else (to_input, to_weight)


def _part(piece: Piece, card: Card, sizes: tuple[int, int, int], groups: int, parts: int) -> float:
    m, n, k = sizes
    inner = piece.call.tensor("weight").shape[1]
    nbytes = piece.nbytes / parts if parts > 1 else piece.nbytes
    fixed = min(piece.weights, nbytes)
    seconds = product_time(card, piece.precision, m, n, k, groups, fixed, nbytes - fixed, piece.held)
    if inner <= STEM and groups == 1:
        seconds /= card["convolution.stem"]
    return seconds + card["convolution.start"] - card["product.start"]


def channels_last(call: Call) -> bool:
    """True if the kernel takes its tensors with channels last: the input or the weights lie so."""
    tensors = (call.tensor("input"), call.tensor("weight"))
    return any(t.memory_format in ("channels_last", "channels_last_3d") for t in tensors)


def _relayout(piece: Piece, card: Card, parts: int) -> float:
    """Seconds of copying tensors into the layout of tensor-core kernels, and the result back."""
    call = piece.call
    if piece.precision not in (*HALF, "tf32") or channels_last(call):
        return 0.0
    taps = prod(call.tensor("weight").shape[2:])
    if taps == 1 and all(step == 1 for step in call.integers("stride")):
        return 0.0
    return 2 * parts * piece.nbytes / (max(1, parts) * card["convolution.relayout"] * card.dram)


def _algorithm(piece: Piece, card: Card, weight: Tensor, result: Tensor) -> float:
    """The time of the algorithm that the library takes, over that of the implicit product."""
    square = weight.shape[2:] == (3, 3) and all(step == 1 for step in piece.call.integers("stride"))
    if piece.precision != "fp32" or not square or piece.call.integer("groups") > 1:
        return 1.0
    channels = min(weight.shape[0], weight.shape[1])
    if max(result.shape[2:]) <= card["convolution.fft_pixels"] and channels >= card["convolution.fft_channels"]:
        return 1 / card["convolution.fft_saves"]
    return 1 / card["convolution.winograd"] if channels >= 16 else 1.0
