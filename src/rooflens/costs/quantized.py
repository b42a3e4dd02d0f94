"""Layers on 8-bit integers. Their weights are packed: the recorder unpacks them to tell their shape.

What is brought to integers is scaled, rounded, shifted and clamped to their range, which is 5 vector FLOP per element.
"""

from __future__ import annotations

from rooflens.costs.convolution import macs
from rooflens.costs.recurrent import GATES
from rooflens.costs.registry import Demand, Uncounted, register
from rooflens.records import Call

QUANTIZE = 5
_LINEAR = ("quantized_linear", "quantized_linear_relu")
_CONVOLUTIONS = [f"quantized_conv{n}d{relu}" for n in (1, 2, 3) for relu in ("", "_relu")]
_TRANSPOSED = [f"quantized_conv_transpose{n}d" for n in (1, 2, 3)]
_RECURRENT = {f"quantized_{kind}": GATES[kind] for kind in ("lstm", "gru")}
"""Gates of the layers that torch has on integers."""


@register("matmul", *(name + form for name in _LINEAR for form in ("", "_dynamic")), "_dyn_quant_matmul_4bit")
def linear(call: Call) -> Demand:
    """2 x results x inputs of each, on integers.

    A static layer brings its result to integers, a dynamic one its input, and the result back.
    """
    inputs, out = call.inputs[0], call.outputs[0]
    static = call.name in _LINEAR
    rounding = QUANTIZE * out.elements if static else QUANTIZE * inputs.elements + 2 * out.elements
    flops = {"matmul.int8": 2 * out.elements * inputs.shape[-1], "vector.fp32": rounding}
    return Demand(flops=flops)


@register("convolution", *_CONVOLUTIONS, *_TRANSPOSED)
def convolution(call: Call) -> Demand:
    """As a convolution, on integers; the result is brought to integers."""
    inputs, *packed = call.inputs
    if not packed:
        raise Uncounted("the packed weight does not tell its shape")
    weight, out = packed[0], call.outputs[0]
    products = macs(inputs, weight, out.shape, call.name in _TRANSPOSED)
    return Demand(flops={"matmul.int8": 2 * products, "vector.fp32": QUANTIZE * out.elements})


@register("recurrent", *_RECURRENT)
def recurrent(call: Call) -> Demand:
    """Per step, layer and direction the gates meet an input and a hidden vector, on integers."""
    inputs, outputs, layers = call.tensor("input"), call.outputs[0], call.integer("num_layers")
    directions = 2 if call["bidirectional"] else 1
    steps = inputs.elements // max(1, inputs.shape[-1])
    hidden = outputs.shape[-1] // directions
    vectors = directions * (inputs.shape[-1] + hidden) + (layers - 1) * directions * (directions * hidden + hidden)
    products = steps * _RECURRENT[call.name] * hidden * vectors
    return Demand(flops={"matmul.int8": 2 * products})


@register("elementwise", "dequantize")
def dequantize(call: Call) -> Demand:
    """Integers are shifted and scaled: 2 per element."""
    return Demand(flops={"vector.fp32": 2 * call.outputs[0].elements})


FAKE = ("per_tensor_affine_cachemask", "per_tensor_affine_cachemask_tensor_qparams", "per_channel_affine_cachemask")


@register("elementwise", "_fused_moving_avg_obs_fq_helper", *(f"fake_quantize_{form}" for form in FAKE))
def fake_quantize(call: Call) -> Demand:
    """Brought to integers and back: 7 per element, and 2 comparisons where the range is observed."""
    observed = 2 if call.name == "_fused_moving_avg_obs_fq_helper" else 0
    return Demand(flops={"vector.fp32": (QUANTIZE + 2 + observed) * call.outputs[0].elements})
