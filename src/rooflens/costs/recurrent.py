"""LSTM, GRU and plain recurrent layers as one operation."""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import matrix, pointwise
from rooflens.records import Call, Tensor

# Per hidden unit and step: (vector, special) of gates and state.
# LSTM: i, f, o are sigmoids (2 special and 1 vector each), g and the cell's output tanh; c = f c + i g, h = o tanh(c),
# and two additions per gate for the two biases and the two products. The others likewise.
_CELL = {"lstm": (3 + 4 + 8, 8), "gru": (2 + 6 + 6, 5), "rnn_tanh": (2, 1), "rnn_relu": (3, 0)}


@register("recurrent", "recurrent")
def forward(call: Call) -> Demand:
    """Per step and layer every weight matrix meets one input or hidden vector: its elements are the multiply-adds."""
    steps, matrices = _steps(call), _matrices(call)
    inputs = call.tensor("input")
    vector, special = _CELL[str(call["kind"])]
    units = sum(w.shape[0] for w in matrices[::2]) // _gates(call)
    return Demand(
        flops=matrix(steps * sum(w.elements for w in matrices), inputs)
        | pointwise(inputs, vector=vector * units * steps, special=special * units * steps)
    )


@register("recurrent", "recurrent_backward")
def backward(call: Call) -> Demand:
    """Twice forward: gradients of vectors and of weights, less what is not asked for.

    The hidden vector's gradient is always needed to reach the step before; the first layer's input gradient and the
    weights' gradients only where they are asked for.
    """
    steps, matrices = _steps(call), _matrices(call)
    inputs = call.tensor("input")
    needed = call["needed"]
    assert isinstance(needed, tuple)
    states = len(call.tensors("states"))
    all_weights = call.tensors("weights")
    wanted = [w for w, want in zip(all_weights, needed[1 + states :], strict=True) if want and len(w.shape) == 2]
    once = sum(w.elements for w in matrices)
    layers, directions = int(call["layers"]), 2 if call["bidirectional"] else 1  # type: ignore[arg-type]
    first_layer = [all_weights[d * (len(all_weights) // (layers * directions))] for d in range(directions)]
    unasked = 0 if needed[0] else sum(w.elements for w in first_layer)
    vector, _ = _CELL[str(call["kind"])]
    units = sum(w.shape[0] for w in matrices[::2]) // _gates(call)
    return Demand(
        flops=matrix(steps * (once - unasked + sum(w.elements for w in wanted)), inputs)
        | pointwise(inputs, vector=2 * vector * units * steps)
    )


def _steps(call: Call) -> int:
    """Vectors that enter the first layer: sequence times batch, padded or packed."""
    inputs = call.tensor("input")
    return inputs.elements // max(1, inputs.shape[-1])


def _matrices(call: Call) -> tuple[Tensor, ...]:
    """The weight matrices of every layer and direction: from the input, from the hidden state, and of a projection."""
    return tuple(w for w in call.tensors("weights") if len(w.shape) == 2)


def _gates(call: Call) -> int:
    return {"lstm": 4, "gru": 3}.get(str(call["kind"]), 1)
