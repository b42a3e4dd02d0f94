"""Layers on 8-bit integers. Their weights are packed: the recorder gives the tensors that are stored.

What is brought to integers is scaled, rounded, shifted and clamped to their range, which is 5 vector FLOP per element.
"""

from __future__ import annotations

from rooflens.costs.convolution import macs
from rooflens.costs.elementwise import PER_ELEMENT
from rooflens.costs.recurrent import GATES
from rooflens.costs.registry import Demand, Uncounted, register
from rooflens.costs.units import matrix
from rooflens.records import Call

QUANTIZE = 5
_LINEAR = ("quantized_linear", "quantized_linear_relu")
_CONVOLUTIONS = [f"quantized_conv{n}d{form}" for n in (1, 2, 3) for form in ("", "_relu", "_dynamic")]
_TRANSPOSED = [f"quantized_conv_transpose{n}d{form}" for n in (1, 2, 3) for form in ("", "_dynamic")]
_RECURRENT = {f"quantized_{kind}": GATES[kind] for kind in ("lstm", "gru")}
"""Gates of the layers that torch has on integers."""
_CELLS = {f"quantized_quantized_{kind}_cell_dynamic": gates for kind, gates in GATES.items()}
_POINTWISE = [
    *(f"quantized_{name}{relu}" for name in ("add", "mul") for relu in ("", "_relu")),
    *(f"quantized_{name}" for name in ("celu", "elu", "hardswish", "leaky_relu", "sigmoid")),
]
_EMBEDDINGS = [f"quantized_embedding{form}_{bits}" for form in ("", "_bag") for bits in ("byte", "4bit")]


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


@register("elementwise", "quantize_cache")
def quantize_cache(call: Call) -> Demand:
    """Per number two comparisons for its group's range, then it is scaled, rounded, shifted and clamped."""
    return Demand(flops={"vector.fp32": (2 + QUANTIZE) * call.inputs[0].elements})


@register("elementwise", "dequantize_cache")
def dequantize_cache(call: Call) -> Demand:
    """Per number a multiplication by its scale, and the addition of its group's least value where it has one."""
    return Demand(flops={"vector.fp32": (1 if call["kv_dtype"] == "fp8" else 2) * call.outputs[0].elements})


@register("matmul", "quantized_linear_dynamic_fp16", "quantized_linear_relu_dynamic_fp16")
def half_linear(call: Call) -> Demand:
    """2 x results x inputs of each, in the type of the inputs; only the weights are stored in 16 bits."""
    inputs, out = call.inputs[0], call.outputs[0]
    return Demand(flops=matrix(out.elements * inputs.shape[-1], inputs))


@register("convolution", *_CONVOLUTIONS, *_TRANSPOSED)
def convolution(call: Call) -> Demand:
    """As a convolution, on integers. A static layer brings its result to integers, a dynamic one its input."""
    inputs, *packed = call.inputs
    if not packed:
        raise Uncounted("the packed weight does not tell its shape")
    weight, out = packed[0], call.outputs[0]
    products = macs(inputs, weight, out.shape, call.name in _TRANSPOSED)
    dynamic = call.name.endswith("_dynamic")
    rounding = QUANTIZE * inputs.elements + 2 * out.elements if dynamic else QUANTIZE * out.elements
    return Demand(flops={"matmul.int8": 2 * products, "vector.fp32": rounding})


@register("recurrent", *_RECURRENT)
def recurrent(call: Call) -> Demand:
    """Per step, layer and direction the gates meet an input and a hidden vector, on integers.

    With weights in 16 bits the products are those of the inputs' type.
    """
    inputs = call.tensor("input" if call.get("input") else "data")
    outputs, layers = call.outputs[0], call.integer("num_layers")
    directions = 2 if call["bidirectional"] else 1
    steps = inputs.elements // max(1, inputs.shape[-1])
    hidden = outputs.shape[-1] // directions
    vectors = directions * (inputs.shape[-1] + hidden) + (layers - 1) * directions * (directions * hidden + hidden)
    products = steps * _RECURRENT[call.name] * hidden * vectors
    if any(weight.dtype == "fp16" for weight in call.inputs):
        return Demand(flops=matrix(products, inputs))
    return Demand(flops={"matmul.int8": 2 * products})


@register("recurrent", *_CELLS)
def cell(call: Call) -> Demand:
    """The gates meet the input and the hidden vector of each sequence, on integers."""
    inputs, hidden = call.tensor("input"), call.outputs[0]
    products = _CELLS[call.name] * hidden.elements * (inputs.shape[-1] + hidden.shape[-1])
    return Demand(flops={"matmul.int8": 2 * products})


@register("gather", *_EMBEDDINGS)
def embedding(call: Call) -> Demand:
    """Rows that are looked up are read with their scales, shifted and scaled (2 per element), and added up in a bag."""
    table, indices = call.tensors("weight"), call.tensor("indices")
    stored = sum(tensor.nbytes for tensor in table)
    rows, width = table[0].shape[0], call.outputs[0].shape[-1]
    adding = 1 if "_bag_" in call.name else 0
    read = min(indices.elements * (stored // max(1, rows)), stored) + (call.reads - stored)
    return Demand(flops={"vector.fp32": (2 + adding) * indices.elements * width}, bytes=read + call.writes)


@register("elementwise", *_POINTWISE)
def pointwise(call: Call) -> Demand:
    """Operands from integers (2 per element of each), the operation on floats, its result to integers."""
    out, operands = call.outputs[0], len(call.inputs)
    plain = call.name.removeprefix("quantized_").removesuffix("_relu")
    vector, special = PER_ELEMENT[plain]
    vector += 2 * operands + QUANTIZE + call.name.endswith("_relu")
    return Demand(flops={"vector.fp32": vector * out.elements, "special.fp32": special * out.elements})


@register("pooling", "quantized_max_pool1d", "quantized_max_pool2d")
def max_pool(call: Call) -> Demand:
    """Comparisons of integers."""
    return Demand()


@register("elementwise", "dequantize")
def dequantize(call: Call) -> Demand:
    """Integers are shifted and scaled: 2 per element."""
    return Demand(flops={"vector.fp32": 2 * call.outputs[0].elements})


FAKE = ("per_tensor_affine_cachemask", "per_tensor_affine_cachemask_tensor_qparams", "per_channel_affine_cachemask")


@register("elementwise", "_fused_moving_avg_obs_fq_helper", *(f"fake_quantize_{form}" for form in FAKE))
def fake_quantize(call: Call) -> Demand:
    """Brought to integers and back: 7 per element, and 2 comparisons where the range is observed."""
    observed = 2 if call.name.startswith("_fused_moving_avg_obs_fq_helper") else 0
    return Demand(flops={"vector.fp32": (QUANTIZE + 2 + observed) * call.outputs[0].elements})
