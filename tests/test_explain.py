"""Explanations: lines worked out by hand, and no number but those that count."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.arithmetic import value_of
from tests.calls import call, tensor

import rooflens as rl
from rooflens.costs import Arithmetic, arithmetic_of, calculate, cost
from rooflens.costs.calculation import without_markup
from rooflens.costs.registry import ENTRIES
from rooflens.explanation import Explained, Explanation
from rooflens.records import Work

EVERY = Arithmetic()


def lines(explanation: Explanation) -> list[str]:
    """The text with its breaks inside of a sentence or sum taken out, a line for each."""
    joined: list[str] = []
    for line in explanation.text.splitlines():
        if line.startswith("    ") and joined:
            joined[-1] += " " + line.strip()
        else:
            joined.append(" ".join(line.split()))
    return joined


def only(explanation: Explanation) -> Explained:
    (operation,) = explanation.operations
    return operation


# Lines by hand --------------------------------------------------------------------------------------------------------


def test_convolution() -> None:
    # 8 + 2 x 1 - 3 = 7, halved and one more: 4 positions each way. 2 x 2 x 5 x 16 x 3 x 9 = 8640; bias 2 x 5 x 16.
    found = rl.explain("convolution", input=(2, 3, 8, 8), weight=(5, 3, 3, 3), bias=(5,), stride=2, padding=1)
    assert lines(found) == [
        "convolution, forward",
        "input=2x3x8x8:fp32, weight=5x3x3x3:fp32, bias=5:fp32, stride=[2, 2],",
        "padding=[1, 1], dilation=[1, 1], transposed=false, output_padding=[0, 0],",
        "groups=1 -> result=2x5x4x4:fp32",
        "",
        "Every element of the result sums the kernel over the input channels of its",
        "group: one multiply-add per tap.",
        "",
        "Transposed, every element of the input meets each tap once. A bias is one",
        "addition per element of the result.",
        "",
        "matmul.fp32 2 x 2 (N) x 5 (C_out) x 4 x 4 (out) x 3 (C_in/groups) x 3 x 3 (kernel) = 8,640 FLOP",
        "vector.fp32 2 (N) x 5 (C_out) x 4 x 4 (out) = 160 FLOP",
        "FLOP together 8,800 FLOP",
        "",
        "input 2 x 3 x 8 x 8 x 4 B = 1,536 B",
        "weight 5 x 3 x 3 x 3 x 4 B = 540 B",
        "bias 5 x 4 B = 20 B",
        "result 2 x 5 x 4 x 4 x 4 B = 640 B",
        "DRAM together 2,736 B",
    ]


def test_convolution_backward() -> None:
    # Both gradients cost what forward does: 2 x 8640. The gradient of the result is 640 B as the result is.
    found = rl.explain("convolution", input=(2, 3, 8, 8), weight=(5, 3, 3, 3), stride=2, padding=1, phase="backward")
    text = lines(found)
    assert text[0] == "convolution_backward, backward, family convolution"
    twice = "2 x 2 x 2 (N) x 5 (C_out) x 4 x 4 (out) x 3 (C_in/groups) x 3 x 3 (kernel) = 17,280 FLOP"
    assert f"matmul.fp32 {twice}" in text
    assert text[-6:] == [
        "grad_output 2 x 5 x 4 x 4 x 4 B = 640 B",
        "input 2 x 3 x 8 x 8 x 4 B = 1,536 B",
        "weight 5 x 3 x 3 x 3 x 4 B = 540 B",
        "grad_input 2 x 3 x 8 x 8 x 4 B = 1,536 B",
        "grad_weight 5 x 3 x 3 x 3 x 4 B = 540 B",
        "DRAM together 4,792 B",
    ]


def test_transposed_convolution() -> None:
    # Every element of the input meets 5 channels x 3 x 3 taps: 2 x (2 x 3 x 8 x 8) x 45 = 34,560.
    found = rl.explain("conv_transpose2d", shapes=["2x3x8x8", "3x5x3x3"], stride=2)
    line = "matmul.fp32 2 x 2 (N) x 3 (C_in) x 8 x 8 (in) x 5 (C_out/groups) x 3 x 3 (kernel) = 34,560 FLOP"
    assert line in lines(found)


def test_product_in_sixteen_bits() -> None:
    # 2 x 4 x 5 x 6 FLOP; 24 + 30 + 20 elements of two bytes.
    found = rl.explain("mm", shapes=[(4, 6), "6x5"], dtype="bf16")
    assert lines(found)[-6:] == [
        "matmul.bf16 2 x 4 (m) x 5 (n) x 6 (k) = 240 FLOP",
        "",
        "self 4 x 6 x 2 B = 48 B",
        "mat2 6 x 5 x 2 B = 60 B",
        "result 4 x 5 x 2 B = 40 B",
        "DRAM together 148 B",
    ]


def test_time_on_a_device() -> None:
    # The T4 has 8.1 TFLOP/s in fp32 and 320 GB/s: 2 x 2^33 FLOP take 2.121 ms, 3 x 4 x 2^22 B 157.3 us.
    found = rl.explain("mm", shapes=[(2048, 2048)] * 2, device="t4")
    text = lines(found)
    begin = text.index("On tesla-t4:")
    assert text[begin : begin + 4] == [
        "On tesla-t4:",
        "matmul.fp32 17,179,869,184 FLOP / 8.100 TFLOP/s (derived) = 2.121 ms",
        "dram 50,331,648 B / 320.0 GB/s (datasheet) = 157.3 us",
        "bound 2.121 ms by matmul.fp32, the largest: units and memory overlap",
    ]


@pytest.mark.parametrize("names", [["t4", "a100-sxm4-40gb"], ["a100-sxm4-40gb", "t4"]])
def test_each_device_multiplies_on_the_unit_that_it_has(names: list[str]) -> None:
    # By default cuDNN's convolutions take TF32, which a T4 does not have.
    units = {"tesla-t4": "matmul.fp32", "a100-sxm4-40gb": "matmul.tf32"}
    image, kernel = (8, 3, 32, 32), (64, 3, 3, 3)
    alone = rl.explain("convolution", input=image, weight=kernel, device=names, dtype="default")
    inside = rl.explain("alexnet", device=names, dtype="default", path="features.0")
    anywhere = rl.explain(rl.estimate("alexnet", dtype="default"), path="features.0", device=names)
    for found in (alone, inside, anywhere):
        at = {device.name: next(iter(o.work.flops)) for o in found.operations for device in o.devices}
        assert at == units
    # A ReLU is the same on both: it is told once.
    assert [len(o.devices) for o in rl.explain("relu", shapes=[(4,)], device=names, dtype="default").operations] == [2]


def test_causal_attention_tells_what_is_counted_and_what_is_executed() -> None:
    # 6 heads in all, 4 x 4 pairs or 4 x 5 / 2 = 10 of them; 2 FLOP for each of 8 + 8 widths: 3072 and 1920.
    found = rl.explain("attention", shapes=[(2, 3, 4, 8)], is_causal=True)
    text = lines(found)
    pairs = "2 (batch) x 3 (heads) x 4 (queries) x 4 (keys)"
    half = "2 (batch) x 3 (heads) x (4 (queries) x (4 (queries) + 1) / 2)"
    start = text.index(f"matmul.fp32 2 x {pairs} x (8 (width) + 8 (value_width)) = 3,072 FLOP")
    assert text[start + 1 : start + 9] == [
        f"vector.fp32 5 x {pairs} = 480 FLOP",
        f"special.fp32 1 x {pairs} = 96 FLOP",
        "FLOP together 3,648 FLOP",
        "",
        "What a causal kernel executes; times are those of this:",
        f"matmul.fp32 2 x {half} x (8 (width) + 8 (value_width)) = 1,920 FLOP",
        f"vector.fp32 5 x {half} = 300 FLOP",
        f"special.fp32 1 x {half} = 60 FLOP",
    ]


def test_lstm() -> None:
    # 5 steps x 2 samples; gates 4 x 4 = 16 rows: 2 x 10 x (16 x 3 + 16 x 4) = 2240.
    # Per vector 7 per hidden unit, 16 sums of both products, 32 biases; 8 special functions per hidden unit.
    found = rl.explain("lstm", input="5x2x3", hidden_size=4)
    text = lines(found)
    assert text[0] == "recurrent, forward"
    units = "(1 (layers) x 16 (gates) / 4)"
    assert [line for line in text if "FLOP" in line] == [
        "matmul.fp32 2 x 5 x 2 (vectors) x (16 (gates) x 3 (inputs) + 16 (gates) x 4 (inputs)) = 2,240 FLOP",
        f"vector.fp32 (7 x {units} + 1 (layers) x 16 (gates) + 2 x 16 (gates)) x 5 x 2 (vectors) = 760 FLOP",
        f"special.fp32 8 x {units} x 5 x 2 (vectors) = 320 FLOP",
        "FLOP together 3,320 FLOP",
    ]
    assert "weights 16 x 3 x 4 B + 16 x 4 x 4 B + 2 x 16 x 4 B = 576 B" in text


def test_batch_norm_in_training() -> None:
    # 8 per element (4 statistics, 2, weight, bias) and one root per channel.
    found = rl.explain("batch_norm", shapes=["2x3x4x4", 3, 3], training=True)
    text = lines(found)
    assert "vector.fp32 8 x 2 (N) x 3 (C) x 4 x 4 (positions) = 768 FLOP" in text
    assert "special.fp32 3 (C) = 3 FLOP" in text


def test_elementwise_in_place_reads_and_writes_one_tensor() -> None:
    found = rl.explain("relu_", shapes=["2x3"])
    assert lines(found)[-5:] == [
        "vector.fp32 1 x 2 x 3 (result) = 6 FLOP",
        "",
        "self 2 x 3 x 4 B = 24 B",
        "result 2 x 3 x 4 B = 24 B",
        "DRAM together 48 B",
    ]


def test_a_list_is_a_sum_over_its_tensors() -> None:
    # 6 + 4 elements; one product each.
    text = lines(rl.explain("_foreach_mul_", self="2x3,4", scalar=2))
    assert "vector.fp32 1 x 2 x 3 (self) + 4 (self) = 10 FLOP" in text
    assert text[-2:] == ["self 2 x 2 x 3 x 4 B + 2 x 4 x 4 B = 80 B", "DRAM together 80 B"]


def test_gradients_are_named_after_what_they_are_of() -> None:
    # 2 x 10 vectors x (2 x 16 x 3 + 2 x 16 x 4) FLOP: twice forward.
    text = lines(rl.explain("lstm", input="5x2x3", hidden_size=4, phase="backward"))
    assert [line.split()[0] for line in text if line.startswith("grad_")] == ["grad_input", "grad_weights"]
    products = "2 x 16 (gates) x 3 (inputs) + 2 x 16 (gates) x 4 (inputs)"
    assert f"matmul.fp32 2 x 5 x 2 (vectors) x ({products}) = 4,480 FLOP" in text


def test_a_gather_reads_what_it_fetches() -> None:
    # 5 rows of 4 numbers are read and written, 5 indices of 8 bytes read; nothing is computed.
    found = rl.explain("embedding", weight="100x4", indices="5")
    assert lines(found)[-5:] == [
        "FLOP none",
        "",
        "result 2 x 5 x 4 x 4 B = 160 B",
        "indices 5 x 8 B = 40 B",
        "DRAM together 200 B",
    ]


def test_an_operation_without_a_formula_says_so() -> None:
    found = rl.explain("linalg_eig", shapes=["4x4"])
    assert "FLOP not counted: it has no formula; unknown, which is not zero (bytes need no formula)" in lines(found)
    assert found.data[0]["uncounted"] == "it has no formula"
    # The matrix, and four values and 4 x 4 numbers of vectors, which are complex.
    assert lines(found)[-1] == f"DRAM together {16 * 4 + (4 + 16) * 8} B"


def test_a_formula_that_does_not_hold_says_why() -> None:
    product = call(
        "mm", tensor(4, 5, dtype="int64"), self=tensor(4, 6, dtype="int64"), mat2=tensor(6, 5, dtype="int64")
    )
    assert calculate(product, EVERY).uncounted == "no matrix unit works on int64"


def test_one_name_may_run_as_several_operations() -> None:
    # Under autocast three casts go before the product.
    found = rl.explain("linear", input="8x6", weight="5x6", bias=5, dtype="amp-bf16")
    assert [e.calculation.call.name for e in found.operations] == ["_to_copy"] * 3 + ["addmm"]
    assert "matmul.bf16 2 x 8 (m) x 5 (n) x 6 (k) = 480 FLOP" in lines(found)


# Models, files and records --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resnet() -> rl.RecordSet:
    return rl.estimate("resnet18", batch=256, mode="train", device=["a100-sxm4-40gb", "t4"])


def test_a_module_of_a_model() -> None:
    found = rl.explain("resnet18", batch=256, path="conv1")
    text = lines(found)
    assert text[0] == "resnet18 batch 256 fp32 inference"
    assert text[2] == "conv1: convolution, forward"
    flops = "2 x 256 (N) x 64 (C_out) x 112 x 112 (out) x 3 (C_in/groups) x 7 x 7 (kernel) = 60,423,143,424 FLOP"
    assert f"matmul.fp32 {flops}" in text
    assert only(found).work == cost(only(found).calculation.call).work


def test_a_record_of_a_file(tmp_path: Path, resnet: rl.RecordSet) -> None:
    path = resnet.save(tmp_path / "resnet18.jsonl")
    found = rl.explain(str(path), path="layer1.0.conv2", phase="backward")
    # 56 x 56 positions, 64 x 9 taps, both gradients; the two devices of the file share one explanation.
    assert only(found).work.matmul_flops == 2 * 2 * 256 * 64 * 56 * 56 * 64 * 9
    assert [device.name for device in only(found).devices] == ["a100-sxm4-40gb", "tesla-t4"]
    assert "layer1.0.conv2: convolution_backward, backward, family convolution" in lines(found)
    assert [d.name for d in only(rl.explain(path, path="conv1", phase="forward", device="l4")).devices] == ["l4"]


def test_a_file_is_explained_without_torch(tmp_path: Path, resnet: rl.RecordSet) -> None:
    path = resnet.save(tmp_path / "resnet18.jsonl")
    program = "import sys; sys.modules['torch'] = None; from rooflens.cli import main; main(sys.argv[1:])"
    words = ["explain", str(path), "--path", "fc", "--phase", "forward"]
    environment = os.environ | {"PYTHONPATH": str(Path(rl.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, check=True
    )
    assert "2 x 256 (m) x 1000 (n) x 512 (k) = 262,144,000 FLOP" in done.stdout


def test_a_path_stands_for_what_is_inside_of_it(resnet: rl.RecordSet) -> None:
    inside = rl.explain(resnet, path="layer1.0", phase="forward")
    assert {e.path for e in inside.operations} == {
        "layer1.0",
        *(f"layer1.0.{part}" for part in ("conv1", "bn1", "relu", "conv2", "bn2")),
    }
    whole = rl.explain(resnet, path="")
    assert sum(e.calls * e.work.total_flops for e in whole.operations) == resnet.where(device="tesla-t4").total().flops


def test_a_single_record_and_a_module(resnet: rl.RecordSet) -> None:
    record = next(r for r in resnet if r.path == "conv1")
    assert only(rl.explain(record)).calculation.call == record.call
    net = torch.nn.Sequential(torch.nn.Linear(6, 5, bias=False), torch.nn.ReLU())
    found = rl.explain(net, inputs=torch.empty(4, 6), path="0")
    assert "matmul.fp32 2 x 4 (m) x 5 (n) x 6 (k) = 240 FLOP" in lines(found)


def test_what_a_record_counts_otherwise_is_told() -> None:
    query = torch.empty(2, 3, 4, 8)

    class Causal(torch.nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    halved = rl.explain(rl.estimate(Causal(), inputs=query, causal=True), path="")
    assert only(halved).notes == ("The record counts causal attention as the half that its kernel executes.",)
    assert only(halved).work.matmul_flops == 1920

    record = next(r for r in rl.estimate(Causal(), inputs=query) if r.call is not None)
    other = rl.explain(replace(record, work=Work(flops={"matmul.fp32": 10}, bytes={"dram": 7}), kernel_work=None))
    assert only(other).notes == (
        "The record holds 10 FLOP: another version of rooflens counted it.",
        "The record says that it moves 7 B at DRAM.",
    )


def test_traffic_under_fusion_is_told() -> None:
    net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sigmoid())
    first, _ = rl.explain(net, inputs=torch.empty(10, 10), path="", fusion="pointwise").operations
    nbytes = first.work.bytes["dram"]
    assert first.notes == (f"Fused with its neighbours (fusion=pointwise) it moves {nbytes} B at DRAM.",)
    assert nbytes < 800 == first.calculation.cost.work.bytes["dram"]


# No explanation lies --------------------------------------------------------------------------------------------------

MODELS: Mapping[str, Callable[[], rl.RecordSet]] = {
    "resnet18": lambda: rl.estimate("resnet18", batch=4, mode="train"),
    "vit_b_16": lambda: rl.estimate("vit_b_16", batch=2, mode="train", dtype="tf32", optimizer="adam"),
    "lstm": lambda: rl.estimate(
        torch.nn.LSTM(12, 16, num_layers=2, bidirectional=True, proj_size=4), inputs=torch.empty(5, 3, 12), mode="train"
    ),
    "swin_t": lambda: rl.estimate("swin_t", dtype="bf16"),
}


@pytest.mark.parametrize("model", MODELS)
def test_every_number_is_the_one_that_counts_and_the_value_of_its_arithmetic(model: str) -> None:
    records = [record for record in MODELS[model]() if record.call is not None]
    assert records
    for record in records:
        assert record.call is not None
        arithmetic = arithmetic_of(record.case.dtype, None)
        derivation = calculate(record.call, arithmetic)
        assert derivation.cost == cost(record.call, arithmetic)
        assert derivation.cost.work == record.work
        assert {line.what: line.value for line in derivation.flops} == record.work.flops
        assert sum(line.value for line in derivation.bytes) == record.work.bytes["dram"]
        for line in (*derivation.flops, *derivation.kernel_flops, *derivation.bytes):
            assert value_of(line.expression) == line.value, (record.name, line)


@pytest.mark.parametrize("model", MODELS)
def test_text_is_plain_and_80_columns_wide(model: str) -> None:
    explained = rl.explain(MODELS[model](), path="", device="a100-sxm4-40gb", in_full=True)
    text = f"{explained.text}\n{replace(explained, in_full=False).text}"
    assert "`" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert all(c.isprintable() for c in text.replace("\n", ""))


def test_every_formula_says_in_words_what_it_does() -> None:
    said = {entry.formula.__qualname__: without_markup(entry.formula.__doc__ or "") for entry in ENTRIES.values()}
    assert not [name for name, text in said.items() if not text or "`" in text or re.search(r":[a-z]+:", text)]


def net_of(blocks: int) -> rl.RecordSet:
    """Blocks of a product of 4 x 6 and 6 x 6 (2 x 4 x 36 = 288 FLOP; 24 + 36 + 24 elements: 336 B) and a ReLU."""
    block = [torch.nn.Sequential(torch.nn.Linear(6, 6, bias=False), torch.nn.ReLU()) for _ in range(blocks)]
    return rl.estimate(torch.nn.Sequential(*block), inputs=torch.empty(4, 6), device="t4")


def test_of_many_operations_the_sum_and_its_parts_are_told() -> None:
    # 13 products of 336 B and 13 ReLUs of 192 B at 320 GB/s: 13.65 and 7.8 ns. One after the other 21.45 ns.
    many = net_of(13)
    text = lines(rl.explain(many, path=""))
    place = text.index("bound on tesla-t4")
    assert "matmul 13 calls: 3.744 kFLOP, 4.368 kB, 13.65 ns" in text[place:]
    assert "elementwise 13 calls: 312.0 FLOP, 2.496 kB, 7.800 ns" in text[place:]
    assert "12 2 calls: 312.0 FLOP, 528.0 B, 1.650 ns" in text[place:]
    assert "dram 6.864 kB / 320.0 GB/s (datasheet) = 21.45 ns" in text[place:]
    assert "bound together 21.45 ns, most of it by dram" in text[place:]
    assert text[-1].endswith("each of them.")
    assert len(text) < 60
    whole = rl.explain(many, path="", in_full=True)
    assert whole.text.count("family elementwise") == 13
    (plain,) = whole.data[-1]["sums"]
    assert plain["seconds"] == pytest.approx(6864 / 320e9) == many.total().seconds


def test_few_operations_and_those_of_a_deeper_path_are_told_one_by_one() -> None:
    assert "--in-full" not in rl.explain(net_of(12), path="").text
    assert rl.explain(net_of(13), path="3").text.count("family elementwise") == 1
