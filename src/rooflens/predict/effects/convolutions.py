"""Convolutions as implicit matrix products, with the copies into the layout that the kernels want.

Positions of the result x output channels, summed over input channels x taps. Tensor-core kernels work with channels
last: from channels-first tensors cuDNN copies input, weights and result (not for 1x1 with stride 1). fp32 kernels take
channels first; cuDNN 9 runs small 3x3 ones by FFT, earlier versions by Winograd. Gradients are products of their own:
that of the input over output channels x taps, that of the weights over all positions. Forms: a trial on an H100.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.depthwise import depthwise
from rooflens.predict.effects.products import HALF, SPLITS, contraction, tiled
from rooflens.predict.effects.streams import bytes_time, moved
from rooflens.records import Call, Tensor

PLAIN = frozenset({"convolution", "_convolution", "cudnn_convolution", "convolution_overrideable"})
STEM = 4
"""Most input channels of a stem: its kernels cannot load whole vectors."""
THIN = 128
"""With fewer channels on either side, the library takes kernels of an earlier generation."""


def convolution(piece: CallOnDevice, card: Card) -> float:
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
    computing = _arithmetic(piece, card, weight, result)
    seconds = 0.0
    for m, n, k in parts:
        splits = SPLITS if k > max(m, n) else (1,)  # only the gradient of the weights splits its sum
        product = computing(tiled(card, piece.precision, m, n, k, groups, splits))
        moving = moved(piece, card, card["product.streamed"]) / len(parts)
        seconds += card["convolution.start"] + max(product, moving)
    return seconds + len(parts) * _relayout(piece, card, inputs, weight, result)


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


def _arithmetic(piece: CallOnDevice, card: Card, weight: Tensor, result: Tensor) -> Callable[[float], float]:
    """What becomes of the seconds of an implicit product with the kernels that the library takes."""
    algorithm = _algorithm(piece, card, weight, result)
    if piece.precision == "fp32":
        return lambda seconds: seconds * algorithm / card["convolution.fp32"]
    flops = sum(n for name, n in piece.flops.items() if name.startswith("matmul."))
    stem = flops / card.per_second("convolution.stem") if weight.shape[1] <= STEM else 0.0
    thin = min(weight.shape[0], weight.shape[1]) < THIN and prod(weight.shape[2:]) > 1
    slower = card["convolution.thin"] if thin else 1.0
    return lambda seconds: max(seconds / slower, stem)


def channels_last(call: Call) -> bool:
    """True if the kernel takes its tensors with channels last: the input or the weights lie so."""
    tensors = (call.tensor("input"), call.tensor("weight"))
    return any(t.memory_format in ("channels_last", "channels_last_3d") for t in tensors)


def _relayout(piece: CallOnDevice, card: Card, inputs: Tensor, weight: Tensor, result: Tensor) -> float:
    """Seconds of copying tensors into the layout of tensor-core kernels, and the result back: a kernel for each."""
    call = piece.call
    if piece.precision not in (*HALF, "tf32") or channels_last(call):
        return 0.0
    taps = prod(weight.shape[2:])
    if taps == 1 and all(step == 1 for step in call.integers("stride")):
        return 0.0
    seconds = 3 * card["stream.start"]
    for tensor in (inputs, weight, result):
        seconds += bytes_time(0, 2 * tensor.nbytes, 2 * tensor.nbytes, card, card["convolution.relayout"])
    if inputs.shape[1] <= STEM:
        seconds += inputs.elements / card.per_second("convolution.few")
    return seconds


def _algorithm(piece: CallOnDevice, card: Card, weight: Tensor, result: Tensor) -> float:
    """The time of the algorithm that the library takes, over that of the implicit product."""
    square = weight.shape[2:] == (3, 3) and all(step == 1 for step in piece.call.integers("stride"))
    if piece.precision != "fp32" or not square or piece.call.integer("groups") > 1:
        return 1.0
    channels = min(weight.shape[0], weight.shape[1])
    if max(result.shape[2:]) <= card["convolution.fft_pixels"] and channels >= card["convolution.fft_channels"]:
        return 1 / card["convolution.fft_saves"]
    return 1 / card["convolution.winograd"] if channels >= 16 else 1.0
