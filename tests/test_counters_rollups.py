"""Counter files that hold other things than sums, contradict themselves, or hold nothing that can be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import FileError
from rooflens.sources.counters.value_doubts import ValueDoubts

DATA = Path(__file__).parent / "data" / "ncu"
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)
LANE = "smsp__sass_thread_inst_executed_op_{}_pred_on"
NO_TENSOR = ("sm__inst_executed_pipe_tensor.sum", "inst", "0")
CYCLES = ("smsp__cycles_elapsed.avg", "cycle", "1,000")
CLOCK = ("smsp__cycles_elapsed.avg.per_second", "cycle/second", "2,000,000,000")
TIME = ("gpu__time_duration.sum", "ns", "500")
Counter = tuple[str, str, str]


def row(metric: str, unit: str, value: str, *, number: int = 0, name: str = "k", grid: str = "(58, 1, 1)") -> str:
    return (
        f'"{number}","1","app","127.0.0.1","{name}","1","7","(256, 1, 1)","{grid}","0","8.0","Command line profiler'
        f' metrics","{metric}","{unit}","{value}"\n'
    )


def read(folder: Path, *counters: Counter, name: str = "k") -> rl.RecordSet:
    path = folder / "report.csv"
    path.write_text(HEADER + "".join(row(*counter, name=name) for counter in counters))
    return rl.read(path)


def lanes(form: str, unit: str, **values: str) -> list[Counter]:
    every = {"fadd": "0", "fmul": "0", "ffma": "0"} | values
    return [(f"{LANE.format(term)}.{form}", unit, value) for term, value in every.items()]


def flops(records: rl.RecordSet) -> dict[str, float]:
    (record,) = records
    assert record.work is not None
    assert not record.work.missing
    return dict(record.work.flops)


def notes(records: rl.RecordSet) -> str:
    return "; ".join(note for record in records for note in record.notes)


# Other forms than sums -----------------------------------------------------------------------------------------------


def test_rates_per_cycle_beside_the_cycles() -> None:
    records = rl.read(DATA / "faults" / "ncu_rates.csv")
    (record,) = records
    assert record.work is not None
    assert record.work.flops == {"vector.fp32": 150 * 2 * 7e6}
    assert record.work.bytes == {"dram": pytest.approx(32e9 * 4.666667e-3)}
    assert record.work.missing == {"gemm"}  # tensor operations were not collected
    assert "per cycle were multiplied by the cycles" in notes(records)


# 3 FFMA per cycle of all processors in 1,000 cycles, which are 500 ns at 2 GHz: 3,000 FFMA are 6,000 FLOP, and 6e9
# per second. An A100 has 108 multiprocessors, each with 4 smsp.
@pytest.mark.parametrize(
    ("form", "unit", "ffma", "beside"),
    [
        ("sum.per_cycle_elapsed", "inst/cycle", "3", [CYCLES]),
        ("sum.per_cycle_elapsed", "inst/cycle", "3", [CLOCK, TIME]),
        ("sum.per_cycle_elapsed", "inst/cycle", "3", [("sm__cycles_elapsed.avg", "cycle", "1,000")]),
        ("sum.per_second", "Ginst/second", "6", [TIME]),
        ("sum.per_second", "inst/nsecond", "6", [TIME]),
        ("sum.per_cycle_active", "inst/cycle", "6", [("smsp__cycles_active.avg", "cycle", "500")]),
        ("sum.per_cycle_in_region", "inst/cycle", "6", [("smsp__cycles_in_region.avg", "cycle", "500")]),
        ("sum.per_cycle_elapsed", "inst/cycle", "3", [("sm__cycles_elapsed.max", "cycle", "1,000")]),
        ("avg", "inst", "6.25", [("launch__sm_count", "SM", "120")]),
        ("avg", "inst", "6.25", [("smsp__cycles_active.avg", "", "50"), ("smsp__cycles_active.sum", "", "24,000")]),
        ("avg.per_second", "Ginst/s", "0.0125", [TIME, CYCLES, ("smsp__cycles_elapsed.sum", "cycle", "480,000")]),
    ],
)
def test_a_roll_up_is_converted_with_what_the_file_holds(
    tmp_path: Path, form: str, unit: str, ffma: str, beside: list[Counter]
) -> None:
    records = read(tmp_path, *lanes(form, unit, ffma=ffma), *beside, NO_TENSOR)
    assert flops(records) == {"vector.fp32": pytest.approx(6000)}


def test_the_number_of_processors_makes_averages_sums(tmp_path: Path) -> None:
    path = tmp_path / "raw.csv"
    names = ["ID", "Process ID", "Kernel Name", "device__attribute_multiprocessor_count"]
    metrics = [f"{LANE.format(term)}.avg" for term in ("fadd", "fmul", "ffma")]
    tensor = "sm__inst_executed_pipe_tensor.sum"
    lines = [[*names, *metrics, tensor], ["", "", "", "", "inst", "inst", "inst", "inst"]]
    lines.append(["0", "1", "k", "108", "0", "0", "2.50", "0"])
    path.write_text("".join('"' + '","'.join(line) + '"\n' for line in lines))
    assert flops(rl.read(path)) == {"vector.fp32": 2.5 * 108 * 4 * 2}


def test_units_in_the_header_of_a_raw_page(tmp_path: Path) -> None:
    path = tmp_path / "raw.csv"
    names = [*("ID", "Process ID", "Kernel Name", "gpu__time_duration.sum [us]", "dram__bytes.sum [Mbyte]")]
    lines = [names, ["0", "1", "k", "2.50", "3.25"], ["1", "1", "l", "5", "1"]]
    path.write_text("".join('"' + '","'.join(line) + '"\n' for line in lines))
    records = rl.read(path)
    assert [record.seconds for record in records] == pytest.approx([2.5e-6, 5e-6])
    assert records.total().bytes == {"dram": 4_250_000}


def test_rates_that_rooflines_multiply_already(tmp_path: Path) -> None:
    half = [(f"{LANE.format(term)}.sum", "inst", "0") for term in ("hadd", "hmul")]
    single = [(f"{LANE.format(term)}.sum.per_cycle_elapsed", "inst/cycle", "1") for term in ("fadd", "fmul")]
    twice = [
        (f"derived__{LANE.format('ffma')}_x2", "inst", "6"),  # 3 per cycle
        (f"derived__{LANE.format('hfma')}_x4", "inst", "20"),  # 5 per cycle
        ("derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2", "inst", "33792"),  # a peak
    ]
    records = read(tmp_path, *half, *single, *twice, CYCLES, NO_TENSOR, ("sm__cycles_active.avg", "cycle", "9"))
    assert flops(records) == {"vector.fp32": (1 + 1 + 2 * 3) * 1000, "vector.fp16": 2 * 5 * 1000}


def test_bytes_per_second_and_the_time_from_them(tmp_path: Path) -> None:
    sector = ("lts__t_sectors_srcunit_tex.sum", "sector", "1,000")
    rate = ("lts__t_sectors_srcunit_tex.sum.per_second", "sector/second", "2,000,000,000")
    written = ("dram__bytes_write.sum.per_second", "Gbyte/s", "3")
    records = read(tmp_path, sector, rate, ("dram__bytes_read.sum", "byte", "700"), written)
    (record,) = records
    assert record.timing is not None
    assert record.work is not None
    assert record.timing.samples == (5e-7,)  # 1,000 sectors at 2e9 per second
    assert record.work.bytes == {"l2": 32_000, "dram": 700 + 1500}
    assert "the time is lts__t_sectors_srcunit_tex.sum over the same per second" in notes(records)


@pytest.mark.parametrize(
    ("form", "lacks"),
    [
        ("sum.per_cycle_elapsed", "smsp__cycles_elapsed.avg, or its clock and the time"),
        ("sum.per_second", r"the time \(gpu__time_duration.sum\)"),
        ("avg", r"the number of its units \(smsp\)"),
        ("sum.per_cycle_active", "smsp__cycles_active.avg"),
    ],
)
def test_what_cannot_be_converted_says_what_lacks(tmp_path: Path, form: str, lacks: str) -> None:
    records = read(tmp_path, *lanes(form, "", fadd="0", ffma="3"), ("dram__bytes.sum", "byte", "10"), NO_TENSOR)
    (record,) = records
    assert record.work is not None
    assert record.work.missing == {"k"}
    assert record.work.flops == {}
    assert f"{LANE.format('ffma')}.{form} cannot be turned into sums: the file lacks {lacks}".replace(
        "\\", ""
    ) in notes(records)


def test_zero_is_zero_in_every_form_and_a_rounded_zero_is_unknown(tmp_path: Path) -> None:
    assert flops(read(tmp_path, *lanes("sum.per_second", "inst/s"), NO_TENSOR)) == {}
    records = read(tmp_path, *lanes("sum.per_cycle_elapsed", "inst/cycle", fmul="0.00", ffma="3"), CYCLES, NO_TENSOR)
    (record,) = records
    assert record.work is None or record.work.missing
    assert (
        f"printed as 0.00, which is less than a digit can show and not zero, so unknown: {LANE.format('fmul')}"
        in notes(records)
    )


def test_a_share_of_a_peak_is_no_count(tmp_path: Path) -> None:
    share = ("dram__bytes.sum.pct_of_peak_sustained_elapsed", "%", "41.20")
    records = read(tmp_path, *lanes("sum", "inst", ffma="5"), NO_TENSOR, share)
    assert records.records[0].work == rl.Work(flops={"vector.fp32": 10}, origin="executed")
    assert f"{share[0]} cannot be turned into sums" in notes(records)


def test_the_shares_that_nsight_compute_reckons_are_told(tmp_path: Path) -> None:
    """Speed of light and occupancy, over all launches; other percentages are no share of a peak."""
    shares = [
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "97.32"),
        ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "66.6"),
        ("lts__t_sector_hit_rate.pct", "%", "41"),
    ]
    told = "Nsight Compute's own shares of a peak: sm__throughput 97.32 %, sm__warps_active 66.6 %"
    assert told in notes(read(tmp_path, *lanes("sum", "inst", ffma="5"), NO_TENSOR, *shares))
    doubts = ValueDoubts()
    for value in (41.5, 12.004, 97.0):
        doubts.percent(shares[0][0], value)
    assert doubts.notes(None) == ["Nsight Compute's own shares of a peak: sm__throughput 12 to 97 %"]


def test_a_form_in_a_unit_that_nobody_knows_is_left_out(tmp_path: Path) -> None:
    odd = ("dram__bytes.sum.per_second", "parsec/second", "3")
    assert flops(read(tmp_path, *lanes("sum", "inst", ffma="5"), NO_TENSOR, odd, TIME)) == {"vector.fp32": 10}


def test_cycles_of_the_slowest_unit_are_told(tmp_path: Path) -> None:
    most = ("smsp__cycles_elapsed.max", "cycle", "1,100")
    rates = lanes("sum.per_cycle_elapsed", "inst/cycle", ffma="3")
    assert "cycles are the most of any unit" in notes(read(tmp_path, *rates, most, NO_TENSOR))
    exact = read(tmp_path, *rates, most, CYCLES, NO_TENSOR)
    assert flops(exact) == {"vector.fp32": 6000}
    assert "cycles are the most" not in notes(exact)


def test_a_pipe_that_was_idle_did_nothing(tmp_path: Path) -> None:
    idle = ("sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", "%", "0")
    assert flops(read(tmp_path, *lanes("sum", "inst", ffma="5"), idle)) == {"vector.fp32": 10}
    busy = (idle[0], "%", "12.50")
    (record,) = read(tmp_path, *lanes("sum", "inst", ffma="5"), busy)
    assert record.work is not None
    assert record.work.missing == {"k"}


# Not collected -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["triton_mm_kernel", "my_own_product"])
def test_tensor_work_that_was_not_collected_is_unknown(tmp_path: Path, name: str) -> None:
    records = read(tmp_path, *lanes("sum", "inst", ffma="5"), name=name)
    total = records.total()
    assert total.flops == 10
    assert total.matmul_flops is None
    assert total.missing == {name}
    assert total.coverage.counted == 0
    assert "matrix FLOP are unknown: operations of tensor cores were not collected" in notes(records)


@pytest.mark.parametrize(
    ("counters", "says"),
    [
        (lanes("avg", "inst", ffma="3"), "the file lacks the number of its units (smsp)"),
        ([("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "41.20")], "it has sm__throughput.avg.pct"),
        ([("Registers Per Thread", "register/thread", "32")], "the page of details, which lacks most counters"),
        ([CLOCK], "it has smsp__cycles_elapsed.avg.per_second"),
    ],
)
def test_a_file_without_a_usable_counter_is_an_error(tmp_path: Path, counters: list[Counter], says: str) -> None:
    with pytest.raises(FileError) as caught:
        read(tmp_path, *counters)
    assert says in str(caught.value)
    assert "ncu --metrics gpu__time_duration.sum,dram__bytes.sum" in str(caught.value)
    result = CliRunner().invoke(cli, ["read", str(tmp_path / "report.csv")])
    assert result.exit_code != 0
    assert result.stdout == ""


def test_the_page_of_details_says_that_another_page_has_more(tmp_path: Path) -> None:
    labels = ("GPU Speed Of Light Throughput", "Duration", "ns", "500")
    path = tmp_path / "report.csv"
    path.write_text(HEADER + row(*labels[1:]).replace("Command line profiler metrics", labels[0]))
    records = rl.read(path)
    assert records.records[0].seconds == 5e-7
    assert "'ncu -i REPORT --page raw --csv' prints them" in notes(records)


def test_half_of_the_bytes_are_read_and_not_taken_for_all() -> None:
    records = rl.read(DATA / "faults" / "ncu_bracket.txt")
    assert [record.name.partition("<")[0] for record in records] == [
        "void cudnn::winograd::generateWinogradTilesKernel",
        "ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148n_nt_v1",
    ]
    assert [record.work and (record.work.bytes, len(record.work.missing)) for record in records] == [({}, 1)] * 2
    assert "dram bytes are unknown: dram__bytes_write.sum was not collected" in notes(records)


# Contradictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "other"}, "launch 0 has the Kernel Name 'other' here and 'k' above"),
        ({"grid": "(9, 1, 1)"}, r"launch 0 has the Grid Size '\(9, 1, 1\)' here and '\(58, 1, 1\)' above"),
    ],
)
def test_rows_of_one_launch_agree_on_what_it_is(tmp_path: Path, change: dict[str, str], says: str) -> None:
    path = tmp_path / "report.csv"
    path.write_text(HEADER + row(*TIME) + row("dram__bytes.sum", "byte", "5") + row(*CYCLES, **change))  # type: ignore[arg-type]
    with pytest.raises(FileError, match=f"line 4: {says}"):
        rl.read(path)


def test_the_row_of_a_rule_may_name_another_stream(tmp_path: Path) -> None:
    """As ncu 2022 writes it."""
    path = tmp_path / "report.csv"
    rule = row("", "", "").replace('"1","7","(256', '"1","1","(256')
    path.write_text(HEADER + row(*TIME) + rule + row("dram__bytes.sum", "byte", "5"))
    assert rl.read(path).total().bytes == {"dram": 5}


@pytest.mark.parametrize(("written", "doubt"), [("50", False), ("58", False), ("500", True), ("0", True)])
def test_traffic_that_is_not_the_sum_of_its_parts(tmp_path: Path, written: str, doubt: bool) -> None:
    parts = [("dram__bytes.sum", "byte", "100"), ("dram__bytes_read.sum", "byte", "50")]
    records = read(tmp_path, *parts, ("dram__bytes_write.sum", "byte", written))
    assert ("add up to" in notes(records)) is doubt
    assert records.total().bytes == {"dram": 100}


SUMMARY = (
    '"Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size","Device","CC","Invocations",'
    '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
)


@pytest.mark.parametrize(
    ("least", "most", "mean", "doubt"),
    [
        ("1", "3", "50", True),
        ("1", "3", "0.50", True),
        ("5", "3", "4", True),
        ("1", "3", "2", False),
        ("1", "1", "1", False),
        ("1.000,50", "3.000,50", "2.000,50", False),
        ("1.000,50", "3.000,50", "4.000,50", True),
    ],
)
def test_a_summary_whose_average_is_outside_of_its_range(
    tmp_path: Path, least: str, most: str, mean: str, doubt: bool
) -> None:
    path = tmp_path / "summary.csv"
    cells = ["1", "app", "127.0.0.1", "k", "(1, 1, 1)", "(1, 1, 1)", "0", "8.0", "10", "Command line profiler metrics"]
    path.write_text(SUMMARY + '"' + '","'.join([*cells, "dram__bytes.sum", "byte", least, most, mean]) + '"\n')
    records = rl.read(path)
    assert ("line 2 contradicts itself: dram__bytes.sum" in notes(records)) is doubt


def test_a_mean_rate_times_a_mean_time_is_told(tmp_path: Path) -> None:
    path = tmp_path / "summary.csv"
    cells = ["1", "app", "127.0.0.1", "k", "(1, 1, 1)", "(1, 1, 1)", "0", "8.0", "10", "Command line profiler metrics"]
    counters = (TIME, ("dram__bytes.sum.per_second", "Gbyte/second", "3"))
    rows = ('"' + '","'.join([*cells, name, unit, value, value, value]) + '"\n' for name, unit, value in counters)
    path.write_text(SUMMARY + "".join(rows))
    records = rl.read(path)
    assert records.total().bytes == {"dram": 10 * 1500}
    assert "only where the launches are alike" in notes(records)


def test_shares_of_instances_are_no_share_of_one(tmp_path: Path) -> None:
    shares = [
        ("derived__pct_occupancy_per_block_size", "%", "3010"),
        ("l1tex__some.pct", "%", "250 (100; 50; 100)"),
        ("lts__t_sector_hit_rate.pct", "%", "100.39"),
    ]
    records = read(tmp_path, *lanes("sum", "inst"), NO_TENSOR, *shares)
    assert notes(records).count(" reaches ") == 1
    assert "lts__t_sector_hit_rate.pct reaches 100.39 %" in notes(records)
