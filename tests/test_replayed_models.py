"""Replayed calls stand beside estimates, and the expected time comes from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.calls import call, tensor, work

import rooflens as rl
from rooflens.errors import FileError, InvalidValue
from rooflens.records import Call, Case, Device, Record, Traffic
from rooflens.results import RecordSet, join
from rooflens.sources.replay import KeptTimes, replayed
from rooflens.sources.replay.kept_times import CallTimer

CASE = Case(model="two", device="h100-sxm5-80gb", batch=1)
SMALL, LARGE = tensor(1000), tensor(1000, 1000)


def operation(what: Call, path: str, calls: int = 1) -> Record:
    return Record(
        case=CASE, source="estimate", scope="op", path=path, kind="elementwise", name=what.name, phase="forward",
        work=work(what.reads + what.writes), traffic=Traffic(weights=0, inputs=what.reads, outputs=what.writes),
        call=what, calls=calls,
    )  # fmt: skip


RELU, GELU = call("relu", SMALL, self=SMALL), call("gelu", LARGE, self=LARGE)
ESTIMATES = (
    operation(RELU, "a", calls=3),
    operation(GELU, "b"),
    operation(RELU, "c"),
    Record(case=CASE, source="estimate", scope="model", parameters=0, host_calls=()),
)


@pytest.fixture
def devices() -> dict[str, Device]:
    device = rl.device("h100-sxm")
    return {device.name: device}


def counted(times: dict[str, float | None]) -> tuple[list[tuple[str, bool, bool]], CallTimer]:
    """A timer that knows a time for each name, and the list of what it was asked."""
    asked: list[tuple[str, bool, bool]] = []

    def timer(what: Call, products: bool, convolutions: bool) -> float | None:
        asked.append((what.name, products, convolutions))
        return times[what.name]

    return asked, timer


def test_each_distinct_call_is_timed_once_and_kept(tmp_path: Path, devices: dict[str, Device]) -> None:
    asked, timer = counted({"relu": 2e-6, "gelu": 5e-6})
    path = tmp_path / "folder" / "kept.jsonl"
    records = list(replayed(ESTIMATES, devices, timer, KeptTimes.read(path)))
    assert asked == [("relu", False, False), ("gelu", False, False)]
    assert [(r.path, r.calls, r.seconds) for r in records if r.scope == "op"] == [
        ("a", 3, pytest.approx(6e-6)), ("b", 1, 5e-6), ("c", 1, 2e-6),
    ]  # fmt: skip
    again, other = counted({})
    assert len(list(replayed(ESTIMATES, devices, other, KeptTimes.read(path)))) == len(records)
    assert again == []  # another model with the same calls costs nothing


def test_tf32_and_fp32_are_two_times(tmp_path: Path, devices: dict[str, Device]) -> None:
    asked, timer = counted({"relu": 2e-6, "gelu": 5e-6})
    kept = KeptTimes.read(tmp_path / "kept.jsonl")
    list(replayed(ESTIMATES, devices, timer, kept))
    tf32 = [replace(r, case=replace(CASE, dtype="tf32")) for r in ESTIMATES]
    list(replayed(tf32, devices, timer, kept))
    assert asked[2:] == [("relu", True, True), ("gelu", True, True)]


def test_the_expected_time_is_that_of_the_replayed_calls(tmp_path: Path, devices: dict[str, Device]) -> None:
    _, timer = counted({"relu": 2e-6, "gelu": 400e-6})
    records = replayed(ESTIMATES, devices, timer, KeptTimes.read(tmp_path / "kept.jsonl"))
    (evidence,) = join(RecordSet((*ESTIMATES, *records), devices=devices))
    total, measured = evidence.total(), evidence.measured()
    assert total is not None
    assert measured is not None
    assert total.prediction is not None
    assert measured.seconds == pytest.approx(4 * 2e-6 + 400e-6)
    assert total.prediction.device == pytest.approx(408e-6)
    # After 328 us the host launches four operations in 54; then the device has gelu and the last relu to do, 1.2 apart.
    assert total.prediction.seconds == pytest.approx(382e-6 + 402e-6 + 2 * 1.2e-6)
    assert total.prediction.level == "replayed"
    plain = RecordSet(ESTIMATES, devices=devices).total().prediction
    assert plain is not None
    assert plain.level == "datasheet"


def test_a_call_that_cannot_be_timed_leaves_the_step_unknown(tmp_path: Path, devices: dict[str, Device]) -> None:
    _, timer = counted({"relu": 2e-6, "gelu": None})
    records = list(replayed(ESTIMATES, devices, timer, KeptTimes.read(tmp_path / "kept.jsonl")))
    assert "gelu cannot be replayed alone here" in {note for r in records for note in r.notes}
    (evidence,) = join(RecordSet((*ESTIMATES, *records), devices=devices))
    assert evidence.measured() is None


@pytest.mark.parametrize("line", ["{", "[]", '{"seconds": "1"}', '{"seconds": -1.0}'])
def test_a_damaged_file_says_which_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(FileError, match="line 1 of kept"):
        KeptTimes.read(path)


def test_without_a_gpu_replaying_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no CUDA device"):
        rl.replay("resnet18")


def test_a_record_file_keeps_what_was_replayed(tmp_path: Path, devices: dict[str, Device]) -> None:
    _, timer = counted({"relu": 2e-6, "gelu": 5e-6})
    records = replayed(ESTIMATES, devices, timer, KeptTimes.read(tmp_path / "kept.jsonl"))
    both = RecordSet((*ESTIMATES, *records), devices=devices)
    read = rl.read(both.save(tmp_path / "both.jsonl"))
    assert read.sources == ("estimate", "replay")
    assert [r.seconds for r in read if r.source == "replay"] == [r.seconds for r in both if r.source == "replay"]
    assert "replay" in rl.table(read)
