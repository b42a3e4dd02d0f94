"""The list of readers: what a file is, its content says, and other packages add readers."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import nsys_samples
from tests.roof_samples import KEYWORDS, SUM

import rooflens as rl
from rooflens.errors import FileError, UnknownFormat
from rooflens.readers import readers

ROOT = Path(__file__).parents[1]
SIGNS = {
    "records": b'{"type": "header", "format": 1}\n',
    "Nsight Systems": b"SQLite format 3\x00",
    "ncu report": b"NVR\x00",
    "ERT": SUM.encode(),
    "NERSC": KEYWORDS.encode(),
    "rocprof-compute roofs": b"device,HBMBw,FP32Flops\n0,1388.7,20937.7\n",
    "nvprof": b"==9== NVPROF is profiling process 9, command: ./a.out\n",
    "rocprof": b'"Index","KernelName","gpu-id","queue-id","grd","wgr","DurationNs","FETCH_SIZE"\n',
    "rocprof 3": b'"Correlation_Id","Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value"\n',
    "kernel times": b"Time (%),Total Time (ns),Instances,Avg (ns),Name\n",
    "trace": b'{"traceEvents": []}',
    "ncu text": b"[4711] python3.11@127.0.0.1\n  kernel\n",
}


def test_each_format_is_recognised_by_its_reader_first() -> None:
    assert {name: next(r.name for r in readers() if r.recognises(head)) for name, head in SIGNS.items()} == {
        name: name for name in SIGNS
    }
    assert {reader.name for reader in readers()} == SIGNS.keys()


@pytest.mark.parametrize("content", [b"hello\n", b'{"schema": "1.0", "nodes": []}', b"\x00\x01", b"%PDF-1.4"])
def test_a_file_of_no_format_lists_all_that_are_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "what"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat) as raised:
        rl.read(path)
    assert repr(str(path)) in str(raised.value)
    assert all(reader.reads in str(raised.value) for reader in readers())


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("table.csv", b"a,b,c\n1,2,3\n", "a table with the columns a, b, c;"),
        ("word", b"hello\n", "a text that begins 'hello';"),
        ("trace.json", b'{"schema": "1.0", "nodes": []}', "an execution trace of PyTorch, with operators and no times"),
        (
            "config.json",
            b'{"model_type": "llama"}',
            "a model's configuration: 'rooflens estimate hf:",
        ),
        ("x.nsys-rep", b"\x01\x00", "'nsys export --type sqlite FILE' makes one"),
        ("model.onnx", b"\x08\x08\x12\x07pytorch", "'rooflens estimate FILE' counts its work"),
        ("sums.csv", b"Time (%);Total Time (ns);Instances;Name\n", "a table that is separated by ';'"),
        ("sums.tsv", b"Time (%)\tTotal Time (ns)\tName\n", "separated by '.t'"),
        ("sums.txt", b"\n ** GPU Kernels:\n\n Total Time (ns)  Name\n", "for people: write CSV"),
        ("sums.json", b'[{"Time (%)": 1, "Total Time (ns)": 2, "Name": "k"}]', "nsys stats as JSON: write CSV"),
        ("weights.pt", b"PK\x03\x04", "an archive"),
        ("figures.csv", b"model,quantity,value\n", "'rooflens check FILE' takes them"),
        ("mine.toml", b'title = "x"\n', "name a device with --device FILE"),
        ("results.json", b'{"rocprofiler-sdk-tool": []}', r"write CSV \(--output-format csv\)"),
    ],
)
def test_an_unknown_file_is_told_what_it_seems_to_be(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match=f"seems to be .*{says}"):
        rl.read(path)


def test_a_text_page_that_begins_with_its_process_is_no_list(tmp_path: Path) -> None:
    page = (
        "[4711] python3.11@127.0.0.1\n"
        "  scale(float *, int) (256, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.0\n"
        "    Section: Command line profiler metrics\n"
        "    ----------------- ----------- ------------\n"
        "    Metric Name       Metric Unit Metric Value\n"
        "    ----------------- ----------- ------------\n"
        "    dram__bytes.sum          byte          640\n"
        "    ----------------- ----------- ------------\n"
    )
    path = tmp_path / "page.txt"
    path.write_text(page)
    (record,) = rl.read(path)
    assert record.name == "scale(float *, int)"
    assert record.work is not None
    assert record.work.bytes == {"dram": 640}


def test_a_compressed_database_says_what_to_do(tmp_path: Path) -> None:
    plain = nsys_samples.database(tmp_path / "x.sqlite", nsys_samples.TRAINING)
    packed = tmp_path / "x.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(FileError, match="unpack it"):
        rl.read(packed)


PLUGIN = """
from rooflens.readers import Reader
from rooflens.records import Case, Record, Timing
from rooflens.results import RecordSet

def read(path, context):
    seconds = float(path.read_text().split()[1])
    case = Case(model=context.name, device=context.device_name("Tesla T4"), dtype="fp32")
    record = Record(case=case, source="profile", scope="kernel", name="k", kind="other",
                    timing=Timing(samples=(seconds,), origin="profiler"))
    return RecordSet([record])

def recognises(head):
    return head.startswith(b"SECONDS")

SECONDS = Reader(name="seconds", reads="files of seconds", recognises=recognises, read=read)
NO_READER = "just a text"
"""


def distribution(folder: Path, module: str, source: str, entry_points: str) -> None:
    """What pip would leave of an installed package."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """A new interpreter, to which the packages in `folder` are installed."""
    search = os.pathsep.join([str(ROOT / "src"), str(folder)])
    environment = os.environ | {"PYTHONPATH": search}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_a_package_adds_a_reader(tmp_path: Path) -> None:
    named = {"broken": "no_such_module:X", "seconds": "seconds_reader:SECONDS", "wrong": "seconds_reader:NO_READER"}
    points = "\n".join(["[rooflens.readers]", *(f"{name} = {value}" for name, value in named.items())])
    distribution(tmp_path, "seconds_reader", PLUGIN, points)
    (tmp_path / "a.txt").write_text("SECONDS 0.25")
    (tmp_path / "b.txt").write_text("hello")
    code = f"""
import rooflens as rl
(record,) = rl.read({str(tmp_path / "a.txt")!r})
print(record.case.device, record.timing.median)
try:
    rl.read({str(tmp_path / "b.txt")!r})
except rl.RooflensError as error:
    print(error)
"""
    done = run(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert "tesla-t4 0.25" in done.stdout
    assert "files of seconds" in done.stdout.splitlines()[-1]
    assert "the plug-in 'broken' (rooflens.readers: no_such_module:X) is left out: ModuleNotFoundError" in done.stderr
    assert "the plug-in 'wrong' (rooflens.readers: seconds_reader:NO_READER) is left out: TypeError" in done.stderr
