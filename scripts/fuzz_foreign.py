"""Exports of Nsight Systems and roofs of others: seeds for the fuzzer, and a comparison with what the readers accept.

As in fuzz_oracles.py, an AssertionError means a number that is not in the file.
"""

from __future__ import annotations

import io
import json
import math
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import rooflens as rl
from rooflens.errors import FileError
from rooflens.readers.reader import ReadContext
from rooflens.readers.reader_list import read_file
from rooflens.records import Case
from rooflens.sources import roofs
from rooflens.sources.profile import kernel_times, nsys, nvprof
from rooflens.units import MOST

sys.path.append(str(Path(__file__).parents[1]))
from scripts import fuzz_oracles
from scripts.fuzzing import FOLDER
from tests import nsys_samples, nvprof_samples, rocprof_samples, roof_samples, test_kernel_times

ACTIVITIES = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")]
LOOSE = {table: columns.replace(" NOT NULL", "") for table, columns in nsys_samples.SCHEMA.items()}
"""Without the constraints by which SQLite itself would refuse a damaged cell."""
PAGE = 512
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
DATABASE_WORDS = (b"CREATE TABLE ", b"CREATE VIEW ", b"CUPTI_ACTIVITY_KIND_KERNEL", b"NVTX_EVENTS", b"start", b"end")
ROW_WORDS = (
    *(b"null", b'"CUPTI_ACTIVITY_KIND_KERNEL": ', b'"StringIds": ', b'"NVTX_EVENTS": ', b"[1, 2, 0, 1, 7, 3, 4, 1, 1]"),
    *(
        b'"rooflens:module:a"',
        b'"rooflens:phase:backward"',
        b'"aten::mm, seq = 5"',
        b"-1",
        b"1.5",
        b"9223372036854775807",
    ),
    b'"autograd::engine::evaluate_function: MmBackward0, seq = 5"',
)
ROOF_WORDS = (
    *(b"memroofs ", b"mem_roof_names ", b"comproofs ", b"comp_roof_names ", b"AI_L2 ", b"FLOPS", b"labels ", b"'L1' "),
    *(b'"empirical": {', b'"gbytes": ', b'"data": [', b'["L1", 5]', b"META_DATA\n", b" GFLOPs EMP\n", b" DRAM\n"),
    *(b"GPU_BLOCKS 1\n", b"all FLOPs", b"Kernel Name", b"Count", b"64 1000 1.000 128000 64000\n"),
)


def databases() -> list[bytes]:
    """Small databases whose pages are small too: most of a page is empty, and damage there does nothing."""
    path = FOLDER / "seed.sqlite"
    seeds = []
    for rows in (nsys_samples.TRAINING, {ACTIVITIES[0]: nsys_samples.TRAINING[ACTIVITIES[0]]}):
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("VACUUM")
        seeds.append(nsys_samples.database(path, rows).read_bytes())
    return seeds


def database(data: bytes) -> None:
    """A damaged file; it is made as long as its header says, for what was cut is refused at once."""
    path = FOLDER / "bytes.sqlite"
    pages = int.from_bytes(data[28:32])
    path.write_bytes(data.ljust(PAGE * pages, b"\x00") if pages < 1000 else data)
    _read(path)


def row_files() -> list[bytes]:
    """The rows of the samples as JSON."""
    return [json.dumps({"StringIds": list(enumerate(nsys_samples.STRINGS)), **nsys_samples.TRAINING}).encode()]


def rows(data: bytes) -> None:
    """A sound database of any rows: what JSON or SQLite refuses is no case."""
    path = FOLDER / "rows.sqlite"
    path.unlink(missing_ok=True)
    try:
        listed = json.loads(data)
        with closing(sqlite3.connect(path)) as connection:
            for table, lines in listed.items():
                connection.execute(f"CREATE TABLE {table} ({LOOSE[table]})")
                for line in lines:
                    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(line))})", line)
            connection.commit()
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, sqlite3.Error) as error:
        raise FileError(f"no rows: {error}") from error
    _read(path)


def _read(path: Path) -> None:
    """Every record of a kernel or copy lasts as long as a row, and each row gives one."""
    export = nsys.read_export(path)
    found = list(nsys.records_of(export, lambda card: Case(model="fuzz", options=(("gpu", str(card)),))))
    ours = sorted(record.timing.median for record in found if record.timing is not None)
    theirs = sorted((end - start) / 1e9 for start, end in _times(path))
    notes = " ".join(note for record in found for note in record.notes)
    if any(word in notes for word in ("count once", "count until then", "belong to no step", "steps")):
        if math.fsum(ours) > math.fsum(theirs) * (1 + 1e-9):
            raise AssertionError(f"records last {sum(ours)} s, rows {sum(theirs)} s")
    elif ours != theirs:
        raise AssertionError(f"{len(ours)} records last {sum(ours)} s, {len(theirs)} rows {sum(theirs)} s")


def _times(path: Path) -> Iterator[tuple[int, int]]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = bytes
        has = {name.decode(errors="replace") for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        for table in ACTIVITIES:
            if table in has:
                yield from connection.execute(f"SELECT start, end FROM {table}")


TIME_WORDS = (
    *(b"Time (%)", b"Total Time (ns)", b"Instances", b"Avg (ns)", b"Min (ns)", b"Max (ns)", b"Name", b"Operation"),
    *(
        b"Category",
        b"Start (ns)",
        b"Duration (us)",
        b"Strm",
        b"Device",
        b'"Kind"',
        b'"Kernel_Name"',
        b"Start_Timestamp",
    ),
    *(b"End_Timestamp", b'"TotalDurationNs"', b'"Calls"', b"CUDA_API", b"(0)", b"1e3", b"0x1", b"-5", b"\n\n"),
)
_UNITS = (1e-9, 1e-6, 1e-3, 1.0)


def time_tables() -> list[bytes]:
    samples = [value for name, value in vars(test_kernel_times).items() if name.isupper() and isinstance(value, str)]
    return [text.encode() for text in samples if "Num Calls" not in text]  # those are refused


def _decimals(texts: Iterable[str]) -> Iterator[Decimal]:
    """Numbers with all digits, but for those whose exponent no decimal holds."""
    for text in texts:
        try:
            yield Decimal(text)
        except ArithmeticError:
            continue


def time_table(data: bytes) -> None:
    """The time of each launch, and the mean or the total of each sum, is a number of the file in one of the units."""
    text = data.decode(errors="replace")
    times = kernel_times.read_tables(io.StringIO(text), "fuzz")
    found = _NUMBER.findall(text)
    written = [float(match) for match in found]
    stamps = set(_decimals(match for match, value in zip(found, written, strict=True) if value <= MOST))
    doubted = any("count" in note for note in times.notes)

    def stands(seconds: float) -> bool:
        known = (number * unit for number in written for unit in _UNITS)
        return any(math.isclose(seconds, its, rel_tol=1e-9, abs_tol=1e-18) for its in known)

    spans = [float(end - start) * 1e-9 for start in stamps for end in stamps if end >= start]
    for launch in times.launches:
        between = any(math.isclose(launch.seconds, span, rel_tol=1e-9) for span in spans)
        if not (stands(launch.seconds) or doubted or between):
            raise AssertionError(f"{launch.seconds} s stand nowhere in the file")
    for its in times.sums:
        if not (stands(its.mean) or stands(its.mean * its.calls)):
            raise AssertionError(f"{its.mean} s of {its.calls} calls stand nowhere in the file")


def nvprof_logs(data: bytes) -> None:
    """Every time and every metric is a number of the file, but for its unit."""
    path = FOLDER / "log.csv"
    path.write_bytes(data)
    file = nvprof.read_nvprof(path)
    list(nvprof.nvprof_records(file, lambda title, gpu: Case(model=title or "fuzz", options=(("gpu", gpu or 0),))))
    cells = [float(match) for match in _NUMBER.findall(data.decode("utf-8-sig", errors="replace"))]
    seconds = [activity.seconds for activity in file.activities] + [mean for _, mean, _ in file.summed]
    metrics = [value for its in file.metrics.values() for value in its.values()]
    for number in (*seconds, *metrics):
        if not any(math.isclose(number, cell * 10**power, rel_tol=1e-9) for cell in cells for power in (0, -3, -6, -9)):
            raise AssertionError(f"{number} stands nowhere in the file")


def any_files() -> list[bytes]:
    """A file of each kind that readers recognise and that no other process reads."""
    return [
        *(its[0] for its in (databases(), roof_files(), time_tables(), nvprof_samples.FILES)),
        *(its[0] for its in (fuzz_oracles.record_files(), fuzz_oracles.traces(), rocprof_samples.FILES)),
    ]


def any_file(data: bytes) -> None:
    """A file that is read is shown and checked without an error, and every time of a record is a finite number."""
    path = FOLDER / "any"
    path.write_bytes(data)
    found = read_file(path, ReadContext(name="fuzz"))
    for record in found:
        if record.timing is not None and not all(math.isfinite(sample) for sample in record.timing.samples):
            raise AssertionError(f"a record has the samples {record.timing.samples}")
    if found.records:  # else it holds roofs
        rl.table(found, format="json")
        rl.check(found)


def roof_files() -> list[bytes]:
    return [text.encode() for text in (*roof_samples.VALID.values(), roof_samples.SUM)]


def roof(data: bytes) -> None:
    """Every rate of a device, and every quotient of a point, is a number that the file holds."""
    path = FOLDER / "roofs"
    path.write_bytes(data)
    found = roofs.read_roofs(path, "fuzz")
    if (
        b"META_DATA" in data
        and found.device is not None
        and "trials" in {c.reference[:6] for c in found.device.ceilings}
    ):
        return  # rates of single runs are quotients
    written = {float(match) for match in _NUMBER.findall(data.decode("utf-8-sig"))}
    for number in _numbers(found, roofs.format_of(data)):
        if not any(math.isclose(number, its, rel_tol=1e-9) for its in written):
            raise AssertionError(f"{number} stands nowhere in the file")


def _numbers(found: roofs.Roofs, kind: roofs.RoofFormat | None) -> Iterable[float]:
    for ceiling in () if found.device is None else found.device.ceilings:
        if ceiling.origin != "derived":
            yield ceiling.rate / 1e9
    for record in found.records:
        assert record.work is not None
        if kind == "NERSC table":
            yield from (n * record.calls for n in record.work.bytes.values())
        else:
            flops = record.work.total_flops
            yield flops / 1e9
            yield from (flops / n for n in record.work.bytes.values())
