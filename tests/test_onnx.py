"""Estimates of ONNX files: exported models against their traces, open sizes, element types, and wrong files."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torchvision
from click.testing import CliRunner
from tests.onnx_graphs import HALF, INT8, INT64, UINT8, Shape, constant, counted, names, node, save, weight, work
from torch import nn

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import InvalidValue, MissingDependency, ModelError, RooflensError, UnknownModel, UnknownName

SOURCE = Path(rl.__file__).parents[1]
RELU = [node("Relu", "x", "y")]


def exported(module: nn.Module, inputs: torch.Tensor, path: Path) -> str:
    """The module as torch's exporter without further packages writes it, with an open batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), (inputs,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}}
        )
    return str(path)


# Exported models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_large", "vit_b_16"])
def test_exported_models_count_as_their_traces(name: str, tmp_path: Path) -> None:
    file = exported(torchvision.models.get_model(name, weights=None), torch.randn(2, 3, 224, 224), tmp_path / "m.onnx")
    traced, read = rl.estimate(name, batch=4), rl.estimate(file, batch=4, fusion="attention")
    Path(file).unlink()  # several hundred megabytes
    assert read.coverage.uncounted == ()
    assert read.total().matmul_flops == traced.total().matmul_flops
    # What else is done differs little: norms are folded into convolutions, attention is written out.
    flops, known = read.total().flops, traced.total().flops
    assert flops is not None
    assert flops == pytest.approx(known, rel=0.03)
    # Every module that does matrix work is there under its name; attention has its last product within.
    modules = {group.key.removesuffix(".out_proj") for group in traced.by("module") if group.total.matmul_flops}
    assert modules <= {group.key for group in read.by("module")}


class Decoder(nn.Module):
    """Two layers of causal attention with rotary positions, RMS norms and gated MLPs."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, 32)
        self.layers = nn.ModuleList(nn.ModuleDict(self.layer()) for _ in range(2))
        self.head = nn.Linear(32, 100, bias=False)

    @staticmethod
    def layer() -> dict[str, nn.Linear]:
        wide = {name: nn.Linear(32, 64) for name in ("gate", "up")}
        return {name: nn.Linear(32, 32, bias=False) for name in "qkvo"} | wide | {"down": nn.Linear(64, 32)}

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        places = torch.arange(ids.shape[1], dtype=torch.float32)[:, None] * torch.ones(8)
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            h = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
            q, k, v = (layer[n](h).unflatten(-1, (2, 16)).transpose(1, 2) for n in "qkv")
            q, k = (self.turned(t, places.cos(), places.sin()) for t in (q, k))
            a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["o"](a.transpose(1, 2).flatten(2))
            x = x + layer["down"](nn.functional.silu(layer["gate"](x)) * layer["up"](x))
        logits: torch.Tensor = self.head(x)
        return logits

    @staticmethod
    def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def test_a_decoder_counts_as_its_trace(tmp_path: Path) -> None:
    ids = torch.zeros(2, 24, dtype=torch.int64)
    read = rl.estimate(exported(Decoder(), ids, tmp_path / "decoder.onnx"), batch=2)
    assert read.coverage.uncounted == ()
    # Per token four projections, the MLP's three products; attention on all 24 keys; the head.
    expected = 2 * 48 * (2 * (4 * 32 * 32 + 3 * 32 * 64) + 32 * 100) + 2 * 2 * 2 * 24 * 24 * 32 * 2
    assert read.total().matmul_flops == rl.estimate(Decoder(), inputs=ids).total().matmul_flops == expected
    (embedding,) = (record for record in read if record.name == "embedding")
    assert embedding.path == "tokens"


def test_transposed_and_recurrent_modules_count_as_their_traces(tmp_path: Path) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2)
            self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
            self.gru = nn.GRU(10, 3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.gru(self.lstm(self.up(x).transpose(1, 2))[0])[0]
            return out

    x = torch.randn(2, 4, 9)
    read, traced = rl.estimate(exported(Both(), x, tmp_path / "both.onnx"), batch=2), rl.estimate(Both(), inputs=x)
    assert read.total().matmul_flops == traced.total().matmul_flops
    assert (read.coverage.uncounted, read.parameters) == ((), traced.parameters)


# What is not known ----------------------------------------------------------------------------------------------------


def test_an_unknown_operator_is_listed_and_keeps_its_bytes(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "h"), node("Frobnicate", "h", "f", domain="mine"), node("Relu", "f", "y")]
    found = counted(tmp_path, nodes, {"x": (2, 3)}, "y", [weight("w", (3, 5))], declared={"f": (2, 5)})
    assert found.coverage.uncounted == ("Frobnicate",)
    assert (found.coverage.operations, found.coverage.counted) == (3, 2)
    total = found.total()
    assert total.matmul_flops == 60
    assert total.missing == {"Frobnicate"}
    assert total.bytes == {"dram": 4 * (6 + 15 + 10) + 4 * 20 + 4 * 20}
    assert ">=" in rl.table(found)


def test_what_has_no_size_is_listed_and_leaves_bytes_and_memory_unknown(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "h"), node("Frobnicate", "h", "f", domain="mine"), node("Relu", "f", "y")]
    found = counted(tmp_path, nodes, {"x": (2, 3)}, "y", [weight("w", (3, 5))])
    assert found.coverage.uncounted == ("Frobnicate", "Relu")
    assert (found.total().matmul_flops, found.total().bytes, found.memory) == (60, {}, None)
    assert found.coverage.bytes_share is None
    assert any("does not tell every size" in note for note in found.notes)
    assert json.loads(rl.table(found, format="json"))[0]["memory"]["peak"] is None
    assert "Frobnicate" in rl.table(found)
    assert rl.RecordSet.load(found.save(tmp_path / "r.jsonl")).records == found.records


@pytest.mark.parametrize("op", ["relu", "convolution", "add_", "_foreach_mul"])
def test_an_operator_called_like_a_formula_is_not_counted_by_it(tmp_path: Path, op: str) -> None:
    found = counted(tmp_path, [node(op, "x", "y", domain="mine")], {"x": (4,)}, declared={"y": (4,)})
    assert found.coverage.uncounted == (f"mine::{op}",)


# Open sizes -----------------------------------------------------------------------------------------------------------


def test_an_open_batch_is_chosen(tmp_path: Path) -> None:
    file = save(tmp_path, [node("MatMul", "x w", "y")], {"x": ("N", 3)}, "y", [weight("w", (3, 5))])
    found = rl.estimate(file, batch=[1, 8])
    assert [case.batch for case in found.cases] == [1, 8]
    assert [part.total().matmul_flops for _, _, part in found.split()] == [30, 240]
    assert [case.batch for case in rl.estimate(file).cases] == [1]


@pytest.mark.parametrize(
    ("inputs", "options", "elements"),
    [
        ({"x": ("batch", 3, "height", "width")}, {"batch": 2, "img_size": 5}, 2 * 3 * 25),
        ({"x": (None, None, None, 3)}, {"img_size": 5}, 3 * 25),  # channels last
        ({"x": (INT64, ("batch_size", "sequence_length"))}, {"batch": 2, "seq_len": 7}, 14),
        ({"x": (INT64, (None, -1))}, {"seq_len": 7}, 7),
        ({"x": ("seq_len", "N", 4)}, {"batch": 2, "seq_len": 7}, 56),
        ({"x": ("s77", 3)}, {"batch": 2}, 6),
        ({"x": (0, 3)}, {"batch": 2}, 6),  # 0 is how some exporters leave a size open
        ({"x": (4, 3)}, {}, 12),
        ({"x": (4, 3)}, {"batch": 4}, 12),
    ],
)
def test_open_sizes_are_recognised(
    tmp_path: Path, inputs: dict[str, Any], options: dict[str, int], elements: int
) -> None:
    found = counted_with(save(tmp_path, [node("Neg", "x", "y")], inputs), options)
    (operation,) = (record for record in found if record.scope == "op")
    assert operation.call is not None
    assert operation.call.outputs[0].elements == elements


def counted_with(file: str, options: dict[str, Any]) -> rl.RecordSet:
    return rl.estimate(file, **options)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ({"x": (1, 3, "h", "w")}, {}, r"dimension 2 \('h'\) of input 'x' is open; .*--img-size"),
        ({"x": (INT64, (1, "length"))}, {}, r"dimension 1 \('length'\) of input 'x' .*--seq-len"),
        ({"x": ("batch", "boxes", 4, 2, 9)}, {}, r"dimension 1 \('boxes'\).*--dim boxes=8"),
        ({"x": ("batch", 4, None, 2, 9)}, {}, r"dimension 2 of input 'x'.*--dim x:2=8"),
        ({"x": ("batch", 2, "past_sequence_length + 1", 8)}, {}, r"--dim 'past_sequence_length \+ 1'=8"),
        (
            {"x": ("batch", "boxes")},
            {"dims": {"box": 3}},
            r"unknown dimension 'box'; what .* leaves open: 'batch', 'boxes'",
        ),
        ({"x": ("batch", "boxes")}, {"dims": {"boxes": -1}}, r"size -1; give a whole number"),
        ({"x": ("batch", "boxes")}, {"dims": {"batch": 3}}, r"is the batch; give it with batch"),
        ({"x": ("nodes", 3)}, {"dims": {"nodes": 3}, "batch": 8}, "no common batch"),
        ({"x": ("batch", 3), "z": ("regions", 3)}, {}, r"dimension 0 \('regions'\) of input 'z'"),
        ({"x": (1, 3)}, {"batch": 8}, r"cannot have batch 8: batch 1 is built in.*open first dimension"),
        ({"x": (2, 3), "z": (5, 3)}, {"batch": 8}, "no common batch"),
        ({"x": ("batch", 3)}, {"img_size": 224}, "img_size=224 has no meaning"),
        ({"x": ("batch", 3)}, {"seq_len": 8}, "seq_len=8 has no meaning"),
        ({"x": ("batch", 3)}, {"batch": 0}, "batch 0 cannot be run"),
        ({"x": ("batch", 3)}, {"mode": "train"}, r"no mode 'train'; give the PyTorch model"),
        ({"x": ("batch", 3)}, {"mode": "decode"}, "no mode 'decode'"),
        ({"x": ("batch", 3)}, {"inputs": torch.ones(3)}, "inputs has no meaning"),
        ({"x": ("batch", 3)}, {"channels_last": True}, "channels_last has no meaning"),
        ({"x": ("batch", 3)}, {"dtype": "bf16"}, r"holds fp32 tensors.*leave dtype 'bf16' out, or convert"),
        ({"x": ("batch", 3)}, {"dtype": "amp-fp16"}, "holds fp32 tensors"),
        ({"x": (HALF, ("batch", 3))}, {"dtype": "fp32"}, "holds fp16 tensors"),
    ],
)
def test_what_cannot_be_chosen_is_said(
    tmp_path: Path, inputs: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    nodes = [node("Neg", name, f"y{name}") for name in inputs]
    with pytest.raises((InvalidValue, UnknownName), match=message):
        rl.estimate(save(tmp_path, nodes, inputs, " ".join(f"y{name}" for name in inputs)), **options)


@pytest.mark.parametrize(
    ("shape", "options", "elements"),
    [
        (("batch", "boxes", 4), {"dims": {"boxes": 5}, "batch": 2}, 2 * 5 * 4),
        (("nodes", 3), {"dims": {"nodes": 7}}, 7 * 3),
        (("batch", None, None, 2, 2), {"dims": {"x:1": 3, "x:2": 5}}, 3 * 5 * 4),
        (("batch", 3, "height", "width"), {"dims": {"height": 5, "width": 7}}, 3 * 5 * 7),
        (("batch", 3, "height", "width"), {"dims": {"height": 5}, "img_size": 7}, 3 * 5 * 7),
        (("batch", 2, "past_length", 3), {"dims": {"past_length": 0}}, 0),
    ],
)
def test_open_sizes_are_given_by_name(tmp_path: Path, shape: Shape, options: dict[str, Any], elements: int) -> None:
    found = rl.estimate(save(tmp_path, RELU, {"x": shape}), **options)
    assert work(found).bytes == {"dram": 8 * elements}
    given = dict(found.cases[0].options)["dims"]
    assert given == ", ".join(f"{name}={size}" for name, size in options["dims"].items())


def test_a_size_that_is_a_sum_follows_from_its_parts(tmp_path: Path) -> None:
    inputs = {
        "past": ("batch", 4, "past_sequence_length", 8),
        "x": ("batch", 4, "sequence_length", 8),
        "mask": ("batch", "past_sequence_length + sequence_length"),
    }
    nodes = [node("Concat", "past x", "y", axis=2), node("Neg", "mask", "z")]
    file = save(tmp_path, nodes, inputs, "y z")
    found = rl.estimate(file, batch=2, seq_len=3, dims={"past_sequence_length": 10})
    # 13 tokens of 4 x 8 numbers are read and written, and a mask of 13.
    assert work(found).bytes["dram"] == 4 * 2 * (2 * 13 * 32 + 2 * 13)
    fits = rl.largest_batch(file, device="t4", seq_len=3, dims={"past_sequence_length": 10})
    assert fits.answers[0].case.options == found.cases[0].options
    words = ("-b", "2", "--seq-len", "3", "--dim", "past_sequence_length=10", "--format", "json")
    result = CliRunner().invoke(cli, ["estimate", file, *words])
    assert json.loads(result.stdout)[0]["phases"]["forward"]["bytes"] == work(found).bytes
    shown = CliRunner().invoke(cli, ["explain", file, *words[:-2], "--path", ""])
    assert "4 x 13 x 8" in shown.stdout or "4x13x8" in shown.stdout
    wrong = CliRunner().invoke(cli, ["estimate", file, "--dim", "past_sequence_length"])
    assert wrong.exit_code == 2
    assert "no name with a size" in wrong.stderr


@pytest.mark.parametrize("call", [rl.estimate, lambda *a, **k: rl.largest_batch(*a, device="t4", **k)])
def test_sizes_by_name_are_those_of_a_file(call: Any) -> None:
    with pytest.raises(InvalidValue, match="that an ONNX file leaves open"):
        call("resnet18", dims={"height": 3})


def test_an_input_without_a_shape(tmp_path: Path) -> None:
    path = Path(save(tmp_path, RELU, {"x": (2,)}))
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    with pytest.raises(InvalidValue, match="input 'x' has no shape"):
        rl.estimate(str(path))


def test_a_size_that_is_built_in_is_said(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x shape", "h"), node("Add", "h w", "y")]
    held = [constant("shape", [3, -1]), weight("w", (3, 2))]
    file = save(tmp_path, nodes, {"x": ("batch", 6)}, "y", held)
    assert rl.estimate(file, batch=1).total().flops == 6
    with pytest.raises(ModelError, match=r"node 'y' \(Add\): its inputs do not fit.*exported with"):
        rl.estimate(file, batch=2)


# Element types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "held", "asked", "dtype", "resource"),
    [
        ((2, 4), weight("w", (4, 4)), None, "fp32", "matmul.fp32"),
        ((2, 4), weight("w", (4, 4)), "tf32", "tf32", "matmul.tf32"),
        ((2, 4), weight("w", (4, 4)), "default", "default", "matmul.fp32"),
        ((HALF, (2, 4)), weight("w", (4, 4), HALF), None, "fp16", "matmul.fp16"),
        ((HALF, (2, 4)), weight("w", (4, 4), HALF), "fp16", "fp16", "matmul.fp16"),
        ((11, (2, 4)), weight("w", (4, 4), 11), None, "as-is", "matmul.fp64"),
    ],
)
def test_the_file_decides_the_element_type(
    tmp_path: Path, inputs: Any, held: onnx.TensorProto, asked: str | None, dtype: str, resource: str
) -> None:
    found = rl.estimate(save(tmp_path, [node("MatMul", "x w", "y")], {"x": inputs}, "y", [held]), dtype=asked)
    assert found.cases[0].dtype == dtype
    assert set(work(found).flops) == {resource}


def test_a_quantized_file_stays_as_it_is(tmp_path: Path) -> None:
    nodes = [node("MatMulInteger", "a w", "y")]
    file = save(tmp_path, nodes, {"a": (UINT8, (3, 4))}, "y", [weight("w", (4, 5), INT8)])
    assert rl.estimate(file).cases[0].dtype == "as-is"
    with pytest.raises(rl.RooflensError, match=r"matmul\.int8"):
        rl.estimate(file, device="v100-sxm2-16gb")


# Files that are wrong -------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UnknownModel, match=r"unknown model file 'no/such\.onnx'; there is no such file"):
        rl.estimate("no/such.onnx")


def spoiled(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"hello, this is no model",
        b"\x00" * 100,
        b"\xff" * 100,
        spoiled,
        lambda data: data[:20] + b"\xff" + data[20:],
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, contents: Any) -> None:
    whole = Path(save(tmp_path, RELU, {"x": (2, 3)})).read_bytes()
    path = tmp_path / "damaged.onnx"
    path.write_bytes(contents(whole) if callable(contents) else contents)
    with pytest.raises(ModelError, match=r"damaged\.onnx is no ONNX model, or it is damaged"):
        rl.estimate(str(path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.onnx"
    os.mkfifo(path)
    with pytest.raises(ModelError, match="it is no file"):
        rl.estimate(str(path))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").mkdir()
    with pytest.raises(ModelError, match="cannot read"):
        rl.estimate(str(tmp_path / "x.onnx"))


@pytest.mark.parametrize(
    ("nodes", "held", "message"),
    [
        ([node("Relu", "z", "y")], [], r"model\.onnx, node 'y' \(Relu\): 'z' is taken before anything gives it"),
        ([node("Relu", "x", "a"), node("Relu", "x", "a"), node("Relu", "a", "y")], [], "'a' is given twice"),
        ([node("Relu", "x", "a")], [], "its outputs: 'y' is taken before"),
        ([node("Relu", "x x", "y")], [], "no valid ONNX"),
        ([node("Conv", "x x", "y", kernel_shape="three")], [], "node 'y' "),
        ([node("Einsum", "x x", "y", equation="ij,j.k")], [], "no einsum equation"),
        ([node("Einsum", "x x", "y", equation="......,ij")], [], "no einsum equation"),
        ([node("MatMul", "x w", "y")], [weight("w", (7, 2))], "its inputs do not fit"),
        ([node("Relu", "x", "y")], [weight("w", (-1,))], "cannot be"),
        ([node("Relu", "x", "y")], [weight("w", (2**40, 2**40))], "cannot be"),
        ([node("Relu", "x", "y")], [weight("w", (3,), 8)], "no element type that can be counted"),
    ],
)
def test_a_graph_that_does_not_hold_together_is_named(
    tmp_path: Path, nodes: Sequence[onnx.NodeProto], held: Sequence[onnx.TensorProto], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        counted(tmp_path, nodes, {"x": (2, 3)}, "y", held)


def test_few_bytes_cannot_stand_for_endless_nodes(tmp_path: Path) -> None:
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("f", 1)]

    def tenfold(name: str, inner: str) -> onnx.FunctionProto:
        words = ["a", *(f"t{i}" for i in range(9)), "b"]
        nodes = [node(inner, a, b, domain="f") for a, b in pairwise(words)]
        return onnx.helper.make_function("f", name, ["a"], ["b"], nodes, imports)

    bottom = onnx.helper.make_function("f", "F0", ["a"], ["b"], RELU_IN_FUNCTION, imports)
    nested = [bottom, *(tenfold(f"F{i + 1}", f"F{i}") for i in range(9))]
    with pytest.raises(ModelError, match=r"has \d{10} nodes"):
        counted(tmp_path, [node("F9", "x", "y", domain="f")], {"x": (2,)}, functions=nested)
    with pytest.raises(ModelError, match="calls itself"):
        counted(tmp_path, [node("F1", "x", "y", domain="f")], {"x": (2,)}, functions=[tenfold("F1", "F1")])


RELU_IN_FUNCTION = [node("Relu", "a", "b")]


def test_a_damaged_graph_is_an_error_or_an_estimate_and_never_a_crash(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1], name="/conv/Conv"),
        node("MaxPool", "a", "b", kernel_shape=[2, 2]),
        node("Reshape", "b shape", "c"),
        node("Einsum", "c v", "d", equation="bi,ij->bj"),
        node("Softmax", "d", "y"),
    ]
    held = [weight("w", (4, 3, 3, 3)), constant("shape", [-1, 196]), weight("v", (196, 5))]
    whole = Path(save(tmp_path, nodes, {"x": ("batch", 3, 8, 8)}, "y", held)).read_bytes()
    chance, path, read = random.Random(7), tmp_path / "damaged.onnx", 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 2, 4))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            rl.table(rl.estimate(str(path)))
            read += 1
        except RooflensError as error:
            assert "onnx" in str(error).lower() or "input" in str(error)  # noqa: PT017
    assert 10 < read < 290


# Without torch, without onnx, and elsewhere ---------------------------------------------------------------------------


def test_an_estimate_of_a_file_imports_no_torch(tmp_path: Path) -> None:
    file = save(tmp_path, [node("MatMul", "x w", "y")], {"x": ("N", 3)}, "y", [weight("w", (3, 5))])
    code = (
        "import sys\n"
        "for name in ('torch', 'torchvision', 'timm', 'transformers'): sys.modules[name] = None\n"
        "from rooflens.cli import main\n"
        f"main(['estimate', {file!r}, '-b', '8', '--device', 't4', '--format', 'json'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["phases"]["forward"]["matmul_flops"] == 240


def test_without_the_package_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path, RELU, {"x": (2,)})
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependency, match=r"pip install 'rooflens\[onnx\]'"):
        rl.estimate(file)


def test_the_command_line_reads_the_files_own_type(tmp_path: Path) -> None:
    file = save(tmp_path, [node("Neg", "x", "y", name="/head/Neg")], {"x": (HALF, ("N", 3))})
    result = CliRunner().invoke(cli, ["estimate", file, "-b", "4"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "batch 4, fp16, inference" in " ".join(result.stdout.split())
    assert "head" in result.stdout


def test_a_file_is_not_run(tmp_path: Path) -> None:
    file = save(tmp_path, RELU, {"x": (2,)})
    with pytest.raises(InvalidValue, match="can be estimated and explained only"):
        rl.measure(file)


def test_attention_that_is_written_out_can_be_fused(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "k", "t", perm=[0, 1, 3, 2]),
        node("MatMul", "q t", "s"),
        node("Softmax", "s", "p"),
        node("MatMul", "p v", "y"),
    ]
    shapes: dict[str, Shape] = dict.fromkeys("qkv", (1, 2, 64, 8))
    file = save(tmp_path, nodes, shapes)
    assert names(rl.estimate(file)) == ["bmm", "_softmax", "bmm"]
    moved = [rl.estimate(file, fusion=fusion).total().bytes["dram"] for fusion in ("none", "attention")]
    operand, scores = 4 * 2 * 64 * 8, 4 * 2 * 64 * 64
    assert moved == [4 * operand + 4 * scores, 4 * operand]


def test_cost_grows_with_nodes_and_not_with_sizes(tmp_path: Path) -> None:
    nodes = [node("Relu", f"x{i}", f"x{i + 1}") for i in range(2000)]
    found = counted(tmp_path, nodes, {"x0": (2**20, 2**20)}, "x2000")
    assert found.total().flops == 2000 * 2**40
    assert np.isfinite(found.total().bytes["dram"])
