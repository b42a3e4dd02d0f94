"""What a graph is beside its operators: views, constants, branches, functions, quantization, memory and paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx_graphs import FLOAT, INT8, INT64, constant, counted, names, nbytes, node, save, weight, work

import rooflens as rl
from rooflens.graph.strides import expanded, reshaped
from rooflens.records import Work, dense_strides
from rooflens.results import RecordSet


@pytest.mark.parametrize(
    ("shape", "order", "new"),
    [
        ((2, 3, 4), (0, 1, 2), (6, 4)),
        ((2, 3, 4), (0, 1, 2), (2, 2, 6)),
        ((2, 3, 4), (1, 0, 2), (3, 2, 2, 2)),
        ((2, 3, 4), (1, 0, 2), (6, 4)),
        ((2, 3, 4), (2, 0, 1), (4, 6)),
        ((2, 3, 4), (2, 0, 1), (8, 3)),
        ((2, 1, 4), (1, 0, 2), (8,)),
        ((1, 1), (1, 0), ()),
        ((6,), (0,), (1, 3, 1, 2)),
        ((0, 3), (1, 0), (3, 0, 2)),
    ],
)
def test_a_reshape_is_a_view_where_numpy_makes_one(
    shape: tuple[int, ...], order: tuple[int, ...], new: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).transpose(order)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    found = reshaped(array.shape, strides, new)
    is_view = array.size == 0 or np.shares_memory(array, array.reshape(new))
    assert (found is not None) == is_view
    if found is not None and array.size:
        steps = [n * array.itemsize for n in found]
        view = np.lib.stride_tricks.as_strided(array, new, steps)
        assert (view == array.reshape(new)).all()


def test_strides_of_what_is_repeated() -> None:
    assert expanded((3, 1), dense_strides((3, 1)), (2, 3, 5)) == (0, 1, 0)


def test_views_are_free_and_a_copy_is_one(tmp_path: Path) -> None:
    # (batch, length, heads x width) to heads and back, as attention does: only the way back has to move elements.
    nodes = [
        node("Reshape", "x split", "a"),
        node("Transpose", "a", "b", perm=[0, 2, 1, 3]),
        node("Relu", "b", "c"),  # keeps the order of its input, as PyTorch does
        node("Transpose", "c", "d", perm=[0, 2, 1, 3]),
        node("Reshape", "d join", "e"),
        node("Reshape", "b turned", "y"),
    ]
    held = [constant("split", [2, 5, 4, 8]), constant("join", [2, 5, 32]), constant("turned", [2, 4, 40])]
    found = counted(tmp_path, nodes, {"x": (2, 5, 32)}, "e y", held)
    assert names(found) == ["relu", "clone"]
    assert work(found).bytes["dram"] == 2 * 2 * nbytes((2, 5, 32))
    assert work(found).flops == {"vector.fp32": 320}


def test_slices_splits_and_single_places_are_views(tmp_path: Path) -> None:
    nodes = [
        node("Slice", "x one end axis two", "s"),  # every second of 7 rows from the second on: 3
        node("Split", "x sizes", "p q", axis=0),
        node("Gather", "x two_", "g", axis=0),
        node("Expand", "g shape", "r"),
        node("Slice", "x end one axis back", "f"),  # backwards is a copy: rows 6 to 2
        node("Add", "s p", "a"),
        node("Mul", "r q", "m"),
    ]
    held = [
        constant("one", [1]),
        constant("end", [2**63 - 1]),
        constant("axis", [0]),
        constant("two", [2]),
        constant("back", [-1]),
        constant("sizes", [3, 4]),
        constant("two_", 2),
        constant("shape", [4, 6]),
    ]
    found = counted(tmp_path, nodes, {"x": (7, 6)}, "a m f", held)
    assert names(found) == ["flip", "add", "mul"]
    # The flip reads all and writes 5 rows; the sum reads two parts; the product reads one row, although it is repeated.
    assert work(found).bytes["dram"] == nbytes((7, 6), (5, 6), *[(3, 6)] * 3, (1, 6), (4, 6), (4, 6))


def test_what_follows_from_shapes_is_free(tmp_path: Path) -> None:
    # 1 / sqrt(width), as attention's scale is exported, and the shape (batch x heads, length, width).
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s last", "d"),
        node("Cast", "d", "f", to=FLOAT),
        node("Sqrt", "f", "root"),
        node("Div", "one root", "scale"),
        node("Mul", "x scale", "m"),
        node("Slice", "s last end", "tail"),
        node("Concat", "minus tail", "shape", axis=0),
        node("Reshape", "m shape", "y"),
    ]
    held = [
        constant("last", [-1]),
        constant("one", 1.0, np.float32),
        constant("end", [2**63 - 1]),
        constant("minus", [-1]),
    ]
    found = counted(tmp_path, nodes, {"x": ("batch", 4, 16)}, "y", held)
    assert names(found) == ["mul"]
    assert work(found) == Work(flops={"vector.fp32": 64}, bytes={"dram": 2 * nbytes((4, 16))})


def test_what_depends_on_constants_alone_is_computed_when_a_model_is_loaded(tmp_path: Path) -> None:
    nodes = [node("Mul", "w v", "u"), node("Transpose", "u", "t"), node("MatMul", "x t", "y")]
    held = [weight("w", (300, 300)), weight("v", (300, 300))]
    found = counted(tmp_path, nodes, {"x": (2, 300)}, "y", held)
    assert names(found) == ["mm"]
    assert (found.parameters, found.memory and found.memory.parameters) == (180_000, 360_448)  # 703.1 blocks of 512


def test_weights_are_no_constants_of_shapes_however_small(tmp_path: Path) -> None:
    # Positions follow from the length of the sequence; the rows of the table are looked up in every run.
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Range", "zero n one", "ids"),
        node("Gather", "table ids", "y"),
    ]
    held = [constant("zero", 0), constant("one", 1), constant("table", np.ones((20, 8)), np.float32)]
    found = rl.estimate(save(tmp_path, nodes, {"x": (INT64, ("seq_len",))}, "y", held), seq_len=6)
    assert names(found) == ["embedding"]
    assert (found.parameters, work(found).bytes["dram"]) == (160, 2 * nbytes((6, 8)) + 6 * 8)


def test_weights_may_be_held_by_nodes(tmp_path: Path) -> None:
    values = np.ones((4, 25), dtype=np.float32)
    nodes = [node("Constant", "", "w", value=constant("v", values, np.float32)), node("MatMul", "x w", "y")]
    assert counted(tmp_path, nodes, {"x": (3, 4)}).parameters == 100


def test_a_mask_is_no_weight(tmp_path: Path) -> None:
    lowest = {np.float32: float(np.finfo(np.float32).min), np.float16: -np.inf}
    for dtype, low in lowest.items():
        mask = np.triu(np.full((9, 9), low, dtype=dtype), 1)
        position = constant("p", np.full((9, 9), -3.0), dtype)
        nodes = [node("Add", "x m", "a"), node("Add", "a p", "y")]
        given = (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), (2, 9, 9))
        found = counted(tmp_path, nodes, {"x": given}, "y", [constant("m", mask, dtype), position])
        assert found.parameters == 81  # the learned one
        assert found.memory is not None
        assert found.memory.buffers == 512  # the mask; 81 numbers are less than a block of memory


@pytest.mark.parametrize(("first", "learned"), [(0.0, 0), (0.5, 10)])
def test_zeros_that_a_layer_begins_with_are_no_weight(tmp_path: Path, first: float, learned: int) -> None:
    held = [weight("w", (1, 20, 4)), weight("r", (1, 20, 5)), constant("h", np.full((1, 2, 5), first), np.float32)]
    nodes = [node("LSTM", "x w r - - h h", "y", hidden_size=5)]
    assert counted(tmp_path, nodes, {"x": (7, 2, 4)}, "y", held).parameters == 20 * (4 + 5) + learned


def test_a_branch_that_shapes_decide_is_taken(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        return helper.make_graph(
            [node(op, "x", f"{name}_y")], name, [], [helper.make_tensor_value_info(f"{name}_y", FLOAT, None)]
        )

    nodes = [
        node("Size", "x", "n"),
        node("Greater", "n limit", "large"),
        node("If", "large", "y", then_branch=branch("a", "Relu"), else_branch=branch("b", "Tanh")),
    ]
    held = [constant("limit", 20)]
    assert names(counted(tmp_path, nodes, {"x": (4, 6)}, "y", held)) == ["relu"]
    assert names(counted(tmp_path, nodes, {"x": (4, 4)}, "y", held)) == ["tanh"]
    unknown = counted(tmp_path, nodes[2:], {"x": (4, 6), "large": (TensorProto.BOOL, ())}, "y")
    assert unknown.coverage.uncounted == ("If",)
    assert (unknown.total().bytes, unknown.memory) == ({}, None)


def test_names_within_a_branch_are_its_own(tmp_path: Path) -> None:
    """Branches beside each other may use the same names, and one that their node gives."""

    def branch() -> onnx.GraphProto:
        info = helper.make_tensor_value_info("inner", FLOAT, None)
        return helper.make_graph([node("MatMul", "x w", "inner")], "b", [], [info], [weight("w", (4, 4))])

    nodes = [
        node("Size", "x", "n"),
        node("Greater", "n limit", "large"),
        *(node("If", "large", name, then_branch=branch(), else_branch=branch()) for name in ("inner", "second")),
        node("Add", "inner second", "y"),
    ]
    found = counted(tmp_path, nodes, {"x": (3, 4)}, "y", [constant("limit", 2)])
    assert names(found) == ["mm", "mm", "add"]
    assert found.parameters == 2 * 16  # two tensors that are called alike


def test_functions_are_written_out(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 21)]
    twice = helper.make_function(
        "mine", "Twice", ["a", "w"], ["c"], [node("MatMul", "a w", "b"), node("MatMul", "b w", "c")], imports
    )
    nodes = [node("Twice", "x w", "h", domain="mine"), node("Twice", "h w", "y", domain="mine")]
    found = counted(tmp_path, nodes, {"x": (2, 5)}, "y", [weight("w", (5, 5))], functions=[twice])
    assert work(found).matmul_flops == 4 * 2 * 2 * 25
    assert found.parameters == 25


def test_a_function_of_another_version_is_written_out(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 9)]
    product = helper.make_function("mine", "Product", ["a", "w"], ["y"], [node("Gemm", "a w", "y")], imports)
    nodes = [node("Product", "x w", "y", domain="mine")]
    found = counted(tmp_path, nodes, {"x": (3, 4)}, "y", [weight("w", (4, 5))], functions=[product])
    assert (names(found), work(found).matmul_flops, found.parameters) == (["mm"], 2 * 3 * 4 * 5, 20)


# Quantization -------------------------------------------------------------------------------------------------------

SCALES = [constant("s", 0.1, np.float32), constant("z", 0, np.int8)]


def test_a_product_between_quantizers_is_one_of_integers(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "a"),
        node("DequantizeLinear", "a s z", "b"),
        node("DequantizeLinear", "w s z", "v"),
        node("Conv", "b v", "c"),
        node("QuantizeLinear", "c s z", "d"),
        node("DequantizeLinear", "d s z", "e"),
        node("Relu", "e", "y"),
    ]
    found = counted(tmp_path, nodes, {"x": (1, 3, 4, 4)}, "y", [*SCALES, weight("w", (5, 3, 1, 1), INT8)])
    assert names(found) == ["quantize_per_tensor", "convolution", "dequantize_per_tensor", "relu"]
    flops = work(found).flops
    # Quantizing: scale, round, shift, two bounds. Back: shift, scale.
    assert flops == {"matmul.int8": 2 * 80 * 3, "vector.fp32": 5 * 48 + 2 * 80 + 80}
    product = next(record for record in found if record.name == "convolution")
    assert product.work is not None
    assert product.work.bytes["dram"] == 48 + 15 + 80
    assert found.parameters == 15
    assert found.cases[0].dtype == "as-is"


def test_quantized_weights_alone_leave_the_product_in_floats(tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", "w s z", "v"), node("MatMul", "x v", "y")]
    found = counted(tmp_path, nodes, {"x": (2, 8)}, "y", [*SCALES, weight("w", (8, 3), INT8)])
    assert work(found) == Work(flops={"matmul.fp32": 2 * 2 * 8 * 3}, bytes={"dram": 4 * 16 + 24 + 4 * 6})
    cache = [node("DequantizeLinear", "k s z", "f"), node("MatMul", "f x", "y")]
    found = counted(tmp_path, cache, {"k": (INT8, (3, 8)), "x": (8, 2)}, "y", SCALES)
    assert work(found) == Work(flops={"matmul.fp32": 2 * 2 * 8 * 3}, bytes={"dram": 24 + 4 * 16 + 4 * 6})


def test_who_needs_the_floats_has_them_made_once(tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", "x s z", "f"), node("Relu", "f", "a"), node("Neg", "f", "b")]
    found = counted(tmp_path, nodes, {"x": (INT8, (10,))}, "a b", SCALES)
    assert names(found) == ["dequantize_per_tensor", "relu", "neg"]
    dynamic = counted(tmp_path, [node("DynamicQuantizeLinear", "x", "q s z")], {"x": (10,)}, "q s z")
    assert work(dynamic).flops == {"vector.fp32": (2 + 5) * 10}


# Memory -------------------------------------------------------------------------------------------------------------


def test_memory_is_what_lives_at_the_peak(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a"),  # 4000 bytes: 8 blocks of 512
        node("Concat", "a a a", "b", axis=0),  # 12000 bytes: 24 blocks
        node("Reshape", "b flat", "c"),
        node("ReduceSum", "c", "d"),  # 4 bytes: 1 block
        node("Add", "d w", "y"),
    ]
    held = [constant("flat", [-1]), weight("w", [1000])]
    memory = counted(tmp_path, nodes, {"x": (1000,)}, "y", held).memory
    assert memory is not None
    # The peak is the concatenation: its input and its result. Input and weight are there throughout.
    assert (memory.inputs, memory.parameters, memory.temporaries, memory.buffers) == (4096, 4096, 4096 + 12288, 0)
    assert memory.peak == 4096 * 3 + 12288


def test_results_stay_and_constants_that_are_no_weights_are_buffers(tmp_path: Path) -> None:
    nodes = [node("BatchNormalization", "x g b m v", "n"), node("Relu", "n", "y")]
    held = [weight(name, [200]) for name in "gbmv"]
    memory = counted(tmp_path, nodes, {"x": (1, 200)}, "n y", held).memory
    assert memory is not None
    assert (memory.inputs, memory.parameters, memory.buffers, memory.temporaries) == (1024, 2048, 2048, 2048)


# Paths --------------------------------------------------------------------------------------------------------------


def paths(found: RecordSet) -> list[str]:
    return [record.path for record in found if record.scope == "op"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["/conv1/Conv"], ["conv1"]),
        (["/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/Add"], ["layer1.0.conv1", "layer1.0"]),
        (["/features/features.0/features.0.1/Relu"], ["features.0.1"]),
        (["/relu/Relu", "/relu_1/Relu", "/block/relu_1/Relu"], ["relu", "relu", "block.relu_1"]),
        (["/block/fc/Gemm", "/block_1/fc/Gemm", "/block_1/fc_1/Gemm"], ["block.fc", "block.fc", "block.fc"]),
        (["model/dense/MatMul"], ["model.dense"]),
        (["Relu_12", "node_relu_3", "", "fc6"], ["", "", "", "fc6"]),
        (["(loss)", "..//a...b//Relu", "/../x/Relu"], ["loss)", "a.b", "x"]),
        (["/\x1b[31m\n/Relu", "/" + "long" * 1000 + "/Relu"], ["\ufffd[31m\ufffd", "long" * 100]),
    ],
)
def test_module_paths_from_names_of_nodes(tmp_path: Path, given: list[str], shown: list[str]) -> None:
    nodes = [node("Relu", f"x{i}", f"x{i + 1}", name=name) for i, name in enumerate(given)]
    found = counted(tmp_path, nodes, {"x0": (2,)}, f"x{len(given)}")
    assert set(paths(found)) == set(shown)
    rl.table(found, depth=3)


def test_module_paths_of_the_newer_exporter(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a", name="node_relu_1"), node("Relu", "a", "y", name="node_relu_2")]
    scope = ": m.Net/layer1: torch.nn.Sequential/layer1.0: m.Block/layer1.0.relu: torch.nn.ReLU/relu_1: aten.relu"
    nodes[0].metadata_props.add(key="namespace", value=scope)
    nodes[1].metadata_props.add(key="namespace", value=": m.Net/relu_2: aten.relu.default")
    assert paths(counted(tmp_path, nodes, {"x": (2,)})) == ["layer1.0.relu", ""]


def test_indices_are_read_as_what_they_are(tmp_path: Path) -> None:
    nodes = [node("ScatterND", "x places rows", "y")]
    inputs: dict[str, Any] = {"x": (8, 3), "places": (INT64, (2, 1)), "rows": (2, 3)}
    assert work(counted(tmp_path, nodes, inputs)).bytes["dram"] == 2 * nbytes((8, 3)) + 16 + nbytes((2, 3))
    assert save(tmp_path, nodes, inputs).endswith(".onnx")
