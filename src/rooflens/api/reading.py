"""Files as records, whoever wrote them: rooflens itself, tools of NVIDIA, the profiler of PyTorch, ERT, NERSC."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rooflens.api.foreign import read_database, read_roofs
from rooflens.devices import by_title
from rooflens.devices.files import slug
from rooflens.errors import FileError, InvalidValue
from rooflens.machine import find
from rooflens.records import AS_IS, Case, Device, Fact, Record
from rooflens.results import RecordSet
from rooflens.sources import roofs
from rooflens.sources.counters import Chip, Found, Statement, stated, statement

Content = Literal["records", "counters", "trace", "database", "roofs"]
Stated = Mapping[str, Mapping[str, str | float]]

_HEAD = 65536
_GZIP = b"\x1f\x8b"
_RECORDS = ".jsonl"
_DATABASE = b"SQLite format 3\x00"
_REPORT = b"NVR\x00"
_PROPERTIES = re.compile(rb'"deviceProperties"\s*:\s*\[([^\]]{0,60000})')
_NAME = re.compile(rb'"name"\s*:\s*"([^"]{1,200})"')
_OTHERS = (
    (b"PK\x03\x04", "an archive: unpack it"),
    (b"\x89HDF", "an HDF5 file, which is not read"),
    (b"%PDF", "a PDF, which is not read"),
)
_KNOWN = (
    "rooflens reads its own records (.jsonl), reports of ncu (.ncu-rep) and what it prints (CSV or text), exports of"
    " nsys (.sqlite), traces of PyTorch's profiler (.json, .json.gz), and roofs of ERT and of NERSC's scripts"
)


def read(
    *paths: str | Path,
    device: str | Device | None = None,
    work: Stated | Iterable[Statement] | None = None,
    case: Mapping[str, Any] | None = None,
) -> RecordSet:
    """The records of one or several files: ``rl.read("report.csv").total().seconds``; twin of ``rooflens read``.

    What a file is, its content says: records that rooflens wrote; a report of Nsight Compute (``.ncu-rep``), or what it
    prints as CSV or text in any layout, a record per launch of a kernel; a trace of PyTorch's profiler (Chrome JSON), a
    record per operation; an SQLite export of Nsight Systems, a record per kernel and copy; what the Empirical Roofline
    Tool measured, a device; roofs and points of NERSC's scripts, a device and records.

    Args:
        device: on which counters and traces were taken; default: the one that the file names.
        work: the algorithm's work of kernels that only you know, by a part or pattern of their name:
            ``{"my_gemm*": {"flops": 2 * 4096**3, "dram": 100663296}}``. Besides ``flops`` a resource may be named
            (``matmul.bf16``). It stands in a case of its own (``work=stated``), beside what was executed.
        case: what the counters and traces are of, where the files do not say: ``{"model": "resnet18", "batch": 32,
            "dtype": "tf32", "mode": "train"}``, any of these. With the records of an estimate of the same case
            among the files, algorithmic work stands beside what was executed; no model is loaded here.

    Raises:
        RecordFileError: a record file is missing, damaged (the line is named) or from a newer version.
        FileError: a file is none of these, is damaged, or holds no launch; ncu's own words are quoted.
        UnknownDevice: `device` is not known.
        UnknownName: no kernel has a name that `work` is about.
    """
    if not paths:
        raise InvalidValue("read needs at least one file")
    known = find(device) if isinstance(device, str) else device
    files = [Path(path) for path in paths]
    names = _names(files)
    first, *others = (_called(_one(file, name, known), case or {}) for file, name in zip(files, names, strict=True))
    together = sum(others, start=first)
    statements = _statements(work)
    if not statements:
        return together
    return replaced(together, (*together.records, *stated(together.records, statements)))


_NAMES = ("model", "batch", "dtype", "mode")


def _called(found: RecordSet, words: Mapping[str, Any]) -> RecordSet:
    """The set with the case that its user names; what rooflens wrote has its own."""
    unknown = sorted(words.keys() - set(_NAMES))
    if unknown:
        raise InvalidValue(f"a case is not told by {unknown[0]!r}; known: {', '.join(_NAMES)}")
    given = {name: value for name, value in words.items() if value is not None}
    if not given or not {"counters", "profile"} & set(found.sources) or "estimate" in found.sources:
        return found
    cases = {case: replace(case, **given) for case in found.cases}
    return replaced(found, (replace(record, case=cases[record.case]) for record in found))


def replaced(records: RecordSet, by: Iterable[Record]) -> RecordSet:
    """The set with other records."""
    return RecordSet(by, devices=records.devices, failures=records.failures, environment=records.environment)


def _statements(work: Stated | Iterable[Statement] | None) -> Sequence[Statement]:
    if work is None:
        return ()
    if isinstance(work, Mapping):
        return [statement(pattern, amounts) for pattern, amounts in work.items()]
    return list(work)


def _names(files: Sequence[Path]) -> list[str]:
    """What the cases are called: the name of the file, and the whole path where two files share it."""
    stems = [file.name.partition(".")[0] or file.name for file in files]
    return [stem if stems.count(stem) == 1 else str(file) for stem, file in zip(stems, files, strict=True)]


def _one(path: Path, name: str, device: Device | None) -> RecordSet:
    if path.suffix.lower() == _RECORDS:
        return RecordSet.load(path)
    content = content_of(path)
    if content == "records":
        return RecordSet.load(path)
    if content == "database":
        return read_database(path, name, device)
    if (kind := roofs.recognised(head_of(path))) is not None:
        return read_roofs(path, kind, name, device)
    return _trace(path, name, device) if content == "trace" else _counters(path, name, device)


def content_of(path: Path) -> Content:
    """What a file holds, by its first bytes.

    Raises:
        FileError: it cannot be opened, is empty, or is nothing that rooflens reads.
    """
    head = head_of(path)
    for sign, what in _OTHERS:
        if head.startswith(sign):
            raise FileError(f"{str(path)!r} is {what}; {_KNOWN}")
    if head.startswith(_DATABASE):
        return "database"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise FileError(f"{str(path)!r} is empty; {_KNOWN}")
    if roofs.recognised(head) is not None:
        return "roofs"
    if text.startswith(b"{"):
        first = text.partition(b"\n")[0].replace(b" ", b"")
        return "records" if b'"type":"header"' in first else "trace"
    if text.startswith(b"["):
        return "trace"
    if head.startswith(_REPORT):
        return "counters"
    if b"\x00" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileError(f"{str(path)!r} is no text; {_KNOWN}")
    return "counters"


def head_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if file.peek(2)[:2] == _GZIP:
                with gzip.GzipFile(fileobj=file) as plain:
                    return plain.read(_HEAD)
            return file.read(_HEAD)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error


def _trace(path: Path, name: str, device: Device | None) -> RecordSet:
    from rooflens.sources import profile

    device = device or _device_of_trace(head_of(path))
    events = profile.read_trace(path)
    case = Case(model=name, device=None if device is None else device.name, dtype=AS_IS)
    records = list(profile.records_of(profile.attribute(events), case, events.notes))
    if any(record.phase in ("backward", "optimizer") for record in records):
        records = [replace(record, case=replace(case, mode="train")) for record in records]
    return RecordSet(records, devices={} if device is None else {device.name: device})


def _device_of_trace(head: bytes) -> Device | None:
    """The device that a trace begins with, if all of its devices are of one kind and the catalogue has it."""
    described = _PROPERTIES.search(head)
    names = set() if described is None else set(_NAME.findall(described[1]))
    return by_title(names.pop().decode(errors="replace"), "gpu") if len(names) == 1 else None


def _counters(path: Path, name: str, device: Device | None) -> RecordSet:
    from rooflens.sources import counters

    def case_of(chip: Chip) -> Case:
        return Case(model=name, device=_device_name(chip, device), dtype=AS_IS)

    contents = counters.contents(repr(str(path)))
    found = counters.found_in(counters.launches(path, contents), contents, case_of)
    devices: dict[str, Device] = {}
    notes: list[str] = []
    for chip in found.chips:
        notes += _describe(chip, found, device, path, devices)
    first, *others = found.records
    return RecordSet((replace(first, notes=(*first.notes, *notes)), *others), devices=devices)


def _known(chip: Chip, told: Device | None) -> Device | None:
    """The device that the user told, else the catalogue's entry for the name in the file."""
    return told or (by_title(chip.title, "gpu") if chip.title else None)


def _device_name(chip: Chip, told: Device | None) -> str | None:
    known = _known(chip, told)
    return known.name if known is not None else slug(chip.title) if chip.title else None


def _describe(chip: Chip, found: Found, told: Device | None, path: Path, devices: dict[str, Device]) -> list[str]:
    """Add a chip's ceilings to `devices`: those that are known, and those that the file holds; what to know of them."""
    known, name = _known(chip, told), _device_name(chip, told)
    if known is not None:
        devices[known.name] = known
    counted = _as_counted(chip, found, known, path)
    if counted is not None:
        devices[counted.name] = counted
        what = "those of the case, for want of a device file" if counted.name == name else f"device {counted.name!r}"
        return [f"the ceilings that the file holds (peaks per cycle at the clock of the run) are {what}"]
    if name is None:
        which = f" but its compute capability, {chip.cc}" if chip.cc else ""
        return [f"the file tells nothing of its device{which}; name it (--device) for bounds"]
    return []


def _as_counted(chip: Chip, found: Found, known: Device | None, path: Path) -> Device | None:
    """What the hardware can do per cycle, as the file says, at the clock of the file."""
    peaks = found.peaks.get(chip)
    if peaks is None:
        return None
    title = known.title if known is not None else chip.title or f"GPU of compute capability {chip.cc}"
    facts = {} if found.clock is None else {"clock": Fact(value=found.clock, origin="measured", reference=path.name)}
    return Device(
        name=f"{known.name}-ncu" if known is not None else slug(title),
        title=f"{title}, peaks in {path.name}",
        vendor="NVIDIA",
        kind="gpu",
        arch=known.arch if known is not None else "",
        ceilings=tuple(peaks.ceilings(f"{path.name}: peak_sustained at the clock of the run")),
        facts=facts,
    )
