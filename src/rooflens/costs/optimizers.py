"""Optimizers that update every parameter in one kernel. Their foreach forms are lists of element-wise operations."""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import pointwise
from rooflens.records import Call
from rooflens.records.work import united


@register("elementwise", "_fused_sgd")
def sgd(call: Call) -> Demand:
    """Per element p - lr x (momentum b + g): 2 for the update, 2 each for weight decay and momentum.

    The momentum's first step copies the gradient; dampening scales it (1), Nesterov adds momentum b once more (2).
    """
    per_element = 2 + 2 * bool(call["weight_decay"])
    if call["momentum"]:
        per_element += 0 if call["is_first_step"] else 2 + bool(call["dampening"])
        per_element += 2 * bool(call["nesterov"])
    return _update(call, vector=per_element, special=0)


@register("elementwise", "_fused_adam", "_fused_adamw")
def adam(call: Call) -> Demand:
    """Per element: the mean of gradients (3) and of squares (4), p - lr m / (sqrt(v) / c + eps) (5 and a root).

    Weight decay adds 2 to a gradient (Adam) or scales the parameter (AdamW: 1); AMSGrad takes a maximum (1).
    """
    decay = 0 if not call["weight_decay"] else 1 if "adamw" in call.name else 2
    return _update(call, vector=12 + decay + bool(call["amsgrad"]), special=1)


@register("elementwise", "blockwise_update_")
def blockwise(call: Call) -> Demand:
    """Per element as :func:`sgd` or :func:`adam`, in fp32. State in 8 bits is a code's value times a scale (1).

    It is scaled again: its magnitude, the largest of its block, a division (3). The search for a code is not counted.
    """
    weight, decay = call.tensor("self"), bool(call["weight_decay"])
    coded = sum(state.dtype == "uint8" for state in call.tensors("states"))
    name = call["optimizer"]
    plain = 4 + 2 * decay if name == "sgd" else 12 + (0 if not decay else 1 if name == "adamw" else 2)
    flops = pointwise(weight, vector=(plain + 4 * coded) * weight.elements, special=weight.elements * (name != "sgd"))
    return Demand(flops=flops)


def _update(call: Call, vector: int, special: int) -> Demand:
    """Work on every parameter. Gradients are written only where the kernel takes their scale away (1 per element)."""
    scaled = call.get("grad_scale") is not None
    flops = united(
        pointwise(tensor, vector=(vector + scaled) * tensor.elements, special=special * tensor.elements)
        for tensor in call.tensors("self")
    )
    unwritten = 0 if scaled else sum(tensor.nbytes for tensor in call.tensors("grads"))
    return Demand(flops=flops, bytes=call.reads + call.writes - unwritten)
