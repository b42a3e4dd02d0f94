"""Record files: JSON lines, one object per line.

The first line is the header: format version, environment and the devices that the cases name, whole, so that a file can
be read where the catalogue has changed or where a device was the user's own. Then come ``case`` lines, each with a
number, and ``record`` and ``failure`` lines that refer to a case by its number.

Format history (the version rises when an older reader would misunderstand a file):

1. first version
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rooflens.errors import OutputError, RecordFileError
from rooflens.records.device import Device
from rooflens.records.record import Case, Environment, Failure, Record

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """The contents of a record file."""

    records: tuple[Record, ...]
    failures: tuple[Failure, ...] = ()
    devices: Mapping[str, Device] = field(default_factory=dict)
    environment: Environment | None = None


def write_records(path: Path, contents: RecordFile) -> None:
    """Write a record file; it appears whole or not at all.

    Raises:
        OutputError: the folder does not exist or cannot be written.
    """
    write_atomically(path, "".join(f"{line}\n" for line in _lines(contents)))


def check_writable(path: Path) -> None:
    """Raise OutputError now if `path` could not be written later, after the work.

    Raises:
        OutputError: the folder cannot be made or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}; choose another place with -o") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside `path` under a temporary name, then rename.

    Raises:
        OutputError: the folder cannot be made or written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}; choose another place with -o") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}; choose another place with -o") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _lines(contents: RecordFile) -> Iterable[str]:
    import msgspec

    def line(kind: str, value: object, **more: object) -> str:
        fields = msgspec.to_builtins(value) if value is not None else {}
        return msgspec.json.encode({"type": kind, **more, **fields}).decode()

    yield line("header", None, format=FORMAT, environment=contents.environment, devices=contents.devices)
    numbers: dict[Case, int] = {}
    for kind, items in (("record", contents.records), ("failure", contents.failures)):
        for item in items:
            if item.case not in numbers:
                numbers[item.case] = len(numbers)
                yield line("case", item.case, number=numbers[item.case])
            fields = {k: v for k, v in msgspec.to_builtins(item).items() if v is not None}
            yield line(kind, fields | {"case": numbers[item.case]})


def read_records(path: Path) -> RecordFile:
    """Read a record file.

    Raises:
        RecordFileError: the file cannot be opened, is damaged (the line is named) or comes from a newer version.
    """
    try:
        with path.open("rb") as file:
            return _read_lines(path, file)
    except OSError as error:
        raise RecordFileError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _read_lines(path: Path, lines: Iterable[bytes]) -> RecordFile:
    import msgspec

    header: RecordFile | None = None
    cases: dict[int, Case] = {}
    records: list[Record] = []
    failures: list[Failure] = []
    number = 0
    try:
        for number, raw in enumerate(lines, start=1):
            entry = msgspec.json.decode(raw, type=dict[str, Any])
            kind = entry.pop("type", None)
            if header is None:
                header = _header(path, kind, entry)
            elif kind == "case":
                cases[entry.pop("number")] = msgspec.convert(entry, Case)
            elif kind == "record":
                records.append(msgspec.convert(entry | {"case": _case(cases, entry)}, Record))
            elif kind == "failure":
                failures.append(msgspec.convert(entry | {"case": _case(cases, entry)}, Failure))
            else:
                raise RecordFileError(f"{path}, line {number}: unknown kind of line {kind!r}")
    except KeyError as error:
        raise RecordFileError(f"{path}, line {number}: no {error.args[0]!r} where one is expected") from error
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise RecordFileError(f"{path}, line {number}: {error}; the file is damaged, write it again") from error

    if header is None:
        raise RecordFileError(f"{path} is empty: a record file begins with a header line")
    return replace(header, records=tuple(records), failures=tuple(failures))


def _case(cases: Mapping[int, Case], entry: Mapping[str, Any]) -> Case:
    if entry["case"] not in cases:
        raise ValueError(f"no line before defines case {entry['case']}")
    return cases[entry["case"]]


def _header(path: Path, kind: str | None, entry: dict[str, Any]) -> RecordFile:
    import msgspec

    version = entry.get("format")
    if kind != "header" or not isinstance(version, int):
        raise RecordFileError(
            f"{path} is no rooflens record file: its first line is not a header with a format version"
        )
    if version > FORMAT:
        raise RecordFileError(
            f"{path} has record format {version}, this rooflens reads up to {FORMAT}: pip install -U rooflens"
        )
    return RecordFile(
        records=(),
        devices=msgspec.convert(entry.get("devices", {}), dict[str, Device]),
        environment=msgspec.convert(entry.get("environment"), Environment | None),
    )
