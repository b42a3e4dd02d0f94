"""How the tensors of a call lie in memory: as the trace saw them, in records, and in record files of every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.counting import Calls
from tests.onnx_graphs import counted, node
from torch import nn
from torch.nn import functional as F

import rooflens as rl
from rooflens.costs import registry
from rooflens.errors import RecordFileError
from rooflens.models import Example, make_step, sum_of_outputs
from rooflens.records import (
    Call,
    Case,
    Operation,
    Record,
    RecordFile,
    Tensor,
    dense_strides,
    read_records,
    write_records,
)
from rooflens.trace import trace

DATA = Path(__file__).parent / "data" / "records"


def operations(module: nn.Module, *args: Any, **more: Any) -> tuple[Operation, ...]:
    options: dict[str, Any] = {
        "mode": "inference",
        "optimizer": "none",
        "dtype": "as-is",
        "loss": sum_of_outputs,
    } | more
    return trace(make_step("model", module, Example(args=args), **options)).operations


def the(name: str, found: tuple[Operation, ...]) -> Call:
    (call,) = (o.call for o in found if o.call.name == name)
    return call


def laid(*shape: int, strides: tuple[int, ...] | None, offset: int = 0) -> Tensor:
    return Tensor(shape, "fp32", 4 * torch.Size(shape).numel(), strides=strides, offset=offset)


# Names of layouts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides", "name"),
    [
        ((2, 3, 4, 5), (60, 20, 5, 1), "contiguous"),
        ((2, 3, 4, 5), (60, 1, 15, 3), "channels_last"),
        ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3), "channels_last_3d"),
        ((3, 2), (1, 3), "other"),  # a transposed matrix
        ((2, 3), (0, 1), "other"),  # one row, repeated
        ((2, 3), (6, 1), "other"),  # every second row
        ((1, 3, 4, 5), (7, 20, 5, 1), "contiguous"),  # where there is one sample, its stride is nothing
        ((2, 3, 1, 1), (3, 1, 1, 1), "contiguous"),  # both formats: the first
        ((), (), "contiguous"),
        ((2, 0, 3), (3, 3, 1), "contiguous"),
        ((2, 3), None, None),
    ],
)
def test_a_layout_has_the_name_that_torch_gives_it(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, name: str | None
) -> None:
    assert laid(*shape, strides=strides).memory_format == name
    formats = {"channels_last": torch.channels_last, "channels_last_3d": torch.channels_last_3d}
    if strides is not None:
        real = torch.empty(shape).as_strided(shape, strides) if 0 in shape else torch.empty_strided(shape, strides)
        assert real.is_contiguous() == (name == "contiguous")
        assert name not in formats or real.is_contiguous(memory_format=formats[name])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_dense_strides_are_those_of_torch(memory_format: torch.memory_format) -> None:
    name = str(memory_format).removeprefix("torch.").removesuffix("_format")
    assert dense_strides((2, 3, 4, 5), name) == torch.empty(2, 3, 4, 5, memory_format=memory_format).stride()


# What a trace sees ----------------------------------------------------------------------------------------------------


def test_operands_lie_as_the_model_laid_them() -> None:
    # A linear layer keeps (out, in) = (4, 3) and multiplies by its transpose (3, 4): steps of 1 and of 3 elements.
    call = the("addmm", operations(nn.Linear(3, 4), torch.randn(2, 3)))
    assert (call.tensor("mat1").strides, call.tensor("mat2").strides, call.outputs[0].strides) == (
        (3, 1),
        (1, 3),
        (4, 1),
    )
    assert call.tensor("mat2").shape == (3, 4)
    assert call.layout == (((1,), 0), ((3, 1), 0), ((1, 3), 0), ((4, 1), 0))  # bias, input, weight, result


@pytest.mark.parametrize(
    ("view", "strides", "offset"),
    [
        (lambda x: x[1:, ::2], (6, 2), 6),  # begins at row 1, and passes over every second column
        (lambda x: x[:, 2], (6,), 2),
        (lambda x: x[0].expand(5, 6), (0, 1), 0),
        (lambda x: x.t(), (1, 6), 0),
        (lambda x: x.flatten()[4:8].view(2, 2), (2, 1), 4),
    ],
)
def test_a_view_has_strides_and_an_offset(
    view: Callable[[torch.Tensor], torch.Tensor], strides: tuple[int, ...], offset: int
) -> None:
    call = the("exp", operations(Calls(lambda _, x: view(x).exp()), torch.randn(4, 6)))
    source = call.tensor("self")
    assert (source.strides, source.offset) == (strides, offset)


def test_a_convolution_keeps_channels_last_forward_and_backward() -> None:
    step = operations(nn.Conv2d(3, 8, 3), torch.randn(2, 3, 8, 8), mode="train", channels_last=True)
    forward, backward = the("convolution", step), the("convolution_backward", step)
    assert [t.memory_format for t in (*forward.inputs[:2], *forward.outputs)] == ["channels_last"] * 3
    assert backward.tensor("weight").strides == (27, 1, 9, 3)  # (8, 3, 3, 3) with its 3 channels innermost
    plain = operations(nn.Conv2d(3, 8, 3), torch.randn(2, 3, 8, 8))
    assert {t.memory_format for t in the("convolution", plain).inputs} == {"contiguous"}


def test_a_sparse_tensor_has_no_strides() -> None:
    sparse = torch.eye(4).to_sparse()
    found = operations(Calls(lambda _, x: torch.sparse.mm(sparse, x)), torch.randn(4, 2))
    (call,) = (o.call for o in found if "mm" in o.call.name)
    (operand,) = (t for t in call.inputs if t.stored is not None)
    assert (operand.strides, operand.offset, operand.memory_format) == (None, None, None)


def test_tensors_of_a_graph_are_row_major(tmp_path: Path) -> None:
    exp, _ = counted(tmp_path, [node("Exp", "x", "y")], {"x": (2, 3, 4)}, "y")
    assert exp.call is not None
    assert exp.call.layout == (((12, 4, 1), 0), ((12, 4, 1), 0))


# Equal calls ----------------------------------------------------------------------------------------------------------


def test_calls_that_differ_in_their_layout_alone_cost_once() -> None:
    def twice(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x.exp() + x.t().exp()

    first, second = (o.call for o in operations(Calls(twice), torch.randn(37, 37)) if o.call.name == "exp")
    assert first == second
    assert hash(first) == hash(second)
    assert (first.layout, second.layout) == ((((37, 1), 0),) * 2, (((1, 37), 0),) * 2)
    registry.cost(first)
    before = registry.cost.cache_info()
    assert registry.cost(second) is registry.cost(first)
    assert registry.cost.cache_info().misses == before.misses


def test_one_record_holds_them_with_a_call_of_each_layout() -> None:
    def thrice(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x.exp() + x.t().exp() + x.exp()

    estimate = rl.estimate(Calls(thrice), inputs=torch.randn(5, 5))
    exp, add, _ = estimate
    assert (exp.name, exp.calls, [times for _, times in exp.layouts]) == ("exp", 3, [2, 1])
    assert [call.tensor("self").strides for call, _ in exp.layouts] == [(5, 1), (1, 5)]
    assert exp.call is exp.layouts[0][0]
    assert [(add.calls, [call.layout[1][0] for call, _ in add.layouts])] == [(2, [(1, 5), (5, 1)])]
    alone = rl.estimate(nn.ReLU(), inputs=torch.randn(5, 5))
    assert [record.layouts for record in alone] == [(), ()]


# Files ----------------------------------------------------------------------------------------------------------------

SHAPES = st.lists(st.integers(0, 5), max_size=5).map(tuple)
LAYOUTS = ("contiguous", "channels_last", "channels_last_3d")


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(SHAPES)
    ranks = {"channels_last": 4, "channels_last_3d": 5}
    named = [dense_strides(shape, name) for name in LAYOUTS if ranks.get(name, len(shape)) == len(shape)]
    any_ = st.lists(st.integers(0, 99), min_size=len(shape), max_size=len(shape)).map(tuple)
    strides = draw(st.none() | st.sampled_from(named) | any_)
    stored = draw(st.none() | st.integers(0, 9))
    offset = None if strides is None else draw(st.sampled_from([0, 0, 7]))
    return Tensor(shape, "fp32", draw(st.integers(0, 99)), stored, strides, offset)


@given(st.lists(tensors(), max_size=3), st.lists(tensors(), max_size=2))
def test_every_layout_comes_back(inputs: list[Tensor], outputs: list[Tensor]) -> None:
    call = Call("f", (("tensors", tuple(inputs)),), tuple(outputs), 0, 0)
    assert written_and_read(call).layout == call.layout


def written_and_read(call: Call, **more: Any) -> Call:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        record = Record(case=Case(model="m"), source="estimate", scope="op", call=call, **more)
        write_records(path, RecordFile(records=(record,)))
        found = read_records(path).records[0].call
    assert found is not None
    return found


def lines(path: Path, kind: str) -> list[dict[str, Any]]:
    return [entry for entry in map(json.loads, path.read_text().splitlines()) if entry["type"] == kind]


def test_only_what_is_not_row_major_is_written(tmp_path: Path) -> None:
    # bias (4), input (2, 3), transposed weight (3, 4), result (2, 4); then a channels-last image and its result.
    rl.estimate(nn.Linear(3, 4), inputs=torch.randn(2, 3)).save(tmp_path / "linear.jsonl")
    (linear,) = lines(tmp_path / "linear.jsonl", "call")
    assert linear["arguments"][:3] == [
        ["self", {"fp32": [4]}],
        ["mat1", {"fp32": [2, 3]}],
        ["mat2", {"fp32": [3, 4], "strides": [1, 3]}],
    ]
    assert linear["outputs"] == [{"fp32": [2, 4]}]
    assert "layout" not in linear
    image = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    rl.estimate(nn.ReLU(), inputs=image).save(tmp_path / "image.jsonl")
    (relu,) = lines(tmp_path / "image.jsonl", "call")
    assert (relu["arguments"], relu["outputs"]) == ([["self", {"fp32": [2, 3, 4, 4]}]], [{"fp32": [2, 3, 4, 4]}])
    assert relu["layout"] == "channels_last"


def test_a_record_of_several_layouts_refers_to_a_call_of_each(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    estimate = rl.estimate(Calls(lambda _, x: F.relu(x) @ F.relu(x.t())), inputs=torch.randn(5, 5))
    estimate.save(path)
    assert [entry.get("layouts") for entry in lines(path, "record")] == [[[0, 1], [1, 1]], None, None]
    assert [entry["name"] for entry in lines(path, "call")] == ["relu", "relu", "mm"]
    again = rl.read(path)
    assert [[(call.layout, n) for call, n in r.layouts] for r in again] == [
        [(call.layout, n) for call, n in r.layouts] for r in estimate
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_older_files_have_no_known_layout(version: int, tmp_path: Path) -> None:
    # linear(x).t() + 1 on (2, 3): 2 x 2 x 3 x 4 = 48 FLOP of products; written by the versions that had these formats.
    kept = rl.read(DATA / f"format_{version}.jsonl")
    linear, add, whole = kept
    assert (linear.work.flops["matmul.fp32"], add.name, whole.parameters) == (48, "add", 16)  # type: ignore[union-attr]
    assert linear.layouts == ()
    if version == 1:
        assert linear.call is None
        return
    assert linear.call is not None
    assert add.call is not None
    assert add.call.tensor("self").shape == (4, 2)
    assert {pair for call in (linear.call, add.call) for pair in call.layout} == {(None, None)}
    kept.save(tmp_path / "again.jsonl")  # in today's format, where it is still not known
    assert [entry["layout"] for entry in lines(tmp_path / "again.jsonl", "call")] == [None, None]
    again, *_ = rl.read(tmp_path / "again.jsonl")
    assert again.call is not None
    assert again.call.layout == linear.call.layout


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ('{"fp32":[2,3],"strides":[1]}', "strides [1] do not fit the shape [2, 3]"),
        ('{"fp32":[2,3],"strides":"channels_last"}', "Expected `array`, got `str`"),
        ('{"fp32":[2,3],"strides":"other"}', "Expected `array`, got `str`"),
        ('{"fp32":[2,3],"strides":[3,1],"offset":"x"}', "Expected `int`, got `str`"),
    ],
)
def test_a_layout_that_cannot_be_is_damage(tmp_path: Path, tensor: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    text = (DATA / "format_2.jsonl").read_text().replace('"format":2', '"format":3')
    path.write_text(text.replace('{"fp32":[2,3]}', tensor))
    with pytest.raises(RecordFileError, match="line 3: ") as raised:
        read_records(path)
    assert message in str(raised.value)
    path.write_text(text.replace('"reads":88', '"reads":88,"layout":"blocked"'))
    with pytest.raises(RecordFileError, match="line 3: Invalid enum value 'blocked'"):
        read_records(path)
