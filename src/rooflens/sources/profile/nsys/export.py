"""Kernels, copies, launches and ranges of an export, by NVIDIA's schema reference of any version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rooflens.errors import FileError
from rooflens.sources.profile.device_time import plausible
from rooflens.sources.profile.events import ActivityKind, DeviceActivity, Events, LaunchCall
from rooflens.sources.profile.nsys.annotations import WrittenRange, as_events
from rooflens.sources.profile.nsys.database import Database, SqlColumn, opened

_KERNEL, _MEMCPY, _MEMSET = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
_GRAPH, _RUNTIME = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME"
_KINDS: Mapping[str, ActivityKind] = {_KERNEL: "kernel", _MEMCPY: "memcpy", _MEMSET: "memset", _GRAPH: "kernel"}
_NVTX, _STRINGS = "NVTX_EVENTS", "StringIds"
_GPUS, _CUDA_DEVICES = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
_NAMES = ("demangledName", "shortName", "mangledName")
_COPIES = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
"""CUpti_ActivityMemcpyKind; Nsight Systems numbers the moves of unified memory after them."""
_UNIFIED = {11: "HtoD", 12: "DtoH", 13: "DtoD"}
_PUSH_POP = (59, 70)
"""Event types of ranges that are pushed and popped, so that those of one thread nest; 70 comes from a text file."""
_START, _END = SqlColumn(name="start", needed=True), SqlColumn(name="end", needed=True)
_CORRELATION, _PROCESS, _THREAD = (SqlColumn(name=name) for name in ("correlationId", "globalPid", "globalTid"))
_PER_SECOND = 1e9
"""Times are in nanoseconds."""
_THREAD_BITS = 24
"""A serialised thread id is that of its process, then so many bits of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What a database holds.

    Attributes:
        events: everything on devices, what launched it, and the ranges that were open.
        titles: name of each GPU by CUDA's number of it; a number that no table tells is missing.
        named: whether torch or rooflens wrote ranges that tell the phase of what runs.
        notes: what was left out.
    """

    events: Events
    titles: Mapping[int, str]
    named: bool
    notes: tuple[str, ...]


def read_export(path: str | Path) -> Export:
    """Return what a database of ``nsys export --type sqlite`` holds.

    Raises:
        FileError: it cannot be read, is damaged or no such export, or saw no kernel and no copy; the message names the
            table, and the row and column where one cell is wrong.
    """
    with opened(Path(path)) as database:
        if not any(database.columns(table) for table in (*_KINDS, _NVTX, _RUNTIME)):
            raise FileError(
                f"{database.where} is a database, but no export of Nsight Systems: it has no table {_KERNEL}; make one"
                " with 'nsys export --type sqlite'"
            )
        return _ExportReader(database).export()


class _ExportReader:
    """One export on its way to events; times count from the first of them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._strings: dict[int, str] = {
            number: text
            for number, text in database.rows(_STRINGS, SqlColumn(name="id"), SqlColumn(name="value", kind=str))
            if number is not None and text is not None
        }
        self._threads: dict[int | None, int] = {}
        self._numbers: dict[tuple[int | None, int], int] = {}
        self._begin: int | None = None

    def export(self) -> Export:
        activities = tuple(activity for table in _KINDS for activity in self._activities(table))
        if not activities:
            raise FileError(
                f"{self._database.where} holds no kernel and no copy; profile with 'nsys profile --trace=cuda,nvtx'"
            )
        activities, doubts = plausible(activities)
        marks, notes = self._marks()
        ranges, operations, named = as_events(marks)
        if any(True for _ in self._database.rows(_GRAPH, _START)):
            notes.append("CUDA graphs were traced as wholes: each launch of one is a record, its kernels are not seen")
        return Export(
            events=Events(
                operations=operations, launches=tuple(self._launches()), ranges=ranges, activities=activities
            ),
            titles=self._titles(),
            named=named,
            notes=(*notes, *doubts),
        )

    def _times(self, table: str, begin: int, finish: int) -> tuple[float, float]:
        """Start and duration in seconds, from the first event on: a difference is exact only between whole numbers."""
        if not 0 <= begin <= finish:
            raise FileError(
                f"{self._database.where}: table {table} has an event from {begin} to {finish} ns, which cannot be;"
                " export the report again"
            )
        if self._begin is None:
            self._begin = begin
        return (begin - self._begin) / _PER_SECOND, (finish - begin) / _PER_SECOND

    def _activities(self, table: str) -> Iterator[DeviceActivity]:
        names = self._name_columns(table)
        common = (_START, _END, SqlColumn(name="deviceId"), SqlColumn(name="streamId"), _CORRELATION, _PROCESS)
        for start, end, device, stream, correlation, process, *rest in self._database.rows(table, *common, *names):
            begin, seconds = self._times(table, start, end)
            yield DeviceActivity(
                name=self._name(table, rest[0] if rest else None),
                kind=_KINDS[table],
                start=begin,
                seconds=seconds,
                device=device,
                stream=stream,
                correlation=self._number(process, correlation),
                process=process,
            )

    def _name_columns(self, table: str) -> tuple[SqlColumn, ...]:
        if table != _KERNEL:
            return {_MEMCPY: (SqlColumn(name="copyKind"),), _GRAPH: (SqlColumn(name="graphId"),)}.get(table, ())
        has = self._database.columns(table)
        named = next((name for name in _NAMES if name in has), None)
        if has and named is None:
            raise FileError(
                f"{self._database.where}: table {table} has no column with names of kernels; known: {', '.join(_NAMES)}"
            )
        return (SqlColumn(name=named or _NAMES[0], needed=True),)

    def _name(self, table: str, number: int | None) -> str:
        if table == _KERNEL:
            return self._string(table, number)
        if table == _GRAPH:
            return "CUDA graph" if number is None else f"CUDA graph {number}"
        return _copy(number) if table == _MEMCPY else "Memset"

    def _string(self, table: str, number: int | None) -> str:
        text = None if number is None else self._strings.get(number)
        if text is None:
            raise FileError(
                f"{self._database.where}: table {table} names text {number}, which table {_STRINGS} does not hold;"
                " export the report again"
            )
        return text

    def _number(self, process: int | None, correlation: int | None) -> int | None:
        """A number of our own for a launch: CUDA counts anew in every process."""
        if not correlation:
            return None
        key = None if process is None else process >> _THREAD_BITS, correlation
        return self._numbers.setdefault(key, len(self._numbers))

    def _launches(self) -> Iterator[LaunchCall]:
        """The calls that started something."""
        launches: dict[int, LaunchCall | None] = {}
        columns = (_START, _END, _THREAD, _CORRELATION, SqlColumn(name="nameId"))
        for start, end, thread, correlation, name in self._database.rows(_RUNTIME, *columns):
            number = self._launched(thread, correlation)
            if number is None:
                continue
            begin, seconds = self._times(_RUNTIME, start, end)
            launch = LaunchCall(
                name=self._strings.get(name, ""),
                start=begin,
                seconds=seconds,
                thread=self._thread(thread),
                correlation=number,
            )
            # Two threads that may both have launched it: nobody knows which did.
            other = launches.setdefault(number, launch)
            if other is not None and other.thread != launch.thread:
                launches[number] = None
        yield from (launch for launch in launches.values() if launch is not None)

    def _launched(self, thread: int | None, correlation: int | None) -> int | None:
        """Our number of a launch, if it started something; older exports do not tell the process of what runs."""
        if thread is None or correlation is None:
            return None
        return self._numbers.get((thread >> _THREAD_BITS, correlation), self._numbers.get((None, correlation)))

    def _marks(self) -> tuple[list[WrittenRange], list[str]]:
        """The ranges, and a note on those that were left out."""
        kind, text = SqlColumn(name="eventType"), SqlColumn(name="text", kind=str)
        columns = (_START, SqlColumn(name="end"), text, kind, _THREAD, SqlColumn(name="domainId"))
        marks, unclosed = [], 0
        for start, end, written, event, thread, domain, number in self._database.rows(
            _NVTX, *columns, SqlColumn(name="textId")
        ):
            # Libraries (NCCL, cuBLAS ...) have domains of their own; programs and torch write into domain 0.
            if thread is None or domain or event not in (None, *_PUSH_POP):
                continue
            if end is None:
                unclosed += event is not None
                continue
            name = self._string(_NVTX, number) if written is None and number is not None else written
            if name:
                begin, seconds = self._times(_NVTX, start, end)
                ours, process = self._thread(thread), thread >> _THREAD_BITS
                marks.append(WrittenRange(name=name, start=begin, seconds=seconds, thread=ours, process=process))
        return marks, [f"{unclosed} NVTX ranges have no end and are left out"] if unclosed else []

    def _thread(self, identity: int | None) -> int:
        return self._threads.setdefault(identity, len(self._threads))

    def _titles(self) -> Mapping[int, str]:
        """GPU names by CUDA's number; where only numbers of the system are told, if all GPUs have one name."""
        names = self._database.rows(_GPUS, SqlColumn(name="id"), SqlColumn(name="name", kind=str))
        by_gpu = {number: name for number, name in names if number is not None and name}
        by_cuda: dict[int, set[str]] = {}
        for cuda, gpu in self._database.rows(_CUDA_DEVICES, SqlColumn(name="cudaId"), SqlColumn(name="gpuId")):
            if cuda is not None and gpu in by_gpu:
                by_cuda.setdefault(cuda, set()).add(by_gpu[gpu])
        if by_cuda:
            # Processes may number the same cards differently.
            return {number: next(iter(names)) for number, names in by_cuda.items() if len(names) == 1}
        only = set(by_gpu.values())
        return dict.fromkeys(range(len(by_gpu)), only.pop()) if len(only) == 1 else {}


def _copy(kind: int | None) -> str:
    if kind in _UNIFIED:
        return f"Memcpy {_UNIFIED[kind]} (unified memory)"
    return f"Memcpy {_COPIES[kind]}" if kind is not None and 0 < kind < len(_COPIES) else "Memcpy"
