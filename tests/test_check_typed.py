"""Checks of typed figures: each code is found where its mistake is made, and is silent where it is not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from rooflens.api import checking
from rooflens.checks import CHECKS, Findings, examine
from rooflens.records import Case, Memory, Record, Timing, Traffic, Work
from rooflens.reported import read_figures
from rooflens.results import RecordSet
from rooflens.runs.run import Request

HEADER = "model,device,batch,dtype,phase,quantity,value,unit,how"

# AlexNet at 224 x 224, by hand: a convolution is 2 Cin Cout k k H W, a linear layer 2 in out.
CONVOLUTIONS = [(3, 64, 11, 55), (64, 192, 5, 27), (192, 384, 3, 13), (384, 256, 3, 13), (256, 256, 3, 13)]
LINEAR = [(9216, 4096), (4096, 4096), (4096, 1000)]
FORWARD = sum(2 * i * o * k * k * hw * hw for i, o, k, hw in CONVOLUTIONS) + sum(2 * i * o for i, o in LINEAR)
# Backward is two products per layer; the first needs no gradient of the images.
BACKWARD = 2 * FORWARD - 2 * 3 * 64 * 11 * 11 * 55 * 55
PARAMETERS = sum(i * o * k * k + o for i, o, k, _ in CONVOLUTIONS) + sum(i * o + o for i, o in LINEAR)
WEIGHTS = 4 * PARAMETERS
IMAGE = 4 * 3 * 224 * 224

A100, T4 = "a100-sxm4-40gb", "t4"
ALEXNET = "alexnet,,1,fp32,forward"
ON_T4 = "alexnet,t4,256,fp32,forward"


def found(tmp_path: Path, rows: Iterable[str]) -> Findings:
    """The findings on some rows below `HEADER`."""
    path = tmp_path / "figures.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return examine(read_figures(path))


# Per code: rows with the mistake, and the same rows without it.
TYPED: dict[str, tuple[list[str], list[str]]] = {
    "macs-as-flops": ([f"{ALEXNET},flops,{FORWARD // 2},,"], [f"{ALEXNET},flops,{FORWARD},,"]),
    "flops-off": ([f"{ALEXNET},flops,{0.8 * FORWARD},,"], [f"{ALEXNET},flops,{1.05 * FORWARD},,"]),
    # 1.024^3 = 1.0737: GFLOP that were divided by 2^30.
    "unit-prefix": ([f"{ALEXNET},flops,{FORWARD / 2**30},GFLOP,"], [f"{ALEXNET},flops,{FORWARD / 1e9},GFLOP,"]),
    "flops-uncounted": (
        [f"alexnet,{A100},1,fp32,forward,counted_flops,{0.4 * FORWARD},,"],  # TF32 tensor cores may have done the rest
        [f"alexnet,{A100},1,fp32,forward,counted_flops,{1.1 * FORWARD},,"],
    ),
    "flops-low": (
        [f"alexnet,{T4},1,fp32,forward,counted_flops,{0.4 * FORWARD},,"],  # no tensor cores for fp32: Winograd could
        [f"alexnet,{T4},1,fp32,forward,counted_flops,{0.8 * FORWARD},,"],
    ),
    "flops-high": (
        [f"alexnet,{T4},1,fp32,forward,counted_flops,{FORWARD + BACKWARD},,"],
        [f"alexnet,{T4},1,fp32,forward+backward,counted_flops,{FORWARD + BACKWARD},,"],
    ),
    "counts-differ": (
        ["mine,t4,8,fp32,forward,counted_flops,4e9,,", "mine,a100-sxm4-40gb,8,fp32,forward,counted_flops,1e9,,"],
        ["mine,t4,8,fp32,forward,counted_flops,4e9,,", "mine,a100-sxm4-40gb,8,fp32,forward,counted_flops,4.4e9,,"],
    ),
    "macs-or-flop": (
        ["mine,t4,8,fp32,forward,flops,41.19,GFLOP,paper", "mine,t4,8,fp32,forward,flops,82.68,GFLOP,counter"],
        ["mine,t4,8,fp32,forward,flops,41.19,GFLOP,paper", "mine,t4,8,fp32,backward,flops,82.68,GFLOP,counter"],
    ),
    "parameters-off": (
        [f"alexnet,2x t4,,fp32,train,parameters,{2 * PARAMETERS},,"],
        [f"alexnet,2x t4,,fp32,train,parameters,{PARAMETERS},,"],
    ),
    "flop-ratio": (
        ["alexnet,cpu,1,fp32,forward:backward,flop_ratio,20.2,1,"],
        [f"alexnet,cpu,1,fp32,forward:backward,flop_ratio,{FORWARD / BACKWARD},1,"],
    ),
    "footprint-as-traffic": (
        [
            "mine,,8,fp32,forward,flops,6e9,,",
            "mine,,8,fp32,forward,memory,3e8,,",
            "mine,,8,fp32,forward,intensity,20.00,,",
        ],
        [
            "mine,,8,fp32,forward,flops,6e9,,",
            "mine,,8,fp32,forward,memory,3e8,,",
            "mine,,8,fp32,forward,bytes,6e8,,",
            "mine,,8,fp32,forward,intensity,10.00,,",
        ],
    ),
    "weights-as-traffic": (
        [f"{ALEXNET},bytes,{WEIGHTS},,"],
        [f"{ALEXNET},bytes,{WEIGHTS + 10_000_000},,"],  # activations of some MB move too
    ),
    # 61 M weights are 244 MB, more than the 40 MiB of cache of an A100.
    "bytes-below-compulsory": (
        [f"alexnet,{A100},1,fp32,forward,read_bytes,{WEIGHTS // 2},,"],
        [f"alexnet,{A100},1,fp32,forward,read_bytes,{WEIGHTS + IMAGE},,"],
    ),
    "bytes-low": (
        [f"alexnet,{A100},256,fp32,forward,bytes,1.0e9,,"],  # activations alone are about 10 MB per image
        [f"alexnet,{A100},256,fp32,forward,bytes,2.6e9,,"],
    ),
    "bytes-of-batch": (
        ["mine,t4,1,fp32,forward,bytes,5e8,,", "mine,t4,64,fp32,forward,bytes,5e8,,"],
        ["mine,t4,1,fp32,forward,bytes,5e8,,", "mine,t4,64,fp32,forward,bytes,9e8,,"],
    ),
    "backward-is-forward": (
        ["mine,,1,fp32,forward,bytes,247689888,,", "mine,,1,fp32,backward,bytes,247689888,,"],
        ["mine,,1,fp32,forward,bytes,247689888,,", "mine,,1,fp32,backward,bytes,502000000,,"],
    ),
    "time-below-launch": (
        [f"alexnet,{T4},1,fp32,forward,time,2e-6,,"],  # 19 operations
        [f"alexnet,{T4},1,fp32,forward,time,2e-3,,"],
    ),
    # 256 images are 366 GFLOP, 45 ms at 8.1 TFLOP/s.
    "first-call": ([f"{ON_T4},time,3.02,,"], [f"{ON_T4},time,0.09,,"]),
    "fixed-time": (
        [f"alexnet,{A100},256,fp32,forward,time,3.02,,", f"vgg16,{A100},256,fp32,forward,time,3.43,,"],
        [f"alexnet,{A100},256,fp32,forward,time,0.03,,", f"vgg16,{A100},256,fp32,forward,time,0.6,,"],
    ),
    "identical-measurements": (
        ["mine,t4,8,fp32,forward,time,3.020387,,", "mine,a100-sxm4-40gb,8,fp32,forward,time,3.020387,,"],
        ["mine,t4,8,fp32,forward,time,3.020387,,", "mine,a100-sxm4-40gb,8,fp32,forward,time,3.020388,,"],
    ),
    "clock-low": ([f",{A100},,,,clock,1.05,GHz,"], [f",{A100},,,,clock,1410,MHz,"]),
    "ridge-off": (
        [f",{A100},,fp16,,peak,312e12,,", f",{A100},,,,bandwidth,1555e9,,", f",{A100},,fp16,,ridge,186.96,,"],
        [f",{A100},,fp16,,peak,312e12,,", f",{A100},,,,bandwidth,1555e9,,", f",{A100},,fp16,,ridge,200.6,,"],
    ),
    "rate-off": ([",v100-sxm2-16gb,,fp32,,peak,12e12,,"], [",v100-sxm2-16gb,,fp32,,peak,15.7e12,,"]),
    "peak-of-other-dtype": ([",t4,,fp16,,peak,8.1e12,,"], [",t4,,fp32,,peak,8.1e12,,"]),
    "sparse-peak": ([f",{A100},,bf16,,peak,624e12,,"], [f",{A100},,bf16,,peak,312e12,,"]),
    "link-as-memory": ([f",{A100},,,,bandwidth,600e9,,"], [f",{A100},,,,bandwidth,1555e9,,"]),
    "peak-without-source": ([",geforce-256,,fp32,,peak,50e9,,"], [",geforce-256,,,,bandwidth,2.656e9,,"]),
    # 366 GFLOP at the 312 TFLOP/s of fp16 are 1.172 ms; at 19.5 they are 18.75.
    "wrong-roof": (
        [f"alexnet,{A100},256,fp32,forward,{row}" for row in (f"flops,{256 * FORWARD},,", "estimated_time,0.001172,,")],
        [f"alexnet,{A100},256,fp32,forward,{row}" for row in (f"flops,{256 * FORWARD},,", "estimated_time,0.01875,,")],
    ),
    "estimate-below-bound": ([f"{ON_T4},estimated_time,0.0300,,"], [f"{ON_T4},estimated_time,0.0452,,"]),
    "efficiency-above-one": ([f"{ON_T4},time,0.0300,,"], [f"{ON_T4},time,0.0600,,"]),
    "above-roof": ([f"{ON_T4},time,0.0100,,"], [f"{ON_T4},time,0.0500,,"]),
    "total-off": (
        [
            f"mine,,1,fp32,{row},,"
            for row in ("forward,flops,1.00e9", "backward,flops,2.00e9", "forward+backward,flops,4.00e9")
        ],
        [
            f"mine,,1,fp32,{row},,"
            for row in ("forward,flops,1.00e9", "backward,flops,2.00e9", "forward+backward,flops,3.00e9")
        ],
    ),
    "quotient-off": (
        [f"mine,t4,1,fp32,forward,{row},," for row in ("counted_flops,6e9", "time,0.5", "performance,15e9")],
        [f"mine,t4,1,fp32,forward,{row},," for row in ("counted_flops,6e9", "time,0.5", "performance,12e9")],
    ),
    # 10 and 40 FLOP/B have the mean 25; all FLOP over all bytes are 500 / 20 = 25 too only if both had equal bytes.
    "mean-of-intensities": (
        [
            f"mine,,1,fp32,{row},,"
            for row in (
                "forward,flops,100",
                "forward,bytes,10",
                "backward,flops,40",
                "backward,bytes,1",
                "forward+backward,intensity,25.0",
            )
        ],
        [
            f"mine,,1,fp32,{row},,"
            for row in (
                "forward,flops,100",
                "forward,bytes,10",
                "backward,flops,40",
                "backward,bytes,1",
                "forward+backward,intensity,12.73",
            )
        ],
    ),
    "memory-above-capacity": (
        ["mine,v100-sxm2-16gb,,fp32,train,memory,28e9,,"],
        ["mine,2x v100-sxm2-16gb,,fp32,train,memory,28e9,,"],
    ),
    "memory-below-weights": (
        [f"{ALEXNET},memory,{WEIGHTS / 1000},,"],
        [f"{ALEXNET},memory,{WEIGHTS + IMAGE},,"],
    ),
    "impossible-value": (["mine,t4,1,fp32,forward,time,0,,"], ["mine,t4,1,fp32,forward,time,,,"]),
    "row-twice": (
        ["mine,t4,2,fp32,forward,bytes,9e8,,", *2 * ["mine,t4,1,fp32,forward,bytes,5e8,,"]],
        ["mine,t4,2,fp32,forward,bytes,9e8,,", "mine,t4,1,fp32,forward,bytes,5e8,,"],
    ),
    "unknown-quantity": (["mine,t4,1,fp32,forward,wattage,70,,"], ["mine,t4,1,fp32,forward,time,0.1,,"]),
}


@pytest.mark.parametrize("code", TYPED)
def test_a_mistake_is_found(code: str, tmp_path: Path) -> None:
    findings = [finding for finding in found(tmp_path, TYPED[code][0]) if finding.code == code]
    assert findings
    for finding in findings:
        assert finding.severity == CHECKS[code].severity
        assert "figures.csv, line " in finding.subject
        assert finding.message
        assert finding.evidence
        assert finding.remedy == CHECKS[code].remedy


@pytest.mark.parametrize("code", TYPED)
def test_without_the_mistake_there_is_no_finding_at_all(code: str, tmp_path: Path) -> None:
    assert [*found(tmp_path, TYPED[code][1])] == []


def test_the_evidence_is_the_arithmetic(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, TYPED["macs-as-flops"][0])
    assert finding.evidence == {"stated FLOP": FORWARD / 2, "right FLOP": FORWARD, "ratio": 0.5}
    (finding,) = found(tmp_path, TYPED["ridge-off"][0])
    assert finding.evidence["peak over bandwidth FLOP/B"] == pytest.approx(312e12 / 1555e9)


@pytest.mark.parametrize(
    ("share", "words"), [(0.5, "is half of"), (0.47, "is about half of"), (0.54, "is about half of")]
)
def test_half_is_half(share: float, words: str, tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [f"{ALEXNET},flops,{share * FORWARD},,"])
    assert finding.code == "macs-as-flops"
    assert words in finding.message


def test_the_reason_of_a_surplus_is_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, TYPED["flops-high"][0])
    assert "forward and backward together" in finding.message
    (finding,) = found(tmp_path, [f"alexnet,{T4},1,fp32,forward,counted_flops,{5 * FORWARD},,"])
    assert "5 steps" in finding.message


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (f"{ON_T4},time,0.0420,,", "boost clock"),  # 45.1 ms at peak: 7 % faster
        (f"{ON_T4},time,0.0300,,", "Winograd or FFT convolutions, which multiply less"),
        # Winograd saves 0.146 of 0.529 ms of arithmetic; the bound is above 1 ms, most of it traffic.
        (
            "resnet50,h100-sxm5-80gb,64,bf16,forward,time,0.00045,,",
            "Winograd or FFT convolutions, which multiply less, and operands that stayed in the last-level cache",
        ),
        # 1 image: 244 MB of weights take 0.76 ms at 320 GB/s, arithmetic 0.18 ms; 4 MiB of cache hold none of it.
        (f"alexnet,{T4},1,fp32,forward,time,0.00070,,", "boost clock"),
        # 256 images of MobileNetV3 move some 20 MB each, and 25 MB of weights are less than 40 MiB of cache.
        (f"mobilenet_v3_large,{A100},256,fp32,forward,time,0.0015,,", "last-level cache"),
    ],
)
def test_known_reasons_for_an_efficiency_above_one_are_named(row: str, reason: str, tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [row])
    assert finding.code == "efficiency-above-one"
    assert reason in finding.message
    assert finding.message.endswith(reason) or not reason.startswith("Winograd")  # and nothing more is named


@pytest.mark.parametrize(
    ("row", "code"),
    [
        # 35.13 GFLOP an image, none of them in convolutions of stride 1: 7.2 ms at 312 TFLOP/s.
        (f"vit_b_16,{A100},64,fp16,forward,time,0.00302,,", "above-roof"),
        # 8.178 GFLOP an image, of which Winograd leaves 0.724: 0.383 ms at 989.4 TFLOP/s.
        ("resnet50,h100-sxm5-80gb,64,bf16,forward,time,0.0003,,", "above-roof"),
        # All layers but the last three are of 3 x 3: 30.94 GFLOP an image in 244 ms, a quarter of it in 62 ms.
        ("vgg16,t4,64,fp32,forward,time,0.1,,", "efficiency-above-one"),
        ("vgg16,t4,64,fp32,forward,time,0.05,,", "above-roof"),
        # A T4 has no rate in bf16 and TF32, and in none more than the 65 TFLOP/s of fp16: 32 ms.
        ("resnet50,t4,256,bf16,forward,time,0.012,,", "above-roof"),
        ("resnet50,t4,256,tf32,forward,time,0.012,,", "above-roof"),
    ],
)
def test_only_convolutions_of_stride_one_have_fast_algorithms(row: str, code: str, tmp_path: Path) -> None:
    assert found(tmp_path, [row]).codes == (code,)


def test_a_step_of_unknown_length_does_at_least_that_of_one_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 GB of weights take 7.85 ms at 2,039 GB/s, however many tokens are in the cache."""
    path = tmp_path / "figures.csv"
    path.write_text(f"{HEADER}\nmine,a100-sxm4-80gb,1,bf16,decode,time,2.00,ms,\n")
    case = Case(model="mine", batch=1, dtype="bf16", mode="decode", options=(("seq_len", 1),))
    work = Work(flops={"matmul.bf16": 16e9}, bytes={"dram": 16e9})
    moved = Traffic(weights=16e9, inputs=8, outputs=8)
    shortest = [
        Record(case=case, source="estimate", scope="op", phase="forward", work=work, traffic=moved),
        Record(case=case, source="estimate", scope="model", memory=Memory(parameters=16_000_000_000, inputs=8)),
    ]
    findings = examine(read_figures(path), estimates=RecordSet(shortest))
    assert findings.codes == ("above-roof",)
    assert any("a step of one token: mine" in note for note in findings.notes)
    asked: list[Request] = []
    monkeypatch.setattr(checking, "estimable", asked.append)
    monkeypatch.setattr(checking, "estimated", lambda _: RecordSet(()))
    checking.check(path)
    assert [request.options.seq_len for request in asked] == [1]


def test_a_typed_time_is_held_against_weights_as_they_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who types a time of gpt-oss ran its weights in 4 bits; what rooflens measured had them in the dtype."""
    asked: list[str | None] = []
    monkeypatch.setattr(checking, "estimable", lambda request: asked.append(request.options.weights))
    monkeypatch.setattr(checking, "estimated", lambda _: RecordSet(()))
    path = tmp_path / "figures.csv"
    path.write_text(f"{HEADER}\nmine,h100-sxm5-80gb,1,bf16,decode,time,1.50,ms,\n")
    checking.check(path)
    assert asked == [None]  # as published
    case = Case(model="mine", device="h100-sxm5-80gb", batch=1, dtype="bf16", mode="decode", options=(("seq_len", 8),))
    timing = Timing(samples=(1e-3,) * 3, origin="monotonic")
    checking.check(RecordSet([Record(case=case, source="measure", scope="model", phase="forward", timing=timing)]))
    assert asked == [None, "none"]  # in the dtype


def test_nothing_beats_the_unavoidable_traffic(tmp_path: Path) -> None:
    # 244 MB less 4 MiB of cache take 0.75 ms at 320 GB/s.
    assert found(tmp_path, [f"alexnet,{T4},1,fp32,forward,time,0.000500,,"]).codes == ("above-roof",)


def test_a_rate_above_its_ceiling(tmp_path: Path) -> None:
    assert found(tmp_path, ["mine,t4,1,fp32,forward,performance,12e12,,"]).codes == ("above-roof",)
    assert found(tmp_path, ["mine,t4,1,fp32,forward,performance,7e12,,"]).codes == ()
    # 1 GB in 2 ms is 500 GB/s of 320.
    rows = ["mine,t4,1,fp32,forward,bytes,1.00e9,,", "mine,t4,1,fp32,forward,time,0.00200,,"]
    assert found(tmp_path, rows).codes == ("above-roof",)


def test_traffic_that_fits_into_the_cache_may_be_faster_than_dram(tmp_path: Path) -> None:
    # 4 MB in 8 us are 500 GB/s of 320; a T4 has 4 MiB of cache.
    rows = ["mine,t4,1,fp32,forward,bytes,4.00e6,,", "mine,t4,1,fp32,forward,time,8.00e-6,,"]
    (finding,) = found(tmp_path, rows)
    assert finding.code == "efficiency-above-one"
    assert "last-level cache" in finding.message


def test_an_estimated_time_from_a_footprint(tmp_path: Path) -> None:
    # 3.2 GB at 320 GB/s are 10 ms.
    rows = ["mine,,8,fp32,forward,memory,3.2e9,,", "mine,t4,8,fp32,forward,estimated_time,0.01,,"]
    assert found(tmp_path, rows).codes == ("footprint-as-traffic",)


def test_backward_of_an_optimizer_less_step_is_right(tmp_path: Path) -> None:
    rows = [
        f"{ALEXNET},flops,{FORWARD},,",
        f"alexnet,,1,fp32,backward,flops,{BACKWARD},,",
        f"alexnet,,1,fp32,forward+backward,flops,{FORWARD + BACKWARD},,",
    ]
    assert found(tmp_path, rows).codes == ()


def test_another_image_size_has_other_right_values(tmp_path: Path) -> None:
    row = f"alexnet,,1,fp32,forward,flops,{FORWARD / 4},,112x112"
    assert found(tmp_path, [row]).codes == ()
    assert found(tmp_path, [row.replace("112x112", "224x224")]).codes == ("flops-off",)


def test_rounding_of_what_was_typed_is_no_mistake(tmp_path: Path) -> None:
    # 0.09 has one digit: anything from 0.085 to 0.095 was written so. ShuffleNet has 0.0817 GFLOP.
    assert found(tmp_path, ["shufflenet_v2_x0_5,,1,fp32,forward,flops,0.09,GFLOP,"]).codes == ()


def test_models_and_devices_that_nobody_knows_are_listed(tmp_path: Path) -> None:
    notes = found(tmp_path, ["mine,abacus,1,fp32,forward,time,0.1,,"]).notes
    assert ["mine" in notes[0], "abacus" in notes[1]] == [True, True]


def test_a_name_that_was_meant_otherwise_has_a_hint(tmp_path: Path) -> None:
    model, device, ambiguous = found(tmp_path, ["ResNet-18,A100,1,fp32,forward,time,0.1,,"]).notes
    assert model.endswith("ResNet-18 (did you mean resnet18?)")
    assert device.endswith("A100")
    assert ambiguous.startswith("device 'A100' fits several devices: a100-pcie-40gb,")


def test_the_gravest_come_first(tmp_path: Path) -> None:
    rows = [TYPED[code][0][0] for code in ("unknown-quantity", "flops-low", "macs-as-flops")]
    findings = found(tmp_path, rows)
    assert [finding.severity for finding in findings] == ["error", "warning", "info"]
    assert [len(findings.at_least(severity)) for severity in ("info", "warning", "error")] == [3, 2, 1]
