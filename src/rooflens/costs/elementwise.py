"""Element-wise operations: FLOP per element of the result.

Each line is (vector, special) per element. In-place and foreach forms share the line of the plain form.
"""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import is_floating, pointwise
from rooflens.records import Call, Tensor
from rooflens.records.work import united

PER_ELEMENT: dict[str, tuple[float, float]] = {
    # arithmetic, and comparisons of floating values
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div", "neg", "abs", "sign", "sgn", "square"), (1, 0)),
    **dict.fromkeys(("maximum", "minimum", "clamp_min", "clamp_max", "floor", "ceil", "round", "trunc"), (1, 0)),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf"), (1, 0)),
    **dict.fromkeys(("fmax", "fmin", "heaviside", "deg2rad", "rad2deg"), (1, 0)),
    **dict.fromkeys(("clamp", "clip", "floor_divide", "frac"), (2, 0)),
    **dict.fromkeys(("fmod", "remainder", "nan_to_num"), (3, 0)),  # not a number, and both infinities
    **dict.fromkeys(("addcmul", "addcdiv"), (3, 0)),  # self + value t1 t2
    "lerp": (3, 0),  # start + weight (end - start)
    "polar": (1, 1),  # cosine and sine, each times the length: a complex operation is two real ones
    # special functions
    **dict.fromkeys(("exp", "exp2", "log", "log2", "log10", "sqrt", "rsqrt", "reciprocal"), (0, 1)),
    **dict.fromkeys(("erf", "erfc", "erfinv", "lgamma", "digamma", "polygamma", "i0"), (0, 1)),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan"), (0, 1)),
    **dict.fromkeys(("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"), (0, 1)),
    **dict.fromkeys(("special_i0e", "special_i1", "special_i1e", "special_ndtri", "special_erfcx"), (0, 1)),
    **dict.fromkeys(("expm1", "log1p", "atan2", "xlogy", "angle", "ldexp", "special_entr"), (1, 1)),
    "special_xlog1py": (2, 1),
    "sinc": (2, 1),  # sin(pi x) / (pi x)
    "hypot": (3, 1),  # root of a^2 + b^2
    **dict.fromkeys(("logaddexp", "logaddexp2"), (5, 2)),  # max(a, b) + log(1 + exp -|a - b|)
    "pow": (1, 2),  # exp(y log x); the exponents of POWERS cost less
    # activations
    **dict.fromkeys(("relu", "threshold"), (1, 0)),
    **dict.fromkeys(("relu6", "leaky_relu", "_prelu_kernel", "rrelu_with_noise", "hardtanh", "hardshrink"), (2, 0)),
    "softshrink": (3, 0),
    "hardsigmoid": (4, 0),  # clamp(x + 3, 0, 6) / 6
    "hardswish": (5, 0),  # x times hardsigmoid
    "sigmoid": (1, 2),  # 1 / (1 + exp -x)
    "logit": (2, 1),
    "silu": (2, 2),  # x sigmoid x
    "mish": (3, 3),  # x tanh(log(1 + exp x))
    **dict.fromkeys(("log_sigmoid_forward", "softplus", "glu"), (2, 2)),
    **dict.fromkeys(("elu", "celu", "selu"), (3, 1)),
    "gelu": (4, 1),  # x / 2 (1 + erf(x / sqrt 2))
    # their gradients, the product with the incoming one included
    "rrelu_with_noise_backward": (1, 0),
    **dict.fromkeys((f"{n}_backward" for n in ("threshold", "leaky_relu", "hardshrink", "softshrink")), (2, 0)),
    **dict.fromkeys((f"{n}_backward" for n in ("hardtanh", "hardsigmoid", "sigmoid", "tanh")), (3, 0)),
    "_prelu_kernel_backward": (4, 0),
    "hardswish_backward": (5, 0),
    "glu_backward": (3, 1),  # per element of the gradient, which is twice as large as the result
    "softplus_backward": (3, 1),
    **dict.fromkeys(("elu_backward", "log_sigmoid_backward"), (4, 1)),
    "silu_backward": (6, 2),
    "gelu_backward": (8, 2),
    "mish_backward": (9, 4),
    # scale, round, shift, clamp to the range of the integers; and back: shift, scale
    **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel"), (5, 0)),
    **dict.fromkeys(("dequantize_per_tensor", "dequantize_per_channel"), (2, 0)),
    # dropout: compare a random number with p, scale
    **dict.fromkeys(("native_dropout", "native_dropout_backward"), (2, 0)),
    # the gradient scaler: scale, compare with infinity
    "_amp_foreach_non_finite_check_and_unscale": (2, 0),
}

POWERS: dict[float, tuple[float, float]] = {2: (1, 0), 3: (2, 0), -2: (1, 1), 0.5: (0, 1), -0.5: (0, 1), -1: (0, 1)}
"""Exponents that are computed by products, roots and reciprocals."""


def _demand(call: Call) -> Demand:
    """Vector and special FLOP per element of the result, from one table; a list counts each of its tensors.

    Adding, multiplying and comparing are 1 vector FLOP each, an exponential, a logarithm or a root is 1 special one. A
    complex operation is two real ones, a complex product six FLOP.
    """
    name = call.name.removeprefix("_foreach_").removesuffix("_")
    vector, special = PER_ELEMENT[name]
    exponent = call.get("exponent")
    if name == "pow" and isinstance(exponent, int | float):
        vector, special = POWERS.get(exponent, (vector, special))
    if name in ("add", "sub", "rsub") and call.get("alpha", 1) not in (1, None):
        vector += 1  # a multiply-add

    def of(tensor: Tensor) -> dict[str, float]:
        operand = _operand(call, tensor)
        complex_product = operand.dtype.startswith("complex") and name in ("mul", "div")
        products = 3 if complex_product else 1
        return pointwise(operand, vector=products * vector * tensor.elements, special=special * tensor.elements)

    return Demand(flops=united(map(of, _results(call))))


def _results(call: Call) -> tuple[Tensor, ...]:
    """The tensors whose elements are computed: of a foreach list each, else the largest result."""
    if "_foreach_" in call.name:
        return call.tensors("self")
    return (max(call.outputs, key=lambda t: t.elements),)


def _operand(call: Call, result: Tensor) -> Tensor:
    """What arithmetic is done on: a comparison of floats yields booleans, so inputs decide where the result is none."""
    if is_floating(result):
        return result
    return next((t for t in call.inputs if is_floating(t)), result)


for _name in PER_ELEMENT:
    register("elementwise" if "dropout" not in _name else "dropout", _name)(_demand)


@register(
    "elementwise",
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "logical_and", "logical_or"),
    *("logical_not", "logical_xor", "__and__", "__or__", "__lshift__", "__rshift__", "where", "masked_fill", "tril"),
    *("triu", "real", "complex", "copysign", "bitwise_left_shift", "bitwise_right_shift", "signbit", "nextafter"),
    "conj_physical",
)
def _selecting(call: Call) -> Demand:
    """Bits are combined or elements selected: bytes move, no FLOP is done."""
    return Demand()
