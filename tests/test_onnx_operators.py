"""ONNX operators against work that is derived here, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from tests.onnx_graphs import INT8, INT64, UINT8, constant, counted, names, nbytes, node, weight, work

from rooflens.costs import family_of
from rooflens.errors import ModelError
from rooflens.graph.node import RULES
from rooflens.records import Work

GELU = [
    node("Div", "x root", "a"),
    node("Erf", "a", "b"),
    node("Add", "b one", "c"),
    node("Mul", "x c", "d"),
    node("Mul", "d half", "y"),
]


def vector(held: Work) -> float:
    return held.flops.get("vector.fp32", 0)


def special(held: Work) -> float:
    return held.flops.get("special.fp32", 0)


@pytest.mark.parametrize(
    ("attributes", "x", "w", "macs", "out"),
    [
        # (4 / 2) input channels x 3 x 3 taps for each of 2 x 6 x 4 x 4 results.
        ({"group": 2, "strides": [2, 2], "pads": [1] * 4}, (2, 4, 8, 8), (6, 2, 3, 3), 2 * 9 * 192, (2, 6, 4, 4)),
        # Depthwise: one channel of 3 taps for each of 5 x 8 results; dilation does not change what is multiplied.
        ({"group": 5, "dilations": [2], "pads": [2, 2]}, (1, 5, 8), (5, 1, 3), 3 * 40, (1, 5, 8)),
        # "Same" padding keeps 9 / 2, rounded up, in each direction.
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (1, 3, 9, 9), (4, 3, 3, 3), 27 * 100, (1, 4, 5, 5)),
        ({}, (1, 2, 4, 5, 6), (3, 2, 2, 2, 2), 16 * 3 * 3 * 4 * 5, (1, 3, 3, 4, 5)),
    ],
)
def test_convolutions(
    tmp_path: Path, attributes: dict[str, Any], x: Sequence[int], w: Sequence[int], macs: int, out: Sequence[int]
) -> None:
    nodes = [node("Conv", "x w b", "y", **attributes)]
    held = work(counted(tmp_path, nodes, {"x": x}, "y", [weight("w", w), weight("b", [w[0]])]))
    assert held.matmul_flops == 2 * macs
    assert vector(held) == np.prod(out)
    assert held.bytes["dram"] == nbytes(x, w, [w[0]], out)


def test_transposed_convolution(tmp_path: Path) -> None:
    # Every element of the input, 3 x 5 x 5, meets 4 x 2 x 2 weights; the result is 2 x (5 - 1) + 2 = 10 wide.
    nodes = [node("ConvTranspose", "x w", "y", strides=[2, 2])]
    held = work(counted(tmp_path, nodes, {"x": (1, 3, 5, 5)}, "y", [weight("w", (3, 4, 2, 2))]))
    assert held.matmul_flops == 2 * 75 * 16
    assert held.bytes["dram"] == nbytes((1, 3, 5, 5), (3, 4, 2, 2), (1, 4, 10, 10))


@pytest.mark.parametrize(
    ("a", "b", "flops", "name", "out"),
    [
        ((2, 3, 4), (4, 6), 2 * 6 * 6 * 4, "mm", (2, 3, 6)),
        ((2, 1, 3, 4), (5, 4, 6), 2 * 10 * 3 * 6 * 4, "bmm", (2, 5, 3, 6)),  # batches are broadcast, not stored twice
        ((3, 4), (2, 4, 6), 2 * 2 * 3 * 6 * 4, "bmm", (2, 3, 6)),
        ((7, 4), (4,), 2 * 7 * 4, "mv", (7,)),
        ((4,), (4, 6), 2 * 6 * 4, "mm", (6,)),
        ((4,), (4,), 2 * 4, "dot", ()),
    ],
)
def test_matrix_products(
    tmp_path: Path, a: Sequence[int], b: Sequence[int], flops: int, name: str, out: Sequence[int]
) -> None:
    found = counted(tmp_path, [node("MatMul", "a b", "y")], {"a": a, "b": b})
    assert names(found) == [name]
    assert work(found) == Work(flops={"matmul.fp32": flops}, bytes={"dram": nbytes(a, b, out)})


def test_gemm(tmp_path: Path) -> None:
    # (5, 3) transposed times (7, 5) transposed: 3 x 7 results of 5 products, each with one addition.
    nodes = [node("Gemm", "a b c", "y", transA=1, transB=1, alpha=0.5)]
    held = work(counted(tmp_path, nodes, {"a": (5, 3)}, "y", [weight("b", (7, 5)), weight("c", (7,))]))
    assert held.flops == {"matmul.fp32": 2 * 21 * 5, "vector.fp32": 21}
    assert held.bytes["dram"] == nbytes((5, 3), (7, 5), (7,), (3, 7))
    bare = counted(tmp_path, [node("Gemm", "a b", "y")], {"a": (3, 5), "b": (5, 7)})
    assert (names(bare), work(bare).flops) == (["mm"], {"matmul.fp32": 2 * 21 * 5})


@pytest.mark.parametrize(("given", "name"), [("a s z b s z", "mm"), ("a s z b s z c", "addmm")])
def test_a_product_of_integers_may_lack_its_addend(tmp_path: Path, given: str, name: str) -> None:
    # (3, 5) times (5, 7): 21 results of 5 products; an addend is one addition for each.
    held = [weight("b", (5, 7), INT8), weight("c", (7,), TensorProto.INT32), weight("s", ()), weight("z", (), INT8)]
    nodes = [node("QGemm", given, "y", domain="com.microsoft")]
    found = counted(tmp_path, nodes, {"a": (INT8, (3, 5))}, "y", held)
    assert names(found) == [name]
    assert work(found).matmul_flops == 2 * 21 * 5


@pytest.mark.parametrize(
    ("equation", "shapes", "matmul", "others", "run"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], 2 * 6 * 4 * 6 * 5, 0, ["bmm"]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], 2 * (2 * 3 * 4 + 2 * 4 * 5), 0, ["bmm", "bmm"]),
        ("i,j->ij", [(3,), (4,)], 0, 12, ["mul"]),
        ("ij->ji", [(3, 4)], 0, 0, []),
        ("ij->i", [(3, 4)], 0, 12, ["sum"]),
        ("...ij,jk", [(7, 2, 3), (3, 4)], 2 * 14 * 4 * 3, 0, ["bmm"]),
        # k stands in one operand only: its 4 columns are added up before the product.
        ("ij,jk->i", [(2, 3), (3, 4)], 2 * 2 * 3, 12, ["sum", "bmm"]),
        ("ii->", [(3, 3)], 0, 3, ["sum"]),
    ],
)
def test_einsum(
    tmp_path: Path, equation: str, shapes: Sequence[Sequence[int]], matmul: int, others: int, run: list[str]
) -> None:
    inputs = {f"x{i}": shape for i, shape in enumerate(shapes)}
    found = counted(tmp_path, [node("Einsum", " ".join(inputs), "y", equation=equation)], inputs)
    assert names(found) == run
    if run:
        assert (work(found).matmul_flops, vector(work(found))) == (matmul, others)


def test_sizes_of_an_einsum_have_to_agree(tmp_path: Path) -> None:
    nodes = [node("Einsum", "a b", "y", equation="ij,jk->ik")]
    with pytest.raises(ModelError, match="'j' of 3 and of 4"):
        counted(tmp_path, nodes, {"a": (2, 3), "b": (4, 5)})
    # A size of 1 is repeated.
    assert work(counted(tmp_path, nodes, {"a": (2, 1), "b": (4, 5)})).matmul_flops == 2 * 2 * 4 * 5


# FLOP per element, vector and special, of the table in docs/counting-formulas.md.
@pytest.mark.parametrize(
    ("op", "per_element", "attributes"),
    [
        ("Relu", (1, 0), {}),
        ("LeakyRelu", (2, 0), {}),
        ("Sigmoid", (1, 2), {}),
        ("Tanh", (0, 1), {}),
        ("Gelu", (4, 1), {"approximate": "tanh"}),
        ("HardSwish", (5, 0), {}),
        ("HardSigmoid", (4, 0), {}),
        ("Elu", (3, 1), {}),
        ("Mish", (3, 3), {}),
        ("Softplus", (2, 2), {}),
        ("Erf", (0, 1), {}),
        ("Sqrt", (0, 1), {}),
        ("Neg", (1, 0), {}),
        ("Asinh", (0, 1), {}),
        ("Softmax", (4, 1), {"axis": 1}),
        ("LogSoftmax", (4, 1), {}),
    ],
)
def test_element_wise_operators(
    tmp_path: Path, op: str, per_element: tuple[int, int], attributes: dict[str, Any]
) -> None:
    found = work(counted(tmp_path, [node(op, "x", "y", **attributes)], {"x": (2, 3, 5)}))
    assert (vector(found), special(found)) == (per_element[0] * 30, per_element[1] * 30)
    assert found.bytes["dram"] == 2 * nbytes((2, 3, 5))


def test_arithmetic_with_numbers_and_with_what_is_broadcast(tmp_path: Path) -> None:
    nodes = [
        node("Pow", "x two", "a"),  # a square is one product, and a number is no tensor that is read
        node("Clip", "a zero six", "b"),  # two comparisons
        node("Clip", "b zero", "c"),
        node("Add", "c bias", "d"),
        node("Where", "m d c", "e"),
        node("Sum", "d e x", "y"),  # two additions
    ]
    held = [
        constant("two", 2.0, np.float32),
        constant("zero", 0.0, np.float32),
        constant("six", 6.0, np.float32),
        weight("bias", [5]),
    ]
    inputs = {"x": (2, 5), "m": (onnx.TensorProto.BOOL, (2, 5))}
    found = counted(tmp_path, nodes, inputs, "y", held)
    assert names(found) == ["pow", "clamp", "clamp_min", "add", "where", "add", "add"]
    assert (vector(work(found)), special(work(found))) == (10 * (1 + 2 + 1 + 1 + 0 + 2), 0)
    # Of 40 bytes each: x a, a b, b c, c d and the bias, d c e and the mask, d e y, y x y.
    assert work(found).bytes["dram"] == 40 * (2 + 2 + 2 + 2 + 3 + 3 + 3) + 20 + 10
    assert found.parameters == 5


def test_gelu_written_out(tmp_path: Path) -> None:
    held = [constant(name, value, np.float32) for name, value in (("root", 1.414), ("one", 1.0), ("half", 0.5))]
    found = counted(tmp_path, GELU, {"x": (3, 4)}, "y", held)
    assert names(found) == ["div", "erf", "add", "mul", "mul"]
    assert (vector(work(found)), special(work(found))) == (4 * 12, 12)
    assert found.parameters == 0  # numbers of the formula are no parameters


def test_normalisation(tmp_path: Path) -> None:
    channels = [weight(name, [3]) for name in "gbmv"]
    batch = counted(tmp_path, [node("BatchNormalization", "x g b m v", "y")], {"x": (2, 3, 4)}, "y", channels)
    # With running statistics: subtract, multiply, weight, bias; a root per channel. Statistics are no parameters.
    assert work(batch).flops == {"vector.fp32": 4 * 24, "special.fp32": 3}
    assert work(batch).bytes["dram"] == nbytes((2, 3, 4), (2, 3, 4), (4, 3))
    assert batch.parameters == 6
    layer = counted(tmp_path, [node("LayerNormalization", "x g b", "y")], {"x": (2, 5, 3)}, "y", channels[:2])
    # 10 rows: 4 for statistics, 2 to normalise, weight, bias; mean and deviation of each row are written.
    assert work(layer).flops == {"vector.fp32": 8 * 30, "special.fp32": 10}
    assert work(layer).bytes["dram"] == nbytes((30,), (30,), (3,), (3,), (10,), (10,))
    groups = [node("GroupNormalization", "x g b", "y", num_groups=3)]
    group = counted(tmp_path, groups, {"x": (2, 3, 4)}, "y", channels[:2], declared={"y": (2, 3, 4)})
    assert work(group).flops == {"vector.fp32": 8 * 24, "special.fp32": 6}
    instance = counted(tmp_path, [node("InstanceNormalization", "x g b", "y")], {"x": (2, 3, 4)}, "y", channels[:2])
    assert work(instance).flops == {"vector.fp32": 8 * 24, "special.fp32": 6}
    rms = counted(tmp_path, [node("RMSNormalization", "x g", "y")], {"x": (2, 5, 3)}, "y", channels[:1], opset=23)
    # Square, add, multiply by the inverse root of the row, by the weight.
    assert work(rms).flops == {"vector.fp32": 4 * 30, "special.fp32": 10}


@pytest.mark.parametrize(
    ("op", "attributes", "x", "flops", "name"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2]}, (1, 2, 7, 7), 9 * 18, "max_pool2d"),
        ("AveragePool", {"kernel_shape": [4]}, (1, 2, 7), 4 * 8, "avg_pool2d"),
        ("MaxPool", {"kernel_shape": [2, 2, 2]}, (1, 1, 3, 3, 3), 8 * 8, "max_pool3d_with_indices"),
        ("GlobalAveragePool", {}, (2, 3, 4, 4), 96 + 6, "mean"),
        ("GlobalMaxPool", {}, (2, 3, 4, 4), 96, "amax"),
        ("ReduceMax", {"keepdims": 0}, (4, 5), 20, "amax"),
        ("CumSum", {}, (4, 5), 20, "cumsum"),
    ],
)
def test_pooling_and_reductions(
    tmp_path: Path, op: str, attributes: dict[str, Any], x: Sequence[int], flops: int, name: str
) -> None:
    inputs, held = ("x axis", [constant("axis", 1)]) if op == "CumSum" else ("x", [])
    found = counted(tmp_path, [node(op, inputs, "y", **attributes)], {"x": x}, "y", held)
    assert (names(found), vector(work(found))) == ([name], flops)


def test_interpolation(tmp_path: Path) -> None:
    sizes = constant("sizes", [1, 2, 8, 8])
    linear = [node("Resize", "x - - sizes", "y", mode="linear")]
    # Four points for each of 128 results, weighted and added.
    assert vector(work(counted(tmp_path, linear, {"x": (1, 2, 4, 4)}, "y", [sizes]))) == 8 * 128
    nearest = counted(tmp_path, [node("Resize", "x - - sizes", "y")], {"x": (1, 2, 4, 4)}, "y", [sizes])
    assert work(nearest) == Work(bytes={"dram": nbytes((32,), (128,))})


@pytest.mark.parametrize(("direction", "directions"), [("forward", 1), ("reverse", 1), ("bidirectional", 2)])
def test_lstm(tmp_path: Path, direction: str, directions: int) -> None:
    steps, batch, inputs, hidden = 7, 3, 4, 5
    held = [
        weight("w", (directions, 4 * hidden, inputs)),
        weight("r", (directions, 4 * hidden, hidden)),
        weight("b", (directions, 8 * hidden)),
    ]
    nodes = [node("LSTM", "x w r b", "y h c", hidden_size=hidden, direction=direction)]
    found = counted(tmp_path, nodes, {"x": (steps, batch, inputs)}, "y h c", held)
    assert names(found) == ["recurrent"]
    vectors = steps * batch * directions
    assert work(found).matmul_flops == 2 * vectors * 4 * hidden * (inputs + hidden)
    # Per unit: 3 sigmoids (1 vector, 2 special each), 2 tanh, and 4 vector for cell and output; besides, on four gates,
    # the sum of both products and two biases.
    assert (vector(work(found)), special(work(found))) == (vectors * hidden * (7 + 3 * 4), vectors * hidden * 8)
    results = (steps * batch * directions * hidden, 2 * directions * batch * hidden)
    weights = 4 * hidden * directions * (inputs + hidden + 2)
    assert work(found).bytes["dram"] == 4 * (steps * batch * inputs + weights + sum(results))
    assert found.parameters == weights


def test_what_a_recurrent_formula_does_not_know_is_listed(tmp_path: Path) -> None:
    held = [weight("w", (1, 8, 3)), weight("r", (1, 8, 2)), weight("p", (1, 6))]
    peepholes = [node("LSTM", "x w r - - - - p", "y", hidden_size=2)]
    found = counted(tmp_path, peepholes, {"x": (4, 1, 3)}, "y", held)
    assert found.coverage.uncounted == ("LSTM",)
    gru = [node("GRU", "x w r", "y", hidden_size=2)]
    held = [weight("w", (1, 6, 3)), weight("r", (1, 6, 2))]
    assert work(counted(tmp_path, gru, {"x": (4, 1, 3)}, "y", held)).matmul_flops == 2 * 4 * 6 * (3 + 2)


def test_embedding_reads_the_rows_that_it_fetches(tmp_path: Path) -> None:
    nodes = [node("Gather", "table ids", "y")]
    found = counted(tmp_path, nodes, {"ids": (INT64, (2, 3))}, "y", [weight("table", (1000, 16))])
    assert names(found) == ["embedding"]
    assert work(found).bytes["dram"] == 2 * nbytes((6, 16)) + 6 * 8
    assert found.parameters == 16000


@pytest.mark.parametrize("packed", [True, False])
def test_attention_with_grouped_heads(tmp_path: Path, packed: bool) -> None:
    # 4 heads of queries, 2 of keys and values, 6 queries on 9 keys of width 8.
    pairs = 3 * 4 * 6 * 9
    shapes = [(3, 6, 32), (3, 9, 16), (3, 9, 16)] if packed else [(3, 4, 6, 8), (3, 2, 9, 8), (3, 2, 9, 8)]
    heads: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2} if packed else {}
    inputs = dict(zip("qkv", shapes, strict=True))
    found = counted(tmp_path, [node("Attention", "q k v", "y", **heads)], inputs, opset=23)
    assert names(found) == ["attention"]
    assert work(found).flops == {"matmul.fp32": 2 * pairs * 16, "vector.fp32": 5 * pairs, "special.fp32": pairs}
    assert work(found).bytes["dram"] == nbytes(*shapes, shapes[0])


def test_a_cache_makes_attention_longer(tmp_path: Path) -> None:
    shapes = {"q": (1, 2, 1, 8), "k": (1, 2, 1, 8), "v": (1, 2, 1, 8), "pk": (1, 2, 15, 8), "pv": (1, 2, 15, 8)}
    nodes = [node("Attention", "q k v - pk pv", "y nk nv", is_causal=1)]
    found = counted(tmp_path, nodes, shapes, "y nk nv", opset=23)
    assert names(found) == ["cat", "attention"] or names(found) == ["cat", "cat", "attention"]
    assert work(found).matmul_flops == 2 * 2 * 16 * 16  # one query of two heads on 16 keys


_HEADS: dict[str, Any] = {"num_heads": 4}
_GROUPS: dict[str, Any] = {"domain": "com.microsoft", "num_heads": 4, "kv_num_heads": 4}
_NEW, _IN_ROWS, _ONE = (1, 4, 3, 8), (1, 3, 32), (1, 1, 32)


# New tokens stand behind the 12 of the cache: 3 new ones see all old ones and 1 + 2 + 3 new ones.
@pytest.mark.parametrize(
    ("made", "shape", "pairs", "read"),
    [
        (node("Attention", "q k v - pk pv", "y nk nv", is_causal=1), _NEW, 3 * 12 + 6, 15),
        (node("Attention", "q k v", "y", is_causal=1), _NEW, 6, 3),
        # A window of 4: 6 keys are seen at all, and 3 times 4 pairs.
        (node("Attention", "q k v - pk pv", "y nk nv", is_causal=1, left_window_size=3), _NEW, 12, 6),
        (node("Attention", "q k v - pk pv", "y nk nv", left_window_size=3), _NEW, 6 + 5 + 4, 6),
        (node("Attention", "q k v", "y", left_window_size=0, right_window_size=1), _NEW, 5, 3),
        # All keys are given at once, and `n` says how many are valid: 3 queries at the end of 3.
        (
            node("Attention", "q k v - - - n", "y", q_num_heads=4, kv_num_heads=4, is_causal=1, left_window_size=1),
            _IN_ROWS,
            1 + 2 + 2,
            3,
        ),
        (
            node(*("MultiHeadAttention", "q k v - - - pk pv", "y nk nv", "com.microsoft"), **_HEADS, unidirectional=1),
            _IN_ROWS,
            3 * 12 + 6,
            15,
        ),
        (node("GroupQueryAttention", "q k v pk pv n t", "y nk nv", **_GROUPS), _ONE, 13, 13),
        (node("GroupQueryAttention", "q k v pk pv n t", "y nk nv", **_GROUPS, local_window_size=5), _ONE, 5, 5),
    ],
)
def test_a_causal_kernel_sees_the_cache(
    tmp_path: Path, made: onnx.NodeProto, shape: tuple[int, ...], pairs: int, read: int
) -> None:
    inputs: dict[str, Any] = dict.fromkeys("qkv", shape) | {"pk": (1, 4, 12, 8), "pv": (1, 4, 12, 8)}
    inputs |= {"n": (INT64, (1,)), "t": (INT64, (1,))}
    given = {name: inputs[name] for name in made.input if name}
    found = counted(tmp_path, [made], given, " ".join(made.output), opset=25)
    (attention,) = (record for record in found if record.name == "attention")
    assert attention.written is not None
    assert attention.written.matmul_flops == 2 * 4 * pairs * (8 + 8)
    assert attention.written.bytes["dram"] == 2 * nbytes(shape) + 2 * nbytes((4, read, 8))


def test_operators_of_onnx_runtime(tmp_path: Path) -> None:
    shape = (2, 5, 32)
    nodes = [
        node("SkipLayerNormalization", "x x g b", "n - - s", domain="com.microsoft"),
        node("MultiHeadAttention", "n n n", "a", domain="com.microsoft", num_heads=4),
        node("MatMulNBits", "a w scales", "m", domain="com.microsoft", K=32, N=7, bits=4, block_size=32),
        node("FusedMatMul", "m m", "y", domain="com.microsoft", transB=1),
    ]
    held = [weight("g", [32]), weight("b", [32]), weight("w", (7, 1, 16), UINT8), weight("scales", [7])]
    found = counted(tmp_path, nodes, {"x": shape}, "y s", held)
    assert names(found) == ["add", "native_layer_norm", "attention", "mm", "bmm"]
    attention, packed, scores = 2 * 8 * 25 * 16, 2 * 10 * 32 * 7, 2 * 2 * 25 * 7
    assert work(found).matmul_flops == attention + packed + scores
    # The weights are read as they are stored: 7 x 16 bytes, and 7 scales.
    (product,) = (record for record in found if record.name == "mm")
    assert product.work is not None
    assert product.work.bytes["dram"] == nbytes((10, 32), (7,), (10, 7)) + 7 * 16
    assert found.parameters == 64 + 32 * 7


def test_attention_of_packed_tensors(tmp_path: Path) -> None:
    """(batch, length, heads, 3 or 2, width): queries, keys and values are views, so nothing is copied."""
    nodes = [node("MultiHeadAttention", "q", "y", domain="com.microsoft", num_heads=4)]
    found = counted(tmp_path, nodes, {"q": (2, 9, 4, 3, 8)})
    rows = 4 * 2 * 9 * 32
    assert work(found).matmul_flops == 2 * 2 * 4 * 9 * 9 * (8 + 8)
    assert work(found).bytes["dram"] == 3 * rows + rows
    nodes = [node("MultiHeadAttention", "q kv", "y", domain="com.microsoft", num_heads=4)]
    found = counted(tmp_path, nodes, {"q": (2, 9, 32), "kv": (2, 11, 4, 2, 8)})
    assert work(found).matmul_flops == 2 * 2 * 4 * 9 * 11 * (8 + 8)
    nodes = [node("MultiHeadAttention", "q - - b", "y", domain="com.microsoft", num_heads=4)]
    found = counted(tmp_path, nodes, {"q": (2, 9, 4, 3, 8)}, "y", [weight("b", (96,))])
    assert names(found) == ["add", "attention"]


def test_the_layers_of_a_quantized_transformer(tmp_path: Path) -> None:
    """Embedding, attention and products as ONNX Runtime's passes write them: 2 x 9 tokens of width 32."""
    microsoft: dict[str, Any] = {"domain": "com.microsoft"}
    held = [weight(name, shape) for name, shape in (("t", (50, 32)), ("p", (20, 32)), ("k", (2, 32)))]
    held += [weight("g", (32,)), weight("b", (32,)), weight("ab", (96,)), weight("fb", (7,))]
    held += [weight("aw", (32, 96), INT8), weight("fw", (32, 7), INT8), weight("iw", (7, 5), INT8)]
    held += [weight("s", ()), weight("z", (), UINT8)]
    nodes = [
        node("EmbedLayerNormalization", "ids kinds t p k g b", "x", **microsoft),
        node("QuantizeLinear", "x s z", "q"),
        node("QAttention", "q aw ab s s", "a", num_heads=4, **microsoft),
        node("DynamicQuantizeMatMul", "a fw s - fb", "f", **microsoft),
        node("QuantizeLinear", "f s z", "i"),
        node("MatMulIntegerToFloat", "i iw s s", "y", **microsoft),
    ]
    ids = (TensorProto.INT32, (2, 9))
    found = counted(tmp_path, nodes, {"ids": ids, "kinds": ids}, "y", held)
    layers = ["embedding", "add", "embedding", "add", "native_layer_norm", "quantize_per_tensor", "addmm", "attention"]
    products = ["aminmax", "quantize_per_tensor", "mm", "add", "quantize_per_tensor", "mm"]
    assert sorted(names(found)) == sorted(layers + products)
    assert work(found).flops["matmul.int8"] == 2 * 18 * (32 * 96 + 32 * 7 + 7 * 5)
    assert work(found).flops["matmul.fp32"] == 2 * 2 * 9 * 9 * (32 + 32)
    assert found.parameters == 72 * 32 + 2 * 32 + 96 + 7 + 32 * 96 + 32 * 7 + 7 * 5


def test_packed_weights_with_a_bias(tmp_path: Path) -> None:
    held = [weight("w", (48, 2, 16), UINT8), weight("s", (96,)), weight("b", (48,))]
    sizes: dict[str, Any] = {"K": 64, "N": 48, "bits": 4, "block_size": 32}
    nodes = [node("MatMulNBits", "x w s - - b", "y", domain="com.microsoft", **sizes)]
    found = counted(tmp_path, nodes, {"x": (2, 9, 64)}, "y", held)
    assert (work(found).matmul_flops, vector(work(found))) == (2 * 18 * 64 * 48, 18 * 48)
    assert found.parameters == 64 * 48 + 48
    nodes = [node("MatMulBnb4", "x w s", "y", domain="com.microsoft", K=64, N=48, block_size=32, quant_type=1)]
    held = [weight("w", (64 * 48 // 2,), UINT8), weight("s", (96,))]
    found = counted(tmp_path, nodes, {"x": (2, 9, 64)}, "y", held)
    assert (work(found).matmul_flops, found.parameters) == (2 * 18 * 64 * 48, 64 * 48)


def test_a_fused_convolution_with_its_activation_and_a_sum(tmp_path: Path) -> None:
    nodes = [node("FusedConv", "x w - z", "y", domain="com.microsoft", activation="Relu")]
    found = counted(tmp_path, nodes, {"x": (2, 4, 5, 5), "z": (2, 8, 3, 3)}, "y", [weight("w", (8, 4, 3, 3))])
    assert names(found) == ["convolution", "add", "relu"]
    assert work(found).matmul_flops == 2 * 2 * 8 * 9 * 4 * 9


def test_a_product_whose_rows_stand_before_its_batch(tmp_path: Path) -> None:
    nodes = [node("FusedMatMul", "a b", "y", domain="com.microsoft", transBatchA=1, transB=1)]
    found = counted(tmp_path, nodes, {"a": (9, 2, 64), "b": (2, 11, 64)})
    assert work(found).matmul_flops == 2 * 2 * 9 * 11 * 64


def test_an_operator_that_onnx_has_given_up_is_counted(tmp_path: Path) -> None:
    held = [weight("g", (2,)), weight("b", (2,))]
    nodes = [node("GroupNormalization", "x g b", "y", num_groups=2)]
    found = counted(tmp_path, nodes, {"x": (2, 4, 6, 6)}, "y", held, opset=18)
    assert (names(found), found.parameters) == (["native_group_norm"], 4)


def test_products_of_integers(tmp_path: Path) -> None:
    nodes = [node("MatMulInteger", "a w", "y")]
    product = counted(tmp_path, nodes, {"a": (UINT8, (3, 4))}, "y", [weight("w", (4, 5), INT8)])
    assert work(product) == Work(flops={"matmul.int8": 2 * 60}, bytes={"dram": 12 + 20 + 4 * 15})
    scales = [constant("s", 0.1, np.float32), constant("z", 0, np.int8)]
    held = [*scales, weight("w", (4, 3, 1, 1), INT8)]
    convolution = [node("QLinearConv", "x s z w s z s z", "y")]
    found = counted(tmp_path, convolution, {"x": (INT8, (1, 3, 5, 5))}, "y", held)
    assert work(found) == Work(flops={"matmul.int8": 2 * 100 * 3}, bytes={"dram": 75 + 12 + 100})
    assert (found.parameters, found.cases[0].dtype) == (12, "as-is")


def test_every_name_that_a_rule_gives_has_a_formula_or_is_the_operators_own() -> None:
    from rooflens.graph import layers, movement, operators, products, quantized

    given = {
        *layers.INTERPOLATIONS.values(),
        *operators.OF_FIRST_INPUT.values(),
        *operators.RANDOM.values(),
        *operators.UNARY.values(),
        *operators.BINARY.values(),
        *operators.VARIADIC.values(),
        *products.ACTIVATIONS.values(),
        *(name for name, _ in quantized.POINTWISE.values()),
        *(f"{name}{n}d" for name in movement.PADDING.values() for n in (1, 2, 3)),
    }
    assert {name for name in given if family_of(name) == "other"} == set()
    assert len(RULES) > 100
