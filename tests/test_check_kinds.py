"""Further kinds of mistakes in typed figures, and what their findings say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.test_check_typed import A100, ALEXNET, BACKWARD, FORWARD, HEADER, PARAMETERS, T4, WEIGHTS, found

from rooflens.checks import examine
from rooflens.devices import catalogued
from rooflens.records import Case, Record, Timing, Work
from rooflens.reported import read_figures
from rooflens.results import RecordSet

# What is mistaken: the code, rows with it, and the same rows without it.
MINE = "mine,t4,8,fp32"
KINDS: dict[str, tuple[str, list[str], list[str]]] = {
    # 320 GB/s are 298.02 GiB/s, and 320 GiB/s would be 343.6 GB/s.
    "a binary prefix on decimal digits": (
        "unit-prefix",
        [",t4,,,,bandwidth,320,GiB/s,"],
        [",t4,,,,bandwidth,320,GB/s,"],
    ),
    "a decimal prefix on binary digits": (
        "unit-prefix",
        [",t4,,,,bandwidth,298,GB/s,"],
        [",t4,,,,bandwidth,298,GiB/s,"],
    ),
    # 1.555 TB/s are 1.555e12 / 1024^4 = 1.4143 TiB/s.
    "T, fourth power": (
        "unit-prefix",
        [f",{A100},,,,bandwidth,1.4143,TB/s,"],
        [f",{A100},,,,bandwidth,1.4143,TiB/s,"],
    ),
    # 312 TFLOP/s / 1.024^4 = 283.76.
    "a peak": ("unit-prefix", [f",{A100},,fp16,,peak,283.76,TFLOP/s,"], [f",{A100},,fp16,,peak,312,TFLOP/s,"]),
    "FLOP times 1.024^3": (
        "unit-prefix",
        [f"{ALEXNET},flops,{FORWARD * 1.024**3},,"],
        [f"{ALEXNET},flops,{FORWARD},,"],
    ),
    "parameters in Mi": (
        "unit-prefix",
        [f"alexnet,,,,,parameters,{PARAMETERS / 2**20:.4f},M,"],
        [f"alexnet,,,,,parameters,{PARAMETERS / 1e6:.4f},M,"],
    ),
    # 14.90 is 16e9 / 2^30.
    "a memory in Gi": ("unit-prefix", [",t4,,,,memory,14.90,GB,"], [",t4,,,,memory,14.90,GiB,"]),
    "a memory twice": (
        "unit-prefix",
        [f"{MINE},forward,memory,16,GB,", f"{MINE},forward,allocated_memory,16,GiB,"],
        [f"{MINE},forward,memory,16,GB,", f"{MINE},forward,allocated_memory,14.90,GiB,"],
    ),
    # 6 GFLOP in 2 ms are 3 TFLOP/s; by 1024^3 they are called 2794.
    "performance by 1024^3": (
        "unit-prefix",
        [f"{MINE},forward,{row}," for row in ("flops,6.000,GFLOP", "time,2.000,ms", "performance,2794.0,GFLOP/s")],
        [f"{MINE},forward,{row}," for row in ("flops,6.000,GFLOP", "time,2.000,ms", "performance,3000.0,GFLOP/s")],
    ),
    # 6 GFLOP over 0.3 GB are 20 FLOP/B; over 0.3 GiB taken for GB, 21.47; by 1024^2, 20.97.
    "intensity by 1024^2": (
        "unit-prefix",
        [f"{MINE},forward,{row}," for row in ("flops,6.000,GFLOP", "bytes,300.0,MB", "intensity,20.972,FLOP/B")],
        [f"{MINE},forward,{row}," for row in ("flops,6.000,GFLOP", "bytes,300.0,MB", "intensity,20.000,FLOP/B")],
    ),
    "Mbyte rows read as kilobytes": (
        "unit-prefix",
        [f"alexnet,{A100},256,fp32,forward,bytes,2.6e12,,"],
        [f"alexnet,{A100},256,fp32,forward,bytes,2.6e9,,"],
    ),
    # 8.1 TFLOP/s over 320 GB/s, both of the catalogue: 25.3.
    "a ridge alone": ("ridge-off", [",t4,,fp32,,ridge,40.5,,"], [",t4,,fp32,,ridge,25.3,,"]),
    "a ridge without a dtype": (
        "ridge-off",
        [",t4,,fp32,,peak,8.1e12,,", ",t4,,,,bandwidth,300e9,,", ",t4,,,,ridge,20.0,,"],
        [",t4,,fp32,,peak,8.1e12,,", ",t4,,,,bandwidth,300e9,,", ",t4,,,,ridge,27.0,,"],
    ),
    "a device by two names": (
        "ridge-off",
        [",Tesla T4,,fp32,,peak,8.1e12,,", ",t4,,,,bandwidth,300e9,,", ",T4,,fp32,,ridge,20.0,,"],
        [",Tesla T4,,fp32,,peak,8.1e12,,", ",t4,,,,bandwidth,300e9,,", ",T4,,fp32,,ridge,27.0,,"],
    ),
    # PCIe 3.0 x16 is 32 GB/s both ways and 16 one way; 64 is that of the next generation.
    "PCIe one way": ("link-as-memory", [",t4,,,,bandwidth,16,GB/s,"], [",t4,,,,bandwidth,320,GB/s,"]),
    "PCIe both ways": ("link-as-memory", [",t4,,,,bandwidth,32,GB/s,"], [",t4,,,,bandwidth,320,GB/s,"]),
    "PCIe of another generation": ("link-as-memory", [",t4,,,,bandwidth,64,GB/s,"], [",t4,,,,bandwidth,320,GB/s,"]),
    "whole numbers that do not add up": (
        "total-off",
        [f"mine,,1,fp32,{row},," for row in ("forward,flops,1e9", "backward,flops,2e9", "train,flops,2.5e9")],
        [f"mine,,1,fp32,{row},," for row in ("forward,flops,1e9", "backward,flops,2e9", "train,flops,3e9")],
    ),
    "a total with the optimizer": (
        "total-off",
        [
            f"mine,,1,fp32,{row},,"
            for row in (
                "forward,bytes,1.00e9",
                "backward,bytes,2.00e9",
                "optimizer,bytes,0.50e9",
                "forward+backward+optimizer,bytes,3.00e9",
            )
        ],
        [
            f"mine,,1,fp32,{row},,"
            for row in (
                "inference,bytes,1.00e9",
                "backward,bytes,2.00e9",
                "optimizer,bytes,0.50e9",
                "forward+backward+optimizer,bytes,3.50e9",
            )
        ],
    ),
    "a part longer than the whole": (
        "total-off",
        ["mine,t4,1,fp32,forward,time,20.0,ms,", "mine,t4,1,fp32,train,time,15.0,ms,"],
        ["mine,t4,1,fp32,forward,time,20.0,ms,", "mine,t4,1,fp32,train,time,55.0,ms,"],
    ),
    "more was read than moved": (
        "total-off",
        [f"{MINE},forward,bytes,2.0e9,,", f"{MINE},forward,read_bytes,3.0e9,,"],
        [f"{MINE},forward,bytes,2.0e9,,", f"{MINE},forward,read_bytes,1.1e9,,"],
    ),
    # 10 FLOP/B x 320 GB/s are 3.2 TFLOP/s.
    "a point above the slope of its roof": (
        "above-roof",
        [f"{MINE},forward,intensity,10.0,,", f"{MINE},forward,performance,6.0e12,,"],
        [f"{MINE},forward,intensity,10.0,,", f"{MINE},forward,performance,3.0e12,,"],
    ),
    # 8.9 of 8.1 TFLOP/s: 10 % above.
    "a rate above its peak by a boost": (
        "efficiency-above-one",
        [f"{MINE},forward,performance,8.90e12,,"],
        [f"{MINE},forward,performance,8.10e12,,"],
    ),
    # 1 TFLOP in 1 ms would be 1000 TFLOP/s of 8.1.
    "FLOP over time of a model that nobody knows": (
        "above-roof",
        [f"{MINE},forward,flops,1.0e12,,", f"{MINE},forward,time,1.0,ms,"],
        [f"{MINE},forward,flops,1.0e12,,", f"{MINE},forward,time,200,ms,"],
    ),
    "a time below one launch of a model that nobody knows": (
        "time-below-launch",
        [f"{MINE},forward,time,0.20,us,"],
        [f"{MINE},forward,time,20,us,"],
    ),
    # AlexNet has 244 MB of weights, and one image is 0.6 MB.
    "an intensity over the weights": (
        "footprint-as-traffic",
        [f"alexnet,,1,fp32,forward,intensity,{FORWARD / WEIGHTS},,"],
        [f"alexnet,,1,fp32,forward,intensity,{FORWARD / (WEIGHTS + 10_000_000)},,"],
    ),
    "an intensity that weights and inputs do not allow": (
        "bytes-below-compulsory",
        [f"{ALEXNET},intensity,{3 * FORWARD / WEIGHTS},,"],
        [f"{ALEXNET},intensity,{0.9 * FORWARD / WEIGHTS},,"],
    ),
    # 512 images of MobileNetV3 move 58 GB, and its weights and images do not fit into the 4 MiB of a T4's cache.
    "traffic of a thousandth": (
        "bytes-below-compulsory",
        [f"mobilenet_v3_large,{T4},512,fp32,forward,bytes,10e6,,"],
        [f"mobilenet_v3_large,{T4},512,fp32,forward,bytes,58e9,,"],
    ),
    # 32 images and the weights of SqueezeNet, 24 MB, fit into 40 MiB; what its operations move, 3.3 GB, does not.
    "traffic that the cache cannot hold": (
        "bytes-low",
        [f"squeezenet1_0,{A100},32,fp32,forward,bytes,10e6,,"],
        [f"squeezenet1_0,{A100},32,fp32,forward,bytes,3.3e9,,"],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_a_mistake_is_found(kind: str, tmp_path: Path) -> None:
    code, wrong, right = KINDS[kind]
    assert code in found(tmp_path, wrong).codes
    assert [*found(tmp_path, right)] == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0.09", 0.005 / 0.09),
        ("12.50", 0.005 / 12.5),
        ("3", 0.5 / 3),
        ("312e12", 0.5 / 312),
        # Zeros may be rounding, but two digits are meant.
        ("900e9", 5 / 900),
        ("1e9", 0.05),
        ("2000000000", 0.5e8 / 2e9),
        ("50", 0.5 / 50),
        ("0", 0.0),
        ("-1.5", 0.05 / 1.5),
    ],
)
def test_rounding_is_that_of_the_digits(text: str, error: float, tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text(f"quantity,value\ntime,{text}\n")
    (figure,) = read_figures(path)
    assert figure.precision == pytest.approx(error)


def test_a_typed_time_is_held_against_counted_kernels(tmp_path: Path) -> None:
    case = Case(model="mine", device="t4", batch=8, dtype="fp32")
    work = Work(flops={"vector.fp32": 6e9}, bytes={"dram": 3e8}, origin="executed")
    timing = Timing(samples=(2e-3,), origin="ncu")
    kernel = Record(case=case, source="counters", scope="kernel", name="k", phase="forward", work=work, timing=timing)
    path = tmp_path / "figures.csv"
    # One kernel of 2 ms, in a step of 3 s, of 2.1 ms and of 1.5 ms.
    for seconds, codes in (("3.0", ("wall-time",)), ("0.0021", ()), ("0.0015", ("profiled-slower",))):
        path.write_text(f"report,{HEADER}\n1,{MINE},inference,time,{seconds},s,\n")
        assert examine(read_figures(path), RecordSet([kernel])).codes == codes


def test_figures_of_nothing_in_particular_are_not_the_same_twice(tmp_path: Path) -> None:
    rows = [",,,,,bytes,1000001,,", ",,,,,bytes,1024001,,"]
    assert found(tmp_path, rows).codes == ()
    assert found(tmp_path, [f"mine{row}" for row in rows]).codes == ("unit-prefix",)


def test_computed_parts_are_none_of_a_measured_whole(tmp_path: Path) -> None:
    parts = ["mine,,1,fp32,forward,bytes,1.00e9,,", "mine,,1,fp32,backward,bytes,1.50e9,,"]
    assert found(tmp_path, [*parts, "mine,t4,1,fp32,train,bytes,4.00e9,,"]).codes == ()
    assert found(tmp_path, [*parts, "mine,,1,fp32,train,bytes,2.00e9,,"]).codes == ("total-off",)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (f"alexnet,,256,fp32,forward,flops,{FORWARD},,", "that of one sample, not of 256"),
        (f"alexnet,,1,fp32,forward,flops,{FORWARD + BACKWARD},,", "forward and backward together"),
        (f"alexnet,,1,fp32,backward,flops,{2 * BACKWARD},,", "2 FLOP twice"),
        (f"alexnet,,1,fp32,train,flops,{FORWARD},,", "forward alone"),
        (f"alexnet,,1,fp32,forward,flops,{FORWARD / 4},,", "images were 0.5 times as large"),
    ],
)
def test_the_reason_of_flops_that_are_off_is_named(row: str, reason: str, tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [row])
    assert finding.code == "flops-off"
    assert reason in finding.message


def test_counts_of_forward_alone_are_called_so(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [f"alexnet,{A100},1,fp32,train,counted_flops,{FORWARD},,"])
    assert finding.code == "flops-uncounted"
    assert "as much as that of forward alone" in finding.message


def test_where_16_bits_are_slow_libraries_compute_in_fp32(tmp_path: Path) -> None:
    # A Titan Xp does 12.15 TFLOP/s in fp32 and a 64th of that in fp16: 366 GFLOP take 30 ms, or two seconds.
    # Winograd's algorithm leaves 0.348 of them: 10.5 ms.
    assert found(tmp_path, ["alexnet,titan-xp,256,fp16,forward,time,0.0450,,"]).codes == ()
    assert found(tmp_path, ["alexnet,titan-xp,256,fp16,forward,time,0.0080,,"]).codes == ("above-roof",)


def test_a_counted_number_tells_the_prefix_of_a_typed_one(tmp_path: Path) -> None:
    case = Case(model="mine", device="t4", batch=8, dtype="fp32")
    work = Work(flops={"vector.fp32": 6e9}, bytes={"dram": 3e8}, origin="executed")
    counted = Record(case=case, source="counters", scope="kernel", name="k", phase="forward", work=work)
    for typed, codes in ((3e8 / 1.024**2, ("unit-prefix",)), (3e8, ())):
        path = tmp_path / "figures.csv"
        path.write_text(f"report,{HEADER}\n1,{MINE},forward,bytes,{typed},,\n")
        assert examine(read_figures(path), RecordSet([counted])).codes == codes


# 366 GFLOP of AlexNet at batch 256 take 18.8 ms at 19.5 TFLOP/s in fp32, 2.3 in TF32, and 1.2 in fp16, where 2.6 GB of
# traffic in fp32 take 1.7 ms and half of that in 16 bits.
@pytest.mark.parametrize(
    ("dtype", "seconds", "codes"),
    [
        ("", "0.0015", ()),  # it may have been 16 bits
        ("fp32", "0.0015", ("efficiency-above-one",)),
        ("", "0.000300", ("above-roof",)),  # Winograd leaves 0.348 of the 1.2 ms
        ("", "0.0400", ()),  # 20 times the bound in fp16 are less, and in fp32 more
        ("", "9.00", ("first-call",)),
    ],
)
def test_who_tells_no_dtype_may_have_run_in_any(
    dtype: str, seconds: str, codes: tuple[str, ...], tmp_path: Path
) -> None:
    assert found(tmp_path, [f"alexnet,{A100},256,{dtype},forward,time,{seconds},,"]).codes == codes


def test_weights_without_a_dtype_may_have_16_bits(tmp_path: Path) -> None:
    for dtype, codes in (("", ()), ("fp32", ("memory-below-weights",))):
        assert found(tmp_path, [f"alexnet,,1,{dtype},forward,memory,{0.6 * WEIGHTS},,"]).codes == codes


@pytest.mark.parametrize(
    ("rows", "doubted"),
    [
        (("flops,5.00,GFLOP,", "counted_flops,10.1,GFLOP,"), True),  # counted and stated are the same quantity
        (("flops,10.1,GFLOP,", "flops,5.00,GFLOP,"), True),
        (("flops,5.00,GFLOP,", "flops,10.6,GFLOP,"), False),
        (("flops,5.00,GFLOP,112x112", "flops,10.0,GFLOP,224x224"), False),
    ],
)
def test_two_numbers_of_one_step_that_differ_by_two(tmp_path: Path, rows: tuple[str, str], doubted: bool) -> None:
    findings = found(tmp_path, [f"{MINE},forward,{row}" for row in rows])
    assert ("macs-or-flop" in findings.codes) is doubted


@pytest.mark.parametrize(("times", "codes"), [(0.99, ()), (1.0, ()), (1.04, ("efficiency-above-one",))])
def test_whatever_tables_mark_as_above_its_roof_is_told(tmp_path: Path, times: float, codes: tuple[str, ...]) -> None:
    peak = catalogued("t4").require("matmul.fp32").rate
    assert found(tmp_path, [f"{MINE},forward,performance,{times * peak:.1f},,"]).codes == codes


def test_decode_and_prefill_are_modes_of_their_own(tmp_path: Path) -> None:
    """A decode step of 3e11 B takes 1 s at the 320 GB/s of a T4, or 0.9375; a prefill of twice as much, twice that."""
    path = tmp_path / "figures.csv"

    def estimate(mode: str, nbytes: float, tokens: int) -> Record:
        case = Case(model="llm", device="t4", batch=8, dtype="fp16", mode=mode, options=(("seq_len", tokens),))
        work = Work(flops={"matmul.fp16": 1e9}, bytes={"dram": nbytes})
        return Record(case=case, source="estimate", scope="op", name="mm", phase="forward", work=work)

    known = [estimate("decode", 3e11, 1152), estimate("prefill", 6e11, 1152)]
    for phase, seconds, how, more, codes in (
        ("decode", "1.00", "", (), ()),
        ("decode", "0.700", "", (), ("efficiency-above-one",)),
        ("prefill", "1.00", "", (), ("efficiency-above-one",)),
        ("prefill", "2.00", "", (), ()),
        ("decode", "0.700", "of 1152 tokens", (), ("efficiency-above-one",)),
        ("decode", "0.700", "of 64 tokens", (), ()),
        # Of which length the sequences were is not said, and two are known.
        ("decode", "0.700", "", (estimate("decode", 1e11, 64),), ()),
        ("forward", "0.700", "", (), ()),
    ):
        path.write_text(f"{HEADER}\nllm,t4,8,fp16,{phase},time,{seconds},,{how}\n")
        assert examine(read_figures(path), RecordSet([*known, *more])).codes == codes, (phase, seconds, how)
