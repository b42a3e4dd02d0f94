"""Reductions, scans, sorts and losses."""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import per_element, pointwise
from rooflens.records import Call, Tensor

# (vector per input element, vector per result, special per result)
PER_ELEMENT: dict[str, tuple[float, float, float]] = {
    **dict.fromkeys(("any", "all", "_is_all_true", "_is_any_true"), (0, 0, 0)),
    **dict.fromkeys(("sum", "prod", "cumsum", "cumprod"), (1, 0, 0)),
    **dict.fromkeys(("amax", "amin", "max", "min", "argmax", "argmin", "cummax", "cummin", "count_nonzero"), (1, 0, 0)),
    **dict.fromkeys(("nansum", "aminmax"), (2, 0, 0)),
    "multinomial": (2, 0, 0),  # divided by random numbers, of which the largest are taken
    "dist": (3, 0, 1),  # subtract, square and add, root
    "logcumsumexp": (5, 0, 2),  # a logaddexp for each element, of which there are as many as results
    "mean": (1, 1, 0),
    **dict.fromkeys(("var", "var_mean"), (4, 1, 0)),  # mean; subtract, square, add
    **dict.fromkeys(("std", "std_mean"), (4, 1, 1)),
    **dict.fromkeys(("linalg_vector_norm", "norm"), (2, 0, 1)),  # square and add, root
    "logsumexp": (3, 1, 1),  # and one exponential per element, below
}


def _demand(call: Call) -> Demand:
    """Vector FLOP per element that is read, and vector and special FLOP per result, from one table.

    A sum or an extremum is 1 per element, a mean one division more per result, a norm 2 per element and a root, a
    variance 4 per element.
    """
    source = call.inputs[0]
    name = call.name.removesuffix("_")
    if name in ("max", "min") and isinstance(call.get("other"), Tensor):
        return per_element(call.outputs[0], 1)
    per_input, per_result, per_result_special = PER_ELEMENT[name]
    results = call.outputs[0].elements
    special = per_result_special * results + (source.elements if name == "logsumexp" else 0)
    return Demand(flops=pointwise(source, vector=per_input * source.elements + per_result * results, special=special))


for _name in PER_ELEMENT:
    register("reduction", _name)(_demand)


@register("reduction", "_foreach_norm")
def norms(call: Call) -> Demand:
    """The norm of each tensor in a list: square and add each element, one root per tensor."""
    each = call.tensors("self")
    per_input, _, per_result_special = PER_ELEMENT["norm"]
    vector = per_input * sum(t.elements for t in each)
    return Demand(flops=pointwise(each[0], vector=vector, special=per_result_special * len(each)) if each else {})


@register("reduction", "_cdist_forward")
def distances(call: Call) -> Demand:
    """(..., p, m) and (..., r, m) to (..., p, r): per pair and coordinate subtract, square, add; one root per pair."""
    return per_element(call.outputs[0], 3 * call.tensor("x1").shape[-1], special=1)


@register("reduction", "equal", "allclose")
def equality(call: Call) -> Demand:
    """One comparison per element of two tensors; of those that are close |a - b| <= atol + rtol |b|."""
    return per_element(call.inputs[0], 1 if call.name == "equal" else 6)


@register("reduction", "trace")
def diagonal_sum(call: Call) -> Demand:
    """The elements of the diagonal alone are read and added."""
    matrix = call.tensor("self")
    count = min(matrix.shape)
    return Demand(
        flops=pointwise(matrix, vector=count), bytes=count * (matrix.nbytes // max(1, matrix.elements)) + call.writes
    )


@register("reduction", "_cdist_backward")
def distances_backward(call: Call) -> Demand:
    """Per pair one division, and per coordinate subtract, multiply, add."""
    return per_element(call.inputs[0], 1 + 3 * call.tensor("x1").shape[-1])


@register("reduction", "_pdist_forward")
def distances_within(call: Call) -> Demand:
    """(p, m) to its p (p - 1) / 2 pairs: per pair and coordinate subtract, square, add; one root per pair."""
    return per_element(call.outputs[0], 3 * call.tensor("self").shape[-1], special=1)


@register("reduction", "segment_reduce", "_segment_reduce_backward")
def segments(call: Call) -> Demand:
    """One per element of all segments: added, or compared; of a mean one division more per result."""
    data = call.tensor("data")
    divided = call.outputs[0].elements if call["reduce"] == "mean" else 0
    return Demand(flops=pointwise(data, vector=data.elements + divided))


@register("reduction", "sort", "topk", "argsort", "kthvalue", "median", "nanmedian", "mode", "histc", "bincount")
@register("reduction", "_unique", "_unique2", "unique_consecutive", "unique_dim", "unique_dim_consecutive")
@register("reduction", "nonzero", "nonzero_static", "searchsorted", "bucketize", "isin", "histogram")
def ordering(call: Call) -> Demand:
    """Sorting compares and moves; the comparisons depend on the values and are not counted as FLOP."""
    return Demand()


@register("loss", "nll_loss_forward", "nll_loss2d_forward")
def nll_loss(call: Call) -> Demand:
    """One log-probability per target is fetched, weighted and added."""
    target, source = call.tensor("target"), call.tensor("self")
    fetched = target.elements * (source.nbytes // max(1, source.elements))
    return Demand(
        flops=pointwise(source, vector=2 * target.elements),
        bytes=fetched + target.nbytes + _class_weights(call) + call.writes,
    )


@register("loss", "nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(call: Call) -> Demand:
    """The gradient is zero but for one element per target; the log-probabilities are not read."""
    target, out = call.tensor("target"), call.outputs[0]
    return Demand(
        flops=pointwise(out, vector=target.elements),
        bytes=call.tensor("grad_output").nbytes + target.nbytes + _class_weights(call) + out.nbytes,
    )


def _class_weights(call: Call) -> int:
    weight = call.get("weight")
    return weight.nbytes if isinstance(weight, Tensor) else 0


LOSSES: dict[str, tuple[float, float]] = {
    "mse_loss": (3, 0),  # subtract, square, add
    "smooth_l1_loss": (5, 0),  # subtract, absolute value, compare, subtract (or square), add
    "huber_loss": (5, 0),
    "multi_margin_loss": (3, 0),  # margin - x_y + x, compare, add
    "soft_margin_loss": (3, 2),  # log(1 + exp -y x), add
    "binary_cross_entropy": (6, 2),  # t log x + (1 - t) log(1 - x): two products, three sums; add
    "binary_cross_entropy_with_logits": (6, 2),  # max(x, 0) - x t + log(1 + exp -|x|); add
}
"""(vector, special) per element, the sum over all elements included."""


@register("loss", *LOSSES)
def pointwise_loss(call: Call) -> Demand:
    """Vector and special FLOP per element, from one table, the sum over all elements included."""
    return per_element(call.tensor("self"), *LOSSES[call.name])


@register(
    "loss",
    *(f"{name}_backward" for name in LOSSES if name not in ("soft_margin_loss", "binary_cross_entropy_with_logits")),
)
def pointwise_loss_backward(call: Call) -> Demand:
    """Per element: the derivative, and its product with the incoming gradient and the mean's factor."""
    return per_element(call.tensor("self"), 3)


@register("loss", "soft_margin_loss_backward")
def soft_margin_loss_backward(call: Call) -> Demand:
    """-y exp(-y x) / (1 + exp -y x) per element, and its product with the incoming gradient and the mean's factor."""
    return per_element(call.tensor("self"), 5, special=2)


CTC_VECTOR, CTC_SPECIAL = 7, 4
"""Per time and state the log of a sum of three exponentials, and the log-probability: 3 exp and a log; 7 sums."""


@register("loss", "_ctc_loss", "_ctc_loss_backward")
def ctc_loss(call: Call) -> Demand:
    """Per time, sequence and state (two per target and one): a sum of three probabilities in logarithms.

    Backward walks the same states from the end, and each log-probability once more.
    """
    source = call.tensor("log_probs")
    alpha = call.tensor("log_alpha") if call.name.endswith("_backward") else call.outputs[1]
    rest = source.elements if call.name.endswith("_backward") else 0
    return Demand(
        flops=pointwise(
            source, vector=CTC_VECTOR * alpha.elements + 2 * rest, special=CTC_SPECIAL * alpha.elements + rest
        )
    )
