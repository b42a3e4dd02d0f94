"""LSTM, GRU and plain recurrent layers as one operation."""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import matrix, pointwise
from rooflens.records import Call

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
CELL = {"lstm": (3 + 4, 8), "gru": (2 + 5, 5), "rnn_tanh": (0, 1), "rnn_relu": (1, 0)}
"""(vector, special) per hidden unit and step. A sigmoid is (1, 2), a tanh (0, 1).

LSTM: three sigmoids, two tanh, c = f c + i g (3) and h = o tanh(c) (1). GRU: two sigmoids, one tanh, r times the
hidden product (1) and h = (1 - z) n + z h (4). The additions of products and biases come on top.
"""


@register("recurrent", "recurrent")
def forward(call: Call) -> Demand:
    """Per step and layer every weight matrix meets one input or hidden vector: its elements are the multiply-adds."""
    steps, inputs = _steps(call), call.tensor("input")
    vector, special = _pointwise_per_step(call)
    return Demand(
        flops=matrix(steps * _macs_per_step(call), inputs)
        | pointwise(inputs, vector=vector * steps, special=special * steps)
    )


@register("recurrent", "recurrent_backward")
def backward(call: Call) -> Demand:
    """Twice forward: gradients of vectors and of weights, less what is not asked for.

    The hidden vector's gradient is always needed to reach the step before; the first layer's input gradient and the
    weights' gradients only where they are asked for.
    """
    steps, inputs = _steps(call), call.tensor("input")
    needed = call.integers("needed")
    states = len(call.tensors("states"))
    all_weights = call.tensors("weights")
    wanted = [w for w, want in zip(all_weights, needed[1 + states :], strict=True) if want and len(w.shape) == 2]
    layers, directions = _layers(call)
    first_layer = [all_weights[d * (len(all_weights) // (layers * directions))] for d in range(directions)]
    unasked = 0 if needed[0] else sum(w.elements for w in first_layer)
    vector, _ = _pointwise_per_step(call)
    return Demand(
        flops=matrix(steps * (_macs_per_step(call) - unasked + sum(w.elements for w in wanted)), inputs)
        | pointwise(inputs, vector=2 * vector * steps)
    )


def _steps(call: Call) -> int:
    """Vectors that enter the first layer: sequence times batch, padded or packed."""
    inputs = call.tensor("input")
    return inputs.elements // max(1, inputs.shape[-1])


def _macs_per_step(call: Call) -> int:
    """Elements of all weight matrices of every layer and direction: for the input, the hidden state, a projection."""
    return sum(w.elements for w in call.tensors("weights") if len(w.shape) == 2)


def _layers(call: Call) -> tuple[int, int]:
    """Layers, and directions of each."""
    return call.integer("layers"), 2 if call["bidirectional"] else 1


def _pointwise_per_step(call: Call) -> tuple[int, int]:
    """(vector, special) of all layers and directions for one vector: cells, biases, and the sum of both products."""
    layers, directions = _layers(call)
    weights = call.tensors("weights")
    rows = layers * directions * weights[0].shape[0]  # of the gates
    vector, special = CELL[str(call["kind"])]
    units = rows // GATES[str(call["kind"])]
    biases = sum(w.elements for w in weights if len(w.shape) == 1)
    return vector * units + rows + biases, special * units
