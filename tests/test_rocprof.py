"""Counters of AMD GPUs: files that the tests write themselves, in the layouts that AMD documents."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import rooflens as rl
from rooflens.errors import FileError, UnknownFormat

VERSION_1 = (
    '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr","accum_vgpr",'
    '"sgpr","wave_size","sig","obj","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs",{}\n'
)
VERSION_2 = (
    "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,"
    "Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,{}\n"
)
VERSION_3 = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name",'
    '"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","SGPR_Count","Counter_Name","Counter_Value"\n'
)


def first(*values: str, number: int = 0, begin: int = 10**12, end: int = 10**12 + 5000) -> str:
    return (
        f'{number},"gemm(float*, int) [clone .kd]",1,0,0,7,7,65536,256,0,0,8,0,16,64,"0x0","0x7f",{begin},{begin},'
        f"{end},{end},{end - begin},{','.join(values)}\n"
    )


def third(name: str, counter: str, value: str, dispatch: int = 1, agent: int = 1) -> str:
    return f'{dispatch},{dispatch},{agent},1,9,9,1048576,16,"{name}",64,0,0,8,16,"{counter}",{value}\n'


def read(folder: Path, text: str, name: str = "results.csv") -> rl.RecordSet:
    path = folder / name
    path.write_text(text)
    return rl.read(path)


def notes(records: rl.RecordSet) -> str:
    return "; ".join(note for record in records for note in record.notes)


def test_the_first_version_has_a_column_per_counter(tmp_path: Path) -> None:
    header = '"Index","KernelName","gpu-id","queue-id","grd","wgr","DurationNs","FETCH_SIZE","WRITE_SIZE",'
    header += '"SQ_INSTS_VALU_MFMA_MOPS_F16"\n'
    product = '0,"Cijk_Ailk_Bljk_HHS_BH_MT128x128x32",0,0,131072,256,151000,65536.0,32768.0,536870912\n'
    addition = '1,"void at::native::vectorized_elementwise_kernel",0,0,65536,256,12000,16384.0,16384.0,0\n'
    one, two = read(tmp_path, header + product + addition)
    assert one.work is not None
    assert two.work is not None
    assert one.work.flops == {"matmul.fp16": 512 * 536_870_912}
    assert one.work.bytes == {"dram": 1024 * (65_536 + 32_768)}
    assert two.work.flops == {}
    assert two.work.missing == {"vectorized_elementwise_kernel"}  # it may have done vector instructions
    assert two.work.bytes == {"dram": 1024 * (16_384 + 16_384)}
    assert [r.timing and r.timing.samples for r in (one, two)] == [(151e-6,), (12e-6,)]
    assert "the file has no counters of matmul.bf16" in notes(rl.RecordSet([one, two]))


def test_begin_and_end_count_before_the_duration_and_names_lose_their_suffix(tmp_path: Path) -> None:
    names = ("SQ_INSTS_VALU_ADD_F32", "SQ_INSTS_VALU_MUL_F32", "SQ_INSTS_VALU_FMA_F32", "SQ_INSTS_VALU_TRANS_F32")
    header = VERSION_1.format(",".join(f'"{name}"' for name in (*names, "SQ_INSTS_MFMA")))
    records = read(tmp_path, header + first("3", "5", "7", "2", "0"))
    (record,) = records
    assert record.name == "gemm(float*, int)"
    assert record.timing is not None
    assert record.work is not None
    assert record.timing.samples == (5e-6,)
    assert record.work.flops == {"vector.fp32": 64 * (3 + 5 + 2 * 7), "special.fp32": 64 * 2}
    assert not record.work.missing  # no matrix instruction ran
    assert "all 64 lanes of a wave" in notes(records)


def test_a_duration_that_is_not_the_end_less_the_begin_is_a_doubt(tmp_path: Path) -> None:
    header = VERSION_1.format('"FETCH_SIZE","WRITE_SIZE"')
    assert "contradicts itself" not in notes(read(tmp_path, header + first("4", "2")))
    records = read(tmp_path, header + first("4", "2").replace(",5000,", ",7000,"))
    assert records.records[0].seconds == 5e-6
    assert "line 2 contradicts itself: end less begin is 5000 ns, the duration 7000" in notes(records)


def test_matrix_work_that_was_not_collected_is_unknown(tmp_path: Path) -> None:
    names = ("SQ_INSTS_VALU_ADD_F32", "SQ_INSTS_VALU_MUL_F32", "SQ_INSTS_VALU_FMA_F32")
    header = VERSION_1.format(",".join(f'"{name}"' for name in names))
    total = read(tmp_path, header + first("0", "0", "7")).total()
    assert total.flops == 64 * 2 * 7
    assert total.matmul_flops is None
    assert total.missing == {"gemm"}


def test_the_second_version_and_a_clock_that_was_not_set(tmp_path: Path) -> None:
    header = VERSION_2.format("TCC_EA_RDREQ_sum,TCC_EA_RDREQ_32B_sum,TCC_EA_WRREQ_sum,TCC_EA_WRREQ_64B_sum")
    row = '{},4,1,9,9,10,10,0,0,8,0,16,64,"copy(char*, char*) (.kd)",{},{},33,100.0,20.0,50.0,40.0\n'
    text = row.format(1, 0, 140469300947216) + row.format(2, 716380685145736, 716380685161855)
    records = read(tmp_path, header + text)
    assert records.records[0].timing is None
    assert records.records[1].seconds == pytest.approx(16.119e-6)
    for record in records:
        assert record.work is not None
        # 80 reads of 64 and 20 of 32 bytes, 40 writes of 64 and 10 of 32.
        assert record.work.bytes == {"dram": 80 * 64 + 20 * 32 + 40 * 64 + 10 * 32}
    assert "the times of 1 dispatches cannot be true" in notes(records)


@pytest.mark.parametrize("begins", [(0, 6000, 20_000), (500, 900, 1400), (0, 5000, 20_000)])
def test_a_clock_that_starts_with_the_program(tmp_path: Path, begins: tuple[int, ...]) -> None:
    """Small numbers are times too, zero included, as long as the next dispatch begins behind it."""
    header = VERSION_1.format('"FETCH_SIZE"')
    lasting = 5000 if not begins[0] else 300
    rows = [first("1", number=n, begin=begin, end=begin + lasting) for n, begin in enumerate(begins)]
    records = read(tmp_path, header + "".join(rows))
    assert [record.seconds for record in records] == pytest.approx([lasting * 1e-9] * 3)
    assert "cannot be true" not in notes(records)
    (alone,) = read(tmp_path, header.replace("FETCH_SIZE", "OTHER") + rows[0])  # times alone are of use too
    assert alone.seconds == pytest.approx(lasting * 1e-9)


@pytest.mark.parametrize("begins", [(0, 0), (0, 4000), (3000, 0)])
def test_a_begin_of_zero_beside_dispatches_within_its_time_is_a_clock_that_was_not_read(
    tmp_path: Path, begins: tuple[int, int]
) -> None:
    header = VERSION_1.format('"FETCH_SIZE","WRITE_SIZE"')
    rows = [first("1", "1", number=n, begin=begin, end=begin + 5000) for n, begin in enumerate(begins)]
    records = read(tmp_path, header + "".join(rows))
    assert [record.seconds for record in records] == [5e-6 if begin else None for begin in begins]
    assert f"the times of {begins.count(0)} dispatches cannot be true" in notes(records)


def test_requests_of_128_bytes(tmp_path: Path) -> None:
    counters = {
        "TCC_EA0_RDREQ_sum": 100, "TCC_EA0_RDREQ_32B_sum": 20, "TCC_BUBBLE_sum": 30, "TCC_EA0_WRREQ_sum": 50,
        "TCC_EA0_WRREQ_64B_sum": 40, "TCP_TOTAL_CACHE_ACCESSES_sum": 6,
    }  # fmt: skip
    values = ",".join(map(str, counters.values()))
    row = f'1,4,1,9,9,10,10,0,0,8,0,16,64,"k (.kd)",716380685145736,716380685161855,33,{values}\n'
    (record,) = read(tmp_path, VERSION_2.format(",".join(counters)) + row)
    assert record.work is not None
    dram = 30 * 128 + (100 - 30 - 20) * 64 + 20 * 32 + 40 * 64 + 10 * 32
    assert record.work.bytes == {"dram": dram, "l1": 6 * 128}


def test_a_kernel_runs_on_one_device_of_a_board(tmp_path: Path) -> None:
    """An MI250X is two: 1638.4 MB of one take 1 ms at half of its 3276.8 GB/s. A record file of it too."""
    read(tmp_path, VERSION_3 + third("a", "FETCH_SIZE", "1600000") + third("a", "WRITE_SIZE", "0"))
    found = rl.read(tmp_path / "results.csv", device="mi250x")
    assert found.cases[0].device == "instinct-mi250x-both-gcds-one-of-2"
    assert found.total().seconds == pytest.approx(1e-3)
    found.save(tmp_path / "run.jsonl")
    assert rl.read(tmp_path / "run.jsonl", device="mi250x").total().seconds == pytest.approx(1e-3)


def test_the_third_version_has_a_row_per_counter(tmp_path: Path) -> None:
    rows = [third("a", "SQ_INSTS_VALU_MFMA_MOPS_BF16", "8"), third("a", "FETCH_SIZE", "4")]
    rows += [third("b", "FETCH_SIZE", "1", 2), third("a", "WRITE_SIZE", "2.5"), third("b", "WRITE_SIZE", "0", 2)]
    one, two = read(tmp_path, VERSION_3 + "".join(rows))
    assert one.work is not None
    assert two.work is not None
    assert one.name == "a"
    lacking = frozenset({"a"})  # nothing of vector instructions was collected
    assert one.work == rl.Work(
        flops={"matmul.bf16": 4096}, bytes={"dram": 1024 * 6.5}, origin="executed", missing=lacking
    )
    assert two.work == rl.Work(bytes={"dram": 1024}, origin="executed", missing=frozenset({"b"}))


def test_what_is_not_available_is_unknown_and_what_is_not_read_may_be_anything(tmp_path: Path) -> None:
    rows = [third("a", "FETCH_SIZE", "nan"), third("a", "WRITE_SIZE", "2"), third("a", "MemUnitBusy", "inf")]
    records = read(tmp_path, VERSION_3 + "".join((*rows, third("a", "SQ_INSTS_VALU_MFMA_MOPS_F16", "1"))))
    (record,) = records
    assert record.work == rl.Work(flops={"matmul.fp16": 512}, origin="executed", missing=frozenset({"a"}))
    assert "1 values are not available" in notes(records)


def test_encodings_and_spaces_of_spreadsheets(tmp_path: Path) -> None:
    text = VERSION_3 + third("a", "FETCH_SIZE", "4") + third("a", "WRITE_SIZE", "2")
    plain = read(tmp_path, text)
    path = tmp_path / "results.csv"
    for other in (text.encode("utf-16"), text.encode("utf-8-sig"), text.replace("\n", "\r\n").encode()):
        path.write_bytes(other)
        assert rl.read(path).records == plain.records
    assert read(tmp_path, text.replace('","', '", "')).records == plain.records


def test_gpus_of_one_file_are_cases_of_their_own(tmp_path: Path) -> None:
    rows = [third("a", "FETCH_SIZE", "1", 1, agent) + third("a", "WRITE_SIZE", "1", 1, agent) for agent in (2, 3)]
    records = read(tmp_path, VERSION_3 + "".join(rows))
    assert [case.options for case in records.cases] == [(("gpu", "2"),), (("gpu", "3"),)]


FOLDER = "Dispatch_ID,Kernel_Name,GPU_ID,Grid_Size,SQ_INSTS_VALU_MFMA_MOPS_F64,FETCH_SIZE,WRITE_SIZE\n"
TIMES = "Dispatch_ID,Kernel_Name,GPU_ID,Start_Timestamp,End_Timestamp\n"


def folder(path: Path, times: str = "0,k [clone .kd],2,1412702536508356,1412702536528996\n") -> Path:
    (path / "pmc_perf.csv").write_text(FOLDER + "0,k [clone .kd],2,64,3,4,5\n")
    (path / "timestamps.csv").write_text(TIMES + times)
    (path / "sysinfo.csv").write_text("workload_name,gpu_model,gpu_arch\nmine,MI300X_A1,gfx942\n")
    return path


def test_a_folder_of_rocprof_compute(tmp_path: Path) -> None:
    records = rl.read(folder(tmp_path))
    (record,) = records
    assert record.case.device == "instinct-mi300x"
    assert record.seconds == pytest.approx(20.64e-6)
    assert record.work == rl.Work(
        flops={"matmul.fp64": 1536}, bytes={"dram": 9216}, origin="executed", missing=frozenset({"k"})
    )
    assert records.total().predicted_seconds is None  # no call is known that a time could follow from


def test_counters_of_a_folder_may_be_packed(tmp_path: Path) -> None:
    counters = folder(tmp_path) / "pmc_perf.csv"
    counters.with_name("pmc_perf.csv.gz").write_bytes(gzip.compress(counters.read_bytes()))
    plain = rl.read(tmp_path)
    counters.unlink()
    assert rl.read(tmp_path).records == plain.records


def test_times_of_other_dispatches_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has the times of other dispatches"):
        rl.read(folder(tmp_path, "0,other,2,1412702536508356,1412702536528996\n"))


def test_a_folder_without_merged_counters_says_what_makes_them(tmp_path: Path) -> None:
    (folder(tmp_path) / "pmc_perf.csv").unlink()
    with pytest.raises(UnknownFormat, match=r"without pmc_perf.csv; 'rocprof-compute analyze -p' makes that"):
        rl.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (VERSION_3, "holds no dispatch of a kernel"),
        (VERSION_3 + third("a", "SQ_WAVES", "7"), "it has SQ_WAVES. Collect what is needed like this: rocprofv3"),
        (VERSION_3 + third("a", "FETCH_SIZE", "7") + third("b", "FETCH_SIZE", "7"), "line 3: dispatch 1 is 'b' here"),
        (VERSION_3 + third("a", "FETCH_SIZE", "7") * 2, "line 3: FETCH_SIZE has another value for the same dispatch"),
        (VERSION_3 + third("a", "FETCH_SIZE", "seven"), "line 2: 'seven' is no number"),
        (VERSION_3 + third("a", "FETCH_SIZE", "-7"), "line 2: '-7' is no count"),
        (VERSION_3 + third("a", "FETCH_SIZE", "1e999"), "line 2: '1e999' is no count"),
        (VERSION_3 + third("a", "FETCH_SIZE", "9" * 31), "is no count"),
        (VERSION_3 + third("a", "FETCH_SIZE", "1_0"), "line 2: '1_0' is no number"),
        (VERSION_3 + third("a", "FETCH_SIZE", "\N{ARABIC-INDIC DIGIT THREE}4"), "is no number"),
        (VERSION_3 + third("a", "FETCH_SIZE", "7")[:25], "the file is damaged"),
        (VERSION_3 + third("a", "FETCH_SIZE", "7")[:-3], "line 2: it has 15 fields, and the header 16"),
        (VERSION_1.format('"FETCH_SIZE"') + first("1") + first("1"), "line 3: dispatch 0 appears twice"),
        (VERSION_1.format('"FETCH_SIZE","FETCH_SIZE"'), "line 1: column 'FETCH_SIZE' stands twice"),
        (VERSION_3 + '1,"open', "the file is damaged"),
    ],
)
def test_damage_is_an_error_with_its_place(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(FileError) as caught:
        read(tmp_path, text)
    assert why in str(caught.value)
