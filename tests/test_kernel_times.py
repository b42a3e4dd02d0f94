"""Tables of kernel times that nsys stats, rocprof and rocprofv3 write: layouts from their documents."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import rooflens as rl
from rooflens.errors import FileError
from rooflens.readers import readers
from rooflens.results import join

US, NS = 1e-6, 1e-9

KERN_SUM = """Processing [x.sqlite] with [/opt/nvidia/nsys/reports/cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
61.2,1520000,20,76000.0,75900.0,75000,78000,700.1,ampere_sgemm_128x64_tn
38.8,963000,40,24075.0,24000.0,23000,26000,500.0,"void at::native::elementwise_kernel<(int)128, (int)2>(int)"
"""
OLD_KERN_SUM = """Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name
100.0,3000,2,1500.0,1000,2000,"gemm(float*, int)"
"""
KERN_GB_SUM = """Time (%),Total Time (us),Instances,Avg (us),Min (us),Max (us),StdDev (us),GridXYZ,BlockXYZ,Name
100.0,30.5,2,15.25,10.5,20.0,6.7,"   8    1    1"," 256    1    1",gemm
"""
MEM_SUM = """Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,7000,7,1000.0,1000.0,500,1500,100.0,[CUDA memcpy Host-to-Device]
"""
GPU_SUM = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Category,Operation
60.0,6000,2,3000.0,3000.0,3000,3000,0.0,CUDA_KERNEL,gemm
10.0,1000,1,1000.0,1000.0,1000,1000,0.0,MEMORY_OPER,[CUDA memset]
30.0,3000,3,1000.0,1000.0,1000,1000,0.0,CUDA_API,cudaLaunchKernel
"""
KERN_EXEC_SUM = (
    "PID,TID,DevId,Count,QCount,TAvg (ns),TMed (ns),TMin (ns),TMax (ns),TStdDev (ns),KAvg (ns),KMed (ns),KMin (ns),"
    "KMax (ns),KStdDev (ns),API Name,Kernel Name\n"
    "12,12,0,4,4,9000.0,9000.0,8000,9500,1.0,2500.0,2500.0,2000,3000,1.0,cudaLaunchKernel,gemm\n"
)
API_SUM = """Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,9000,3,3000.0,3000.0,3000,3000,0.0,cudaLaunchKernel
"""
GPU_TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
    "1000,50000,11,2,1,1,64,1,1,24,0,0,,,,,NVIDIA A100-SXM4-80GB (0),1,,7,void gemm<float>(float*)\n"
    "61000,20000,12,2,1,1,64,1,1,24,0,0,,,,,NVIDIA A100-SXM4-80GB (0),1,,7,relu\n"
    "61000,30000,13,,,,,,,,,,4.0,100,Pinned,Device,NVIDIA A100-SXM4-80GB (0),1,,8,[CUDA memcpy HtoD]\n"
)
KERN_EXEC_TRACE = (
    "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
    "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
    '100,50,150,850,1000,250,1150,7,7,0,cudaLaunchKernel,"1 1 1","64 1 1",gemm\n'
)
ROCPROF_STATS = """"Name","Calls","TotalDurationNs","AverageNs","Percentage"
"Cijk_Ailk_Bljk_HHS_BH [clone .kd]",3,165000,55000,100.0
"""
ROCPROFV3_STATS = """"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"gemm",10,2000000,200000.000000,80.0,190000,210000,1.0
"hip_add",5,500000,100000.000000,20.0,99000,101000,1.0
"""
ROCPROFV3_TRACE = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",'
    '"Start_Timestamp","End_Timestamp","LDS_Block_Size"\n'
    '"KERNEL_DISPATCH","Agent 4",17,26,8,101,49,"add<float>(float*, int)",101,1551401624448706,1551401624459226,0\n'
    '"KERNEL_DISPATCH","Agent 4",17,26,8,102,49,"gemm",102,1551401624460000,1551401624461000,0\n'
)
COPY_TRACE = (
    '"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE","Agent 0","Agent 4",3,1000,1500\n'
)


def read(folder: Path, text: str, name: str = "times.csv") -> rl.RecordSet:
    path = folder / name
    path.write_text(text)
    assert next(reader.name for reader in readers() if reader.recognises(path.read_bytes())) == "kernel times"
    return rl.read(path)


def kernels(records: rl.RecordSet) -> list[tuple[str, int, float]]:
    pieces = [record for record in records if record.scope == "kernel"]
    return [(r.name, r.calls, r.timing.median) for r in pieces if r.timing is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            KERN_SUM,
            [
                ("ampere_sgemm_128x64_tn", 20, 76_000 * NS),
                ("void at::native::elementwise_kernel<(int)128, (int)2>(int)", 40, 24_075 * NS),
            ],
        ),
        (OLD_KERN_SUM, [("gemm(float*, int)", 2, 1_500 * NS)]),
        (KERN_GB_SUM, [("gemm", 2, 15.25 * US)]),
        (MEM_SUM, [("[CUDA memcpy Host-to-Device]", 7, 1_000 * NS)]),
        (GPU_SUM, [("gemm", 2, 3_000 * NS), ("[CUDA memset]", 1, 1_000 * NS)]),
        (KERN_EXEC_SUM, [("gemm", 4, 2_500 * NS)]),
        (ROCPROF_STATS, [("Cijk_Ailk_Bljk_HHS_BH [clone .kd]", 3, 55 * US)]),
        (ROCPROFV3_STATS, [("gemm", 10, 200 * US), ("hip_add", 5, 100 * US)]),
    ],
    ids=["sum", "old", "grid", "copies", "both", "exec", "rocprof", "rocprofv3"],
)
def test_a_row_of_sums_is_the_mean_of_its_calls(
    tmp_path: Path, text: str, expected: list[tuple[str, int, float]]
) -> None:
    records = read(tmp_path, text)
    assert [each[:2] for each in kernels(records)] == [each[:2] for each in expected]
    assert [each[2] for each in kernels(records)] == pytest.approx([each[2] for each in expected])
    assert records.total().measured_seconds == pytest.approx(sum(calls * seconds for _, calls, seconds in expected))
    assert any("does not tell how long the device was busy" in note for note in records.notes)


@pytest.mark.parametrize(
    ("text", "device", "busy", "times"),
    [
        (GPU_TRACE, "a100-sxm4-80gb", 80 * US, (50 * US, 20 * US, 30 * US)),
        (KERN_EXEC_TRACE, None, 250 * NS, (250 * NS,)),
        (ROCPROFV3_TRACE, None, 11_520 * NS, (10_520 * NS, 1_000 * NS)),
        (COPY_TRACE, None, 500 * NS, (500 * NS,)),
    ],
    ids=["nsys", "exec", "rocprofv3", "copies"],
)
def test_a_row_of_a_trace_is_a_launch(
    tmp_path: Path, text: str, device: str | None, busy: float, times: tuple[float, ...]
) -> None:
    records = read(tmp_path, text)
    assert [seconds for _, _, seconds in kernels(records)] == pytest.approx(list(times))
    (item,) = join(records)
    measured = item.measured()
    assert measured is not None
    assert (measured.seconds, measured.summed) == pytest.approx((busy, sum(times)))
    assert item.case.device == device


def test_the_tables_of_one_output_are_not_added(tmp_path: Path) -> None:
    """nsys stats prints several reports in a row: a trace of launches, or the sums of kernels and those of copies."""
    records = read(tmp_path, "\n".join([API_SUM, KERN_SUM, MEM_SUM, KERN_GB_SUM]))
    assert [name[:7] for name, _, _ in kernels(records)] == ["ampere_", "void at", "[CUDA m"]
    assert any("1 rows are about calls of the host" in note for note in records.notes)
    assert sum("is about the same times and is left out" in note for note in records.notes) == 1
    assert len(kernels(read(tmp_path, "\n".join([KERN_SUM, GPU_TRACE])))) == 3


def test_several_devices_are_several_cases(tmp_path: Path) -> None:
    records = read(tmp_path, ROCPROFV3_TRACE.replace('"Agent 4",17,26,8,102', '"Agent 5",17,26,8,102'))
    assert [dict(case.options) for case in records.cases] == [{"gpu": 4}, {"gpu": 5}]


@pytest.mark.parametrize(
    "text",
    [
        API_SUM,
        ROCPROF_STATS.replace("Cijk_Ailk_Bljk_HHS_BH [clone .kd]", "hipMemcpy"),
        ROCPROF_STATS.replace("Cijk_Ailk_Bljk_HHS_BH [clone .kd]", "HIP_RUNTIME_API"),
    ],
)
def test_calls_of_the_host_are_no_kernels(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileError, match=r"no time of a kernel, but 1 calls of the host; write .* cuda_gpu_kern_sum"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (KERN_SUM.replace("963000,40,", "963000,"), "line 5 has 8 cells, the header has 9: it was cut"),
        (KERN_SUM.replace("963000", "lots"), "line 5, column total holds 'lots'"),
        (KERN_SUM.replace("963000", "963_000"), "line 5, column total holds '963_000'"),
        (KERN_SUM.replace("963000", "963\N{DEVANAGARI DIGIT ZERO}00"), "line 5, column total holds"),
        (KERN_SUM.replace("963000", "1e31"), "line 5, column total holds '1e31'"),
        (KERN_SUM.replace(",40,", ",0,"), "line 5: '0' is no number of launches"),
        (KERN_SUM.replace("Avg (ns)", "Avg (ticks)"), "no unit is told for 'mean'"),
        (ROCPROFV3_TRACE.replace("1551401624459226", "1551401624440000"), "line 2 has no usable time"),
        (GPU_TRACE.replace("61000,20000", "61000,"), "line 3 has no usable time"),
        (
            GPU_TRACE.replace("61000,20000", f"1e-{'9' * 30},20000"),
            "line 3, column start holds '1e-9999.*, which is no time",
        ),
        (KERN_SUM.splitlines()[2], "holds no time of a kernel"),
        (KERN_SUM.replace("ampere", "a" * 200_000), "line 4 has 0 cells, the header has 9"),
    ],
)
def test_damage_is_an_error_that_names_the_row(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(FileError, match=says):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (KERN_SUM.replace("76000.0", "50000.0"), "mean 50.00 us for 76.00 us by total and calls"),
        (KERN_SUM.replace(",75000,78000,", ",1000,3000,"), "mean 76.00 us beyond the longest, 3.000 us"),
        (ROCPROFV3_STATS.replace("190000,", "205000,"), "mean 200.0 us beyond the shortest, 205.0 us"),
        (OLD_KERN_SUM.replace("3000,2,1500.0,1000,2000", "0,2,0.0,0,0"), "0 s a call, and a kernel takes more than"),
        (
            OLD_KERN_SUM.replace("3000,2,1500.0,1000,2000", "3e15,2,1.5e15,1e15,2e15"),
            "1.500 Ms a call, and a kernel",
        ),
    ],
)
def test_a_row_that_contradicts_itself_is_a_doubt(tmp_path: Path, text: str, says: str) -> None:
    assert any(says in note and "contradict" in note for note in read(tmp_path, text).notes)


@pytest.mark.parametrize("text", [KERN_SUM, ROCPROFV3_STATS, GPU_SUM], ids=["nsys", "rocprofv3", "both"])
def test_a_row_that_stands_twice_counts_once(tmp_path: Path, text: str) -> None:
    plain = read(tmp_path, text)
    row = text.splitlines()[-2 if text == ROCPROFV3_STATS else -1 if text == KERN_SUM else 1]
    records = read(tmp_path, f"{text}{row}\n")
    assert kernels(records) == kernels(plain)
    (note,) = [note for note in records.notes if "stand there twice" in note]
    assert note.startswith("1 rows of the table in line ")
    assert note.endswith(" stand there twice and count once")
    assert [doubt for record in records for doubt in record.doubts] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # The share of one row was changed: 61.2 + 60.8.
        (KERN_SUM.replace("38.8,", "60.8,"), "the shares of the table in line 3 add up to 122 %, which cannot be"),
        (KERN_SUM.replace("38.8,963000", "0.4,963000"), "partial: the shares of the table in line 3 add up to 61.6 %"),
        # Another row of the same name, not the same to the last digit.
        (ROCPROFV3_STATS + '"gemm",1,200000,200000.0,8.0,200000,200000,0.0\n', "add up to 108 %, which cannot be"),
        ("\n".join(KERN_SUM.splitlines()[:4]) + "\n", "partial: the shares of the table in line 3 add up to 61.2 %"),
    ],
)
def test_shares_that_do_not_add_up_to_the_whole_are_a_doubt(tmp_path: Path, text: str, says: str) -> None:
    records = read(tmp_path, text)
    (doubt,) = [doubt for record in records for doubt in record.doubts]
    assert says in doubt


def test_shares_of_many_short_kernels_are_rounded_away(tmp_path: Path) -> None:
    """Forty names of 0.24 % each, printed as 0.2, beside one of 90.4: 98.4 in all."""
    rows = [f"0.2,2400,1,2400.0,2400.0,2400,2400,0.0,k{n}\n" for n in range(40)]
    header = KERN_SUM.splitlines()[2] + "\n"
    records = read(tmp_path, "".join([header, "90.4,904000,1,904000.0,904000.0,904000,904000,0.0,gemm\n", *rows]))
    assert [doubt for record in records for doubt in record.doubts] == []


def test_a_unit_that_is_taken_for_granted_is_told(tmp_path: Path) -> None:
    told = "no unit is told for the total times: they were read as nanoseconds"
    assert any(told in note for note in read(tmp_path, OLD_KERN_SUM.replace(" (ns)", "")).notes)
    for text in (OLD_KERN_SUM, ROCPROFV3_STATS, GPU_TRACE):
        assert not any(told in note for note in read(tmp_path, text).notes)


def test_a_launch_of_days_is_a_doubt(tmp_path: Path) -> None:
    """The last of its stream, so that nothing else shows it: 1e15 ns are 11.6 days."""
    records = read(tmp_path, GPU_TRACE.replace("61000,20000", "61000,1000000000000000"))
    (doubt,) = [doubt for record in records for doubt in record.doubts]
    assert doubt.startswith("1 of 3 kernels, copies and fills last longer than a day, which cannot be: relu 1.000 Ms")


def test_launches_that_cannot_be_are_flagged_as_in_a_trace(tmp_path: Path) -> None:
    """A second on a stream whose next kernel begins 60 us later."""
    records = read(tmp_path, GPU_TRACE.replace("1000,50000,11", "1000,1000000000,11"))
    assert any("count until then" in note for note in records.notes)
    assert records.total().measured_seconds == pytest.approx(60 * US + 20 * US + 30 * US)


def test_contexts_may_use_streams_of_one_number(tmp_path: Path) -> None:
    """Two kernels of stream 7 that overlap, in the contexts of two processes."""
    records = read(tmp_path, GPU_TRACE.replace("1000,50000,11", "1000,70000,11").replace(",1,,7,relu", ",2,,7,relu"))
    assert records.total().measured_seconds == pytest.approx(70 * US + 20 * US + 30 * US)
    assert not any("cannot be" in note for note in records.notes)


def test_a_table_may_be_packed_and_be_in_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "times.csv.gz"
    path.write_bytes(gzip.compress(KERN_SUM.encode("utf-16")))
    assert len(kernels(rl.read(path))) == 2


def test_a_table_of_counters_is_another_readers(tmp_path: Path) -> None:
    header = '"Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"\n'
    assert not any(r.name == "kernel times" and r.recognises(header.encode()) for r in readers())
