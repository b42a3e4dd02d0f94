"""Batch, layer, group and RMS normalisation.

Per element of the input. Statistics: 1 addition for the mean; subtract, multiply, add for the variance. Normalising:
subtract the mean, multiply by the inverse deviation, and by the weight and plus the bias where there are such.
Backward: the normalised value again (2), bias gradient (1), weight gradient (2), input gradient (multiply, two
subtractions, multiply: 4). The two sums that the input gradient needs are the gradients of weight and bias for a batch
norm; over rows or groups they are sums of their own, after a multiplication by the weight.
"""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import per_element, pointwise
from rooflens.records import Call, Tensor

STATISTICS, NORMALIZE = 4, 2
BIAS_GRADIENT, WEIGHT_GRADIENT, INPUT_GRADIENT = 1, 2, 4
FIXED = ("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
"""Batch norms that always use the running statistics."""


@register(
    "normalization",
    *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
    *("cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_with_update", "_batch_norm_no_update"),
)
def batch_norm(call: Call) -> Demand:
    """Per element 2 to normalise and 1 each for weight and bias; 4 more where the batch's own statistics are used.

    Per channel one inverse square root.
    """
    inputs = call.tensor("input")
    vector = _normalize(call) + (STATISTICS if call.get("training", call.name not in FIXED) else 0)
    channels = inputs.shape[1] if len(inputs.shape) > 1 else 1
    return Demand(flops=pointwise(inputs, vector=vector * inputs.elements, special=channels))


@register("normalization", "native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward")
def batch_norm_backward(call: Call) -> Demand:
    """With the batch's statistics the input gradient needs those of weight and bias; with fixed ones it is one product.

    cuDNN's form has no mask and no flag: it is a training step's, and gives all three.
    """
    for_input, for_weight, for_bias = _mask(call)
    if call.get("train", call.get("update", True)):
        vector = NORMALIZE + WEIGHT_GRADIENT + BIAS_GRADIENT + INPUT_GRADIENT * for_input
    else:
        vector = (NORMALIZE + WEIGHT_GRADIENT) * for_weight + BIAS_GRADIENT * for_bias + for_input
    return per_element(call.tensor("input"), vector)


@register("normalization", "native_layer_norm", "native_group_norm")
def layer_norm(call: Call) -> Demand:
    """Per element 4 for statistics, 2 to normalise and 1 each for weight and bias.

    Per row (or group) one inverse square root.
    """
    inputs = call.tensor("input")
    rows = call.outputs[-1].elements
    return Demand(flops=pointwise(inputs, vector=(STATISTICS + _normalize(call)) * inputs.elements, special=rows))


@register("normalization", "native_layer_norm_backward", "native_group_norm_backward")
def layer_norm_backward(call: Call) -> Demand:
    """The input gradient has sums of its own: times the weight (1 where there is one), their addition (1 and 2)."""
    for_input, for_weight, for_bias = _mask(call)
    own_sums = 3 + isinstance(call.get("weight"), Tensor)
    parameters = WEIGHT_GRADIENT * for_weight + BIAS_GRADIENT * for_bias
    vector = NORMALIZE * (for_input or for_weight) + parameters + (own_sums + INPUT_GRADIENT) * for_input
    return per_element(call.tensor("input"), vector)


@register("normalization", "_fused_rms_norm")
def rms_norm(call: Call) -> Demand:
    """Square and add, multiply by the inverse root, by the weight if there is one; one inverse root per row."""
    inputs = call.tensor("input")
    vector = 3 + isinstance(call.get("weight"), Tensor)
    return Demand(flops=pointwise(inputs, vector=vector * inputs.elements, special=call.outputs[-1].elements))


@register("normalization", "_fused_rms_norm_backward")
def rms_norm_backward(call: Call) -> Demand:
    """The normalised value (1), weight gradient (2), input gradient (sum of products: 2; multiply, subtract, multiply).

    With a weight the input gradient begins with one more multiplication.
    """
    for_input, for_weight = map(bool, call.integers("output_mask"))
    weighted = isinstance(call.get("weight"), Tensor)
    vector = (for_input or for_weight) + WEIGHT_GRADIENT * for_weight + (5 + weighted) * for_input
    return per_element(call.tensor("input"), vector)


def _normalize(call: Call) -> int:
    return NORMALIZE + sum(isinstance(call.get(name), Tensor) for name in ("weight", "bias"))


def _mask(call: Call) -> tuple[bool, bool, bool]:
    """True for each gradient of input, weight and bias that is asked for: all where the operation has no mask."""
    for_input, for_weight, for_bias = map(bool, call.integers("output_mask", (True, True, True)))
    return for_input, for_weight, for_bias


@register("normalization", "_weight_norm_interface")
def weight_norm(call: Call) -> Demand:
    """Square and add, scale: 3 per element; one root per norm."""
    direction, norms = call.tensor("v"), call.outputs[-1]
    return Demand(flops=pointwise(direction, vector=3 * direction.elements, special=norms.elements))


@register("normalization", "_weight_norm_interface_backward")
def weight_norm_backward(call: Call) -> Demand:
    """The sum of gradient times direction (2), and multiply, subtract, multiply."""
    return per_element(call.tensor("saved_v"), 5)


@register("softmax", "_softmax", "_safe_softmax", "_log_softmax")
def softmax(call: Call) -> Demand:
    """Per element: maximum, subtract, sum, divide (of a log-softmax subtract), and one exponential."""
    return per_element(call.tensor("self"), vector=4, special=1)


@register("softmax", "_softmax_backward_data")
def softmax_backward(call: Call) -> Demand:
    """Per element: grad times output, its sum, subtract, multiply."""
    return per_element(call.tensor("output"), vector=4)


@register("softmax", "_log_softmax_backward_data")
def log_softmax_backward(call: Call) -> Demand:
    """Per element: sum of the gradient, exponential of the output, multiply, subtract."""
    return per_element(call.tensor("output"), vector=3, special=1)
