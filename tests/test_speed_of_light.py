"""What kernels reach of each ceiling: shares that can be reckoned by hand."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.test_counters_joined import counted

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.records import Ceiling, Device, Record, Timing, Work
from rooflens.report.figures.labels import legend
from rooflens.report.part_tables import PartRow, part_rows
from rooflens.results import RecordSet, join

RATES = {"matmul.bf16": (1000.0, "tensor"), "vector.fp32": (100.0, "fma"), "l2": (40.0, "memory"), "dram": (10.0, "memory")}  # fmt: skip  # noqa: E501
DEVICE = Device(
    name="h200-sxm-141gb",
    title="a card",
    vendor="nvidia",
    kind="gpu",
    arch="Hopper",
    facts={},
    ceilings=tuple(
        Ceiling(resource=name, rate=rate, silicon=silicon, origin="user", reference="by hand")  # type: ignore[arg-type]
        for name, (rate, silicon) in RATES.items()
    ),
)


def kernel(name: str, seconds: float, flops: dict[str, float], moved: dict[str, float], **more: object) -> Record:
    work = Work(flops=flops, bytes=moved, origin="executed")
    record = replace(counted(name), work=work, timing=Timing(samples=(seconds,), origin="profiler"))
    return replace(record, **more)  # type: ignore[arg-type]


def test_shares_of_ceilings() -> None:
    """Two launches in 4 s: 2000 of 4000 FLOP on tensor cores, 40 of 400 elsewhere, 80 of 160 bytes at L2, 10 of 40."""
    flops, moved = {"matmul.bf16": 1000.0, "vector.fp32": 20.0}, {"l1": 500.0, "l2": 40.0, "dram": 5.0}
    found = RecordSet(
        [
            kernel("gemm", 1.0, flops, moved),
            kernel("gemm", 3.0, flops, moved),
            kernel("copy", 6.0, {}, {"l2": 60.0, "dram": 60.0}, path="fc"),
        ],
        devices={DEVICE.name: DEVICE},
    )
    copy, gemm = rows(found)
    assert (gemm.part.name, gemm.part.calls, gemm.seconds, gemm.of_seconds) == ("gemm", 2, 4.0, 10.0)
    assert gemm.ceilings == {"tensor cores": 0.5, "general lanes": 0.1, "l1": None, "l2": 0.5, "dram": 0.25}
    assert copy.ceilings == {"tensor cores": 0, "general lanes": 0, "l1": None, "l2": 0.25, "dram": 1.0}
    assert copy.highest == "dram"
    text = rl.table(found, width=200)
    assert "Kernels: " in text
    assert "100 %" in text


def test_a_record_file_is_held_against_other_ceilings(tmp_path: Path) -> None:
    """Counted under data-sheet ceilings without L1; 500 of 1000 bytes at L1 in 1 s."""
    its = kernel("gemm", 1.0, {"matmul.bf16": 1000.0}, {"l1": 500.0, "dram": 5.0})
    RecordSet([its], devices={DEVICE.name: DEVICE}).save(tmp_path / "run.jsonl")
    l1 = Ceiling(resource="l1", rate=1000.0, silicon="memory", origin="measured", reference="by hand")
    calibrated = replace(DEVICE, name="mine", ceilings=(*DEVICE.ceilings, l1))
    (row,) = rows(read := rl.read(tmp_path / "run.jsonl", device=calibrated))
    assert (row.ceilings["l1"], row.ceilings["tensor cores"]) == (0.5, 1.0)
    assert "the ceilings are those of mine; the file has those of h200-sxm-141gb" in read.notes
    (row,) = rows(rl.read(tmp_path / "run.jsonl"))
    assert row.ceilings["l1"] is None
    # A file that names no device takes the one that is named, and nothing is replaced.
    RecordSet([replace(its, case=replace(its.case, device=None))]).save(tmp_path / "any.jsonl")
    unnamed = rl.read(tmp_path / "any.jsonl", device=calibrated)
    assert [case.device for case in unnamed.cases] == ["mine"]
    assert not any("the ceilings are" in note for note in unnamed.notes)
    # A comparison of devices keeps them: nobody knows which was meant.
    other = replace(its, case=replace(its.case, device="t4"))
    RecordSet([its, other], devices={DEVICE.name: DEVICE}).save(tmp_path / "two.jsonl")
    two = rl.read(tmp_path / "two.jsonl", device=calibrated)
    assert [case.device for case in two.cases] == ["h200-sxm-141gb", "t4"]
    assert any("of several devices (h200-sxm-141gb, t4)" in note for note in two.notes)


def test_what_means_nothing_or_has_no_rate_is_unknown() -> None:
    note = "l2 bytes miss what went past it"
    odd = kernel("odd", 1.0, {"vector.fp64": 5.0, "matmul.bf16": 500.0}, {"l2": 4.0, "dram": 1.0}, notes=(note,))
    (row,) = rows(RecordSet([odd], devices={DEVICE.name: DEVICE}))
    assert row.ceilings == {"tensor cores": 0.5, "general lanes": None, "l1": None, "l2": None, "dram": 0.1}
    lacking = replace(odd, work=Work(flops={"matmul.bf16": 500.0}, origin="executed", missing=frozenset({"odd"})))
    (row,) = rows(RecordSet([lacking], devices={DEVICE.name: DEVICE}))
    assert row.total.missing
    assert row.ceilings["dram"] is None


@pytest.mark.parametrize("devices", [{}, {DEVICE.name: DEVICE}])
def test_without_a_device_or_counted_work_no_share_is_known(devices: dict[str, Device]) -> None:
    bare = replace(counted("gemm"), work=None if devices else counted("gemm").work)
    (row,) = rows(RecordSet([bare], devices=devices))
    assert (row.ceilings, row.highest) == ({}, None)


def rows(found: RecordSet) -> list[PartRow]:
    (item,) = join(found)
    return part_rows(item, "kernel")


def test_the_summary_of_counted_runs_has_the_shares_of_each_phase_and_of_the_step() -> None:
    """In 2 + 2 s 1000 of 4000 FLOP on tensor cores, 10 of 40 bytes of DRAM; then in 6 s 1500 of 6000, 30 of 60.

    The step in 10 s: 2500 of 10,000 and 40 of 100, which is neither the mean nor the sum of the phases.
    """
    kernels = [
        kernel("gemm", 2.0, {"matmul.bf16": 1000.0}, {"dram": 5.0}, phase="forward"),
        kernel("copy", 2.0, {}, {"dram": 5.0}, phase="forward"),
        kernel("gemm", 6.0, {"matmul.bf16": 1500.0}, {"dram": 30.0}, phase="backward"),
    ]
    found = RecordSet(kernels, devices={DEVICE.name: DEVICE})
    lines = list(csv.DictReader(rl.table(found, format="csv").splitlines()))
    assert [
        (line["phase"], *(line[f"{place}_share"] for place in ("tensor_cores", "l2", "dram"))) for line in lines
    ] == [("forward", "0.25", "", "0.25"), ("backward", "0.25", "", "0.5"), ("step", "0.25", "", "0.4")]
    total = rl.table(found, by="family", format="csv", columns=["dram_share"]).splitlines()[-1]
    assert total.endswith("0.4")
    text = rl.table(found, width=80, by="phase")
    assert re.search(r"of DRAM +25.0 % +50.0 % +40.0 %", text)
    assert "share of a ceiling" in text


def test_products_that_ran_on_the_general_lanes_are_among_all_flop_and_a_note_says_so() -> None:
    """An sgemm: counters see 400 FLOP of the lanes and none of tensor cores."""
    said = "matmul FLOP and MAC that were counted are those of tensor cores"
    lanes = kernel("sgemm", 8.0, {"vector.fp32": 400.0, "matmul.bf16": 0.0}, {"dram": 10.0})
    found = RecordSet([lanes], devices={DEVICE.name: DEVICE})
    assert (found.total().matmul_flops, found.total().flops) == (0, 400)
    assert said in rl.table(found, by="phase", width=500)
    tensor = kernel("gemm", 8.0, {"vector.fp32": 400.0, "matmul.bf16": 800.0}, {"dram": 10.0}, phase="forward")
    optimizer = replace(lanes, phase="optimizer")  # which has no products
    assert said not in rl.table(RecordSet([tensor, optimizer], devices={DEVICE.name: DEVICE}), by="phase", width=500)


def test_pictures_of_counted_kernels_name_them_as_tables_do_and_say_that_no_family_is_known() -> None:
    named = [
        kernel(f"void cudnn::engines::k{n}<(int)4>(float *)", 8.0, {"vector.fp32": 400.0}, {"dram": 10.0})
        for n in (1, 2)
    ]
    found = RecordSet([replace(each, kind="other", operation="") for each in named], devices={DEVICE.name: DEVICE})
    figure = rl.roofline(found)
    assert any("k1<4>(float*)" in line for line in figure.listing)
    twice = replace(named[0], name=f"void {'k' * 200}<(int)4>(float *)")
    listing = rl.roofline(RecordSet([twice, twice], devices={DEVICE.name: DEVICE})).listing
    assert [line.rpartition("…")[2] for line in listing] == [", launch 1 of 2", ", launch 2 of 2"]
    words = [row.text.text for row in legend(figure, dict.fromkeys(figure.groups, "#000000"))]
    assert "family not known" in words
    assert "no formula" not in words


def test_a_roofline_of_work_that_is_not_all_known_is_a_lower_bound_as_the_bound_is() -> None:
    """10 bytes at 10 per second; nobody counted FLOP."""
    bare = replace(kernel("k", 8.0, {}, {"dram": 10.0}), scope="kernel")
    lower = replace(bare, work=Work(bytes={"dram": 10.0}, origin="executed", missing=frozenset({"k"})))
    text = rl.table(RecordSet([lower], devices={DEVICE.name: DEVICE}), by="phase", width=500)
    assert text.count(">= 1.000 s") == 2


def test_a_summary_of_a_counted_run_and_a_measured_one_has_shares_of_the_first_alone() -> None:
    """What was measured beside it, of another batch, has no work: its shares are unknown."""
    counted = kernel("gemm", 2.0, {"matmul.bf16": 1000.0}, {"dram": 10.0}, phase="forward")
    case = replace(counted.case, batch=7)
    timed = Record(case=case, source="measure", scope="model", timing=Timing(samples=(1.0,), origin="cuda-events"))
    found = RecordSet([counted, timed], devices={DEVICE.name: DEVICE})
    lines = list(csv.DictReader(rl.table(found, format="csv").splitlines()))
    assert {line["batch"]: line["dram_share"] for line in lines} == {"2": "0.5", "7": ""}


def test_a_summary_without_counted_work_has_no_shares() -> None:
    timed = kernel("gemm", 2.0, {}, {})
    algorithmic = replace(timed, source="profile", work=Work(flops={"matmul.bf16": 10.0}, bytes={"dram": 1.0}))
    found = RecordSet([algorithmic], devices={DEVICE.name: DEVICE})
    assert "dram_share" not in rl.table(found, format="csv").splitlines()[0]
    with pytest.raises(InvalidValue, match="no column 'dram_share' in this table"):
        rl.table(found, by="phase", columns=["dram_share"])
