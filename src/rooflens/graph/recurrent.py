"""LSTM, GRU and plain recurrent layers as one operation."""

from __future__ import annotations

from rooflens.errors import ModelError
from rooflens.graph.node import Node, operator
from rooflens.graph.value import GraphValue


@operator("LSTM", "GRU", "RNN")
def recurrent(node: Node) -> None:
    """One layer in one or two directions; weights of both directions are one tensor in ONNX and two in PyTorch.

    Peepholes and a clipped cell are work that the formula does not know: such a layer is listed as uncounted.
    """
    kind = _kind(node)
    inputs, states = node.value(0), [node.optional(i) for i in (5, 6)]
    weights = _weights(node)
    if kind is None or node.optional(7) is not None or "clip" in node.attributes:
        node.emit(node.key, node.made, input=inputs, weights=weights)
        return
    node.emit(
        "recurrent",
        node.made,
        input=inputs,
        states=[state for state in states if state is not None],
        weights=weights,
        batch_sizes=None,
        kind=kind,
        layers=1,
        dropout=0.0,
        train=False,
        bidirectional=node.text("direction", "forward") == "bidirectional",
        batch_first=bool(node.integer("layout")),
        saving=False,
    )


def _kind(node: Node) -> str | None:
    """PyTorch's name of the cell; None for activations that it does not have."""
    asked = {name.lower() for name in node.texts("activations")}
    if node.key != "RNN":
        return node.key.lower() if asked <= {"sigmoid", "tanh"} else None
    return {"": "rnn_tanh", "tanh": "rnn_tanh", "relu": "rnn_relu"}.get(",".join(sorted(asked)))


def _weights(node: Node) -> list[GraphValue]:
    """Per direction: of the input, of the hidden state, and the two biases."""
    bias = node.optional(3)
    rows = node.value(2).shape[1]  # of the gates
    weights: list[GraphValue] = []
    directions = node.value(1).shape[0]
    if directions != 1 + (node.text("direction") == "bidirectional"):
        raise ModelError(f"its weights are for {directions} directions")
    for direction in range(directions):
        weights += [_of_direction(matrix, direction, matrix.shape[1:]) for matrix in (node.value(1), node.value(2))]
        if bias is not None:
            weights += [_of_direction(bias, direction, (rows,), column) for column in (0, rows)]
    return weights


def _of_direction(whole: GraphValue, direction: int, shape: tuple[int, ...], column: int = 0) -> GraphValue:
    """The piece of a tensor that belongs to one direction."""
    return whole.view(shape, whole.strides[-len(shape) :], direction * whole.strides[0] + column)
