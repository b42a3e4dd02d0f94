"""The public estimate: figures that hold for ever, cases, notes and errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rooflens as rl
from rooflens.errors import AmbiguousResult, InvalidValue, MissingCeiling, ModelError, UnknownDevice, UnknownModel


def conv(batch: int, c_in: int, c_out: int, kernel: int, out: int) -> int:
    """FLOP of a square convolution: 2 per multiply-add."""
    return 2 * batch * c_out * out * out * c_in * kernel * kernel


def test_resnet18_at_batch_256() -> None:
    n = 256
    first = conv(n, 3, 64, 7, 112)
    layer1 = 4 * conv(n, 64, 64, 3, 56)
    layer2 = conv(n, 64, 128, 3, 28) + 3 * conv(n, 128, 128, 3, 28) + conv(n, 64, 128, 1, 28)
    layer3 = conv(n, 128, 256, 3, 14) + 3 * conv(n, 256, 256, 3, 14) + conv(n, 128, 256, 1, 14)
    layer4 = conv(n, 256, 512, 3, 7) + 3 * conv(n, 512, 512, 3, 7) + conv(n, 256, 512, 1, 7)
    forward = first + layer1 + layer2 + layer3 + layer4 + 2 * n * 512 * 1000
    assert forward == 928_805_552_128

    est = rl.estimate("resnet18", batch=n, device="a100-sxm4-40gb", dtype="fp32", mode="train")
    assert est.total("forward").matmul_flops == forward
    # Every layer's input and weight gradient cost what it did forward; the image needs no gradient.
    assert est.total("backward").matmul_flops == 2 * forward - first == 1_797_187_960_832
    assert est.total("optimizer").matmul_flops == 0
    assert est.parameters == 11_689_512
    assert est.coverage.uncounted == ()


@pytest.mark.parametrize(
    ("model", "flops"), [("alexnet", 365_664_501_760), ("vgg16", 7_920_775_331_840), ("resnet18", 928_805_552_128)]
)
def test_forward_flops_of_famous_models(model: str, flops: int) -> None:
    total = rl.estimate(model, batch=256).total("forward")
    assert total.matmul_flops == flops
    assert total.macs == flops / 2
    assert total.flops is not None
    assert total.flops > flops


def test_vit_counts_the_same_in_eval_and_in_train_mode() -> None:
    # 12 blocks of 197 tokens: 12 * 768^2 weights per token, and two products of 197^2 * 768; patches and head.
    tokens, width = 197, 768
    blocks = 12 * (2 * tokens * 12 * width**2 + 2 * 2 * tokens**2 * width)
    expected = blocks + 2 * 196 * width * 3 * 16**2 + 2 * width * 1000
    assert expected == pytest.approx(35.1e9, rel=2e-3)
    counts = [rl.estimate("vit_b_16", mode=mode).total("forward").matmul_flops for mode in ("inference", "train")]
    assert counts == [expected, expected]


def test_depthwise_convolutions_cost_in_backward_what_they_cost_in_forward() -> None:
    est = rl.estimate("mobilenet_v3_large", mode="train")
    forward, backward = est.total("forward").matmul_flops, est.total("backward").matmul_flops
    assert forward
    assert backward
    assert 1.9 <= backward / forward <= 2.0


def test_a_bound_by_hand() -> None:
    """One product of 1024 cubed and a ReLU on an A100: 19.5 TFLOP/s in fp32, 1555 GB/s."""
    n = 1024
    module = nn.Sequential(nn.Linear(n, n, bias=False), nn.ReLU())
    est = rl.estimate(module, inputs=torch.randn(n, n), device="a100-sxm4-40gb", dtype="fp32")
    product, relu = est.by("op")
    assert product.total.seconds == pytest.approx(2 * n**3 / 19.5e12)  # 110 us; its 3 * 4 MiB would take 8 us
    assert product.total.bound_by == "matmul.fp32"
    assert relu.total.seconds == pytest.approx(2 * 4 * n * n / 1555e9)
    assert relu.total.bound_by == "dram"
    total = est.total()
    assert total.seconds == pytest.approx(2 * n**3 / 19.5e12 + 2 * 4 * n * n / 1555e9)
    # All at once: products and ReLU on the same lanes, bytes beside them.
    assert total.whole_bound is not None
    assert total.whole_bound.seconds == pytest.approx((2 * n**3 + n * n) / 19.5e12)
    assert total.prediction is not None
    assert total.prediction.low < total.prediction.seconds < total.prediction.high


@pytest.mark.parametrize(
    ("dtype", "convolution", "product"),
    [
        ("fp32", "matmul.fp32", "matmul.fp32"),
        ("tf32", "matmul.tf32", "matmul.tf32"),
        ("default", "matmul.tf32", "matmul.fp32"),
        ("bf16", "matmul.bf16", "matmul.bf16"),
        ("amp-fp16", "matmul.fp16", "matmul.fp16"),
    ],
)
def test_the_dtype_decides_the_unit(dtype: str, convolution: str, product: str) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4))
    est = rl.estimate(module, inputs=torch.randn(2, 3, 8, 8), dtype=dtype)
    units = {
        r.kind: next(u for u in r.work.flops if u.startswith("matmul")) for r in est if r.work and r.work.matmul_flops
    }
    assert units == {"convolution": convolution, "matmul": product}


def test_default_is_fp32_where_a_device_has_no_tf32() -> None:
    module = nn.Conv2d(3, 8, 3)
    est = rl.estimate(module, inputs=torch.randn(2, 3, 8, 8), dtype="default", device=["t4", "a100-sxm4-40gb"])
    units = [next(r.work.flops for r in est.where(device=c.device) if r.work) for c in est.cases]
    assert ["matmul.tf32" in u for u in units] == [False, True]


def test_causal_attention_is_counted_in_full_and_timed_by_half() -> None:
    class Causal(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    q = torch.empty(1, 8, 4096, 128, dtype=torch.bfloat16, device="meta")
    full = rl.estimate(Causal(), inputs=(q, q, q), device="h100-sxm5-80gb")
    half = rl.estimate(Causal(), inputs=(q, q, q), device="h100-sxm5-80gb", causal=True)
    pairs = 8 * 4096 * 4096
    visible = 8 * 4096 * 4097 // 2
    assert full.total().matmul_flops == 4 * pairs * 128
    assert half.total().matmul_flops == 4 * visible * 128
    assert full.total().seconds == half.total().seconds
    assert "those of all pairs" in full.notes[0]
    assert "counted as the half" in half.notes[0]


def test_several_batches_and_devices_are_cases_of_their_own() -> None:
    est = rl.estimate("alexnet", batch=[1, 4], device=["t4", "2x a100-sxm4-40gb"])
    assert [(c.batch, c.device) for c in est.cases] == [
        (1, "tesla-t4"),
        (1, "2x a100-sxm4-40gb"),
        (4, "tesla-t4"),
        (4, "2x a100-sxm4-40gb"),
    ]
    with pytest.raises(AmbiguousResult, match="4 cases"):
        est.total()
    one, four = (est.where(batch=b, device="tesla-t4").total().matmul_flops for b in (1, 4))
    assert one
    assert four == 4 * one


def test_without_a_device_there_are_counts_and_no_times() -> None:
    total = rl.estimate("alexnet").total()
    assert total.matmul_flops
    assert (total.seconds, total.bound_by, total.whole_bound) == (None, None, None)


def test_an_uncounted_operation_is_listed_and_makes_a_lower_bound() -> None:
    class Exotic(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values: torch.Tensor = torch.special.bessel_j0(x)
            return values + 1

    est = rl.estimate(Exotic(), inputs=torch.randn(4, 4))
    assert est.coverage.uncounted == ("special_bessel_j0",)
    assert (est.coverage.operations, est.coverage.counted) == (2, 1)
    assert est.total().missing == {"special_bessel_j0"}
    # Both operations read and write 16 elements of 4 bytes.
    assert est.total().bytes == {"dram": 2 * 2 * 64}
    assert est.coverage.bytes_share == 0.5


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "resnet19"}, UnknownModel, "did you mean"),
        ({"model": "resnet18", "device": "a100-sxm4-41gb"}, UnknownDevice, "a100-sxm4-40gb"),
        ({"model": "resnet18", "batch": 0}, InvalidValue, "batch 0 cannot be run"),
        ({"model": "resnet18", "batch": []}, InvalidValue, "cannot be run"),
        ({"model": "resnet18", "batch": True}, InvalidValue, "batch True"),
        ({"model": "resnet18", "dtype": "fp12"}, InvalidValue, "unknown dtype 'fp12'; known: default, fp32"),
        ({"model": "resnet18", "mode": "trian"}, InvalidValue, "unknown mode"),
        ({"model": "resnet18", "optimizer": "lion", "mode": "train"}, InvalidValue, "unknown optimizer"),
        ({"model": "resnet18", "img_size": 0}, InvalidValue, "img_size is 0"),
        ({"model": "resnet18", "inputs": 1}, InvalidValue, "leave inputs out"),
        ({"model": nn.Linear(1, 1)}, InvalidValue, "without inputs"),
        ({"model": nn.Linear(1, 1), "inputs": torch.ones(1, 1), "batch": [1, 2]}, InvalidValue, "give one number"),
        ({"model": nn.Linear(4, 1), "inputs": torch.ones(2, 3)}, ModelError, "Linear: RuntimeError"),
        ({"model": 123}, InvalidValue, "the model is int"),
        ({"model": nn.Linear}, InvalidValue, "a class, not an instance"),
        ({"model": "resnet18", "batch": 1.5}, InvalidValue, "batch 1.5"),
        ({"model": "resnet18", "device": 5}, InvalidValue, "device is 5"),
        ({"model": "resnet18", "img_size": "a"}, InvalidValue, "img_size is 'a'"),
        ({"model": "resnet18", "name": "mine"}, InvalidValue, "has its own"),
        (
            {"model": "resnet18", "device": "tesla-v100-sxm2-16gb", "dtype": "bf16"},
            MissingCeiling,
            "no ceiling for 'matmul.bf16'; it has .*matmul.fp16",
        ),
    ],
)
def test_bad_input_is_an_error_with_the_value_and_the_remedy(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        rl.estimate(**arguments)


def test_records_survive_a_file(tmp_path: Any) -> None:
    est = rl.estimate("alexnet", batch=2, device="t4", mode="train")
    read = rl.read(est.save(tmp_path / "alexnet.jsonl"))
    assert read.records == est.records
    assert read.total().seconds == est.total().seconds
    assert read.memory == est.memory


def test_progress_is_told_per_batch() -> None:
    told: list[tuple[float, str]] = []
    rl.estimate("alexnet", batch=[1, 2], progress=lambda share, what: told.append((share, what)))
    assert told == [(0.0, "alexnet, batch 1"), (0.5, "alexnet, batch 2")]


def test_different_estimates_of_one_case_are_not_added_up() -> None:
    narrow, wide = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(8, 8))
    first = rl.estimate(narrow, inputs=torch.ones(1, 4))
    with pytest.raises(InvalidValue, match="two different estimates of 'Sequential as-is inference'"):
        first + rl.estimate(wide, inputs=torch.ones(1, 8))
    both = first + rl.estimate(wide, inputs=torch.ones(1, 8), name="wide")
    assert [case.model for case in both.cases] == ["Sequential", "wide"]
    assert (first + first).total().matmul_flops == first.total().matmul_flops == 2 * 16


def test_a_device_of_an_older_catalogue_is_the_same_with_fewer_facts() -> None:
    card = rl.device("t4")
    older = replace(card, facts={key: fact for key, fact in card.facts.items() if key != "torch_memory"})
    other = replace(older, facts=older.facts | {"memory": replace(card.facts["memory"], value=1e9)})
    sets = [rl.RecordSet((), devices={"tesla-t4": each}) for each in (card, older, other)]
    assert (sets[0] + sets[1]).devices == (sets[1] + sets[0]).devices == {"tesla-t4": card}
    with pytest.raises(InvalidValue, match="two devices called 'tesla-t4' with different rates"):
        sets[0] + sets[2]
    slower = replace(card, ceilings=card.ceilings[1:])
    with pytest.raises(InvalidValue, match="two devices called 'tesla-t4' with different rates"):
        sets[0] + rl.RecordSet((), devices={"tesla-t4": slower})


ASKING: dict[str, Callable[[Any], object]] = {
    "estimate": lambda device: rl.estimate("alexnet", device=device),
    "explain": lambda device: rl.explain("mm", shapes=[(2, 3), (3, 4)], device=device),
    "largest_batch": lambda device: rl.largest_batch("alexnet", device=device),
    "roofline": lambda device: rl.roofline(device=device),
}


@pytest.mark.parametrize("ask", ["estimate", "explain", "largest_batch"])
def test_two_devices_of_one_name_are_an_error(ask: str) -> None:
    own = replace(rl.device("t4"), vendor="me")
    with pytest.raises(InvalidValue, match="two different devices are called 'tesla-t4'"):
        ASKING[ask]([own, "t4"])


@pytest.mark.parametrize("wrong", [4, {"t4"}, ["t4", 4], [None]])
@pytest.mark.parametrize("ask", ASKING)
def test_what_is_no_device_is_said(ask: str, wrong: object) -> None:
    with pytest.raises(InvalidValue, match="give a name, a device file, a Device, or several of them"):
        ASKING[ask](wrong)


def test_where_knows_the_names_of_devices_and_total_those_of_phases() -> None:
    est = rl.estimate("alexnet", device=["t4", "l4"])
    assert est.where(device="t4").cases == est.where(device="tesla-t4").cases != ()
    with pytest.raises(InvalidValue, match="unknown phase 'forwrad'; known: forward"):
        est.where(device="t4").total("forwrad")  # type: ignore[arg-type]
