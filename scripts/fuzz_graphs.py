"""ONNX files for the fuzzer, and what every graph that is read has to be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from scripts.fuzzing import FOLDER
from tests.onnx_graphs import INT64, constant, node, save, weight

from rooflens.costs import cost
from rooflens.running.graphs import graph_workload
from rooflens.runs.run import Request

WORDS = (
    *(b"Conv", b"MatMul", b"Reshape", b"Gemm", b"Softmax", b"LSTM", b"Loop", b"Einsum", b"kernel_shape", b"axes"),
    *(b"ai.onnx", b"com.microsoft", b"\x0a\x01x", b"\x12\x01y", b"\x22\x04Relu", b"\x08\x01", b"\xff" * 9 + b"\x01"),
)


def graph_files() -> list[bytes]:
    """A convolution; a product whose shape is computed; a recurrent layer; a lookup with a softmax."""
    layers = [
        node("Conv", "x w", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], group=1),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2]),
        node("Flatten", "p", "f"),
        node("Gemm", "f v", "y", transB=1),
    ]
    shaped = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Concat", "n rest", "to", axis=0),
        node("Reshape", "x to", "r"),
        node("MatMul", "r w", "y"),
    ]
    looked_up = [node("Gather", "e i", "g"), node("Softmax", "g", "s", axis=-1), node("ReduceMean", "s", "y")]
    twelve = [constant("zero", [0]), constant("rest", [12]), weight("w", [12, 4])]
    lstm = [node("LSTM", "x w r", "y", hidden_size=4)]
    return [
        _file(layers, {"x": ("N", 3, 8, 8)}, [weight("w", [4, 3, 3, 3]), weight("v", [5, 36])]),
        _file(shaped, {"x": ("N", 2, 6)}, twelve),
        _file(lstm, {"x": (6, "N", 3)}, [weight("w", [1, 16, 3]), weight("r", [1, 16, 4])]),
        _file(looked_up, {"i": (INT64, ("N", 7))}, [weight("e", [50, 8])]),
    ]


def _file(nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Any], held: Sequence[onnx.TensorProto]) -> bytes:
    return Path(save(FOLDER, nodes, inputs, held=held)).read_bytes()


def graph(data: bytes) -> None:
    """Reading a file twice gives the same operations, of which each does a finite number of FLOP, none below zero."""
    path = FOLDER / "fuzz.onnx"
    path.write_bytes(data)
    once, again = (_operations(path) for _ in range(2))
    if once != again:
        raise AssertionError(f"{len(once)} operations, and {len(again)} others when it is read again")


def _operations(path: Path) -> list[object]:
    workload = graph_workload(Request(model=str(path)))
    trace = workload.trace(workload.runs[0])
    for operation in trace.operations:
        flops = cost(operation.call).work.total_flops
        if flops is not None and not 0 <= flops < math.inf:
            raise AssertionError(f"{operation.call.name} does {flops} FLOP")
    return [operation.call for operation in trace.operations]
