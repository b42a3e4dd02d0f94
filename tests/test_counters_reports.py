"""Reports of Nsight Compute (`.ncu-rep`): the same launches as what ncu prints of them, and errors for all else.

The sample was measured for this project on an H100 with ncu 2025.3.1: a program of a few kernels that forks, with NVTX
ranges of every kind. The blocks with the names of the machine and the command were left out of it. The CSV is what ncu
printed of the whole one (``--csv --page raw --print-units base --rename-kernels no``).
"""

from __future__ import annotations

import csv
import gzip
import random
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflens as rl
from rooflens.errors import FileError
from rooflens.sources.counters import CounterReading, launches
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.nvtx import place_of, ranges_of
from rooflens.sources.counters.reports import launches_of
from rooflens.sources.counters.reports import supervisor as reading
from rooflens.sources.counters.reports.lean import write_lean
from rooflens.sources.counters.reports.outline import outline_of
from rooflens.sources.counters.value_doubts import ValueDoubts

SAMPLE = Path(__file__).parent / "data" / "ncu" / "reports" / "two_processes.ncu-rep"
PRINTED = SAMPLE.with_suffix(".csv")
Result = TypeVar("Result")
ADVICE = "ncu -i FILE --csv --page raw --print-units base"
needs_package = pytest.mark.skipif(
    find_spec("ncu_report") is None, reason="needs ncu-report: pip install rooflens[ncu]"
)


def read(path: Path) -> list[KernelLaunch]:
    return list(launches(path, CounterReading(repr(str(path)))))


def outcome(act: Callable[[], Result]) -> Result | str:
    """What it gives, or what its error says."""
    try:
        return act()
    except FileError as error:
        return str(error)


# The sample ----------------------------------------------------------------------------------------------------------


@needs_package
def test_a_report_gives_the_records_of_what_ncu_prints_of_it() -> None:
    report, printed = rl.read(SAMPLE), rl.read(PRINTED)
    assert report.records == printed.records
    assert len(report) == 10
    assert report.devices.keys() == printed.devices.keys() == {"h100-sxm5-80gb", "h100-sxm5-80gb-ncu"}
    counted, shown = (its.devices["h100-sxm5-80gb-ncu"] for its in (report, printed))
    # ncu prints two decimals of a clock.
    assert {c.resource: c.rate for c in counted.ceilings} == pytest.approx(
        {c.resource: c.rate for c in shown.ceilings}, rel=1e-9
    )


@needs_package
def test_a_lean_report_gives_the_same_records(tmp_path: Path) -> None:
    lean = tmp_path / SAMPLE.name
    write_lean(SAMPLE, lean)
    assert rl.read(lean).records == rl.read(SAMPLE).records
    assert lean.stat().st_size < 0.6 * SAMPLE.stat().st_size
    assert SAMPLE.read_bytes().count(b"launch__occupancy_per_") == 5  # names stay, in the list of names
    again = tmp_path / "again.ncu-rep"
    write_lean(lean, again)
    assert again.read_bytes() == lean.read_bytes()


@pytest.mark.parametrize(
    "change", [lambda raw: raw[:-40], lambda raw: b"==PROF== done\n", lambda raw: raw + b"\x07\x00"]
)
def test_what_is_no_whole_report_is_kept_as_it_is(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    odd = tmp_path / "odd.ncu-rep"
    odd.write_bytes(change(SAMPLE.read_bytes()))
    write_lean(odd, tmp_path / "kept.ncu-rep")
    assert (tmp_path / "kept.ncu-rep").read_bytes() == odd.read_bytes()


@needs_package
def test_its_sums_are_those_that_the_csv_module_finds() -> None:
    with PRINTED.open(newline="", encoding="utf-8") as file:
        header, _, *rows = csv.reader(file)
    launches = read(SAMPLE)
    names = [name for name in header if name in launches[0].values and name.endswith(".sum")]
    assert len(names) == 22
    for name in names:
        printed = [int(row[header.index(name)].replace(",", "")) for row in rows]
        seconds = 1e-9 if name.startswith("gpu__time") else 1
        assert [launch.counters[name] for launch in launches] == pytest.approx(
            [v * seconds for v in printed], rel=1e-15
        )
    assert [launch.key[0] for launch in launches] == [row[header.index("Process ID")] for row in rows]


@needs_package
def test_its_flop_are_those_of_the_program() -> None:
    records = rl.read(SAMPLE)
    flops = [r.work.flops for r in records if r.work is not None]
    threads = 65_536
    tile = 2 * 16**3  # a block multiplies two tiles of 16 x 16
    assert [flops[i]["vector.fp32"] for i in (0, 1, 5)] == [2 * threads] * 3  # x * a + a, once per thread
    assert flops[2]["matmul.bf16"] == flops[9]["matmul.bf16"] == 8 * 2 * tile
    assert flops[6]["matmul.bf16"] == 4 * tile
    assert flops[3]["vector.fp64"] == 3 * 2 * threads  # the same on doubles, three times


@needs_package
def test_its_ranges_give_path_and_phase() -> None:
    places = [(r.path, r.phase) for r in rl.read(SAMPLE)]
    forward = ("layer1.0.conv:1", "forward")
    assert places == [
        ("(unattributed)", None),
        forward,
        forward,
        ("softmax registered", "forward"),  # the innermost range of another domain
        ("odd a:b\\c, é", "forward"),
        ("layer1.0", "backward"),  # on a thread of its own, within a range that the main thread had started
        ("whole step", None),
        ("(unattributed)", None),  # the other process
        forward,
        forward,
    ]


@needs_package
def test_it_tells_its_device_and_clock() -> None:
    records = rl.read(SAMPLE)
    assert records.cases[0].device == "h100-sxm5-80gb"
    assert any("of 1.980 GHz at most" in note for note in records.records[0].notes)


@needs_package
def test_work_can_be_stated_for_its_kernels() -> None:
    records = rl.read(SAMPLE, work={"product": {"matmul.bf16": "2*16**3"}})
    stated = [r.work.flops for r in records if r.work is not None and r.work.origin == "stated"]
    assert stated == [{"matmul.bf16": 8192}] * 3


@needs_package
def test_several_processes_read_it_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(SAMPLE)
    for name, most in (("_BATCH_RESULTS", 3), ("_BATCH_BYTES", 40_000)):  # a result has some 18 400 bytes
        monkeypatch.setattr(reading, name, most)
        assert [(each.line, each.key, each.values) for each in read(SAMPLE)] == [
            (each.line, each.key, each.values) for each in whole
        ]


@needs_package
def test_whoever_stops_reading_ends_the_process() -> None:
    reader = launches(SAMPLE, CounterReading("x"))
    assert next(reader).name == "void scale<float, (int)1>(T1 *, T1, int)"
    reader.close()  # type: ignore[attr-defined]
    assert next(reader, None) is None


# Damage --------------------------------------------------------------------------------------------------------------


@needs_package
def test_the_library_gets_no_more_memory_than_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MEMORY", 1)
    with pytest.raises(FileError, match=ADVICE):
        read(SAMPLE)


@needs_package
@pytest.mark.parametrize("seed", range(6))
def test_damaged_bytes_never_crash(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(SAMPLE.read_bytes())
    for _ in range(40):
        data[dice.randrange(4, len(data))] = dice.randrange(256)
    path = tmp_path / "damaged.ncu-rep"
    path.write_bytes(data)
    found = outcome(lambda: read(path))
    assert str(path) in found if isinstance(found, str) else all(launch.name and launch.facts for launch in found)


@needs_package
def test_a_result_that_cannot_be_parsed_is_no_empty_launch(tmp_path: Path) -> None:
    data = bytearray(SAMPLE.read_bytes())
    at = data.rindex(b"_Z5scaleIfLi1EEvPT_S0_i") - 1  # the size of a kernel's name
    data[at] += 1
    path = tmp_path / "damaged.ncu-rep"
    path.write_bytes(data)
    with pytest.raises(FileError, match="it cannot make sense of result 9"):
        read(path)


@needs_package
def test_a_newer_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "newer.ncu-rep"
    path.write_bytes(SAMPLE.read_bytes().replace(b"2025.3.1.0 (build", b"2099.3.1.0 (build"))
    with pytest.raises(FileError, match=r"of Nsight Compute 2099\.3, and ncu-report .* pip install -U ncu-report"):
        read(path)


@settings(max_examples=200)
@given(st.integers(0, SAMPLE.stat().st_size - 1))
def test_a_report_that_was_cut_off_has_no_fewer_launches_unnoticed(
    tmp_path_factory: pytest.TempPathFactory, at: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.ncu-rep"
    path.write_bytes(SAMPLE.read_bytes()[:at])
    outline = outcome(lambda: outline_of(path, "x"))
    # Between two blocks it is what ncu leaves when it is killed.
    assert "damaged" in outline if isinstance(outline, str) else len(outline.sizes) < 10


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_no_bytes_crash_the_outline(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.ncu-rep"
    path.write_bytes(b"NVR\x00" + data)
    outline = outcome(lambda: outline_of(path, "x"))
    assert "damaged" in outline if isinstance(outline, str) else not outline.sizes


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"NVR\x00", "the header at byte 4 was cut off"),
        (b"NVR\x00\x02\x00\x00\x00\x08\x07", "holds no launch of a kernel: ncu measured none"),
        (b"NVR\x00\x02\x00\x00\x00\x08\x07\x02\x00\x00\x00\x10\x01", "cannot hold 1 entries in 0 bytes"),
        (b"NVR\x00\x02\x00\x00\x00\x08\x07\x02\x00\x00\x00\x28\x05", "its block at byte 10 reaches to byte 21"),
        (b"NVR\x00\x02\x00\x00\x00\x08\x07\x02\x00\x00\x00\x2b\x05", "of no kind"),
        (b"NVR\x00\x02\x00\x00\x00\x08\x07\x02\x00\x00\x00\x2a\x05", "longer than the header"),
        (b"NVR\x00\x02\x00\x00\x00\x08\x07\x02\x00\x00\x00\x28\xff", "does not end"),
        (b"NVR\x00\x02\x00\x00\x00\x08\x07\x00\x00\x00\x00", "or is none"),
        (b"NVR\x00\xff\xff\xff\xff\x08", "was cut off"),
        (gzip.compress(b"NVR\x00\x02\x00\x00\x00\x08\x07", mtime=0), "unpack it"),
        (gzip.compress(b"NVR\x00" * 99, mtime=0)[:-9], "cannot read|unpack it"),
    ],
)
def test_what_is_no_whole_report_says_so(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(FileError, match=why):
        rl.read(path)


def test_a_report_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        read(tmp_path / "none.ncu-rep")


def block(process: int, *sizes: int) -> bytes:
    """A block of a report with results of these many bytes: field 2 is their number, 5 their size, 6 the process."""
    payload = sum(sizes)
    header = bytes([0x10, len(sizes), 0x28, payload & 127 | 128, payload >> 7, 0x32, 0x02, 0x08, process])
    return len(header).to_bytes(4, "little") + header + b"x" * payload


def test_results_of_interleaved_processes_are_put_in_the_order_in_which_ncu_prints_them(tmp_path: Path) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(b"NVR\x00\x02\x00\x00\x00\x08\x07" + block(9, 50) + block(4, 60, 80) + block(9, 100))
    outline = outline_of(path, "x")
    assert list(outline.processes) == [9, 4, 4, 9]
    assert list(outline.sizes) == [50, 70, 70, 100]
    assert outline.ordered() == [0, 3, 1, 2]
    assert outline.version is None


# The process that reads ----------------------------------------------------------------------------------------------


def faulty(tmp_path: Path, fault: str, limit: float = 20.0, doubts: ValueDoubts | None = None) -> list[KernelLaunch]:
    path = tmp_path / f"{fault}.ncu-rep"
    shutil.copy(SAMPLE, path)
    return list(launches_of(path, repr(path.name), doubts or ValueDoubts(), child="tests.faulty_report", limit=limit))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("segfault", r"it was killed by SIGSEGV \(the last words\)"),
        ("exit", "it ended with 3"),
        ("dies_later", "it was killed by SIGKILL"),
        ("garbage", "its answer makes no sense"),
        ("nested", "its answer makes no sense"),
        ("wrong_types", "its answer makes no sense"),
        ("one_line_without_end", "its answer does not end"),
        ("results_without_end", "it gave what it was not asked for"),
        ("not_opened", "before it had opened the report"),
        ("too_few", "it left 1 launches out"),
        ("others", "holds 10 launches and ncu-report  finds 9"),
        ("older", r"is of Nsight Compute 2025\.3, and ncu-report 2025\.2\.0 reads"),
        ("unit", "launch 1: dram__bytes.sum cannot have the unit 'parsec'"),
    ],
)
def test_whatever_the_process_does_is_an_error_with_a_way_out(tmp_path: Path, fault: str, why: str) -> None:
    with pytest.raises(FileError, match=why) as caught:
        faulty(tmp_path, fault)
    assert ADVICE in str(caught.value)


def test_a_process_that_hangs_is_killed(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"it was not done after 1 s and was killed"):
        faulty(tmp_path, "hang", limit=1.0)


@pytest.mark.parametrize("fault", ["none", "negative"])
def test_a_value_that_is_none_is_unknown(tmp_path: Path, fault: str) -> None:
    doubts = ValueDoubts()
    found = faulty(tmp_path, fault, doubts=doubts)
    below = "10 of them are below zero in the file, which no counter can be: dram__bytes.sum (10); its parts were"
    assert any(note.startswith(below) for note in doubts.notes(None)) == (fault == "negative")
    assert [launch.values for launch in found] == [{"dram__bytes.sum": None}] * 10


# The package ---------------------------------------------------------------------------------------------------------

PACKAGE = """
import os, sys, time

class IAction:
    NameBase_DEMANGLED = 1

class Metric:
    def __init__(self, value, unit="byte"):
        self.its, self.its_unit = value, unit
    def has_value(self):
        return self.its is not ...
    def value(self):
        return self.its
    def unit(self):
        return self.its_unit
    def num_instances(self):
        return 7 if self.its == 3010 else 0

METRICS = {
    "dram__bytes.sum": Metric(7.0), "dram__bytes_read.sum": Metric(float("inf")), "dram__bytes_write.sum": Metric(...),
    "sm__cycles_elapsed.avg.per_second": Metric(1.5, "Ghz"), "lts__t_bytes.sum": Metric("text"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": Metric(130.5, "%"), "x__pct_of_each": Metric(3010, "%"),
    "derived__pct_occupancy_per_block_size": Metric(8190, "%"), "launch__occupancy_cluster_pct": Metric(0),
    "device__attribute_display_name": Metric("A \\udcff", ""), "launch__device_id": Metric(3, ""),
}

class Action:
    def name(self, base):
        return "k\\udcff"
    def metric_names(self):
        return tuple(METRICS)
    def metric_by_name(self, name):
        return METRICS[name]
    def nvtx_state(self):
        return None

class Range:
    def num_actions(self):
        return 5
    def action_by_idx(self, place):
        return Action()

class Report:
    def num_ranges(self):
        return 2
    def range_by_idx(self, place):
        return Range()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[KernelLaunch]]:
    """Reads the sample with a package ncu_report of which the end is given."""

    def run(end: str) -> list[KernelLaunch]:
        (tmp_path / "ncu_report.py").write_text(PACKAGE + end)
        monkeypatch.syspath_prepend(tmp_path)
        return read(SAMPLE)

    return run


def test_what_the_package_tells_is_taken_as_it_is_meant(package: Callable[[str], list[KernelLaunch]]) -> None:
    end = "def load_report(path):\n    print('noise'); os.write(1, b'more noise')\n    return Report()\n"
    found = package(end)
    assert len(found) == 10
    assert found[0].name == "k?"
    assert found[0].values == {
        "dram__bytes.sum": 7,
        "dram__bytes_read.sum": None,
        "dram__bytes_write.sum": None,
        "sm__cycles_elapsed.avg.per_second": 1_500_000_000,
        "lts__t_bytes.sum": None,
    }
    assert found[0].facts == {"device__attribute_display_name": "A ?"}
    assert (found[0].device, found[0].ranges) == ("3", ())


def test_shares_above_the_whole_are_noted(package: Callable[[str], list[KernelLaunch]], tmp_path: Path) -> None:
    package("load_report = lambda path: Report()\n")
    found = CounterReading("x")
    assert len(list(launches(SAMPLE, found))) == 10
    assert any("sm__throughput.avg.pct_of_peak_sustained_elapsed reaches 130.5 %" in note for note in found.notes(None))
    # 3010 is the sum over the instances of a metric, 8190 over the points of a curve: no share of one.
    assert sum(" reaches " in note for note in found.notes(None)) == 1


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("raise ImportError('no such library')", r"\(no such library\): pip install 'rooflens\[ncu\]'"),
        ("def load_report(path):\n    os.abort()", "it was killed by SIGABRT"),
        ("def load_report(path):\n    raise RuntimeError('unknown block')", "RuntimeError: unknown block"),
        ("def load_report(path):\n    return None", "AttributeError"),
        ("def load_report(path):\n    x = bytearray(2**40)", "MemoryError"),
        ("Report.num_ranges = lambda self: 1\nload_report = lambda path: Report()", "holds 10 launches and .* finds 5"),
        ("Action.name = lambda self, base: None\nload_report = lambda path: Report()", "cannot make sense of result 1"),
        ("METRICS.clear()\nload_report = lambda path: Report()", "cannot make sense of result 1"),
        ("Range.action_by_idx = lambda self, i: None\nload_report = lambda path: Report()", "AttributeError"),
    ],
)
def test_a_package_that_fails_is_an_error_with_a_way_out(
    package: Callable[[str], list[KernelLaunch]], end: str, why: str
) -> None:
    with pytest.raises(FileError, match=why) as caught:
        package(end)
    assert ADVICE in str(caught.value)


# Ranges --------------------------------------------------------------------------------------------------------------

NAMES = st.lists(st.tuples(st.text(st.characters(exclude_characters=":"), min_size=1), st.text(min_size=1)), max_size=4)


def cell_of(pushed: list[tuple[str, str]], started: list[tuple[str, str]]) -> str:
    """What ncu prints of ranges, each given by domain and name."""
    texts = [*(f"{domain}:{name}" for domain, name in pushed), *(f"0:{domain}:{name}" for domain, name in started)]
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "  ".join(f'"{text}{":none" * 6}"' for text in escaped)


@given(NAMES, NAMES)
def test_any_names_of_ranges_survive_their_cell(pushed: list[tuple[str, str]], started: list[tuple[str, str]]) -> None:
    pushed = [(f"<{domain}>", name) for domain, name in pushed]  # a domain is no mere number
    names = tuple(name for _, name in (*started, *pushed))
    assert ranges_of(cell_of(pushed, started)) == names


def test_started_ranges_lie_around_the_pushed_ones() -> None:
    cell = '656  "d:rooflens:phase:backward:none:none:none:none:none:none"  "d:layer1:none:none:none:none:none:none"  '
    assert ranges_of(cell + '"0:d:whole step:none:none:none:none:none:none"') == (
        "whole step",
        "rooflens:phase:backward",
        "layer1",
    )
    assert place_of(ranges_of(cell + '"0:d:whole step:none:none:none:none:none:none"')).path == "layer1"


def test_the_sample_names_no_machine() -> None:
    data = SAMPLE.read_bytes()
    hosts = set(islice((data[i : i + 9] for i in range(len(data)) if data[i : i + 4] == b"127."), 99))
    assert hosts == {b"127.0.0.1"}
    assert not any(word in data for word in (b"/home/", b"/root", b"/opt", b"fe80", b"192.0", b"Xeon"))


@pytest.mark.parametrize(
    ("ranges", "phase"),
    [
        (["rooflens:module:net.fc", "aten::linear, seq = 3"], "forward"),
        # A checkpoint calls modules again while the engine runs.
        (["autograd::engine::evaluate_function: CheckpointBackward", "rooflens:module:net.fc"], "backward"),
        (["rooflens:phase:optimizer", "rooflens:module:net.fc"], "optimizer"),
        (["Optimizer.step#SGD.step"], "optimizer"),
        (["aten::mse_loss"], None),
        (["layer1"], None),  # a range of somebody's own: it may hold a whole step
    ],
)
def test_a_call_of_a_module_is_forward_where_nothing_says_otherwise(ranges: list[str], phase: str | None) -> None:
    assert place_of(tuple(ranges)).phase == phase
