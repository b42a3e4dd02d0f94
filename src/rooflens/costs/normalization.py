"""Batch, layer, group and RMS normalisation.

Per element of the input. Statistics: 1 addition for the mean; subtract, multiply, add for the variance. Normalising:
subtract the mean, multiply by the inverse deviation, by the weight, add the bias. Backward: the normalised value again
(2), bias gradient (1), weight gradient (2), input gradient (multiply, two subtractions, multiply: 4).
"""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import pointwise
from rooflens.records import Call, Tensor

STATISTICS, NORMALIZE, BACKWARD, BACKWARD_FIXED = 4, 4, 9, 6


@register(
    "normalization",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "_batch_norm_with_update",
    "_batch_norm_no_update",
)
def batch_norm(call: Call) -> Demand:
    """Statistics only where the batch's own are used; one inverse square root per channel."""
    inputs = call.tensor("input")
    per_element = NORMALIZE + (STATISTICS if call.get("training", "no_training" not in call.name) else 0)
    channels = inputs.shape[1] if len(inputs.shape) > 1 else 1
    return Demand(flops=pointwise(inputs, vector=per_element * inputs.elements, special=channels))


@register("normalization", "native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward")
def batch_norm_backward(call: Call) -> Demand:
    """With fixed statistics the input gradient is one multiplication."""
    inputs = call.tensor("input")
    per_element = BACKWARD if call.get("train", True) else BACKWARD_FIXED
    return Demand(flops=pointwise(inputs, vector=per_element * inputs.elements))


@register("normalization", "native_layer_norm", "native_group_norm")
def layer_norm(call: Call) -> Demand:
    """Statistics of every row (or group), one inverse square root each."""
    inputs = call.tensor("input")
    rows = call.outputs[-1].elements
    return Demand(flops=pointwise(inputs, vector=(STATISTICS + NORMALIZE) * inputs.elements, special=rows))


@register("normalization", "native_layer_norm_backward", "native_group_norm_backward")
def layer_norm_backward(call: Call) -> Demand:
    inputs = call.tensor("input")
    return Demand(flops=pointwise(inputs, vector=BACKWARD * inputs.elements))


@register("normalization", "_fused_rms_norm")
def rms_norm(call: Call) -> Demand:
    """Square and add, multiply by the inverse root, by the weight: 4 per element; one inverse root per row."""
    inputs = call.tensor("input")
    return Demand(flops=pointwise(inputs, vector=4 * inputs.elements, special=call.outputs[-1].elements))


@register("normalization", "_fused_rms_norm_backward")
def rms_norm_backward(call: Call) -> Demand:
    """The normalised value (1), weight gradient (2), input gradient (5)."""
    inputs = call.tensor("input")
    return Demand(flops=pointwise(inputs, vector=8 * inputs.elements))


@register("softmax", "_softmax", "_safe_softmax")
def softmax(call: Call) -> Demand:
    """Per element: maximum, subtract, sum, divide, and one exponential."""
    return _per_element(call.tensor("self"), vector=4, special=1)


@register("softmax", "_log_softmax")
def log_softmax(call: Call) -> Demand:
    """Per element: maximum, subtract, sum, subtract, and one exponential."""
    return _per_element(call.tensor("self"), vector=4, special=1)


@register("softmax", "_softmax_backward_data")
def softmax_backward(call: Call) -> Demand:
    """Per element: grad times output, its sum, subtract, multiply."""
    return _per_element(call.tensor("output"), vector=4)


@register("softmax", "_log_softmax_backward_data")
def log_softmax_backward(call: Call) -> Demand:
    """Per element: sum of the gradient, exponential of the output, multiply, subtract."""
    return _per_element(call.tensor("output"), vector=3, special=1)


def _per_element(tensor: Tensor, vector: float, special: float = 0) -> Demand:
    return Demand(flops=pointwise(tensor, vector=vector * tensor.elements, special=special * tensor.elements))
