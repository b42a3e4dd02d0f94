"""Numbers that no hardware has are errors with a message, in files and in pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rooflens as rl
from rooflens.errors import InvalidValue, RecordFileError
from rooflens.records import Case, Ceiling, Device, Record, RecordFile, Timing, Work, write_records
from rooflens.results import RecordSet


def device(rate: float) -> Device:
    return Device(
        name="mine",
        title="mine",
        vendor="x",
        kind="gpu",
        arch="",
        ceilings=(
            Ceiling(resource="matmul.fp32", rate=1e13, silicon="fma", origin="user", reference="x"),
            Ceiling(resource="dram", rate=rate, silicon="memory", origin="user", reference="x"),
        ),
        facts={},
    )


def records(flops: float = 1e9, nbytes: float = 1e6, seconds: float = 1e-3) -> tuple[Record, Record]:
    case = Case(model="m", device="mine", batch=1)
    work = Work(flops={"matmul.fp32": flops}, bytes={"dram": nbytes})
    estimated = Record(case=case, source="estimate", scope="model", phase="forward", work=work)
    time = Timing(samples=(seconds,), origin="monotonic")
    return estimated, Record(case=case, source="measure", scope="model", phase="forward", timing=time)


@pytest.mark.parametrize("rate", ["1e-320", "0.5", "1e300", "0", "-1"])
def test_a_ceiling_that_no_hardware_has(tmp_path: Path, rate: str) -> None:
    path = tmp_path / "a.jsonl"
    write_records(path, RecordFile(records=records(), devices={"mine": device(1e12)}))
    written = path.read_text()
    path.write_text(written.replace("1000000000000.0", rate, 1))
    assert json.loads(written.partition("\n")[0])["devices"]["mine"]["ceilings"][1]["rate"] == 1e12
    with pytest.raises(RecordFileError, match=r"line 1: ceiling 'dram' has rate .* hardware has 1 to 1e\+30 a second"):
        rl.read(path)


@pytest.mark.parametrize(
    "odd", [{"seconds": 1e-320}, {"flops": 1e-320, "nbytes": 1e300}, {"flops": 1e300, "nbytes": 1e-300}]
)
def test_a_picture_of_numbers_that_no_hardware_has(tmp_path: Path, odd: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="is no number of hardware; what can be drawn lies between"):
        rl.roofline(RecordSet(records(**odd), devices={"mine": device(1e12)})).save(tmp_path / "x.svg")
