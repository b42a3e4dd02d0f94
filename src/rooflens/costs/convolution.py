"""Convolutions of any dimension, grouped, dilated and transposed, forward and backward."""

from __future__ import annotations

from math import prod

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import matrix, pointwise
from rooflens.records import Call, Tensor

OF_COMPLEX = 6
"""FLOP of a complex multiply-add: torch makes a complex convolution of three real ones, not of four."""


def macs(inputs: Tensor, weight: Tensor, result_shape: tuple[int, ...], transposed: bool) -> int:
    """Multiply-adds of a convolution.

    Weights are (out channels, in channels / groups, *kernel): every element of the result sums the kernel over the
    input channels of its group. Transposed weights are (in channels, out channels / groups, *kernel): every element of
    the *input* meets each of them once; taps that fall outside of the result are not subtracted. Padding counts as
    input.
    """
    taps = weight.shape[1] * prod(weight.shape[2:])
    return prod(inputs.shape if transposed else result_shape) * taps


@register(
    "convolution", "convolution", "_convolution", "convolution_overrideable", "cudnn_convolution", "mkldnn_convolution"
)
def forward(call: Call) -> Demand:
    """Every element of the result sums the kernel over the input channels of its group: one multiply-add per tap.

    Transposed, every element of the input meets each tap once. A bias is one addition per element of the result.
    """
    inputs, weight, out = call.tensor("input" if call.get("input") else "self"), call.tensor("weight"), call.outputs[0]
    flops = matrix(macs(inputs, weight, out.shape, bool(call.get("transposed", False))), inputs, OF_COMPLEX)
    if isinstance(call.get("bias"), Tensor):
        flops |= pointwise(out, vector=out.elements)
    return Demand(flops=flops)


@register("convolution", "convolution_backward")
def backward(call: Call) -> Demand:
    """The gradients that are asked for: input and weight each cost what forward costs, the bias one sum per element.

    Each tap pairs one element of the input (or its gradient) with one of the output's gradient, whatever the stride,
    dilation or grouping: the input's gradient sends every output gradient back through the same taps, the weight's
    gradient sums over the same pairs. Input and weight are read only for the gradient that needs them.
    """
    grad, inputs, weight = call.tensor("grad_output"), call.tensor("input"), call.tensor("weight")
    for_input, for_weight, for_bias = call.integers("output_mask")
    once = macs(inputs, weight, grad.shape, bool(call["transposed"]))
    flops = matrix(once * (bool(for_input) + bool(for_weight)), inputs, OF_COMPLEX)
    if for_bias:
        flops |= pointwise(grad, vector=grad.elements)
    unread = (0 if for_input else weight.nbytes) + (0 if for_weight else inputs.nbytes)
    return Demand(flops=flops, bytes=call.reads + call.writes - unread)


@register("convolution", "conv_tbc")
def time_first(call: Call) -> Demand:
    """(time, batch, C_in) with weights (kernel, C_in, C_out): every result sums the kernel over all input channels."""
    inputs, weight, out = call.tensor("self"), call.tensor("weight"), call.outputs[0]
    products = out.elements * weight.shape[0] * weight.shape[1]
    return Demand(flops=matrix(products, inputs) | pointwise(out, vector=out.elements))


@register("convolution", "conv_tbc_backward")
def time_first_backward(call: Call) -> Demand:
    """The gradients of input and weight, each as forward, and the bias's sum: this operation always gives all three."""
    grad, weight = call.tensor("self"), call.tensor("weight")
    once = grad.elements * weight.shape[0] * weight.shape[1]
    return Demand(flops=matrix(2 * once, grad) | pointwise(grad, vector=grad.elements))


SAMPLE = 16
"""Per sampled value of a deformable convolution: 4 corners weighted and added, and 2 for the weight of each."""


@register("convolution", "deform_conv2d")
def deformable(call: Call) -> Demand:
    """A convolution on values that are sampled between pixels, once per tap, input channel and position."""
    inputs, weight, out = call.tensor("input"), call.tensor("weight"), call.outputs[0]
    sampled = _sampled(inputs, weight, out)
    return Demand(
        flops=matrix(macs(inputs, weight, out.shape, transposed=False), inputs)
        | pointwise(inputs, vector=SAMPLE * sampled + out.elements)
    )


@register("convolution", "_deform_conv2d_backward")
def deformable_backward(call: Call) -> Demand:
    """Products for the samples' and the weights' gradients, each as forward; samples go back to pixels and offsets."""
    grad, inputs, weight = call.tensor("grad"), call.tensor("input"), call.tensor("weight")
    once = macs(inputs, weight, grad.shape, transposed=False)
    vector = 2 * SAMPLE * _sampled(inputs, weight, grad) + grad.elements
    return Demand(flops=matrix(2 * once, inputs) | pointwise(inputs, vector=vector))


def _sampled(inputs: Tensor, weight: Tensor, out: Tensor) -> int:
    """Values that a deformable convolution samples: every tap of every input channel at every position."""
    return out.shape[0] * inputs.shape[1] * prod(weight.shape[2:]) * prod(out.shape[2:])
