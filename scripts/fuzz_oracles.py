"""Compare what the readers accept with a few lines of csv, json and tomllib that are independent of rooflens.

Each function reads bytes with a reader, and raises AssertionError where it gives a number that is in no
whole row of the input.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.fuzzing import FOLDER

from rooflens.checks import examine
from rooflens.devices import files as device_files_of
from rooflens.opening import opened_lines
from rooflens.records import (
    Call,
    Case,
    Ceiling,
    Device,
    Fact,
    Failure,
    Record,
    RecordFile,
    Silicon,
    Tensor,
    Timing,
    Work,
    read_records,
    write_records,
)
from rooflens.reported import read_figures
from rooflens.results import RecordSet
from rooflens.sources import counters as counters_of
from rooflens.sources import profile
from rooflens.sources.counters.reports.outline import outline
from rooflens.sources.profile import chrome
from rooflens.study import cells, read_study

POWERS = (0, -9, -6, -3, 3, 6, 9, 12, 15)
EVERYTHING = """\
title = "Everything"
question = "Which is faster?"
models = ["resnet18", "alexnet"]
devices = ["V100 SXM2 16GB", "t4"]
batches = [1, 64]
dtypes = ["fp32", "amp-bf16"]
modes = ["inference", "train"]
img_sizes = [112, 224]
sources = ["estimate", "measure"]
budget = 7200
[options]
channels_last = [false, true]
optimizer = "adamw"
[measure]
budget = 0.5
[[exclude]]
model = "resnet*"
batch = ">= 64"
why = "does not fit"
[[hypothesis]]
text = "The V100 is faster"
quantity = "time"
left = {device = "V100 SXM2 16GB", times = 2}
relation = "<"
right = {device = "t4", phase = "forward"}
for = "most model"
margin = "5 %"
[cluster.home]
partition = "gpu"
time = "1-02:00:30"
[cluster.home.devices."V100 SXM2 16GB"]
gres = "gpu:v100:1"
"""
LONGEST_ROW = 40
"""Lines."""
_CELL = re.compile(r"[+-]?[\d.,]*\d[\d.,]*(?:[eE][+-]?\d+)?", re.ASCII)
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SPACES = re.compile(r"(?<=\d)[ '\u2019\u00a0\u202f](?=\d)")
_FACTS = ("display_name", "capability_major", "capability_minor", "frequency_khz", "warp_size")
_ACTIVITIES = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}


def counters(data: bytes) -> None:
    """Every value of a launch stands in a cell of a whole row, below or beside the name of its counter."""
    path = FOLDER / "report.csv"
    path.write_bytes(data)
    reading = counters_of.CounterReading("report.csv")
    launches = list(counters_of.launches(path, reading))
    values = [dict(launch.counters) for launch in launches]  # sums that follow from rates are added to them
    counters_of.found_in(iter(launches), reading, lambda chip: Case(model=chip.title or "fuzz"))
    with opened_lines(path) as lines:
        named, unnamed = _numbers(list(lines))
    for counted in values:
        for name, value in counted.items():
            known = named.get(name, set()) | unnamed
            if value is not None and not any(_rounded(value / 10**power) in known for power in POWERS):
                raise AssertionError(f"{name} is {value!r}, which stands nowhere beside it")


def _numbers(lines: Sequence[str]) -> tuple[dict[str, set[float]], set[float]]:
    """The numbers in cells of whole rows by the name of their counter, and those beside a label or in a text page."""
    named: dict[str, set[float]] = {}
    unnamed: set[float] = set()
    header: list[str] = []
    for line, row in _rows(lines):
        if "Kernel Name" in row and row[0] in ("ID", "Process ID"):
            header = row
        elif "Metric Name" in header:
            place = header.index("Metric Name")
            name = row[place] if len(row) > place else ""
            target = named.setdefault(name, set()) if "__" in name else unnamed
            target.update(number for cell in row[place + 1 :] for number in _readings(cell))
        else:
            for name, cell in zip(header, row, strict=False):
                named.setdefault(name, set()).update(_readings(cell))
        if '"' not in line:  # of a page for people, where words stand side by side
            unnamed.update(number for word in line.split() for number in _readings(word))
    return named, unnamed


def _rows(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Lines, and the whole rows of CSV that begin in them; a row goes on where a quote is open."""
    plain = [line.rstrip("\r\n") for line in lines]
    for n, line in enumerate(plain):
        end, quotes = n + 1, line.count('"')
        while quotes % 2 and end < min(len(plain), n + LONGEST_ROW):
            quotes += plain[end].count('"')
            end += 1
        for row in _row("\n".join(plain[n:end])) or [[]]:
            yield line, row


def _row(text: str) -> list[list[str]]:
    try:
        return list(csv.reader([text], strict=True))
    except csv.Error:
        return []


def _readings(cell: str) -> Iterator[float]:
    """The numbers that a cell may stand for, by locale."""
    text = _SPACES.sub("", cell)
    if len(text) > 60 or not _CELL.fullmatch(text):
        return
    for plain in (text.replace(",", ""), text.replace(".", "").replace(",", ".")):
        try:
            yield _rounded(float(plain))
        except ValueError:
            continue


def _rounded(number: float) -> float:
    return float(f"{number:.10g}")


def report(data: bytes) -> None:
    """The results of a report of ncu lie within it, and each is asked for once. (Reading them is another process's.)"""
    found = outline(io.BytesIO(data), len(data), "fuzz.ncu-rep")
    if sum(found.sizes) > len(data):
        raise AssertionError(f"{len(found.sizes)} results have {sum(found.sizes)} bytes in a file of {len(data)}")
    if sorted(found.ordered()) != list(range(len(found.sizes))):
        raise AssertionError("not every result is asked for once")


def trace(data: bytes) -> None:
    """The time on the device is the sum of the durations in the file, and records hold no more than that."""
    events = chrome.parse_trace(data, "fuzz.json")
    shares = profile.attribute(events)
    made = list(profile.records_of(shares, Case(model="fuzz"), events.notes))
    text = re.sub(r":\s*-?(?:inf|nan|NaN|Infinity)(?=\s*[,}\]])", ": null", data.decode(errors="replace"))
    decoded = json.loads(text, strict=False)
    listed = decoded if isinstance(decoded, list) else decoded["traceEvents"]
    complete = [event for event in listed if event.get("ph") == "X" and event.get("cat") in _ACTIVITIES]
    times = [(float(event["ts"]), float(event["dur"])) for event in complete]
    told = [duration for start, duration in times if start or duration]
    seconds, whole = sum(activity.seconds for activity in events.activities), sum(told) * 1e-6
    doubted = any("count once" in note or "count until then" in note for note in events.notes)
    same = len(told) == len(events.activities) and math.isclose(seconds, whole, rel_tol=1e-9)
    if not same and not (doubted and seconds <= whole * (1 + 1e-9)):
        raise AssertionError(f"{len(events.activities)} activities of {seconds} s, and the file holds {len(told)}")
    if len(times) - len(told) != sum(
        int(note.split()[0]) for note in events.notes if "kernels, copies and fills have" in note
    ):
        raise AssertionError("events were left out and not counted")
    summed = sum(sum(record.timing.samples) for record in made if record.timing is not None)
    of_steps = sum(share.seconds for share in shares if share.step is not None)
    if not math.isclose(summed, of_steps, rel_tol=1e-9, abs_tol=1e-15):
        raise AssertionError(f"records hold {summed} s, what was attributed is another sum")


def records(data: bytes) -> None:
    """There is a record for each line of one, with its samples; what was read is written and read again as it is."""
    path = FOLDER / "records.jsonl"
    path.write_bytes(data)
    found = read_records(path)
    entries = [json.loads(line) for line in data.decode("utf-8-sig").split("\n") if line.strip()]
    samples = [
        [float(sample) for sample in entry["timing"]["samples"]] if entry.get("timing") else None
        for entry in entries
        if entry["type"] == "record"
    ]
    if samples != [None if record.timing is None else list(record.timing.samples) for record in found.records]:
        raise AssertionError(f"{len(found.records)} records do not have the samples of {len(samples)} lines")
    write_records(path, found)
    if read_records(path) != found:
        raise AssertionError("what was read is another thing when it is written and read again")


def figures(data: bytes) -> None:
    """Every figure is a number of its own row times a unit; the checks look at all of them."""
    path = FOLDER / "figures.csv"
    path.write_bytes(data)
    found = read_figures(path)
    rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    values = [cell.strip().lower() for cell in rows[0]].index("value")
    below = [row for row in rows[1:] if any(cell.strip() for cell in row)]
    if len(below) != len(found):
        raise AssertionError(f"{len(found)} figures of {len(below)} rows")
    for figure, row in zip(found, below, strict=True):
        if figure.value is None:
            continue
        if not row[values].strip().isascii() or not _is_scaled(figure.value, float(row[values].strip())):
            raise AssertionError(f"{figure.quantity} is {figure.value!r}, and its row says {row[values]!r}")
    list(examine(found, RecordSet(())))


def _is_scaled(value: float, number: float) -> bool:
    """Whether a value is a number in some unit: by powers of 1000 or of 1024, in percent, minutes or hours."""
    if not value or not number:
        return value == number or abs(number) < 1e-290
    ratio = value / number
    factors = (1.0, 0.01, 60.0, 3600.0, 2.0, *(1000.0**n for n in range(-4, 7)), *(1024.0**n for n in range(1, 7)))
    return any(math.isclose(ratio, factor, rel_tol=1e-6) for factor in factors)


def device(data: bytes) -> None:
    """Every rate that is not derived is a number of the file times a power of ten."""
    text = data.decode("utf-8", errors="replace")
    found = device_files_of.read_device(text, "fuzz.toml").device
    numbers = {float(number) for number in _NUMBER.findall(text.replace("_", ""))}
    tomllib.loads(text)
    for ceiling in found.ceilings:
        if ceiling.origin != "derived" and not any(_is_scaled(ceiling.rate, number) for number in numbers if number):
            raise AssertionError(f"{ceiling.resource} has {ceiling.rate!r}, which stands nowhere")


def study(data: bytes) -> None:
    """Whole numbers of a study stand in its file, and its cells can be listed."""
    path = FOLDER / "study.toml"
    path.write_bytes(data)
    found = read_study(path).study
    written = {int(number) for number in re.findall(r"[0-9]+", data.decode(errors="replace").replace("_", ""))}
    for cell in cells(found, FOLDER):
        if cell.case.batch is not None and cell.case.batch not in written:
            raise AssertionError(f"{cell.case.label()} has a batch that stands nowhere")


def shortened(data: bytes, rows: int) -> bytes:
    """The beginning of a file: so many lines behind its header; of a raw page the columns that matter most.

    Rows of a raw page stand there twice, under new numbers: what repeats is read another way.
    """
    lines = data.decode().splitlines(keepends=True)
    header = next(n for n, line in enumerate(lines) if line.startswith('"ID"'))
    found = list(csv.reader(lines[header : header + 1 + rows]))
    if "Metric Name" in found[0]:
        return "".join(lines[: header + 1 + rows]).encode()
    kept = [i for i, name in enumerate(found[0]) if "__" not in name or name.endswith((".sum", *_FACTS))]
    table = [[row[i] for i in kept] for row in found]
    table += [[str(100 + n), *row[1:]] for n, row in enumerate(table[2:])]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    return text.getvalue().encode()


def traces() -> list[bytes]:
    """A step with a module, a kernel, a copy, backward on another thread, and an arrow."""

    def event(cat: str, name: str, start: float, duration: float, thread: int = 1, **args: object) -> dict[str, object]:
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": start,
            "dur": duration,
            "pid": 1,
            "tid": thread,
            "args": args,
        }

    def arrow(half: str, start: float, thread: int) -> dict[str, object]:
        return {"ph": half, "cat": "fwdbwd", "name": "fwdbwd", "ts": start, "pid": 1, "tid": thread, "id": 3}

    forward = {"External id": 1, "Sequence number": 4, "Input Dims": [[2, 3], [3, 2]]}
    events = [
        event("user_annotation", "rooflens:phase:forward", 1, 20),
        event("user_annotation", "rooflens:module:layer1", 2, 15),
        event("cpu_op", "aten::mm", 3, 9, 1, **forward),
        event("cuda_runtime", "cudaLaunchKernel", 4, 1, correlation=2),
        event("kernel", "gemm", 6, 4, 7, correlation=2, device=0, stream=7),
        event("cpu_op", "MmBackward0", 30, 9, 2, **{"External id": 5, "Sequence number": 4, "Fwd thread id": 1}),
        event("cuda_runtime", "cudaLaunchKernel", 31, 1, 2, correlation=6),
        event("kernel", "gemm", 33, 4, 7, correlation=6, device=0, stream=7),
        event("gpu_memcpy", "Memcpy HtoD", 40, 2, 7, correlation=9, device=0, stream="7"),
        event("kernel", "lost", 0, 0, 7, correlation=11),
        arrow("s", 3, 1),
        arrow("f", 30, 2),
    ]
    host = [entry for entry in events if entry["cat"] not in _ACTIVITIES]
    listed = json.dumps(events).encode()
    return [json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), listed, json.dumps(host).encode()]


def reports() -> list[bytes]:
    """Reports of ncu without what is in their results: the blocks of two processes, one with details of the session."""
    version = b"\x1a\x1f\x42\x1d\x0a\x15Nsight Compute Target\x12\x042025"
    blocks = [
        b"\x10\x00\x28\x00" + version,
        b"\x08\x01\x28\x64\x32\x02\x08\x05" + b"s" * 0x64,
        b"\x10\x01\x28\x64\x32\x02\x08\x05" + b"r" * 0x64,
        b"\x10\x02\x28\x7f\x32\x02\x08\x06" + b"r" * 0x7F,
    ]
    head = b"NVR\x00\x02\x00\x00\x00\x08\x07"
    sizes = (len(blocks[0]), 8, 8, 8)
    parts = [size.to_bytes(4, "little") + block for size, block in zip(sizes, blocks, strict=True)]
    return [head + b"".join(parts[:number]) for number in range(len(parts) + 1)]


def record_files() -> list[bytes]:
    """A record file of this format, of format 3 and of format 1."""
    case = Case(model="net", device="t4", batch=8, options=(("img_size", 64), ("compile", True)))
    work = Work(flops={"matmul.fp32": 2.0, "vector.fp32": 3}, bytes={"dram": 64}, missing=frozenset({"odd"}))
    timing = Timing(samples=(1e-3, 2e-3), origin="monotonic", cold=0.5)
    silicon: dict[str, Silicon] = {"dram": "memory", "matmul.fp32": "fma", "vector.fp32": "fma"}
    ceilings = tuple(
        Ceiling(resource=name, rate=3.2e11, silicon=its, origin="user", reference="told")
        for name, its in silicon.items()
    )
    tesla = Device(
        name="t4",
        title="T4",
        vendor="NVIDIA",
        kind="gpu",
        arch="Turing",
        ceilings=ceilings,
        facts={"memory": Fact(value=16e9)},
    )
    square = Tensor((2, 2), "fp32", 16, strides=(2, 1), offset=0)
    call = Call("mm", (("self", square), ("mat2", square)), (square,), 32, 16)
    made = (
        Record(case=case, source="estimate", scope="op", path="a.b", kind="matmul", name="mm", work=work, call=call),
        Record(case=case, source="measure", scope="model", timing=timing, calls=3, notes=("once",)),
    )
    failure = Failure(case=case, source="measure", stage="forward", kind="out of memory", message="no room")
    path = FOLDER / "seed.jsonl"
    write_records(path, RecordFile(records=made, failures=(failure,), devices={"t4": tesla}))
    now = path.read_bytes()
    lines = [json.loads(line) for line in now.splitlines()]
    return [now, _of_format(3, lines), _of_format(1, [line for line in lines if line["type"] != "call"])]


def _of_format(version: int, lines: Sequence[dict[str, Any]]) -> bytes:
    """Lines of a record file without the promise and the mark that format 4 brought."""
    header = {"type": "header", "format": version, "devices": lines[0]["devices"]}
    left_out = {"call", "layouts"} if version < 2 else set()
    older = [header, *({k: v for k, v in its.items() if k not in left_out} for its in lines[1:-1])]
    return b"".join(json.dumps(line).encode() + b"\n" for line in older)


def studies() -> list[bytes]:
    """A small study, and one that uses what there is."""
    small = 'title = "Small"\nmodels = ["resnet18", "alexnet"]\nbatches = [1, 2]\ndevices = ["t4"]\n'
    return [small.encode(), EVERYTHING.encode()]


def device_files() -> list[bytes]:
    """Some of the catalogue's files: with rates by type, tables, derived rates, links and notes."""
    catalogue = Path(device_files_of.__file__).parent / "catalogue"
    return [path.read_bytes() for path in sorted(catalogue.rglob("*.toml"))[::12]]
