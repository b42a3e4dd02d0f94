"""`rl.read` and `rooflens read`: every kind of file by its content, work that the user states, and errors."""

from __future__ import annotations

import csv
import gc
import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.test_counters_layouts import HEADER, LAYOUTS, row

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import FileError, InvalidValue, UnknownName
from rooflens.sources.counters import CounterReading, parse, parse_statement
from rooflens.sources.counters.arithmetic import calculate
from rooflens.sources.counters.nvtx import RangePlace, place_of, ranges_of
from rooflens.sources.range_names import module_range, phase_range

TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "ts": 0,
            "dur": 9,
            "tid": 1,
            "pid": 1,
            "args": {"External id": 1},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "sgemm",
            "ts": 3,
            "dur": 4,
            "tid": 7,
            "pid": 0,
            "args": {"External id": 1},
        },
    ],
}
OWN = LAYOUTS.parent


def test_a_trace_is_known_by_its_content(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.txt", tmp_path / "packed.json.gz"
    plain.write_text(json.dumps(TRACE))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        records = rl.read(path, device="t4")
        assert sum(r.timing.median for r in records if r.timing) == pytest.approx(4e-6)
        assert records.cases[0].device == "tesla-t4"
        assert records.sources == ("profile",)


def test_a_trace_names_its_device(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    # A card that the catalogue lacks keeps its name, and one of two names is not known.
    known = ((["NVIDIA H200"] * 2, "h200-sxm-141gb"), (["NVIDIA H200", "other"], None), (["other"], "other"))
    for names, device in known:
        path.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": name} for name in names]} | TRACE))
        assert rl.read(path).cases[0].device == device


def test_records_are_known_by_their_content(tmp_path: Path) -> None:
    saved = rl.read(LAYOUTS / "raw_wide.csv").save(tmp_path / "kept.jsonl")
    other = saved.rename(tmp_path / "kept.dat")
    assert len(rl.read(other)) == 2


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "report.csv" for folder in ("before", "after")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(HEADER + row("dram__bytes.sum", "byte", "5"))
    assert [case.model for case in rl.read(*paths).cases] == [str(path) for path in paths]


CONNECTED = b"==PROF== Connected to process 7 (/opt/program)\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty: whatever was to write it wrote nothing"),
        (b"NVR\x00\x01", "is damaged: the header at byte 4"),
        (b"SQLite format 3\x00", "a database"),
        (b"PK\x03\x04", "an archive"),
        (b"\x00\x01\x02", "is no text"),
        (b"hello\nworld\n", "seems to be a text that begins 'hello'"),
        (HEADER.encode(), "no row stands below the header in line 1"),
        (HEADER.replace(",", ";").encode(), "the table below line 1 was saved again by another program"),
        (CONNECTED + HEADER.replace(",", ";").encode(), "the table below line 2 was saved again by another program"),
        (CONNECTED + HEADER.encode(), "no row stands below the header in line 2"),
        (b"epoch 1\n,ID,Process ID,Kernel Name\n0,0,42,k\n", "below line 2 was saved again"),
        (b'{"x": 1', "line|JSON|Chrome|trace"),
        (b"\x1f\x8b\x08\x00damaged", "cannot read"),
        (b'"ID","Kernel Name","Metric Name"\n', "the header lacks Metric Unit, Metric Value"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "what"
    path.write_bytes(content)
    with pytest.raises(FileError, match=why):
        rl.read(path)


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        rl.read(tmp_path / "none.csv")
    with pytest.raises(FileError, match="'-': standard input can be read only once; write it to a file"):
        rl.read("-")
    with pytest.raises(FileError, match="holds no record files"):
        rl.read(tmp_path)
    with pytest.raises(InvalidValue, match="at least one file"):
        rl.read()


def test_stated_work_stands_beside_the_executed() -> None:
    work: dict[str, dict[str, str | float]] = {"nvjet*": {"matmul.bf16": "2*4096**3", "dram": 3 * 2 * 4096**2}}
    records = rl.read(LAYOUTS / "raw_wide.csv", work=work)
    executed, stated = records.cases
    assert (executed.options, stated.options) == ((), (("work", "stated"),))
    total = records.where(options=stated.options).total()
    assert total.matmul_flops == 2 * (2 * 4096**3)
    assert total.bytes == {"dram": 2 * 3 * 2 * 4096**2}
    assert total.measured_seconds == pytest.approx((203_456 + 203_104) / 1e9)
    assert records.where(options=()).total().bytes["dram"] == 102_334_464 + 102_334_592


def test_flop_that_are_not_stated_are_unknown_and_not_none() -> None:
    found = rl.read(LAYOUTS / "raw_wide.csv", work={"nvjet*": {"dram": 100}})
    total = found.where(options=(("work", "stated"),)).total()
    assert total.bytes == {"dram": 200}
    assert total.work is not None
    assert total.work.missing == {"nvjet_tst_128x256_64x4_1x2_h_bz_TNT"}


def test_of_several_statements_about_a_kernel_the_first_counts(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    rows = (row("dram__bytes.sum", "byte", "8", number=n, kernel=kernel) for n, kernel in enumerate("aab"))
    path.write_text(HEADER + "".join(rows))
    found = rl.read(path, work={"a": {"flops": 5}, "*": {"flops": 7}})
    assert [(r.name, r.work.flops) for r in found.where(options=(("work", "stated"),)) if r.work] == [
        ("a", {"vector.fp32": 5}),
        ("a", {"vector.fp32": 5}),
        ("b", {"vector.fp32": 7}),
    ]
    with pytest.raises(InvalidValue, match="'a' fits is stated before; put narrow patterns in front"):
        rl.read(path, work={"*": {"flops": 7}, "a": {"flops": 5}})
    with pytest.raises(UnknownName, match=r"unknown kernel 'zzz'; known: a, b$"):
        rl.read(path, work={"zzz": {"flops": 7}})
    with pytest.raises(InvalidValue, match="states flops twice"):
        parse_statement("a:flops=1, flops=2")
    shown = rl.table(found)
    assert "no option work: " in shown  # what is true of the executed work only says whose it is


def test_stated_flop_are_of_the_unit_that_worked() -> None:
    records = rl.read(LAYOUTS / "raw_wide.csv", work={"nvjet": {"flops": 7}})
    assert records.records[2].work == rl.Work(flops={"matmul.bf16": 7}, bytes={"dram": 102_334_464}, origin="stated")


@pytest.mark.parametrize(
    ("work", "error"),
    [
        ({"gemm": {"flops": 1}}, UnknownName),
        ({"nvjet": {"flop": 1}}, InvalidValue),
        ({"nvjet": {"flops": -1}}, InvalidValue),
        ({"nvjet": {"flops": float("nan")}}, InvalidValue),
        ({"nvjet": {}}, InvalidValue),
    ],
)
def test_work_that_cannot_be(work: dict[str, dict[str, float]], error: type[Exception]) -> None:
    with pytest.raises(error):
        rl.read(LAYOUTS / "raw_wide.csv", work=work)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("saxpy", True),
        ("saxpy*", True),  # the function's name alone
        ("mine::sax*", True),  # with its namespace
        ("void mine::*", True),
        ("*float const [[]*", True),
        ("void mine::saxpy<4>(float *, float const [])", True),  # the name itself, stars and brackets included
        ("sax", True),
        ("axpy*", False),
        ("mine::saxpy", True),
        ("yours::sax*", False),
        ("Saxpy*", False),
    ],
)
def test_a_pattern_fits_a_name_with_and_without_its_result(pattern: str, fits: bool) -> None:
    its = parse_statement(f"{pattern}:flops=1")
    assert its.fits("void mine::saxpy<4>(float *, float const [])") is fits


def test_a_pattern_may_hold_colons() -> None:
    its = parse_statement("at::native::relu*:flops=2*3,dram=8/2")
    assert (its.pattern, its.flops, its.bytes) == ("at::native::relu*", {"flops": 6}, {"dram": 4})
    for text in ("flops=3", ":flops=3", "relu", "relu:", "relu:flops", "relu:flops="):
        with pytest.raises(InvalidValue):
            parse_statement(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*4096**3", 2 * 4096**3),
        ("-2**2", -4),
        ("2**-1", 0.5),
        ("2**3**2", 512),
        ("7//2 + 7/2 - 1e3", -993.5),
        (" ( 1 + 2 ) * 3 ", 9),
        ("1_000", 1000),
        (".5", 0.5),
    ],
)
def test_arithmetic(text: str, value: float) -> None:
    assert calculate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2*",
        "a",
        "(1",
        "1)",
        "1 2",
        "9**9**9",
        "1/0",
        "1e999",
        "2**1e9",
        "(-1)**.5",
        "__import__('os')",
        "(" * 200,
        "1+" * 300,
        "-" * 400 + "1",
        "1 if 1 else 2",
        "0**-1",
        "0_",
    ],
)
def test_what_is_no_arithmetic(text: str) -> None:
    with pytest.raises(InvalidValue):
        calculate(text)


@given(st.text(alphabet="0123456789+-*/(). e_", max_size=60))
def test_arithmetic_always_ends(text: str) -> None:
    try:
        value = calculate(text)
    except InvalidValue:
        return
    assert abs(value) <= 1.8e308


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=40))
def test_any_kernel_name_is_kept(name: str) -> None:
    cells = [
        "0",
        "9",
        "p",
        "h",
        name,
        "1",
        "7",
        "(1, 1, 1)",
        "(1, 1, 1)",
        "0",
        "8.0",
        "S",
        "dram__bytes.sum",
        "byte",
        "5",
    ]
    lines = [HEADER, ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"]
    (launch,) = parse(lines, CounterReading("x"))
    assert launch.name == name
    assert next(csv.reader(lines[1:]))[4] == name


SAMPLES = sorted(LAYOUTS.iterdir())


@settings(max_examples=300, deadline=2000)
@given(st.sampled_from(SAMPLES), st.data())
def test_damage_never_crashes(sample: Path, data: st.DataObject) -> None:
    text = sample.read_text(encoding="utf-8-sig")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 30)))
        text = text[:start] + data.draw(st.text(alphabet='",.\n0123456789-na/ (x', max_size=5)) + text[end:]
    check(text)


@settings(max_examples=200, deadline=2000)
@given(st.text(max_size=300))
@example('"ID","Metric Value","Metric Name","Metric Unit","Kernel Name"\n"0","1"\n')
@example('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","k","m","","1"\n')
@example('"ID","Kernel Name"\n"",""\n"0","k"\n"0","k"\n')
@example("  k (1, 1, 1)x(1, 1, 1), Context 1, Stream 7, Device 0, CC 8.0\n    --- ---\n    --- ---\n   x\n")
def test_no_text_crashes(text: str) -> None:
    check(text)


def check(text: str) -> None:
    """Reading gives launches, or the error that belongs to it."""
    try:
        for launch in parse(text.splitlines(keepends=True), CounterReading("x")):
            assert all(value is None or value >= 0 for value in launch.counters.values())
    except FileError:
        return


def test_ranges_are_those_that_profiles_have() -> None:
    names = (phase_range("backward"), module_range("layer1.0"))
    cell = "7  " + "  ".join(f'"<default domain>:{name}:none:none:none:none:none:none"' for name in names)
    assert ranges_of(cell) == names
    assert place_of(names) == RangePlace(path="layer1.0", phase="backward")


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    words = ["read", str(OWN / "raw_resnet18_b1_fp32.csv"), "--format", "csv", "-o", str(report)]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0
    (shown,) = csv.DictReader(result.stdout.splitlines())
    assert float(shown["flops"]) == 4_043_558_096
    assert float(shown["dram_bytes"]) == 85_163_008
    assert len(rl.read(report)) == 68


def test_the_command_takes_work_and_a_device() -> None:
    words = ["read", str(LAYOUTS / "raw_wide.csv"), "--device", "h100-sxm5-80gb", "--work", "nvjet:flops=2*4096**3"]
    result = CliRunner().invoke(cli, [*words, "--format", "json"], catch_exceptions=False)
    executed, stated = json.loads(result.stdout)
    assert stated["case"]["options"] == {"work": "stated"}
    assert executed["phases"].keys() == stated["phases"].keys()
    assert executed["case"]["device"] == "h100-sxm5-80gb"


def test_a_counter_file_does_not_tell_which_step_ran(tmp_path: Path) -> None:
    path = str(LAYOUTS / "raw_wide.csv")
    told = "does not tell which step ran (without phases it counts as inference)"
    for words, expected in (([], True), (["-b", "2"], False)):
        shown = CliRunner().invoke(cli, ["read", path, *words], catch_exceptions=False).stdout
        assert (told in " ".join(shown.split())) == expected


def test_peaks_of_the_file_are_ceilings(tmp_path: Path) -> None:
    metrics = [
        ("dram__bytes.sum", "byte", "1,000"),
        ("dram__bytes.sum.peak_sustained", "byte/cycle", "1,536"),
        ("dram__cycles_elapsed.avg.per_second", "Ghz", "2.5"),
        ("sm__cycles_elapsed.avg.per_second", "Ghz", "1.5"),
        ("lts__cycles_elapsed.avg.per_second", "Ghz", "2"),
        ("lts__t_sectors.sum.peak_sustained", "sector/cycle", "160"),
        ("l1tex__t_bytes.sum.peak_sustained", "byte/cycle", "16,896"),
        ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained", "inst/cycle", "16,896"),
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum.peak_sustained", "1/cycle", "1,081,344"),
        ("sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained", "/cycle", "540,672"),
    ]
    path = tmp_path / "peaks.csv"
    path.write_text(HEADER + "".join(row(*metric) for metric in metrics))
    records = rl.read(path, device="h100-sxm5-80gb")
    counted = records.devices["h100-sxm5-80gb-ncu"]
    # 1,536 B x 2.5 GHz; 160 sectors of 32 B x 2 GHz; 132 SMs x 128 B x 1.5 GHz; 16,896 FMA x 2 x 1.5 GHz; the dense
    # peak of 540,672 x 1.5 GHz and not the sparse one.
    assert {c.resource: c.rate for c in counted.ceilings} == pytest.approx(
        {"dram": 3.84e12, "l2": 1.024e13, "l1": 2.5344e13, "vector.fp32": 5.0688e13, "matmul.bf16": 8.11008e14}
    )


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_as_it_was(tmp_path: Path, enabled: bool) -> None:
    """It is paused while a counter file is read, also where that fails."""
    damaged = tmp_path / "damaged.csv"
    damaged.write_text((LAYOUTS / "raw_wide.csv").read_text()[:-9])
    (gc.enable if enabled else gc.disable)()
    try:
        rl.read(LAYOUTS / "raw_wide.csv")
        with pytest.raises(FileError):
            rl.read(damaged)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
