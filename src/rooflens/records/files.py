"""Record files: JSON lines, one object per line.

The first line is the header: format version, environment, and the devices that the cases name, so that a file does not
depend on the catalogue. ``case`` and ``call`` lines have numbers, by which ``record`` and ``failure`` lines refer to
them: a call that many records share is written once.

Format history (the version rises when an older reader would misunderstand a file):

1. first version
2. ``call`` lines
3. calls tell how their tensors lie in memory, and records of calls in several layouts the calls of each; a model's
   record holds its views and module calls, as ``{"forward": {"layer1.0": [1, 1]}}``; older files tell none of that
4. the header promises how many records and failures follow, and an ``end`` line is the last one; of older files nobody
   can tell whether they were cut
5. ``floor``: what every implementation needs, and why the code does more; before, ``kernel_work`` of an optimizer's
   operations was their floor. Later files of this format hold a model's modules too, which older readers leave out
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, get_type_hints

from rooflens.errors import RecordFileError
from rooflens.opening import check_keys, opened, rows_of
from rooflens.records.calls import from_plain, to_plain
from rooflens.records.device import Device
from rooflens.records.floor import Floor
from rooflens.records.operation import Call, HostCalls, Phase
from rooflens.records.record import Case, Environment, Failure, Record
from rooflens.records.whole_files import write_atomically

FORMAT = 5
RECORD_SUFFIXES = (".jsonl", ".jsonl.gz")
"""How the names of record files end."""

T = TypeVar("T")
_COUNTED = ("records", "failures")
_UNTOLD = 3
"""The last format that promises nothing."""
UNPROMISED, TWICE = "record files of format", "that repeat another one to the last digit"
"""What is said of files that promise nothing."""


def is_record_file(path: object) -> TypeGuard[str | Path]:
    """True if this names a record file: it ends as one does, compressed or not."""
    return isinstance(path, str | Path) and str(path).lower().endswith(RECORD_SUFFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """The contents of a record file.

    Attributes:
        doubts: why the file may not be what was written, in sentences; they are no part of what is written.
    """

    records: tuple[Record, ...]
    failures: tuple[Failure, ...] = ()
    devices: Mapping[str, Device] = field(default_factory=dict)
    environment: Environment | None = None
    doubts: tuple[str, ...] = field(default=(), compare=False)

    def with_cases(self, cased: Callable[[Case], Case]) -> RecordFile:
        """Return the same contents with another case in place of each."""
        cases = {record.case for record in self.records} | {failure.case for failure in self.failures}
        made = {case: cased(case) for case in cases}
        if all(case == its for case, its in made.items()):
            return self
        return replace(
            self,
            records=tuple(replace(record, case=made[record.case]) for record in self.records),
            failures=tuple(replace(failure, case=made[failure.case]) for failure in self.failures),
        )


def write_records(path: Path, contents: RecordFile) -> None:
    """Write a record file; it appears whole or not at all. OutputError as in :func:`write_atomically`."""
    write_atomically(path, "".join(f"{line}\n" for line in _lines(contents)))


def _lines(contents: RecordFile) -> Iterator[str]:
    promised = {"records": len(contents.records), "failures": len(contents.failures)}
    kept = {"environment": contents.environment, "devices": contents.devices}
    yield _line("header", format=FORMAT, **promised, **kept)
    shared = _Shared()
    for kind, items in (("record", contents.records), ("failure", contents.failures)):
        for item in items:
            yield from shared.defined_for(item)
            yield _line(kind, shared.fields_of(item))
    yield _line("end", **promised)


def _line(kind: str, value: object = None, **more: object) -> str:
    import msgspec

    fields = msgspec.to_builtins(value) if value is not None else {}
    return msgspec.json.encode({"type": kind, **more, **fields}).decode()


class _Shared:
    """The cases and calls that lines of a file share: each has a number, by which lines after its own refer to it."""

    def __init__(self) -> None:
        self._cases: dict[Case, int] = {}
        self._calls: dict[tuple[Call, object], int] = {}

    def defined_for(self, item: Record | Failure) -> Iterator[str]:
        """Give a line for each case and call of an item that has no number yet."""
        if item.case not in self._cases:
            self._cases[item.case] = len(self._cases)
            yield _line("case", item.case, number=self._cases[item.case])
        if not isinstance(item, Record) or item.call is None:
            return
        for call in (item.call, *(call for call, _ in item.layouts)):
            if (call, call.layout) not in self._calls:
                self._calls[call, call.layout] = len(self._calls)
                yield _line("call", to_plain(call), number=self._number(call))

    def _number(self, call: Call) -> int:
        return self._calls[call, call.layout]

    def fields_of(self, item: Record | Failure) -> dict[str, Any]:
        """Return what the line of an item says: what is known, with numbers in place of what is shared."""
        values = {f.name: getattr(item, f.name) for f in fields(item) if f.name not in _WRITTEN_APART}
        entry = {name: value for name, value in values.items() if value is not None} | {"case": self._cases[item.case]}
        if isinstance(item, Record) and item.call is not None:
            entry["call"] = self._number(item.call)
            if item.layouts:
                entry["layouts"] = [(self._number(call), times) for call, times in item.layouts]
        if isinstance(item, Record) and item.host_calls is not None:
            entry["host_calls"] = _plain_host_calls(item.host_calls)
        return entry


def read_records(path: Path) -> RecordFile:
    """Read a record file.

    Raises:
        RecordFileError: the file cannot be opened, is damaged (the line is named) or comes from a newer version.
    """
    with opened(path, error=RecordFileError) as file:
        return _read_lines(path, rows_of(file, str(path), RecordFileError))


def _read_lines(path: Path, lines: Iterable[bytes]) -> RecordFile:
    import msgspec

    reading: _Reading | None = None
    number = 0
    try:
        for number, raw in enumerate(_without_blank_end(lines), start=1):
            entry = msgspec.json.decode(raw, type=dict[str, Any])
            check_keys(raw, entry)
            kind = entry.pop("type", None)
            if reading is None:
                reading = _Reading(*_header(path, kind, entry), entry)
            elif not reading.takes(kind, entry, raw):
                raise RecordFileError(f"{path}, line {number}: unknown kind of line {kind!r}")
    except KeyError as error:
        raise RecordFileError(f"{path}, line {number}: no {error.args[0]!r} where one is expected") from error
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise RecordFileError(f"{path}, line {number}: {error}; the file is damaged, write it again") from error
    if reading is None:
        raise RecordFileError(f"{path} is empty: a record file begins with a header line")
    return reading.contents(path)


class _Reading:
    """What was read of a file so far."""

    def __init__(self, version: int, header: RecordFile, entry: Mapping[str, Any]) -> None:
        self._version, self._header = version, header
        self._promise = _Promise(version, entry)
        self._cases: dict[int, Case] = {}
        self._calls: dict[int, Call] = {}
        self._records: list[Record] = []
        self._failures: list[Failure] = []

    def takes(self, kind: str | None, entry: dict[str, Any], raw: bytes) -> bool:
        """Take a line that follows the header; False for an unknown kind."""
        if self._promise.is_end(kind, entry):
            pass
        elif kind == "case":
            fields_of_case = {name: value for name, value in entry.items() if name != "number"}
            _define(kind, self._cases, entry, _converted(fields_of_case, Case))
        elif kind == "call":
            _define(kind, self._calls, entry, from_plain(entry, layout=self._version > 2))
        elif kind == "record":
            record = _record(entry, _numbered("case", self._cases, entry), self._calls)
            self._records.append(record if self._version > 4 else _with_floor(record))
            self._promise.see(raw, record)
        elif kind == "failure":
            self._failures.append(_converted(entry | {"case": _numbered("case", self._cases, entry)}, Failure))
        else:
            return False
        return True

    def contents(self, path: Path) -> RecordFile:
        """Return all of it; RecordFileError if the file promised something else."""
        records, failures = tuple(self._records), tuple(self._failures)
        self._promise.check(path, {"records": len(records), "failures": len(failures)})
        return replace(self._header, records=records, failures=failures, doubts=tuple(self._promise.doubts()))


def _without_blank_end(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Give lines without the blank ones at the end, which editors leave."""
    blank = []
    for line in lines:
        if not line.strip():
            blank.append(line)
            continue
        yield from blank
        blank.clear()
        yield line


class _Promise:
    """What a file says that it holds: in its header and its end mark from format 4 on, whatever the header calls it."""

    def __init__(self, version: int, header: Mapping[str, Any]) -> None:
        self._version = version
        self._counts = {what: header[what] for what in _COUNTED if version > _UNTOLD or what in header}
        self._ended = False
        self._lines: set[bytes] = set()
        self._twice = {True: 0, False: 0}

    def is_end(self, kind: str | None, entry: Mapping[str, Any]) -> bool:
        """True for the end mark; ValueError if a line follows it, or it tells other numbers than the header."""
        if self._ended:
            raise ValueError("a line follows the end mark: another file was appended")
        self._ended = kind == "end"
        if self._ended:
            told = {what: entry[what] for what in _COUNTED}
            if self._counts and told != self._counts:
                raise ValueError("the end mark tells another number of records than the header")
            self._counts = told
        return self._ended

    def see(self, line: bytes, record: Record) -> None:
        """Take the line of a record; where nothing is promised only its twin tells that one was doubled."""
        if not self._counts:
            mark = blake2b(line.strip(), digest_size=16).digest()
            self._twice[record.scope == "kernel"] += mark in self._lines
            self._lines.add(mark)

    def check(self, path: Path, found: Mapping[str, int]) -> None:
        """Raise RecordFileError if a file holds less or more than it promised."""
        if not self._counts or (self._ended and self._counts == found):
            return
        numbers = " and ".join(f"{n} {what} promised, {found[what]} found" for what, n in self._counts.items() if n)
        end = "" if self._ended else "; the end mark is missing"
        more = self._ended and any(found[what] > n for what, n in self._counts.items() if type(n) is int)
        what = "holds more than was written" if more else "was cut"
        raise RecordFileError(f"{path} {what}: {numbers or 'nothing was promised'}{end}; copy or write it again")

    def doubts(self) -> Iterator[str]:
        """Give what nobody can tell of a file without a promise, once all of it was read."""
        if self._counts:
            return
        yield (
            f"{UNPROMISED} {self._version} do not tell how many records they hold: if this one was cut at the end of a"
            " line, nothing shows it"
        )
        for of_kernels, times in self._twice.items():
            if times:
                why = "are launches alike, or doubled lines" if of_kernels else "cannot be two observations"
                which = "records of kernels" if of_kernels else "records"
                yield f"{which} {TWICE}: {times}, which {why}; totals and samples hold both"


def _record(entry: Mapping[str, Any], case: Case, calls: Mapping[int, Call]) -> Record:
    call = _numbered("call", calls, entry) if "call" in entry else None
    layouts = _converted(entry.get("layouts", []), list[tuple[int, int]])
    laid = tuple((_numbered("call", calls, {"call": number}), times) for number, times in layouts)
    stored = _converted({**entry, "case": case}, _other_fields())
    host = None if entry.get("host_calls") is None else tuple(_host_calls(entry["host_calls"]))
    return Record(**vars(stored), call=call, layouts=laid, host_calls=host)


def _converted(value: object, kind: type[T]) -> T:
    """What JSON holds as a value of a type; a ValidationError says what does not fit."""
    import msgspec

    return msgspec.convert(value, kind)


def _with_floor(record: Record) -> Record:
    """A record of an older file: what an optimizer needs, where its operations move more, is their floor."""
    least = record.kernel_work
    if record.phase != "optimizer" or record.work is None or least is None or least.bytes == record.work.bytes:
        return record
    return replace(record, kernel_work=None, floor=Floor(work=least, cause="optimizer passes"))


def _plain_host_calls(host_calls: Iterable[HostCalls]) -> dict[str, dict[str, tuple[int, int | None]]]:
    plain: dict[str, dict[str, tuple[int, int | None]]] = {}
    for each in host_calls:
        plain.setdefault(each.phase, {})[each.path] = (each.views, each.module_calls)
    return plain


def _host_calls(plain: object) -> Iterator[HostCalls]:
    for phase, by_path in _converted(plain, dict[Phase, dict[str, tuple[int, int | None]]]).items():
        for path, (views, module_calls) in by_path.items():
            yield HostCalls(path=path, phase=phase, views=views, module_calls=module_calls)


_WRITTEN_APART = ("call", "layouts", "host_calls")


@cache
def _other_fields() -> type[Any]:
    """The other fields of a record: msgspec reads no type that holds itself, as lists of arguments do."""
    hints = get_type_hints(Record)
    kept = [(f.name, hints[f.name], field(default=f.default)) for f in fields(Record) if f.name not in _WRITTEN_APART]
    return make_dataclass("StoredRecord", kept, kw_only=True)


def _define(what: str, known: dict[int, T], entry: Mapping[str, Any], value: T) -> None:
    """Give a value the number by which later lines refer to it."""
    if entry["number"] in known:
        raise ValueError(f"{what} {entry['number']} is defined twice")
    known[entry["number"]] = value


def _numbered(what: str, known: Mapping[int, T], entry: Mapping[str, Any]) -> T:
    """The value that a line refers to by its number."""
    if entry[what] not in known:
        raise ValueError(f"no line before defines {what} {entry[what]}")
    return known[entry[what]]


def _header(path: Path, kind: str | None, entry: dict[str, Any]) -> tuple[int, RecordFile]:
    """The version of a file, and the contents of its first line."""
    version = entry.get("format")
    if kind != "header" or type(version) is not int or version < 1:
        raise RecordFileError(
            f"{path} is no rooflens record file: its first line is not a header with a format version"
        )
    if version > FORMAT:
        raise RecordFileError(
            f"{path} has record format {version}, this rooflens reads up to {FORMAT}: pip install -U rooflens"
        )
    return version, RecordFile(
        records=(),
        devices=_converted(entry.get("devices", {}), dict[str, Device]),
        environment=None if entry.get("environment") is None else _converted(entry["environment"], Environment),
    )
