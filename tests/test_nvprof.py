"""What nvprof printed as CSV: traces, summaries and metrics, in the layouts of NVIDIA's guide."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooflens as rl
from rooflens.errors import FileError

ABOUT = "==42== NVPROF is profiling process 42, command: ./a.out\n==42== Profiling application: ./a.out\n"
TRACE = (
    '==42== Profiling result:\n"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z",'
    '"Registers Per Thread","Static SMem","Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device",'
    '"Context","Stream","Name","Correlation_ID"\nms,us,,,,,,,,KB,B,MB,GB/s,,,,,,,\n'
)
SUMMARY = '==42== Profiling result:\n"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n'
METRICS = (
    '==42== Metric result:\n"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n'
)


def read(folder: Path, *parts: str) -> rl.RecordSet:
    path = folder / "log.csv"
    path.write_text(ABOUT + "".join(parts))
    return rl.read(path)


def launch(start: str, duration: str, name: str, stream: int = 7, device: str = "GeForce GTX 1080 Ti (0)") -> str:
    return f'{start},{duration},1,1,1,64,1,1,8,0.1,0,,,,,"{device}","1","{stream}","{name}",9\n'


def metric(name: str, value: str, *, device: str = "Tesla K20c (0)", kernel: str = "k(float*)", least: str = "") -> str:
    return f'"{device}","{kernel}",3,"{name}","what it is",{least or value},{value},{value}\n'


def notes(records: rl.RecordSet) -> str:
    return "; ".join(note for record in records for note in record.notes)


def test_a_trace_has_a_record_per_launch(tmp_path: Path) -> None:
    text = (launch("1.0", "30.0", "gemm(float*) [117]"), launch("1.01", "5", "[CUDA memcpy HtoD]", stream=8))
    records = read(tmp_path, TRACE, *text, launch("2.0", "2.5", "add(float*) [119]"))
    kernels = [record for record in records if record.scope == "kernel"]
    assert [record.seconds for record in kernels] == pytest.approx([30e-6, 5e-6, 2.5e-6])
    assert [record.name for record in kernels][::2] == ["gemm(float*)", "add(float*)"]
    # The copy lies within the first kernel: busy for 30 + 2.5 us, and 37.5 us in sum.
    assert "busy time 32.50 us, sum of times 37.50 us" in notes(records)


def test_two_gpus_are_two_cases(tmp_path: Path) -> None:
    on_second = launch("1.0", "4", "k", device="GeForce GTX 1080 Ti (1)")
    records = read(tmp_path, TRACE, launch("1.0", "3", "k"), on_second)
    assert [case.options for case in records.cases] == [(("gpu", 0),), (("gpu", 1),)]


def test_a_launch_that_ends_after_the_next_of_its_stream_began_is_flagged(tmp_path: Path) -> None:
    records = read(tmp_path, TRACE, launch("1.0", "1000000", "k"), launch("1.01", "3", "l"))
    assert "which cannot be" in notes(records)


def test_a_summary_stands_for_its_calls(tmp_path: Path) -> None:
    rows = (
        '"GPU activities",80.0,2.0,10,200.0,190.0,230.0,"gemm(float*)"\n',
        '"GPU activities",20.0,0.5,5,900.0,90.0,120.0,"add(float*)"\n',
        '"API calls",99.0,900.0,3,300000.0,1.0,500000.0,"cudaFree"\n',
    )
    records = read(tmp_path, SUMMARY, *rows)
    kernels = [record for record in records if record.scope == "kernel"]
    assert [(record.name, record.calls) for record in kernels] == [("gemm(float*)", 10), ("add(float*)", 5)]
    assert [record.seconds for record in kernels] == pytest.approx([10 * 200e-6, 5 * 900e-6])
    # 10 x 200 us and 5 x 900 us.
    assert "sum of times 6.500 ms: 15 kernels, copies and fills by 2 names" in notes(records)
    assert "add(float*) is 900.0 on average, 90.0 at least and 120.0 at most" in notes(records)
    assert "1 rows of calls on the host" in notes(records)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ("9.0,10,200.0,190.0,230.0", "took 9.000 ms, and 10 calls of 200.0 us are 2.000 ms"),
        ("0,10,0,0,0", "0 s for gemm, and a kernel takes more than nothing and less than a day"),
        ("2e12,10,2e14,190.0,3e14", "200.0 Ms for gemm, and a kernel takes more than nothing and less than a day"),
    ],
)
def test_a_summary_that_contradicts_itself_is_a_doubt(tmp_path: Path, cells: str, says: str) -> None:
    records = read(tmp_path, SUMMARY, f'"GPU activities",100.0,{cells},"gemm"\n')
    assert any(says in doubt and "contradicts itself" in doubt for record in records for doubt in record.doubts)


def test_a_row_of_a_summary_that_stands_there_twice_counts_once(tmp_path: Path) -> None:
    row = '"GPU activities",{},2.0,10,200.0,190.0,230.0,"{}"\n'
    records = read(tmp_path, SUMMARY, row.format("80.0", "gemm"), row.format("20.0", "add"), row.format("80.0", "gemm"))
    assert [record.calls for record in records if record.scope == "kernel"] == [10, 10]
    assert "1 rows of the summary stand there twice and count once" in notes(records)
    assert [doubt for record in records for doubt in record.doubts] == []


def test_shares_that_do_not_add_up_are_a_doubt_for_each_table(tmp_path: Path) -> None:
    """Two processes have a table each, with shares of their own; API calls have theirs in the same table."""
    row = '"GPU activities",{},2.0,10,200.0,190.0,230.0,"{}"\n'
    call = '"API calls",99.0,900.0,3,300000.0,1.0,500000.0,"cudaFree"\n'
    whole = (row.format("80.0", "gemm"), row.format("20.0", "add"), call)
    records = read(tmp_path, SUMMARY, *whole, SUMMARY.replace("42", "43"), *whole)
    assert [doubt for record in records for doubt in record.doubts] == []
    records = read(tmp_path, SUMMARY, *whole, SUMMARY.replace("42", "43"), *whole[1:])
    (doubt,) = [doubt for record in records for doubt in record.doubts]
    assert doubt.startswith("partial: the shares of the table in line 10 add up to 20 %: rows are missing")


def test_calls_on_the_host_in_a_table_of_their_own(tmp_path: Path) -> None:
    """As nvprof printed them before it had a column for the type."""
    header = '"Time(%)","Time","Calls","Avg","Min","Max","Name"\n%,ms,,us,us,us,\n'
    kernel, call = '100.0,2.0,10,200.0,190.0,230.0,"gemm"\n', '99.0,900.0,3,300000.0,1.0,500000.0,"cudaFree"\n'
    records = read(tmp_path, "==42== Profiling result:\n", header, kernel, "\n==42== API calls:\n", header, call)
    assert [(record.name, record.calls) for record in records if record.scope == "kernel"] == [("gemm", 10)]
    assert "1 rows of calls on the host" in notes(records)


def test_metrics_are_work(tmp_path: Path) -> None:
    names = {"flop_count_sp": "3611549214", "flop_count_dp": "0", "dram_read_transactions": "100"}
    rows = [metric(name, value) for name, value in names.items()]
    rows += [metric("dram_write_transactions", "20"), metric("alu_fu_utilization", "Low (3)")]
    (record,) = read(tmp_path, METRICS, *rows)
    assert record.calls == 3
    assert record.work == rl.Work(
        flops={"vector.fp32": 3_611_549_214}, bytes={"dram": 32 * (100 + 20)}, origin="executed"
    )
    assert "no counters of vector.fp16, special.fp32" in notes(rl.RecordSet([record]))


def test_nvprof_sees_no_tensor_cores(tmp_path: Path) -> None:
    records = read(tmp_path, METRICS, metric("flop_count_sp", "7", device="Tesla V100-SXM2-16GB (0)"))
    assert records.total().flops == 3 * 7
    assert records.total().matmul_flops is None
    assert "nvprof counts no operations of tensor cores" in notes(records)
    assert records.cases[0].device == "tesla-v100-sxm2-16gb"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ((METRICS, metric("ipc", "1.5")), "it has ipc. Collect it with nvprof --csv"),
        ((), "no table of kernels is in it"),
        ((SUMMARY, '"API calls",9,9,3,3,1,5,"cudaFree"\n'), "1 rows of calls on the host are no time of the GPU"),
        ((TRACE, launch("1.0", "x", "k")), "line 6: 'x' is no number"),
        ((TRACE, launch("1.0", "1e31", "k")), "line 6: '1e31' is no number"),
        ((METRICS, metric("flop_count_sp", "9" * 400)), "is no count"),
        ((METRICS, metric("dram_read_transactions", "1e308")), "line 5: '1e308' is no count"),
        ((TRACE, launch("1.0", "3", "k")[:30] + "\n"), "line 6: it has"),
        ((TRACE.replace("ms,us", "1.0,2.0"), launch("1.0", "3", "k")), "Start cannot have the unit '1.0'"),
        ((METRICS, metric("flop_count_sp", "7"), metric("flop_count_sp", "8")), "line 6: flop_count_sp has another"),
        ((SUMMARY, '"GPU activities",1,1,0.5,1,1,1,"k"\n'), "line 6: '0.5' is no number of calls"),
    ],
)
def test_damage_and_nothing_usable_are_errors(tmp_path: Path, parts: tuple[str, ...], why: str) -> None:
    with pytest.raises(FileError) as caught:
        read(tmp_path, *parts)
    assert why in str(caught.value)
