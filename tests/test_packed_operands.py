"""Quantised layers keep their weights in objects of C++ classes: these count as stored, in bytes, memory and bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao import quantization
from torch.nn import functional as F
from torch.utils import mkldnn

import rooflens as rl
from rooflens.errors import ModelError
from rooflens.results import RecordSet

pytestmark = pytest.mark.filterwarnings("ignore")  # torch announces that these layers move to torchao


def dynamic(module: nn.Module, dtype: torch.dtype = torch.qint8) -> nn.Module:
    kinds = {nn.Linear, nn.LSTM, nn.GRUCell}
    quantised: nn.Module = quantization.quantize_dynamic(module.eval(), kinds, dtype=dtype)
    return quantised


def counted(module: nn.Module, *inputs: Tensor) -> tuple[int, float, int]:
    """Parameters, DRAM bytes of the step, and bytes of parameters in memory."""
    est: RecordSet = rl.estimate(module, inputs=inputs)
    assert est.coverage.uncounted == ()
    assert est.memory is not None
    assert est.memory.parameters is not None
    assert est.parameters is not None
    return est.parameters, est.total().bytes["dram"], est.memory.parameters


def test_a_dynamic_layer_reads_its_weights() -> None:
    """1 byte for each of 4096 x 4096 weights; 4096 fp32 numbers come in and go out. A T4 moves 320 GB/s."""
    layer = dynamic(nn.Sequential(nn.Linear(4096, 4096, bias=False)))
    est = rl.estimate(layer, inputs=torch.randn(1, 4096), device="t4")
    moved = 4096 * 4096 + 2 * 4 * 4096
    assert (est.parameters, est.total().bytes) == (4096 * 4096, {"dram": moved})
    assert est.total().seconds == pytest.approx(moved / 320e9)
    assert est.memory is not None
    assert (est.memory.parameters, est.memory.peak) == (4096 * 4096, moved)


def test_a_bias_is_stored_once_in_fp32() -> None:
    """A weight of 32 x 64 bytes and a bias of 32 x 4; 64 fp32 numbers come in, 32 go out; blocks of 512 bytes."""
    layer = dynamic(nn.Sequential(nn.Linear(64, 32)))
    assert counted(layer, torch.randn(1, 64)) == (32 * 64 + 32, 32 * 64 + 32 * 4 + 4 * (64 + 32), 2048 + 512)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(self.layer(x))
        return output


def test_a_layer_that_is_called_twice_is_stored_once_and_read_twice() -> None:
    moved = 2 * (64 * 64 + 64 * 4 + 4 * (64 + 64))
    assert counted(dynamic(Twice()), torch.randn(1, 64)) == (64 * 64 + 64, moved, 4096 + 512)


def test_half_precision_weights_take_two_bytes_and_multiply_in_fp32() -> None:
    layer = dynamic(nn.Sequential(nn.Linear(64, 32)), torch.float16)
    assert counted(layer, torch.randn(1, 64))[1] == 2 * 32 * 64 + 32 * 4 + 4 * (64 + 32)
    total = rl.estimate(layer, inputs=torch.randn(1, 64)).total()
    assert total.flops == total.matmul_flops == 2 * 32 * 64


@pytest.mark.parametrize(("dtype", "nbytes", "unit"), [(torch.qint8, 1, "int8"), (torch.float16, 2, "tf32")])
def test_the_weights_of_a_recurrent_layer_lie_in_an_object_in_an_object(
    dtype: torch.dtype, nbytes: int, unit: str
) -> None:
    """4 x 16 gates read 32 inputs and 16 hidden numbers, with two biases; 5 steps of 2 sequences.

    Products in floats are in TF32, as torch's switches have it for recurrent layers.
    """
    layer = dynamic(nn.Sequential(nn.LSTM(32, 16)), dtype)
    est = rl.estimate(layer, inputs=torch.randn(5, 2, 32))
    weights, biases = 64 * (32 + 16), 2 * 64
    states = 4 * 2 * 16  # bytes of one: two are read and two are written
    assert est.parameters == weights + biases
    record = next(r for r in est if r.kind == "recurrent")
    assert record.work is not None
    assert dict(record.work.flops) == {f"matmul.{unit}": 2 * 10 * weights}
    moved = nbytes * weights + 4 * biases + 4 * 10 * (32 + 16) + 4 * states
    assert record.work.bytes["dram"] in (moved, moved - states)  # torch makes both first states one tensor of zeros


def test_a_cell_is_counted() -> None:
    """3 x 16 gates read 32 inputs and 16 hidden numbers of 5 sequences."""
    est = rl.estimate(dynamic(nn.Sequential(nn.GRUCell(32, 16))), inputs=torch.randn(5, 32))
    weights = 48 * (32 + 16)
    assert (est.parameters, est.total().matmul_flops) == (weights + 2 * 48, 2 * 5 * weights)


def test_a_static_layer_has_a_scale_and_a_zero_point_for_each_channel() -> None:
    """8 x 3 x 3 x 3 weights of 1 byte, 8 biases of 4, 8 scales and zero points of 4 each; 192 bytes in, 288 out."""
    layer: Any = nn.Sequential(quantization.QuantStub(), nn.Conv2d(3, 8, 3)).eval()
    layer.qconfig = quantization.get_default_qconfig("fbgemm")
    quantization.prepare(layer, inplace=True)
    layer(torch.randn(1, 3, 8, 8))
    quantization.convert(layer, inplace=True)
    est = rl.estimate(layer, inputs=torch.randn(1, 3, 8, 8))
    record = next(r for r in est if r.kind == "convolution")
    assert record.work is not None
    assert record.work.bytes["dram"] == 216 + 8 * 4 + 2 * 8 * 4 + 3 * 64 + 8 * 36
    assert record.work.flops["matmul.int8"] == 2 * 288 * 27
    assert est.parameters == 216 + 8


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(1000, 64)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.table(x, torch.tensor([0, 5]))
        return pooled


@pytest.mark.parametrize(("bits", "of_scales"), [(8, 8), (4, 4)])
def test_a_quantised_table_gives_the_rows_that_are_looked_up(bits: int, of_scales: int) -> None:
    """A row of 64 numbers has a scale and an offset: of 4 bytes beside bytes, of 2 beside halves of bytes."""
    module: Any = Bags().eval()
    config = {8: "float_qparams_weight_only_qconfig", 4: "float_qparams_weight_only_qconfig_4bit"}[bits]
    module.table.qconfig = getattr(quantization, config)
    quantization.prepare(module, inplace=True)
    quantization.convert(module, inplace=True)
    row = 64 * bits // 8 + of_scales
    parameters, moved, held = counted(module, torch.randint(0, 1000, (10,)))
    assert parameters == 64_000
    assert moved == 10 * row + 10 * 8 + 2 * 8 + 2 * 64 * 4  # indices and offsets of 8 bytes, two bags of fp32
    assert held >= 1000 * row


def test_a_scripted_layer_reads_its_weights() -> None:
    script = torch.jit.script(dynamic(nn.Sequential(nn.Linear(64, 32))))
    assert counted(script, torch.randn(1, 64)) == (32 * 64 + 32, 32 * 64 + 32 * 4 + 4 * (64 + 32), 2048 + 512)
    notes = rl.estimate(script, inputs=torch.randn(1, 64)).notes
    assert [note for note in notes if "not counted" in note] == []


class Adds(nn.Module):
    """A quantised convolution, a skip connection around it, and a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.quantise, self.dequantise = quantization.QuantStub(), quantization.DeQuantStub()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.sum = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        x = self.quantise(x)
        x = F.max_pool2d(self.sum.add_relu(self.convolution(x), x), 2)
        result: Tensor = self.dequantise(x)
        return result


def test_what_lies_between_quantised_layers_is_counted() -> None:
    """256 elements: two operands from integers (2 each), add, relu, to integers (5); bytes of 1 each."""
    module: Any = Adds().eval()
    module.qconfig = quantization.get_default_qconfig("fbgemm")
    quantization.prepare(module, inplace=True)
    module(torch.randn(1, 4, 8, 8))
    quantization.convert(module, inplace=True)
    est = rl.estimate(module, inputs=torch.randn(1, 4, 8, 8))
    assert est.coverage.uncounted == ()
    works = {r.call.name: r.work for r in est if r.call is not None and r.work is not None}
    adding, pooling = works["quantized_add_relu"], works["quantized_max_pool2d"]
    assert (dict(adding.flops), dict(adding.bytes)) == ({"vector.fp32": 256 * (4 + 1 + 1 + 5)}, {"dram": 3 * 256})
    assert (dict(pooling.flops), dict(pooling.bytes)) == ({}, {"dram": 256 + 64})


def test_a_graph_whose_layers_are_quantised_is_run_with_values() -> None:
    from torch.ao.quantization import quantize_fx

    inputs = torch.randn(2, 64)
    prepared = quantize_fx.prepare_fx(
        nn.Sequential(nn.Linear(64, 32)).eval(), quantization.get_default_qconfig_mapping("fbgemm"), (inputs,)
    )
    prepared(inputs)
    est = rl.estimate(quantize_fx.convert_fx(prepared), inputs=inputs)
    assert (est.parameters, est.total().matmul_flops) == (64 * 32 + 32, 2 * 2 * 64 * 32)
    assert any("quantised" in note for note in est.notes)


def convolutional() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)).eval()


def test_the_weights_of_a_frozen_script_lie_in_its_graph() -> None:
    """The norm is folded into the convolution: 216 + 8 weights, and 2880 + 10 of the last layer, each read once."""
    script = torch.jit.freeze(torch.jit.script(convolutional()))
    parameters, moved, held = counted(script, torch.randn(1, 3, 8, 8))
    assert parameters == 216 + 8 + 2880 + 10
    assert moved == 4 * (192 + 224 + 288) + 4 * (288 + 288) + 4 * (288 + 2890 + 10)
    assert held == 1024 + 512 + 11776 + 512  # in blocks of 512 bytes
    with pytest.raises(ModelError, match="no parameter that needs a gradient"):
        rl.estimate(script, inputs=torch.randn(1, 3, 8, 8), mode="train")


def test_what_was_made_for_this_cpu_alone_is_an_error() -> None:
    inputs = torch.randn(1, 3, 8, 8)
    with pytest.raises(ModelError, match="optimised for this CPU"):
        rl.estimate(torch.jit.optimize_for_inference(torch.jit.script(convolutional())), inputs=inputs)
    with pytest.raises(ModelError, match="layout mkldnn"):
        rl.estimate(mkldnn.to_mkldnn(convolutional()), inputs=inputs)


class HoldsIntegers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.quantize_per_tensor(torch.randn(8, 4), 0.1, 0, torch.qint8))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.dequantize()  # type: ignore[operator]


def test_a_quantised_tensor_of_torch_is_a_buffer_of_bytes() -> None:
    est = rl.estimate(HoldsIntegers(), inputs=torch.randn(3, 8))
    assert est.total().bytes == {"dram": (8 * 4 + 4 * 32) + 4 * (24 + 32 + 12)}


class HoldsAnObject(nn.Module):
    """Holds an object of a class that neither unpacks nor saves."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.held = torch.classes.profiling._ScriptProfile()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear(x)
        return output


def test_a_note_says_what_cannot_be_seen() -> None:
    est = rl.estimate(HoldsAnObject(), inputs=torch.randn(2, 4))
    assert est.parameters == 4 * 4 + 4
    (note,) = est.notes
    assert "_ScriptProfile does not say what it stores: its bytes and parameters are not counted" in note


class Scaled(Tensor):
    """Values of few bits and a scale per row, multiplied out before every operation."""

    held: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, scale: Tensor) -> Scaled:
        return Tensor._make_wrapper_subclass(cls, held.shape, dtype=scale.dtype, device=held.device)

    def __init__(self, held: Tensor, scale: Tensor) -> None:
        self.held, self.scale = held, scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func in (torch.ops.aten.detach.default, torch.ops.aten.t.default):
            return cls(func(args[0].held), func(args[0].scale))

        def plain(value: Any) -> Any:
            return value.held.to(value.scale.dtype) * value.scale if isinstance(value, Scaled) else value

        return func(*map(plain, args), **(kwargs or {}))


class TellsItsTensors(Scaled):
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], *_: Any) -> Scaled:
        return cls(inner["held"], inner["scale"])


class FourBits(TellsItsTensors):
    """Two values per byte, read by an operator for them."""

    @staticmethod
    def __new__(cls, held: Tensor, scale: Tensor) -> FourBits:
        return Tensor._make_wrapper_subclass(cls, (32, 64), dtype=scale.dtype, device=held.device)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            return torch.ops.aten._weight_int4pack_mm(args[0], args[1].held, 64, args[1].scale)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def layer_of(weight: Tensor) -> nn.Module:
    layer = nn.Linear(64, 32, bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


@pytest.mark.parametrize("kind", [TellsItsTensors, Scaled])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantised_tensors_count_as_stored(kind: type[Scaled], dtype: torch.dtype) -> None:
    """32 x 64 weights of 1 byte become fp32, meet 32 scales and then 4 vectors: what runs is what the class runs."""
    weight = kind(torch.zeros(32, 64, dtype=dtype), torch.ones(32, 1))
    casting, scaling = 2048 + 4 * 2048, 4 * 2048 + 4 * 32 + 4 * 2048
    product = 4 * (2048 + 4 * 64 + 4 * 32)
    parameters, moved, held = counted(layer_of(weight), torch.randn(4, 64))
    assert (parameters, moved, held) == (2048, casting + scaling + product, 2048 + 512)


def test_four_bit_weights_are_half_a_byte_each() -> None:
    """A tile of 8 rows and 64 columns is 32 x 2 numbers of 4 bytes; a group of 64 has 32 scales and zero points."""
    weight = FourBits(torch.zeros(4, 1, 32, 2, dtype=torch.int32), torch.ones(1, 32, 2, dtype=torch.bfloat16))
    inputs = torch.randn(4, 64, dtype=torch.bfloat16)
    stored = 2048 // 2 + 2 * 2 * 32
    assert counted(layer_of(weight), inputs) == (2048, stored + 2 * (4 * 64 + 4 * 32), 1024 + 512)


class Hides(Tensor):
    """Has no memory, and nothing in it tells what it stands for."""

    @staticmethod
    def __new__(cls) -> Hides:
        return Tensor._make_wrapper_subclass(cls, (4, 4), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return NotImplemented


def test_a_class_that_hides_its_tensors_is_an_error() -> None:
    layer = nn.Linear(64, 32)
    layer.more = Hides()
    with pytest.raises(ModelError, match="class Hides does not tell which tensors it is made of"):
        rl.estimate(layer, inputs=torch.randn(4, 64))
