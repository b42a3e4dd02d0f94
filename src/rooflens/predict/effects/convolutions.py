"""Convolutions as implicit matrix products, with the copies into the layout that the kernels want.

Positions of the result x output channels, summed over input channels x taps. Only the gradient of the weights splits
its sum. Tensor-core kernels work with channels last: from channels-first tensors cuDNN copies input, weights and result
(not for 1x1 with stride 1 and whole vectors of 16 bytes of pixels, and not for images of one pixel). Few input channels
(a stem) run on direct kernels. fp32 takes channels first; cuDNN 9 runs 3x3 on images up to 32 pixels by FFT where there
are positions enough. Groups of 4, 8, 16 or 32 channels cost a time for each result and for each input; others fall off
a cliff. A bias is added by a kernel of its own (torch's Convolution.cpp). Forms: a trial, a suite (512 calls) and the
convolutions of 14 models (2,400 calls) on an H100.
"""

from __future__ import annotations

from math import prod
from typing import Literal

from rooflens.predict.call_on_device import CHANNELS_LAST, HALF, CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.copies import passed_over
from rooflens.predict.effects.depthwise import depthwise
from rooflens.predict.effects.products import SPLITS, TENSOR, at_full_power, contraction, tiled, unaligned_bytes
from rooflens.predict.effects.row_passes import column_parts
from rooflens.predict.effects.streams import bytes_time, moved
from rooflens.predict.terms import composed, longest, named
from rooflens.records import Call, Tensor

PLAIN = frozenset({"convolution", "_convolution", "cudnn_convolution", "convolution_overrideable"})
STEM = 4
"""Most input channels of a stem: tensor cores cannot load whole vectors."""
THIN = 128
"""With fewer channels on either side, the library takes kernels of an earlier generation."""
NARROW = frozenset({2, 4, 8, 16, 32})
"""Channels of a group for which the library has kernels of its own."""
WIDE_GROUP = 128
"""Channels from which on a group is a product of its own."""
LEAST_WINOGRAD = 16
"""Channels from which on a 3x3 kernel runs by Winograd."""
LESS = 2 / 3
"""Of the channels from which on FFT is taken: enough for the gradient of the input, of images of any size."""
Gradient = Literal["weight", "input"]
VECTOR_BYTES = 16
"""1x1 kernels read channels first where the pixels of a plane are whole vectors."""


def convolution(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a convolution, or of its gradients."""
    call = piece.call
    backward = call.name == "convolution_backward"
    if not backward and call.name not in PLAIN:
        return contraction(piece, card)
    inputs, weight = call.tensor("input"), call.tensor("weight")
    result = call.tensor("grad_output") if backward else call.outputs[0]
    groups = call.integer("groups")
    bias = _bias(card, call) + _packed(card, inputs)
    if call.get("transposed"):
        inputs, result = result, inputs  # a transposed convolution is the gradient of a plain one
    if groups > 1 and weight.shape[1] == 1:
        return depthwise(piece, card, inputs, weight, result) + (bias if channels_last(call) else 0.0)
    if groups > 1 and not backward and (kind := _grouped_kind(piece, weight)):
        return bias + _grouped(piece, card, kind, inputs, result) + _relayout(piece, card, inputs, weight, result)
    asked = tuple(map(bool, call.integers("output_mask")[:2])) if backward else (True,)
    sizes = _sizes(inputs, weight, result, groups, backward, bool(call.get("transposed")))
    parts = [(number, one) for number, (one, want) in enumerate(zip(sizes, asked, strict=True)) if want]
    if groups == 1 and inputs.shape[1] <= STEM:
        return bias + sum(_stem(piece, card, len(parts)) for _ in parts)
    seconds = bias
    for number, (m, n, k) in parts:
        of_weight = backward and number == 1
        product = tiled(card, piece.precision, m, n, k, groups, SPLITS if of_weight else (1,))
        slower, saved = _kernel(piece, card, weight, result, "weight" if of_weight else "input" if backward else None)
        product = at_full_power(card, piece.precision, 2.0 * groups * m * n * k, product * slower) / saved
        moving = _moving(piece, card) / len(parts)
        seconds += card["convolution.start"] + longest(product, moving)
    return seconds + len(parts) * _relayout(piece, card, inputs, weight, result)


def _packed(card: Card, inputs: Tensor) -> float:
    """Seconds of making a slice dense before cuDNN takes it; no trace shows that copy."""
    reach = [step * size for step, size in zip(inputs.strides or (), inputs.shape, strict=False) if size > 1]
    if max(reach, default=0) <= inputs.elements:
        return 0.0
    return composed("dense copy", passed_over(inputs, card))


def _bias(card: Card, call: Call) -> float:
    """Seconds of adding a bias to the result: an element-wise kernel whose operand is broadcast; or of its gradient."""
    if call.name == "convolution_backward":
        return _bias_gradient(card, call)
    out = call.outputs[0]
    if call.name not in PLAIN or not isinstance(call.get("bias"), Tensor) or prod(out.shape[2:]) == 1:
        return 0.0
    return composed("bias", passed_over(out, card))


def _bias_gradient(card: Card, call: Call) -> float:
    """Seconds of summing a gradient over images and pixels."""
    mask, gradient = call.integers("output_mask"), call.tensor("grad_output")
    if len(mask) < 3 or not mask[2]:
        return 0.0
    dims = (0, *range(2, len(gradient.shape)))
    moving = bytes_time(0, gradient.nbytes, gradient.nbytes, card, card["rows.share"])
    adding = column_parts(gradient, dims, card) * card["rows.part"]
    return composed("gradient of the bias", card["rows.start_narrow"] + moving + adding)


def _stem(piece: CallOnDevice, card: Card, parts: int) -> float:
    """Seconds of a convolution of up to 4 channels: direct kernels, whatever the layout."""
    flops = piece.matmul_flops / parts
    rate = card.per_second("convolution.stem_half" if piece.precision in HALF else "convolution.stem")
    moving = moved(piece, card, card["stream.share_wide"]) / parts
    return card["convolution.stem_start"] + longest(named("arithmetic", flops / rate, flops=flops, rate=rate), moving)


def _moving(piece: CallOnDevice, card: Card) -> float:
    """Seconds of the bytes; on tensor cores more, where pixels are no whole vectors, or where channels come first."""
    seconds = moved(piece, card, card["product.streamed"])
    if piece.precision not in TENSOR:
        return seconds
    if not channels_last(piece.call):  # such kernels gain nothing from a cache
        return longest(seconds, named("bytes of planes", piece.nbytes / (card["convolution.planar"] * card.dram)))
    images = (piece.call.tensor("input"), *piece.call.outputs[:1])
    if any(t.shape[1] * t.nbytes // max(1, t.elements) % VECTOR_BYTES for t in images):
        return longest(seconds, unaligned_bytes(piece, card))
    return seconds


def _grouped_kind(piece: CallOnDevice, weight: Tensor) -> str | None:
    """The constants of a grouped convolution; None where it costs a share of the rate of a product."""
    half = piece.precision in HALF
    if weight.shape[1] in NARROW:
        return "half" if half else "tf32" if piece.precision == "tf32" else "fp32"
    return "odd" if half and weight.shape[1] < WIDE_GROUP and channels_last(piece.call) else None


def _grouped(piece: CallOnDevice, card: Card, kind: str, inputs: Tensor, result: Tensor) -> float:
    """Seconds of a convolution in groups that have a kernel of their own: a time for each result and each input."""
    each = result.elements * card[f"groups.output_{kind}"] + inputs.elements * card[f"groups.input_{kind}"]
    computing = named("results and inputs", each / card.cycles)
    return card[f"groups.start_{kind}"] + longest(computing, moved(piece, card, card["product.streamed"]))


def _kernel(
    piece: CallOnDevice, card: Card, weight: Tensor, result: Tensor, gradient: Gradient | None
) -> tuple[float, float]:
    """The time of the library's kernel over that of a plain product, and direct FLOP over executed ones."""
    groups = piece.call.integer("groups")
    if groups > 1:
        return 1 / card["convolution.grouped"], 1.0
    thin = min(weight.shape[0], weight.shape[1]) < THIN and prod(weight.shape[2:]) > 1
    if piece.precision != "fp32":
        return 1 / card["convolution.thin"] if thin else 1.0, 1.0
    slower = 1 / card["convolution.fp32"]
    if weight.shape[2:] != (3, 3) or any(step != 1 for step in piece.call.integers("stride")):
        return slower, 1.0
    if _by_fft(card, weight, result, gradient):
        return slower, card["convolution.fft_saves"]
    return slower, card["convolution.winograd"] if min(weight.shape[:2]) >= LEAST_WINOGRAD else 1.0


def _by_fft(card: Card, weight: Tensor, result: Tensor, gradient: Gradient | None) -> bool:
    """True if the library runs a 3x3 kernel in fp32 by FFT: small images, and positions and channels enough."""
    most = card["convolution.fft_pixels"]
    small = max(result.shape[2:]) <= most or (gradient == "input" and most > 0)
    many = gradient == "weight" or result.shape[0] * prod(result.shape[2:]) >= card["convolution.fft_positions"]
    channels = card["convolution.fft_channels"] * (LESS if gradient == "input" else 1.0)
    return small and many and min(weight.shape[:2]) >= channels


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


def channels_last(call: Call) -> bool:
    """True if the kernel takes its tensors with channels last: the input or the weights lie so."""
    tensors = (call.tensor("input"), call.tensor("weight"))
    return any(t.memory_format in CHANNELS_LAST for t in tensors)


def _relayout(piece: CallOnDevice, card: Card, inputs: Tensor, weight: Tensor, result: Tensor) -> float:
    """Seconds of copying tensors into the layout of tensor-core kernels, and the result back: a kernel for each."""
    call = piece.call
    if piece.precision not in TENSOR or channels_last(call):
        return 0.0
    pixels = prod(inputs.shape[2:])
    if pixels == 1 or _reads_planes(piece, inputs, weight, pixels):
        return 0.0
    seconds = 3 * card["stream.start"]
    for tensor, kind in ((inputs, "pixels"), (weight, "taps"), (result, "pixels")):
        moving = bytes_time(0, 2 * tensor.nbytes, 2 * tensor.nbytes, card, card["convolution.relayout"])
        seconds += longest(moving, tensor.elements / card.per_second(f"convolution.relayout_{kind}"))
    return composed("change of layout", seconds)


def _reads_planes(piece: CallOnDevice, inputs: Tensor, weight: Tensor, pixels: int) -> bool:
    """True if kernels take planes as they are: 1x1 with stride 1, of whole vectors, or in TF32 of a single image."""
    if prod(weight.shape[2:]) > 1 or any(step != 1 for step in piece.call.integers("stride")):
        return False
    size = inputs.nbytes // max(1, inputs.elements)
    return pixels * size % VECTOR_BYTES == 0 or (inputs.shape[0] == 1 and piece.precision == "tf32")
