"""Pooling and interpolation."""

from __future__ import annotations

from math import prod

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import per_element, pointwise
from rooflens.records import Call, Tensor


def _window(call: Call) -> int:
    """Elements of the pooling window; one number stands for all dimensions."""
    sizes = call.integers("kernel_size")
    return prod(sizes) if len(sizes) > 1 else sizes[0] ** (3 if "3d" in call.name else 2)


@register("pooling", "max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d", "avg_pool2d", "avg_pool3d")
def pool(call: Call) -> Demand:
    """One comparison or addition per element of each window."""
    return per_element(call.outputs[0], _window(call))


@register(
    "pooling",
    *("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"),
    *("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"),
)
def max_pool_backward(call: Call) -> Demand:
    """Each gradient is added where its maximum was: gradient and indices are read, the input is not."""
    grad, indices, out = call.tensor("grad_output"), call.tensor("indices"), call.outputs[0]
    return Demand(flops=pointwise(grad, vector=grad.elements), bytes=grad.nbytes + indices.nbytes + out.nbytes)


@register("pooling", "avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(call: Call) -> Demand:
    """Each gradient is added to every element of its window; the input's values are not read."""
    grad, out = call.tensor("grad_output"), call.outputs[0]
    return Demand(flops=pointwise(grad, vector=_window(call) * grad.elements), bytes=grad.nbytes + out.nbytes)


@register("pooling", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_pool(call: Call) -> Demand:
    """Windows of variable size tile the input: one operation per element of the larger side.

    Where the input is no multiple of the result, windows overlap by one row and the count is a little low.
    """
    return per_element(max((*call.inputs, *call.outputs), key=lambda t: t.elements), 1)


@register("pooling", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(call: Call) -> Demand:
    """As forward; the input's values are not read."""
    grad, out = call.tensor("grad_output"), call.outputs[0]
    larger = max((grad, out), key=lambda t: t.elements)
    return Demand(flops=pointwise(larger, vector=larger.elements), bytes=grad.nbytes + out.nbytes)


POINTS = {
    "upsample_linear1d": 2,
    "upsample_bilinear2d": 4,
    "upsample_trilinear3d": 8,
    "upsample_bicubic2d": 16,
    "_upsample_bilinear2d_aa": 4,
    "_upsample_bicubic2d_aa": 16,
    "_upsample_lanczos2d_aa": 36,
}
"""Points of the input that one element of the result takes; each is weighted and added (2 FLOP).

The antialiasing kernels take more when they shrink an image; they are counted as if they did not.
"""


def _interpolate(call: Call) -> Demand:
    """Per element of the result, each point of the input that it takes is weighted and added: 2 FLOP."""
    larger: Tensor = call.tensor("grad_output") if call.name.endswith("_backward") else call.outputs[0]
    return per_element(larger, 2 * POINTS[call.name.removesuffix("_backward")])


for _name in POINTS:
    register("interpolation", _name, f"{_name}_backward")(_interpolate)


@register("interpolation", *(f"grid_sampler_{n}d{form}" for n in (2, 3) for form in ("", "_backward")))
def grid_sample(call: Call) -> Demand:
    """Corners weighted and added: 2 FLOP each of 4 (8 in three dimensions), and 2 per corner for its weight.

    Backward is twice that: gradients of the corners and of their weights.
    """
    backward = call.name.endswith("_backward")
    samples = call.tensor("grad_output") if backward else call.outputs[0]
    return per_element(samples, (32 if "3d" in call.name else 16) * (2 if backward else 1))
