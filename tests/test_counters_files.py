"""Counter files that were measured for this project read to totals that the csv module gives too."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

import rooflens as rl

OWN = Path(__file__).parent / "data" / "ncu"
LANES = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
FILES = sorted(OWN.glob("*.csv"))
# From the notes of whoever measured them: launches, ns, DRAM bytes read + written, and tensor operations.
KNOWN = {
    "raw_resnet18_b1_fp32": (68, 1_290_848, 84_900_608 + 262_400, 0),
    "raw_resnet18_b32_tf32": (120, 1_959_616, 1_706_548_736 + 483_341_312, 118_078_046_208),
    "raw_alexnet_b1_train_fp32": (79, 1_008_992, 551_595_520 + 173_813_504, 0),
    "raw_alexnet_b4_fp16_nvtx": (42, 289_632, 148_483_072 + 3_809_536, 7_352_877_056),
    "long_alexnet_b4_fp16_nvtx": (42, 288_960, 148_481_792 + 3_697_408, 7_352_877_056),
    "long_mobilenet_b8_train_fp32_truncated": (82, 819_424, 309_312_256 + 16_236_288, 0),
}


def sums(path: Path) -> tuple[int, dict[str, int]]:
    """Launches and the sum of every counter, by a few lines of csv."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(line for line in file if not line.startswith("=="))
    total: dict[str, int] = {}
    for name, text in cells(header, rows):
        if name.endswith(".sum"):
            total[name] = total.get(name, 0) + int(text.replace(",", ""))
    number = header.index("ID")
    return len({row[number] for row in rows} - {""}), total


def cells(header: list[str], rows: list[list[str]]) -> Iterator[tuple[str, str]]:
    if "Metric Name" in header:
        name, value = header.index("Metric Name"), header.index("Metric Value")
        yield from ((row[name], row[value]) for row in rows)
    else:
        yield from (cell for row in rows[1:] for cell in zip(header, row, strict=True))


def counted(records: rl.RecordSet, resource: str) -> float:
    return sum(r.work.flops.get(resource, 0) for r in records if r.work is not None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_launches_time_bytes_and_operations_are_those_of_ncu(path: Path) -> None:
    launches, total = sums(path)
    records = rl.read(path)
    assert len(records) == launches
    assert {(r.source, r.scope, r.calls) for r in records} == {("counters", "kernel", 1)}
    assert round(sum(r.timing.median for r in records if r.timing) * 1e9) == total["gpu__time_duration.sum"]
    dram = total.get("dram__bytes.sum", total["dram__bytes_read.sum"] + total["dram__bytes_write.sum"])
    assert sum(r.work.bytes["dram"] for r in records if r.work) == dram
    for level, name in (("l2", "lts__t_bytes.sum"), ("l1", "l1tex__t_bytes.sum")):
        if name in total:
            assert sum(r.work.bytes[level] for r in records if r.work) == total[name]
        else:
            assert all(level not in r.work.bytes for r in records if r.work)
    add, mul, fma = (total[LANES.format(term)] for term in ("fadd", "fmul", "ffma"))
    assert counted(records, "vector.fp32") == add + mul + 2 * fma
    for name, resource in (("fp16", "matmul.fp16"), ("tf32_dst_fp32", "matmul.tf32"), ("int8", "matmul.int8")):
        assert counted(records, resource) == total.get(f"sm__ops_path_tensor_src_{name}.sum", 0)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_totals_are_those_of_the_notes(path: Path) -> None:
    launches, nanoseconds, dram, tensor = KNOWN[path.stem]
    records = rl.read(path)
    total = records.total()
    assert len(records) == launches
    assert total.measured_seconds == pytest.approx(nanoseconds / 1e9, rel=1e-12)
    assert total.bytes["dram"] == dram
    assert total.matmul_flops == tensor


def test_half_moves_are_no_arithmetic() -> None:
    # ffma 2,016,747,496, fadd 5,010,688, fmul 5,052,416 make 4,043,558,096 FLOP; all of the 1,313,256 hfma are moves.
    records = rl.read(OWN / "raw_resnet18_b1_fp32.csv")
    assert counted(records, "vector.fp16") == 0
    assert records.total().flops == 4_043_558_096


def test_device_and_clock_are_those_of_the_file() -> None:
    records = rl.read(OWN / "raw_resnet18_b1_fp32.csv")
    (case,) = records.cases
    assert case.device == "h200-sxm-141gb"
    assert set(records.devices) == {"h200-sxm-141gb"}
    assert records.total().seconds is not None
    (other,) = rl.read(OWN / "raw_resnet18_b1_fp32.csv", device="t4").cases
    assert other.device == "tesla-t4"


def test_a_file_without_a_device_says_so() -> None:
    records = rl.read(OWN / "long_mobilenet_b8_train_fp32_truncated.csv")
    assert records.cases[0].device is None
    assert any("compute capability, 9.0; name it (--device)" in note for note in records.notes)


def test_a_partial_profile_says_so() -> None:
    notes = rl.read(OWN / "long_mobilenet_b8_train_fp32_truncated.csv").notes
    assert any("profile is partial" in note and "An error occurred while trying to profile." in note for note in notes)


@pytest.mark.parametrize("name", ["raw_alexnet_b4_fp16_nvtx", "long_alexnet_b4_fp16_nvtx"])
def test_ranges_are_module_paths(name: str) -> None:
    records = rl.read(OWN / f"{name}.csv")
    paths = dict.fromkeys(r.path for r in records)
    assert list(paths)[:3] == ["features.0", "features.1", "features.2"]
    assert "classifier.6" in paths
    assert not any(r.name.startswith("features.") for r in records)


def test_what_wgmma_kernels_load_is_not_in_l1() -> None:
    # 13 wgmma convolutions, whose loads L1TEX does not see; the mma.sync ones stay unmarked.
    marked = [r for r in rl.read(OWN / "raw_resnet18_b32_tf32.csv") if any("L1TEX" in note for note in r.notes)]
    assert len(marked) == 13
    assert all(r.work is not None and r.work.flops["matmul.tf32"] > 0 for r in marked)


def test_counted_records_are_kept_in_record_files(tmp_path: Path) -> None:
    records = rl.read(OWN / "raw_alexnet_b4_fp16_nvtx.csv")
    assert rl.read(records.save(tmp_path / "kept.jsonl")).records == records.records


def test_a_device_that_is_not_the_one_of_the_file_is_told() -> None:
    """The file names an H200."""
    path = OWN / "raw_resnet18_b1_fp32.csv"
    told = "the ceilings are those of h100-sxm5-80gb; the file names NVIDIA H200"
    assert told in rl.read(path, device="h100-sxm").notes
    for plain in (rl.read(path), rl.read(path, device="h200")):
        assert not any(note.startswith("the ceilings are those of") for note in plain.notes)
