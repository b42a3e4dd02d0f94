"""Summary, families, operations, memory, failures: numbers worked out by hand."""

from __future__ import annotations

import doctest
from dataclasses import replace
from types import ModuleType

import pytest
from tests.ranked_steps import a_card, relu_on, steps
from tests.table_samples import (
    INFERENCE,
    STEADY,
    TRAINING,
    both,
    conv_net,
    demo,
    device,
    estimated,
    measured,
    operation,
    times,
    trained,
    uncounted,
)

from rooflens.records import Failure, Memory, Record, Work
from rooflens.report import escape, kernel_names, table, table_notes
from rooflens.report.memory_table import memory
from rooflens.report.overview import PARTS_HINT, tables_of
from rooflens.report.part_tables import families, operations
from rooflens.report.summary import failures, summary
from rooflens.report.table import COUNT, PERCENT, Column, Entry, Table, Value, build, for_people, percent, plain, text
from rooflens.report.table_notes import coverage_line
from rooflens.results import Coverage, RecordSet


def row(view: Table, number: int = 0) -> dict[str, Value]:
    return {column.key: cell.value for column, cell in zip(view.columns, view.rows[number], strict=True)}


def cell(view: Table, key: str, number: int = 0) -> Entry:
    return view.rows[number][[column.key for column in view.columns].index(key)]


def test_summary_of_an_estimate() -> None:
    view = summary(estimated())
    assert len(view.rows) == 1
    # Sums from table_samples.conv_net. Bounds at 1 GFLOP/s (products), 100 MFLOP/s (vectors) and 1 GB/s:
    # convolution max(55.296, 6.496), relu max(10.24, 8.192), linear max(20.48, 24.696) us; as one operation
    # max(75.776 products, 10.24 vectors, 39.384 bytes).
    expected = {
        "model": "toynet",
        "device": "toy",
        "batch": 2,
        "dtype": "fp32",
        "mode": "inference",
        "options": None,
        "source": "estimate",
        "phase": "forward",
        "parameters": 5346,
        "matmul_flops": 75_776,
        "recomputed_flops": 0,
        "flops": 76_800,
        "macs": 37_888,
        "dram_bytes": 39_384,
        "intensity": pytest.approx(76_800 / 39_384),
        "as_written_flops": 76_800,
        "bound_matmul_flops": 75_776,
        "bound_flops": 76_800,
        "bound_macs": 37_888,
        "bound_bytes": 39_384,
        "bound_intensity": pytest.approx(76_800 / 39_384),
        "lower_bound": False,
        "seconds": pytest.approx(90.232e-6),
        "bound_by": "matmul.fp32",
        "whole_model_seconds": pytest.approx(75.776e-6),
        "attainable_mfu": pytest.approx(75.776 / 90.232),
        "throughput": pytest.approx(2 / 90.232e-6),
        "throughput_from": "bound",
        "peak": 31_160,
    }
    assert {key: row(view)[key] for key in expected} == expected
    assert {value for key, value in row(view).items() if key not in expected} == {None}
    assert cell(view, "throughput").sign == "<="


def test_parts_of_a_step_that_was_timed_as_a_whole_are_shown_when_they_are_asked_for() -> None:
    alone, timed = ([view.title for view in tables_of(records)] for records in (estimated(), both()))
    assert [title for title in alone if title not in timed] == ["Operation families", "Modules"]
    assert PARTS_HINT in tables_of(both())[0].notes
    assert "Modules" in [view.title for view in tables_of(both(), depth=2)]


def test_throughput_goes_by_the_expected_time_where_nothing_was_measured() -> None:
    # 100 samples in 1 ms at 0.8 of 1 TB/s; no time is expected of two cards, whose bound is 0.8 ms.
    card = a_card("card")
    view = summary(steps(relu_on(card), relu_on(replace(card, name="two", count=2))))
    assert [row(view, i)["throughput_from"] for i in (0, 1)] == ["predicted", "bound"]
    assert row(view, 0)["throughput"] == pytest.approx(1e5)
    assert [cell(view, "throughput", i).sign for i in (0, 1)] == ["", "<="]
    assert {"samples per second: by the expected time", "<= samples per second that the bound allows"} <= {*view.notes}


def test_summary_of_an_estimate_beside_a_measurement() -> None:
    view = summary(both())
    assert len(view.rows) == 1
    # Sorted: 198 199 200 200 | 200 201 201 202 us. The interval's ranks are n/2 -+ 0.98 sqrt(8): 1.2 and 6.8, so that
    # both ends are the extremes. Quartiles at positions 1.75 and 5.25: 199.75 and 201 us.
    expected = {
        "source": "estimate + measure",
        "measured_seconds": 200e-6,
        "measured_low": 198e-6,
        "measured_high": 202e-6,
        "measured_spread": pytest.approx(0.01),
        "measured_noise": pytest.approx(1.25 / 200),
        "measured_samples": 8,
        "measured_cold": 0.5,
        "efficiency": pytest.approx(0.45116),
        "mfu": pytest.approx(0.37888),
        "attainable_mfu": pytest.approx(75.776 / 90.232),
        "throughput": pytest.approx(10_000),
        "throughput_from": "measured",
    }
    assert {key: row(view)[key] for key in expected} == expected
    assert cell(view, "measured_seconds").mark == cell(view, "efficiency").mark == cell(view, "throughput").sign == ""


def test_a_training_step_has_a_row_per_phase_and_one_for_the_step() -> None:
    view = summary(trained())
    assert [row(view, i)["phase"] for i in range(4)] == ["forward", "backward", "optimizer", "step"]
    assert [row(view, i)["matmul_flops"] for i in range(4)] == [75_776, 120_000, 0, 195_776]
    # Forward 90.232 + 0.16 (the loss: 160 bytes, its special FLOP have no ceiling); backward 0.4 + 40 + 12.288 +
    # 55.296 (recomputed) + 80; optimizer 21,384 vector FLOP, 213.84 us.
    assert [row(view, i)["seconds"] for i in range(4)] == pytest.approx([90.392e-6, 187.984e-6, 213.84e-6, 492.216e-6])
    assert [row(view, i)["throughput"] for i in range(4)] == [None, None, None, pytest.approx(2 / 492.216e-6)]
    assert row(view)["options"] == "optimizer=sgd"
    assert "special.fp32 has no ceiling on toy: left out of the bound" in view.notes


def test_a_measurement_alone_has_a_row_without_work() -> None:
    view = summary(measured())
    assert row(view)["measured_seconds"] == 200e-6
    assert row(view)["throughput"] == pytest.approx(10_000)
    assert row(view)["flops"] is row(view)["seconds"] is row(view)["efficiency"] is None


def test_noise_and_points_above_the_roof_are_marked_and_explained() -> None:
    fast = summary(estimated() + RecordSet([times(INFERENCE, "forward", 45e-6, 45e-6, 45e-6, 45e-6)]))
    assert cell(fast, "efficiency").mark == "!"
    assert any(note.startswith("! faster than the bound") for note in fast.notes)
    noisy = summary(estimated() + RecordSet([times(INFERENCE, "forward", 1.0, 1.0, 1.5, 1.5)]))
    assert cell(noisy, "measured_seconds").mark == "~"
    assert any(note.startswith("~ noisy") and "10 %" in note for note in noisy.notes)
    assert not any(note[0] in "!~" for note in summary(both()).notes)


def test_one_time_has_one_note_on_noise() -> None:
    told = "noisy: the 95 % interval of the median is wider than 1 % of it"
    record = times(INFERENCE, "forward", 1.0, 1.0, 1.5, 1.5, 1.5, 1.5, 1.0, 1.0)
    notes = summary(estimated() + RecordSet([replace(record, notes=(told,))])).notes
    assert [note for note in notes if "noisy" in note] == [f"~ {told}"]
    assert "+-: half the 95 % interval of the median, over the median" in notes


def test_work_that_is_not_fully_counted_is_a_lower_bound() -> None:
    view = summary(uncounted())
    assert row(view)["lower_bound"] is True
    assert cell(view, "flops") == Entry(1005, ">=")
    # a: max(1 us product, 0.3 us bytes), its special FLOP without a ceiling; b: 0.1 us of bytes.
    assert row(view)["seconds"] == pytest.approx(1.1e-6)
    assert cell(view, "seconds").sign == ">="
    assert view.notes[0] == "counted 1 of 2 operations (75.0 % of bytes); without a formula: my_kernel"
    timed = summary(uncounted() + RecordSet([times(uncounted().cases[0], "forward", 2.2e-6)]))
    assert row(timed)["efficiency"] == pytest.approx(0.5)
    assert cell(timed, "efficiency").sign == ">="


def test_efficiency_of_counters_names_that_of_the_model_too() -> None:
    executed = replace(
        operation(INFERENCE, "", "gemm", Work(flops={"matmul.fp32": 1e5}, bytes={"dram": 1}, origin="executed")),
        source="counters",
        scope="kernel",
        timing=times(INFERENCE, None, 400e-6).timing,
    )
    view = summary(estimated() + RecordSet([executed]))
    # Kernels: 100,000 FLOP at 1 GFLOP/s in 400 us. The model's bound is 90.232 us, its products 75,776 FLOP.
    assert row(view, 1)["efficiency"] == pytest.approx(0.25)
    assert row(view, 1)["mfu"] == pytest.approx(0.18944)
    assert (
        "efficiency of counters is of the bound of what was executed; of the estimate's bound it is 22.6 %"
        in view.notes
    )


def test_unknown_devices_and_coverage_of_several_cases_are_stated() -> None:
    free = RecordSet(conv_net(replace(INFERENCE, device=None)))
    assert "no device is named: bounds are unknown" in summary(free).notes
    undescribed = RecordSet(estimated().records)
    assert any(note.startswith("no ceilings of toy are known here: its bounds") for note in summary(undescribed).notes)
    assert summary(demo()).notes[0] == "counted all operations in every case"
    mixed = summary(estimated() + uncounted()).notes
    assert mixed[0] == "counted all operations in 1 of 2 cases"
    assert mixed[1].startswith("odd fp32 inference on toy: counted 1 of 2 operations")
    kernels = RecordSet(replace(r, case=INFERENCE, source="counters", scope="kernel") for r in uncounted())
    assert summary(estimated() + kernels).notes[:2] == (
        "counted 3 of 3 operations (100 % of bytes)",
        "counted all FLOP of 1 of 2 kernels (75.0 % of bytes); not of my_kernel",
    )


def test_pooled_measurements_and_notes_of_records_are_shown() -> None:
    noted = replace(times(INFERENCE, "forward", *STEADY, STEADY[0]), notes=("clocks were not locked",))
    view = summary(both() + RecordSet([noted]))
    assert "toynet batch 2 fp32 inference on toy: samples of 2 measurements pooled" in view.notes
    assert view.notes[-1] == "clocks were not locked"


def test_families_share_out_the_whole_largest_first() -> None:
    view = families(estimated())
    assert [row(view, i)["family"] for i in range(3)] == ["convolution", "linear", "elementwise"]
    assert [row(view, i)["share"] for i in range(3)] == pytest.approx([n / 90.232 for n in (55.296, 24.696, 10.24)])
    assert [row(view, i)["flops_share"] for i in range(3)] == pytest.approx(
        [n / 76_800 for n in (55_296, 20_480, 1_024)]
    )
    assert [row(view, i)["bytes_share"] for i in range(3)] == pytest.approx(
        [n / 39_384 for n in (6_496, 24_696, 8_192)]
    )
    assert view.total is not None
    sums = {column.key: c.value for column, c in zip(view.columns, view.total, strict=True)}
    assert (sums["calls"], sums["flops"], sums["dram_bytes"], sums["share"]) == (3, 76_800, 39_384, 1.0)


def test_a_family_that_is_all_recomputed_has_a_bound_and_no_algorithmic_work() -> None:
    again = [replace(record, recomputed=True) for record in conv_net(INFERENCE)[1:2]]
    view = families(RecordSet([*conv_net(INFERENCE)[2:], *again], devices=estimated().devices))
    assert (row(view)["family"], row(view)["flops"], row(view)["recomputed_flops"]) == ("convolution", 0, 55_296)
    assert row(view)["seconds"] == pytest.approx(55.296e-6)


def test_operations_are_listed_costliest_first_with_all_their_calls() -> None:
    first, *others = conv_net(INFERENCE)[1:]
    view = operations(RecordSet([replace(first, calls=3), *others], devices=estimated().devices))
    assert [row(view, i)["operation"] for i in range(3)] == ["convolution", "linear", "relu"]
    assert (row(view)["calls"], row(view)["flops"], row(view)["path"]) == (3, 3 * 55_296, "features.0")
    assert row(view)["seconds"] == pytest.approx(3 * 55.296e-6)
    assert [row(view, i)["phase"] for i in range(3)] == ["forward"] * 3


def test_memory_by_cause_for_estimate_and_measurement() -> None:
    view = memory(both())
    assert [row(view, i)["source"] for i in range(2)] == ["estimate", "measure"]
    assert (row(view)["peak"], row(view)["parameters"], row(view)["temporaries"]) == (31_160, 21_384, 8_240)
    assert (row(view, 1)["peak"], row(view, 1)["parameters"], row(view, 1)["reserved"]) == (40_960, None, 2_097_152)
    assert "what the libraries of a device take for themselves is not in the peak" in view.notes
    assert memory(measured()).notes == ()


def test_what_a_monitor_showed_stands_beside_the_estimate() -> None:
    seen = Memory(monitor=500_000, before=400_000)
    shown = RecordSet([Record(case=INFERENCE, source="measure", scope="model", memory=seen)], devices={"toy": device()})
    elsewhere = RecordSet([replace(r, case=replace(r.case, device="other")) for r in conv_net(INFERENCE)])
    view = memory(estimated() + shown + elsewhere)
    rows = [(row(view, i)["source"], row(view, i)["peak"], row(view, i)["monitor"]) for i in range(len(view.rows))]
    assert rows == [("estimate + measure", 31_160, 500_000), ("estimate", 31_160, None)]


def test_failures_are_rows() -> None:
    failed = Failure(case=TRAINING, source="measure", stage="backward", kind="out of memory", message="needs 3 GB")
    view = failures(RecordSet([], failures=[failed]))
    assert (row(view)["model"], row(view)["kind"], row(view)["message"]) == ("toynet", "out of memory", "needs 3 GB")
    assert failures(estimated()).rows == ()


def test_coverage_without_bytes_states_no_share() -> None:
    none = Coverage(operations=1, counted=0, uncounted=("a", "b"), bytes_share=None)
    assert coverage_line(none) == "counted 0 of 1 operations; without a formula: a, b"


NUMBER = Column(key="n", header="n", unit="s")


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [
        (None, NUMBER, "-"),
        ("", NUMBER, "-"),
        (0, NUMBER, "0 s"),
        (0.0012346, NUMBER, "1.235 ms"),
        (1234.5, Column(key="n", header="matmul FLOP", unit="FLOP"), "1.234 k"),
        (16, Column(key="n", header="batch", unit=COUNT), "16"),
        (0.12345, Column(key="n", header="share", unit=PERCENT), "12.3 %"),
        (1.0, Column(key="n", header="share", unit=PERCENT), "100 %"),
        (0.125, Column(key="n", header="FLOP/B", unit="FLOP/B"), "0.1250"),
        (123456.7, Column(key="n", header="FLOP/B", unit="FLOP/B"), "123457"),
        (True, NUMBER, "True"),
        ("name", NUMBER, "name"),
    ],
)
def test_values_as_text(value: Value, column: Column, expected: str) -> None:
    assert text(Entry(value), column) == expected


def test_plain_numbers_have_no_prefix() -> None:
    numbers = (0, 1e-5, 0.0015, 0.99996, 12.34, 999.6, 1234)
    assert [plain(n, 3) for n in numbers] == ["0", "1e-05", "0.002", "1.00", "12.3", "1000", "1234"]


def test_percent_keeps_to_the_width_that_matters() -> None:
    ratios = (0, 1e-6, 0.0123, 0.09996, 0.1234, 0.9996, 1, 12.345)
    assert [percent(n) for n in ratios] == ["0 %", "<0.01 %", "1.23 %", "10.0 %", "12.3 %", "100 %", "100 %", "1234 %"]


def test_people_see_what_differs_and_what_is_known() -> None:
    columns = (
        Column(key="model", header="model", align="left", title="{}"),
        Column(key="batch", header="batch", title="batch {}", unit=COUNT),
        Column(key="x", header="x"),
        Column(key="unknown", header="unknown"),
        Column(key="zero", header="zero", if_any=True),
        Column(key="detail", header="detail", show="files"),
    )
    rows = [{"model": "m", "batch": n, "x": 1, "zero": 0, "detail": 5} for n in (1, 2)]
    view = for_people(build("Title", columns, rows))
    assert view.title == "Title: m"
    assert [column.key for column in view.columns] == ["batch", "x"]
    assert for_people(build("Title", columns, rows[:1])).title == "Title: m, batch 1"
    assert [c.key for c in for_people(build("Title", columns, [])).columns] == [
        "model",
        "batch",
        "x",
        "unknown",
        "zero",
    ]
    assert for_people(build("Title", columns[:1], rows[:1])).rows == ((Entry("m"),),)


@pytest.mark.parametrize("module", [escape, kernel_names, table, table_notes], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert result.failed == 0


def test_work_of_unknown_traffic_has_no_intensity() -> None:
    bare = [replace(record, work=Work(flops={"matmul.fp32": 8})) for record in conv_net(INFERENCE)[1:]]
    view = summary(RecordSet(bare))
    assert row(view)["flops"] == 24
    assert row(view)["dram_bytes"] is row(view)["intensity"] is None


def test_traffic_that_one_operation_lacks_gives_the_sum_of_all_no_roofline() -> None:
    """Without the bytes of one, those of the others are not the traffic of all: a time from FLOP alone is too short."""
    devices = {"toy": device(matmul_fp32=1e9, vector_fp32=1e8, dram=1e8)}
    records = conv_net(INFERENCE)
    # 39,384 bytes at 100 MB/s.
    assert row(summary(RecordSet(records, devices=devices)))["whole_model_seconds"] == pytest.approx(393.84e-6)
    bare = [replace(r, work=Work(flops=r.work.flops) if r.work is not None else None) for r in records]
    one = next(n for n, record in enumerate(bare) if record.work is not None)
    lacking = RecordSet([*records[:one], bare[one], *records[one + 1 :]], devices=devices)
    assert row(summary(lacking))["whole_model_seconds"] is None
    # Of nobody's bytes: 75,776 FLOP in products at 1 GFLOP/s, beside 1,024 others at 100 MFLOP/s on units of their own.
    assert row(summary(RecordSet(bare, devices=devices)))["whole_model_seconds"] == pytest.approx(75.776e-6)
