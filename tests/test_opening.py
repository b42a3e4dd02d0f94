"""Files are opened within bounds, all in one way: bytes after unpacking, lines, rows, levels."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from tests import nsys_samples
from tests.roof_samples import KEYWORDS
from tests.test_counters_layouts import HEADER, row

import rooflens as rl
from rooflens import opening
from rooflens.cli.main import cli
from rooflens.devices import load_file
from rooflens.errors import (
    DeviceFileError,
    FileError,
    InvalidValue,
    ModelError,
    RecordFileError,
    RooflensError,
    StudyFileError,
    UnknownModel,
)
from rooflens.models import find as find_model
from rooflens.records import is_record_file
from rooflens.runs.run import is_evidence
from rooflens.study import read_study

COUNTERS = HEADER + row("dram__bytes.sum", "byte", "5")
TRACE = json.dumps(
    {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "pid": 0, "tid": 0, "args": {}}]}
)
CONTENT = {"counters.csv": COUNTERS, "trace.json": TRACE, "roofs.txt": KEYWORDS}
DEVICE = 'title = "Mine"\nvendor = "me"\nkind = "gpu"\n[bandwidth]\ndram = "1 GB/s"\n'


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def record_file(tmp_path: Path) -> Path:
    return rl.read(written(tmp_path, "report.csv", COUNTERS)).save(tmp_path / "kept.jsonl")


@pytest.mark.parametrize("name", CONTENT)
def test_every_format_may_be_compressed(tmp_path: Path, name: str) -> None:
    plain = written(tmp_path, name, CONTENT[name])
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [(r.name, r.work, r.timing) for r in rl.read(packed)] == [(r.name, r.work, r.timing) for r in rl.read(plain)]


def test_records_and_devices_may_be_compressed(tmp_path: Path, record_file: Path) -> None:
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(record_file.read_bytes()))
    assert list(rl.read(packed)) == list(rl.read(record_file))
    device = tmp_path / "mine.toml"
    device.write_bytes(gzip.compress(DEVICE.encode()))
    assert load_file(device).require("dram").rate == 1e9


LONG = "a" * 300
"""No file system has a file of such a name, and asked for one it says no more than that it is too long."""


@pytest.mark.parametrize("name", [LONG, f"{LONG}.onnx", f"{LONG}.py", f"{LONG}.py:model", f"./{LONG}", f"hf:./{LONG}"])
def test_a_name_too_long_for_a_file_is_no_model(name: str) -> None:
    with pytest.raises(UnknownModel):
        find_model(name)


@pytest.mark.parametrize(
    "words", [["read", LONG], ["study", LONG], ["study", "run", f"{LONG}.toml"], ["check", LONG], ["rank", LONG]]
)
def test_a_name_too_long_for_a_file_is_no_file(words: list[str]) -> None:
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, RooflensError | SystemExit)


@pytest.mark.parametrize("name", ["packed.jsonl.gz", "PLAIN.JSONL"])
def test_every_command_knows_a_record_file_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_file: Path, name: str
) -> None:
    path, content = tmp_path / "folder" / name, record_file.read_bytes()
    path.parent.mkdir()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert is_record_file(path)
    assert is_evidence(str(path))
    assert list(rl.read(path.parent)) == list(rl.read(record_file))  # of a folder too
    with pytest.raises(InvalidValue, match="none of these records keeps the shapes"):  # which were read
        rl.explain(str(path))
    monkeypatch.setattr("rooflens.api.replaying.this_machine", lambda _: SimpleNamespace(device=rl.device("t4")))
    with pytest.raises(InvalidValue, match=r"batch is an option of a model, and .* is a record file"):
        rl.replay(str(path), batch=2)
    replayed = Mock(return_value=rl.read(record_file))
    monkeypatch.setattr(rl, "replay", replayed)
    done = CliRunner().invoke(cli, ["replay", str(path)])
    assert done.exit_code == 0, done.output
    assert replayed.call_args.kwargs.keys() == {"progress"}  # no option of a model


@pytest.mark.parametrize("name", CONTENT)
def test_what_unpacks_to_too_much_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(opening, "MOST_BYTES", 100_000)
    monkeypatch.setattr(opening, "MOST_TYPED", 100_000)
    data = (CONTENT[name] + "\n" * 100_000).encode()
    for path, content in ((tmp_path / f"{name}.gz", gzip.compress(data)), (tmp_path / name, data)):
        path.write_bytes(content)
        with pytest.raises(FileError, match=r"holds more than 100000 bytes"):
            rl.read(path)


def test_records_that_are_too_many_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_file: Path
) -> None:
    monkeypatch.setattr(opening, "MOST_ROWS", 2)  # header, case, record
    with pytest.raises(RecordFileError, match=r"holds more than 2 rows"):
        rl.read(record_file)
    database = nsys_samples.database(tmp_path / "x.sqlite", nsys_samples.TRAINING)
    with pytest.raises(FileError, match=r"table StringIds holds more than 2 rows"):
        rl.read(database)


def test_a_line_of_records_without_an_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_LINE", 1000)
    with pytest.raises(RecordFileError, match=r"line 2: it has 1000 characters and more"):
        rl.read(written(tmp_path, "long.jsonl", '{"type": "header", "format": 1}\n' + " " * 1000))


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_of_counters_without_an_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(opening, "MOST_LINE", 1000)
    path = tmp_path / "long.csv"
    data = (COUNTERS + "x" * 1000).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(FileError, match=r"line 3: it has 1000 characters and more"):
        rl.read(path)


def test_a_file_without_a_size_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_BYTES", 1_000_000)
    with pytest.raises(DeviceFileError, match="holds more than 1000000 bytes"):
        load_file("/dev/zero")


@pytest.mark.parametrize(
    ("name", "read", "error"),
    [
        ("d.toml", load_file, DeviceFileError),
        ("s.toml", read_study, StudyFileError),
        ("c.json", lambda path: find_model(f"hf:{path}"), ModelError),
    ],
)
def test_a_file_that_people_write_has_bounds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    read: Callable[[Path], object],
    error: type[RooflensError],
) -> None:
    """One that never ends, one of another encoding, and one with more levels than anybody writes."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(opening, "MOST_TYPED", 1000)
    deep = "[" * 100 + "]" * 100
    path = written(tmp_path, name, deep if name.endswith("json") else f"x = {deep}")
    with pytest.raises(error, match="more than 64 levels"):
        read(path)
    path.write_text(" " * 1001)
    with pytest.raises(error, match="holds more than 1000 bytes"):
        read(path)
    path.write_bytes(b'"\xff"')
    with pytest.raises(error, match="no text in UTF-8"):
        read(path)


def test_levels_are_counted_in_lists_and_objects() -> None:
    for levels, fits in ((opening.MOST_NESTED, True), (opening.MOST_NESTED + 1, False), (100_000, False)):
        for text in ("[" * levels + "]" * levels, '{"a":' * levels + "1" + "}" * levels):
            if fits:
                opening.parsed_json(text, "x")
            else:
                with pytest.raises(FileError, match=f"more than {opening.MOST_NESTED} levels"):
                    opening.parsed_json(text, "x")


RAW = '"ID","Kernel Name","dram__bytes.sum"\n"","","byte"\n' + "".join(f'"{n}","k","5"\n' for n in range(3))
LAUNCH = """  k (1, 1, 1)x(1, 1, 1), Context 1, Stream 7, Device 0, CC {0}.0
    Section: Command line profiler metrics
    ------------------- ----------- ------------
    dram__bytes.sum            byte            5
    ------------------- ----------- ------------
"""
PAGE = "".join(LAUNCH.format(n) for n in (7, 8, 9))


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "".join(row("dram__bytes.sum", "byte", "5", number=n) for n in range(3)),
        HEADER
        + "".join(row("dram__bytes.sum", "byte", "5", pid=n) for n in range(3)),  # none is complete before the end
        RAW,
        PAGE,
    ],
    ids=["long", "processes", "raw", "page"],
)
def test_launches_that_are_too_many_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = written(tmp_path, "three.csv", text)
    assert len(rl.read(path)) == 3
    monkeypatch.setattr(opening, "MOST_LAUNCHES", 2)
    with pytest.raises(FileError, match=r"holds more than 2 launches; write less of it into one file"):
        rl.read(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEADER + row("dram__bytes.sum", "byte", "5") * 21, "line 22: a launch holds more than 20 counters"),
        (HEADER + "".join(row(f"m__{n}.sum", "byte", "5") for n in range(21)), "more than 20 names of counters"),
        (RAW.replace('"Kernel Name"', '"Kernel Name",' + ",".join('"x"' * 20)), "holds more than 20 columns"),
    ],
)
def test_counters_that_are_too_many_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setattr(opening, "MOST_COUNTERS", 20)
    with pytest.raises(FileError, match=says):
        rl.read(written(tmp_path, "many.csv", text))


def test_lines_have_a_bound_beside_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short lines of a file that unpacks to gigabytes would take minutes; line 4 is one too many here."""
    monkeypatch.setattr(opening, "MOST_LINES", 3)
    lines = [COUNTERS.splitlines()[0], *[COUNTERS.splitlines()[1]] * 3]
    for text in ("\n".join(lines), "hello\n" * 4, "a,b\n" * 4, "\n" * 3 + "x"):
        path = tmp_path / "short.csv.gz"
        path.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(FileError, match="holds more than 3 lines"):
            rl.read(path)


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Who opens a pipe waits until somebody writes into it."""
    pipe = tmp_path / "x.csv"
    os.mkfifo(pipe)
    with pytest.raises(FileError, match="it is a pipe; write it into a file first"):
        rl.read(pipe)
    toml = tmp_path / "x.toml"
    os.mkfifo(toml)
    with pytest.raises(DeviceFileError, match="it is a pipe"):
        load_file(toml)


def test_files_that_are_read_in_place_have_the_same_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = nsys_samples.database(tmp_path / "x.sqlite", nsys_samples.TRAINING)
    report = tmp_path / "x.ncu-rep"
    report.write_bytes(b"NVR\x00" + bytes(2000))
    monkeypatch.setattr(opening, "MOST_BYTES", 1000)
    for path in (database, report):
        with pytest.raises(FileError, match="holds more than 1000 bytes"):
            opening.whole_size(path)
        with pytest.raises(FileError, match="holds more than 1000 bytes"):
            rl.read(path)
    with pytest.raises(FileError, match="it is no file"):
        opening.whole_size(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("sums.csv", "Time (%),Total Time (ns),Instances,Avg (ns),Avg (ns),Name\n100,20,2,10,15,k\n", "avg"),
        (
            "sums.csv",
            "Time (%),Total Time (ns),total time (us),Instances,Avg (ns),Name\n100,20,9,2,10,k\n",
            "total time",
        ),
        (
            "nvprof.csv",
            '"Device","Kernel","Invocations","Metric Name","Avg","Avg"\n"P100 (0)","k",1,"flop_count_sp",4,8\n',
            "Avg",
        ),
        (
            "nvprof.csv",
            '"Type","Time(%)","Time","Time","Calls","Avg","Name"\n,%,us,us,,us,\n"GPU activities",100,20,30,2,10,"k"\n',
            "Time",
        ),
        ("counters.csv", HEADER.replace('"Metric Value"', '"Metric Value","Metric Value"'), "Metric Value"),
        ("counters.csv", HEADER.replace('"Kernel Name"', '"Kernel Name","Kernel Name"'), "Kernel Name"),
        ("roofline.csv", "device,HBMBw,HBMBw,L2Bw,L1Bw,FP32Flops\n0,1388.7,2000,3000,8000,20937.7\n", "HBMBw"),
    ],
)
def test_a_column_that_stands_twice_is_an_error(tmp_path: Path, name: str, text: str, column: str) -> None:
    with pytest.raises(FileError, match=f"column '{column}' stands twice"):
        rl.read(written(tmp_path, name, text))
