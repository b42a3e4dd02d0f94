"""Every layout that ncu has printed since 2019 reads to the same things; what is damaged is an error with its line."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import rooflens as rl
from rooflens.errors import FileError
from rooflens.sources.counters.printed_numbers import scaled

LAYOUTS = Path(__file__).parent / "data" / "ncu" / "layouts"
CASES = Path(__file__).parent / "cases"
SHARED = Path(__file__).parents[2] / "shared"
REAL = SHARED / "data" / "ncu" / "real"
WINDOWS = REAL / "v2026.2.1_RTX5070_sm120_long_windows"
with_shared = pytest.mark.skipif(
    not all((SHARED / place).exists() for place in ("cases", "data/ncu/real")),
    reason="files of others lie beside the checkout",
)
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)


def row(
    metric: str, unit: str, value: str, *, number: int = 0, kernel: str = "k", cc: str = "8.0", pid: int = 9
) -> str:
    return (
        f'"{number}","{pid}","p","127.0.0.1","{kernel}","1","7","(32, 1, 1)","(1, 1, 1)","0","{cc}","S","{metric}",'
        f'"{unit}","{value}"\n'
    )


def read(tmp_path: Path, text: str | bytes, name: str = "report.csv") -> rl.RecordSet:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return rl.read(path)


def only(records: rl.RecordSet) -> rl.Record:
    (record,) = records
    return record


def seen(record: rl.Record) -> tuple[float | None, float | None]:
    """Nanoseconds and DRAM bytes."""
    time = None if record.timing is None else round(record.timing.median * 1e9)
    return time, None if record.work is None else record.work.bytes.get("dram")


@pytest.mark.parametrize(
    ("name", "nanoseconds", "dram"),
    [
        ("long_2020_kerneltime.log", 2464, 66048),
        ("long_2022_rules.csv", 10720, None),
        ("long_2023_2026.csv", 10720, 1630976),
        ("long_nvtx.csv", None, 1630976),
        ("raw_wide_auto_units.csv", 203460, 102330000),
        ("details_labels.csv", 2500000, None),
        ("summary_per_kernel.csv", None, 1630976),
        ("european_bom.csv", None, 134221568 + 251392),
        ("text_auto_units.txt", 10720, 1630000),
    ],
)
def test_one_launch_of_each_layout(name: str, nanoseconds: float | None, dram: float | None) -> None:
    assert seen(only(rl.read(LAYOUTS / name))) == (nanoseconds, dram)


PAGE = """\
  void scale<(int)4>(float *, int), 2020-Feb-19 09:32:14, Context 1, Stream 7
    Section: Command line profiler metrics
    ------------------------------------------------ --------------- ----------------
{titles}    dram__bytes.sum                                            Kbyte            33.02
    gpu__time_duration.sum                                   usecond             2.18
    ------------------------------------------------ --------------- ----------------
    dram__bytes.sum stands below the table           Kbyte            44.00

    Section: GPU Speed Of Light
    ------------------------------------------------ --------------- ----------------
{titles}    SOL FB                                                         %            61.02
    ------------------------------------------------ --------------- ----------------

"""
TITLES = """\
    Metric Name                                          Metric Unit     Metric Value
    ------------------------------------------------ --------------- ----------------
"""


@pytest.mark.parametrize("titles", ["", TITLES], ids=["to 2022", "since"])
def test_tables_of_the_text_page_have_titles_or_none(tmp_path: Path, titles: str) -> None:
    records = read(tmp_path, PAGE.format(titles=titles) * 2, "report.txt")
    assert [seen(record) for record in records] == [(2180, 33020)] * 2


def test_a_number_may_have_those_of_its_instances_behind_it(tmp_path: Path) -> None:
    rows = (row("gpu__time_duration.sum", "us", "2.50"), row("dram__bytes.sum", "byte", "1,234,567 (1,234,000; 567)"))
    assert seen(only(read(tmp_path, HEADER + "".join(rows)))) == (2500, 1234567)


@pytest.mark.parametrize("cell", ["1234 (1000; 2", "1234 (what)", "1234 1000; 2)", "(1000; 2)"])
def test_instances_that_are_none_are_damage(tmp_path: Path, cell: str) -> None:
    with pytest.raises(FileError, match="is no number"):
        read(tmp_path, HEADER + row("dram__bytes.sum", "byte", cell))


def test_a_summary_stands_for_its_launches() -> None:
    record = only(rl.read(LAYOUTS / "summary_per_kernel.csv"))
    assert record.calls == 10
    assert rl.read(LAYOUTS / "summary_per_kernel.csv").total().bytes == {"dram": 16309760}


def test_the_row_of_units_is_no_launch() -> None:
    records = rl.read(LAYOUTS / "raw_wide.csv")
    assert [seen(r) for r in records] == [(203456, 102334464), (203104, 102334592)]
    assert records.total().matmul_flops == 2 * 137_438_953_472


def test_ranges_give_module_and_phase() -> None:
    record = only(rl.read(LAYOUTS / "long_nvtx.csv"))
    assert (record.path, record.phase) == ("layer1", "forward")


def test_a_misspelt_metric_has_suggestions() -> None:
    notes = " ".join(rl.read(LAYOUTS / "long_2023_2026.csv").notes)
    assert "op_fmula_pred_on.sum had no value" in notes
    assert "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum" in notes


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings_and_line_ends(tmp_path: Path, encoding: str, end: str) -> None:
    text = (LAYOUTS / "long_2023_2026.csv").read_text().replace("\n", end)
    assert seen(only(read(tmp_path, text.encode(encoding)))) == (10720, 1630976)


def test_compressed(tmp_path: Path) -> None:
    packed = gzip.compress((LAYOUTS / "long_2023_2026.csv").read_bytes())
    assert seen(only(read(tmp_path, packed, "report.csv.gz"))) == (10720, 1630976)


def test_several_processes_output_between_and_a_name_with_a_line_break(tmp_path: Path) -> None:
    text = "".join(
        (
            "epoch 1, loss 0.3\n",
            HEADER,
            "\n",
            row("dram__bytes.sum", "byte", "100", pid=1),
            row("dram__bytes.sum", "byte", "200", pid=2),
            "==PROF== Disconnected from process 1\n",
            "step 4, loss 0.2\n",
            row("gpu__time_duration.sum", "ns", "7", pid=1),
            row("gpu__time_duration.sum", "ns", "8", pid=2, kernel="k"),
            row("dram__bytes.sum", "byte", "300", pid=2, number=1, kernel='a\nb<""x"">'),
        )
    )
    records = read(tmp_path, text)
    assert [seen(r) for r in records] == [(7, 100), (8, 200), (None, 300)]
    assert records.records[2].name == 'a\nb<"x">'
    assert any("1 lines between the rows are no rows" in note and "line 7" in note for note in records.notes)


def test_tables_one_after_the_other(tmp_path: Path) -> None:
    text = HEADER + row("dram__bytes.sum", "byte", "1")
    assert [seen(r) for r in read(tmp_path, text + text)] == [(None, 1), (None, 1)]


@pytest.mark.parametrize(
    ("cells", "bytes_"),
    [
        (["96.256", "1.234.567"], 96256),
        (["96.256", "0,5"], 96256),
        (["1,024", "1,234.5"], 1024),
        (["1,024", "0.5"], 1024),
        (["1,024"], 1024),
        (["96.256"], 96256),
        (["1 024 000"], 1024000),
        (["1'024'000"], 1024000),
    ],
)
def test_one_locale_per_file(tmp_path: Path, cells: list[str], bytes_: int) -> None:
    text = HEADER + row("dram__bytes.sum", "byte", cells[0])
    text += "".join(row("lts__t_requests.sum", "", cell) for cell in cells[1:])
    records = read(tmp_path, text)
    assert seen(only(records))[1] == bytes_
    assert any("nothing in the file tells" in note for note in records.notes) == (len(cells) == 1 and len(cells[0]) < 7)


def _some(n: int, cell: str) -> str:
    """A cell in quotes where it needs them, and every second time."""
    quoted = '"' + cell.replace('"', '""') + '"'
    return quoted if n % 2 or {*',"\n'} & {*cell} else cell


@pytest.mark.parametrize("name", ["raw_wide.csv", "raw_wide_auto_units.csv", "long_nvtx.csv", "long_2022_rules.csv"])
@pytest.mark.parametrize("how", ["minimal", "nonnumeric", "odd", "even"])
def test_a_table_may_quote_only_some_of_its_cells(tmp_path: Path, name: str, how: str) -> None:
    """As a spreadsheet saves it, as pandas does, and any other way: the records are the same."""
    text = (LAYOUTS / name).read_text(encoding="utf-8-sig")
    before, _, table = text.partition('"ID",')
    rows = list(csv.reader(io.StringIO('"ID",' + table, newline="")))
    out = io.StringIO()
    if how in ("odd", "even"):
        out.writelines(
            ",".join(_some(n + (how == "even") + line, cell) for n, cell in enumerate(row)) + "\n"
            for line, row in enumerate(rows)
        )
    else:
        numbers = [[int(c) if c.isdecimal() and how == "nonnumeric" else c for c in row] for row in rows]
        strings = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        (strings if how == "nonnumeric" else csv.writer(out, lineterminator="\n")).writerows(numbers)
    assert [seen(r) for r in read(tmp_path, before + out.getvalue())] == [seen(r) for r in rl.read(LAYOUTS / name)]


def test_a_name_with_a_line_break_in_a_table_that_quotes_only_some(tmp_path: Path) -> None:
    text = 'ID,Process ID,Kernel Name,Device,CC,dram__bytes.sum\n,,,,,byte\n0,1,"a\nb<1, 2>",0,9.0,32\n1,1,c,0,9.0,64\n'
    records = read(tmp_path, text)
    assert [(record.name, seen(record)[1]) for record in records] == [("a\nb<1, 2>", 32), ("c", 64)]
    with pytest.raises(FileError, match="line 3: a text that begins with a quote does not end"):
        read(tmp_path, text.replace('2>"', "2>"))


@pytest.mark.parametrize("time", ["0", "9" * 24])
def test_no_kernel_takes_no_time_or_days(tmp_path: Path, time: str) -> None:
    moved = row("dram__bytes.sum", "byte", "5")
    record = only(read(tmp_path, HEADER + row("gpu__time_duration.sum", "ns", time) + moved))
    assert seen(record) == (None, 5)
    (doubt,) = record.doubts
    assert "is no time of a kernel, which cannot be: it is unknown" in doubt


@pytest.mark.parametrize("text", ["n/a", "(!) n/a", "nan", "inf", "no data", ""])
def test_what_has_no_value_is_unknown(tmp_path: Path, text: str) -> None:
    records = read(tmp_path, HEADER + row("dram__bytes.sum", "", text) + row("gpu__time_duration.sum", "ns", "5"))
    assert seen(only(records)) == (5, None)
    assert any(note.startswith("1 values are not available: dram__bytes.sum (1)") for note in records.notes)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row("dram__bytes.sum", "byte", "1,63"), "no number|does not fit"),
        (row("dram__bytes.sum", "byte", "12x"), "no number"),
        (row("dram__bytes.sum", "byte", "9" * 60), "no number"),
        (row("dram__bytes.sum", "second", "12"), "cannot have the unit 'second'"),
        (row("dram__bytes.sum", "byte", "1")[:-4] + "\n", "does not end|fields"),
        (row("dram__bytes.sum", "byte", "1")[:59] + '"\n', "fields|does not end"),
        (row("gpu__time_duration.sum", "ns", "6"), "another value for the same launch"),
        (row("dram__bytes.sum", "byte", "1", number=1) + row("dram__bytes.sum", "byte", "1"), "appears again"),
    ],
)
def test_damage_is_an_error_with_file_and_line(tmp_path: Path, bad: str, why: str) -> None:
    good = row("lts__t_bytes.sum", "byte", "1,234,567.0") + row("gpu__time_duration.sum", "ns", "5")
    with pytest.raises(FileError, match=rf"report\.csv', line [45]: .*({why})"):
        read(tmp_path, HEADER + good + bad)


def test_a_raw_row_that_was_cut_is_an_error(tmp_path: Path) -> None:
    text = (LAYOUTS / "raw_wide.csv").read_text().rstrip("\n")
    for end in range(1, 120):
        with pytest.raises(FileError, match="line 6"):
            read(tmp_path, text[:-end])


# The cases leave closing their files to the interpreter.
unclosed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def load(number: str) -> ModuleType:
    (path,) = (CASES if number > "63" else SHARED / "cases").glob(f"{number}_*.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@with_shared
@unclosed
def test_case_60_and_61(tmp_path: Path) -> None:
    gemm = rl.read(load("60").inputs()["csv"], work={"gemm_naive": {"flops": "2*2048**3"}})
    stated = gemm.where(options=(("work", "stated"),)).total()
    assert stated.bytes["dram"] == 80_808_960
    assert stated.intensity == pytest.approx(212.59857)
    assert stated.flops is not None
    assert stated.flops / 9_589_248e-9 == pytest.approx(1.7915763e12)
    assert any("lts__t_sector_hit_rate.pct reaches 100.39 %" in note for note in gemm.notes)
    stated_bytes = {"flops": 33_554_432, "dram": 201_326_592}
    saxpy = rl.read(load("61").inputs()["csv"], work={"saxpy": stated_bytes})
    counted, stated_record = saxpy
    assert seen(counted) == (292_928, 177_852_672)
    assert stated_record.work == rl.Work(
        flops={"vector.fp32": 33_554_432}, bytes={"dram": 201_326_592}, origin="stated"
    )


@unclosed
def test_case_64_and_67_and_68(tmp_path: Path) -> None:
    records = rl.read(load("64").inputs(tmp_path)["csv"])
    for part, expected in load("64").EXPECT["by_kernel"].items():
        mine = [seen(r)[0] or 0 for r in records if part in r.name]
        assert (len(mine), sum(mine)) == expected
    log = rl.read(load("67").inputs(tmp_path)["log"])
    assert seen(only(log)) == (160_000, None)
    assert any("1.250 GHz" in note for note in log.notes)
    varied = rl.read(load("68").inputs(tmp_path)["csv"])
    expected = load("68").EXPECT
    assert {r.name[0]: seen(r) for r in varied} == {k: (expected["ns"][k], expected["bytes"][k]) for k in "abcdef"}


@unclosed
def test_case_65_and_72_say_what_ncu_said(tmp_path: Path) -> None:
    said = {
        "failed": r"error code \(1\)",
        "only_connect": "nvidia-smi.*none of them launched",
        "permission": "ERR_NVGPUCTRPERM.*CAP_SYS_ADMIN",
        "no_kernels": r"norm_stats\(const __half \*, float \*, int, int\); norm_apply",
        "bad_metric": "flop_count_sp.*smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
        "replay_oom": "--replay-mode application",
        "child_only": "with --target-processes all",
    }
    files = load("65").inputs(tmp_path) | load("72").inputs(tmp_path)
    for name, path in files.items():
        with pytest.raises(FileError, match=said[name]):
            rl.read(path)


@unclosed
def test_case_71_and_74(tmp_path: Path) -> None:
    records = rl.read(load("71").inputs(tmp_path)["csv"])
    assert [seen(r) for r in records] == [(1000, None), (1000, 2000)]
    assert any(note.startswith("2 values are not available") for note in records.notes)
    files = load("74").inputs(tmp_path)
    old, new = (only(rl.read(files[name])).work for name in ("v100", "h100"))
    assert old is not None
    assert new is not None
    vector = {"vector.fp64": 90, "vector.fp32": 2300, "vector.fp16": 210}
    assert (old.flops, old.missing) == (vector | {"matmul.fp16": 25_600}, frozenset())
    assert (new.flops, new.missing) == (vector, frozenset({"k"}))


@with_shared
@pytest.mark.parametrize(("name", "launches"), [("bert", 9), ("fp64", 20), ("children", 2), ("group", 1), ("mixed", 1)])
def test_files_of_others(name: str, launches: int) -> None:
    (path,) = REAL.glob(f"*{name}.csv")
    assert len(rl.read(path)) == launches


@with_shared
def test_a_file_of_others_without_a_counter() -> None:
    with pytest.raises(
        FileError, match="holds 1 launch and no counter from which FLOP, bytes or time follow: it has none"
    ):
        rl.read(REAL / "v2022_A100_rule_only.csv")


@with_shared
def test_a_file_of_others_without_a_time() -> None:
    """21,073 sectors at 3,062,936,046.51 per second, as ncu printed them, are 6.88 us."""
    record = only(rl.read(REAL / "v2022_A100_long_L2_group.csv"))
    assert record.timing is not None
    assert record.timing.median == pytest.approx(21_073 / 3_062_936_046.51)


RAW = (LAYOUTS.parent / "raw_alexnet_b4_fp16_nvtx.csv").read_text().splitlines(keepends=True)
RAW_HEADER = next(n for n, line in enumerate(RAW) if line.startswith('"ID"'))


def raw(rows: list[str]) -> str:
    return "".join([*RAW[: RAW_HEADER + 2], *rows])


def again(row: str, number: int) -> str:
    """The same launch once more."""
    return f'"{number}",' + row.partition(",")[2]


def seconds_and_work(records: rl.RecordSet) -> list[tuple[float | None, rl.Work | None]]:
    return [(None if r.timing is None else r.timing.median, r.work) for r in records]


def test_raw_rows_that_repeat_read_as_those_before(tmp_path: Path) -> None:
    """Each kernel once, then all of them again: the second time device, names and instructions are known."""
    rows = RAW[RAW_HEADER + 2 :]
    once, twice = (
        read(tmp_path, raw(rows)),
        read(tmp_path, raw([*rows, *(again(r, 900 + n) for n, r in enumerate(rows))])),
    )
    assert len(twice) == 2 * len(once) == 84
    assert seconds_and_work(twice)[:42] == seconds_and_work(twice)[42:] == seconds_and_work(once)
    assert [r.path for r in twice][42:] == [r.path for r in once]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda row: "x" + row, "cannot have the number|quote|fields"),
        (lambda row: row.replace('","9.0","', '","9.0,"', 1), "quote|fields"),
        (lambda row: row.replace('"NVIDIA H100 80GB HBM3"', '"NVIDIA "H100""', 1), "quote|fields"),
        (lambda row: row[:-3] + "\n", "fields|quote|does not end"),
        (lambda row: row.rstrip("\n") + ',"0"\n', "fields"),
        (
            lambda row: row.replace('"0"', '"0x"', 60).replace('"0x"', '"0"', 1),
            "no number|cannot have|fields|does not fit",
        ),
        (lambda row: row, "appears twice"),
    ],
)
def test_damage_is_seen_where_a_row_repeats_others(tmp_path: Path, change: Callable[[str], str], why: str) -> None:
    first = RAW[RAW_HEADER + 2]
    text = raw([first, again(first, 7), again(first, 8), change(again(first, 8 if "twice" in why else 9))])
    with pytest.raises(FileError, match=rf"line {RAW_HEADER + 6}: .*({why})"):
        read(tmp_path, text)


def test_a_second_device_of_a_raw_page_has_its_own_facts(tmp_path: Path) -> None:
    first = RAW[RAW_HEADER + 2]
    other = first.replace("NVIDIA H100 80GB HBM3", "Tesla T4")
    rows = [again(row, n) for n, row in enumerate([first, first, other, other, first, other])]
    assert [r.case.device for r in read(tmp_path, raw(rows))] == [
        *("h100-sxm5-80gb", "h100-sxm5-80gb", "tesla-t4", "tesla-t4", "h100-sxm5-80gb", "tesla-t4")
    ]


@pytest.mark.parametrize("cell", ["n/a", ""])
def test_a_cell_without_a_value_in_rows_that_repeat(tmp_path: Path, cell: str) -> None:
    """What was not measured is unknown in its launch alone; `n/a` is listed, an empty cell was never asked for."""
    header = RAW[RAW_HEADER].strip().strip('"').split('","')
    first = RAW[RAW_HEADER + 2]
    cells = next(csv.reader([first]))
    for name in ("gpu__time_duration.sum", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"):
        # Without the other forms of the counter, from which it would follow.
        others = (f"{name}.", f"{name.removesuffix('.sum')}.avg")
        odd = [
            "" if its.startswith(others) or its.endswith("per_second") else c
            for its, c in zip(header, cells, strict=True)
        ]
        odd[header.index(name)] = cell
        odd_row = ",".join('"' + text.replace('"', '""') + '"' for text in odd) + "\n"
        rows = [again(row, n) for n, row in enumerate([first, first, odd_row, first])]
        records = read(tmp_path, raw(rows))
        whole, second, without, last = seconds_and_work(records)
        assert whole == second == last != without
        assert (without[0] is None) == name.startswith("gpu__")
        assert any(note.startswith(f"1 values are not available: {name} (1)") for note in records.notes) == bool(cell)


def test_digits_of_other_scripts_are_no_numbers(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no number"):
        read(tmp_path, HEADER + row("dram__bytes.sum", "byte", "1\u0663"))


def test_a_header_without_a_kernel_name_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="line 1: the header lacks Kernel Name"):
        read(tmp_path, HEADER.replace('"Kernel Name"', '"A Kernel Name"') + row("dram__bytes.sum", "byte", "1"))


def test_empty_lines_between_raw_rows(tmp_path: Path) -> None:
    first = RAW[RAW_HEADER + 2]
    assert len(read(tmp_path, raw([first, "\n", again(first, 7), "\n\n", again(first, 8)]))) == 3


@pytest.mark.parametrize(
    ("text", "power", "expected"),
    [
        ("102.33", 6, 102_330_000),
        ("2405875930906139466.79", 12, 2_405_875_930_906_139_466_790_000_000_000),
        ("0.5", 0, 0.5),
        ("1.5", -9, 1.5e-9),
        ("12", -3, 0.012),
        ("-0.5", 3, -500),
        ("1.5e2", 0, 150),
        ("7.00", 0, 7),
    ],
)
def test_scaled_numbers_are_exact_where_they_are_whole(text: str, power: int, expected: float) -> None:
    found = scaled(text, power)
    assert found == expected
    assert type(found) is type(expected)


NONE_COUNTED = "no counter of FLOP was collected: FLOP are unknown"


def test_a_file_without_counters_of_flop_says_so_once(tmp_path: Path) -> None:
    """Bytes and time alone: nothing marks a lower bound, and the device is asked for once."""
    text = HEADER + row("gpu__time_duration.sum", "ns", "5000") + row("dram__bytes.sum", "byte", "64")
    records = read(tmp_path, text)
    assert [note for note in records.notes if "FLOP" in note] == [NONE_COUNTED]
    shown = rl.table(records, width=500)
    assert shown.count(NONE_COUNTED) == 1
    assert ">=" not in shown
    assert "no device is named" not in shown
    assert shown.count("name it (--device) for bounds") == 1
    assert "no device is named" in rl.table(records, by="kernel", width=500)  # which stands alone


def test_general_lanes_of_which_nothing_was_collected_are_told_once(tmp_path: Path) -> None:
    text = (
        HEADER
        + row("gpu__time_duration.sum", "ns", "5000")
        + row("sm__ops_path_tensor_src_bf16_dst_fp32.sum", "", "256")
    )
    shown = rl.table(read(tmp_path, text), width=500)
    assert shown.count("FLOP of the general lanes are unknown: no thread instructions were collected") == 1
    assert "such work is not in its FLOP" not in shown
    assert ">= 256" in shown  # of tensor cores; nobody knows those of the lanes
    assert ">= lower bound" in shown
