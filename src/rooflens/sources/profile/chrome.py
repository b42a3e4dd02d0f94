"""Chrome traces as Kineto writes them (torch.profiler on CUDA, ROCm and CPUs), plain or compressed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rooflens.errors import FileError, UnknownFormat
from rooflens.opening import in_utf8, read_bytes
from rooflens.sources.profile.device_time import plausible
from rooflens.sources.profile.events import ActivityKind, DeviceActivity, Events, HostOperation, LaunchCall, NamedRange
from rooflens.sources.profile.steps import by_profiler

_ACTIVITIES: dict[str, ActivityKind] = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    # Before 2022 Kineto capitalised its categories.
    "Kernel": "kernel",
    "Memcpy": "memcpy",
    "Memset": "memset",
}
_OPERATIONS = frozenset({"cpu_op", "Operator", "cpu_instant_event"})
_LAUNCHES = frozenset(
    {f"{api}_{level}" for api in ("cuda", "hip", "xpu", "mtia", "privateuse1") for level in ("runtime", "driver")}
    | {"Runtime"}
)
_RANGES = frozenset({"user_annotation", "python_function"})
_NO_TIME = frozenset({None, "Trace", "overhead", "Overhead", "cuda_sync", "gpu_user_annotation", "ac2g", "fwdbwd"})
"""Categories that tell nothing of the work: the recording itself, waits, and what other events say as well."""
_COUNTED = "cuda_profiler_range"
"""Ranges with hardware counters, which Kineto writes instead of kernels where it was asked for counters."""
_STARTS_WORK = re.compile(r"launch|memcpy|memset", re.IGNORECASE)
_READ = (
    ("kernels, copies and fills", frozenset(_ACTIVITIES)),
    ("operations", _OPERATIONS),
    ("launches", _LAUNCHES),
    ("ranges", _RANGES),
)
_KNOWN = frozenset[str | None]().union(*(categories for _, categories in _READ))
_WANTED = "operation and no kernel"
_MOST_LISTED = 5
_FLOW = "fwdbwd"
_MICROSECOND = 1e-6
_NO_JSON = re.compile(rb"(:\s*)-?(?:inf|nan|NaN|Infinity)(?=\s*[,}\]])")
"""What C and Python write for numbers that JSON does not have: a bandwidth over a duration of zero."""


def read_trace(path: str | Path) -> Events:
    """Return the events of a Chrome trace.

    Raises:
        FileError: the file cannot be opened, is too large, is no Chrome trace, holds an event
            without a usable time, none of the kinds that PyTorch's profiler writes, or launches and no kernel.
    """
    where = repr(str(path))
    listed = _decoded(in_utf8(read_bytes(Path(path)), where), where)
    events = _TraceReader(where).events(listed)
    if not any(event.cat in _KNOWN for event in listed):
        what = f"it holds no {_WANTED}, but {_categories(listed)}"
        raise UnknownFormat(f"{where} is no trace of PyTorch's profiler: {what}")
    started = [launch.name for launch in events.launches if _STARTS_WORK.search(launch.name)]
    if started and not events.activities:
        ranges = sum(event.cat == _COUNTED for event in listed)
        unread = f"; {ranges} ranges of counters ({_COUNTED}) are not read" if ranges else ""
        raise FileError(
            f"{where}: GPU work was launched ({len(started)} calls like {started[0][:40]}), no kernel is in the file"
            f"{unread}. Host time does not tell how long the device worked: record with ProfilerActivity.CUDA, without"
            " counters, where this user may read the device's events"
        )
    if not events.operations and not events.activities:
        raise FileError(
            f"{where} holds no {_WANTED}: there is no time to attribute, but {_categories(listed)}"
            f"{'; '.join(('', *events.notes))}; record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
    return events


def _categories(listed: Iterable[Any]) -> str:
    """The categories of events that a trace has instead of those that are read."""
    return _counts(Counter(event.cat or "events without a category" for event in listed)) or "no event at all"


def _counts(events: Counter[str]) -> str:
    shown = ", ".join(f"{times} {name[:40]!r}" for name, times in events.most_common(_MOST_LISTED))
    return f"{shown}{', ...' if len(events) > _MOST_LISTED else ''}"


def parse_trace(raw: bytes, where: str) -> Events:
    """Return the events in the text of a Chrome trace; `where` names it in errors.

    Raises:
        FileError: it is no Chrome trace, or holds an event without a usable time.
    """
    return _TraceReader(where).events(_decoded(raw, where))


def _decoded(raw: bytes, where: str) -> list[Any]:
    import msgspec

    kind = _types()[1 if raw.lstrip()[:1] == b"[" else 0]
    try:
        try:
            decoded = msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError:
            decoded = msgspec.json.decode(raw, type=kind, strict=False)  # some writers put numbers into strings
        except msgspec.DecodeError:
            mended = _NO_JSON.sub(rb"\1null", raw)
            if mended == raw:
                raise
            decoded = msgspec.json.decode(mended, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FileError(f"{where} is no Chrome trace: {_place_of(error, raw)}") from error
    events = decoded if isinstance(decoded, list) else decoded.events
    if events is None:
        raise UnknownFormat(f"{where} is no Chrome trace: it has no 'traceEvents'")
    return events


def _place_of(error: Exception, raw: bytes) -> str:
    """The message of an error with its place; where the text ends too early that is its end."""
    message = str(error)
    placed = "byte" in message or "at `" in message
    return message if placed else f"{message} (byte {len(raw)}, line {raw.count(10) + 1})"


_ARGUMENTS = {
    "identity": "External id",
    "old_identity": "external id",
    "correlation": "correlation",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "device": "device",
    "stream": "stream",
    "shapes": "Input Dims",
    "grid": "grid",
    "block": "block",
}
"""The arguments that are read, and what they are called in a file."""
_NO_ARGUMENTS = SimpleNamespace(**dict.fromkeys(_ARGUMENTS))


@cache
def _types() -> tuple[Any, Any]:
    """The types of a trace, and of a bare list of events: only what is used becomes an object."""
    import msgspec

    word, number = int | str | None, int | None
    kinds: dict[str, Any] = dict.fromkeys(_ARGUMENTS, number) | {"shapes": list[Any] | None}
    kinds |= dict.fromkeys(("identity", "old_identity", "device", "stream"), word)
    kinds |= dict.fromkeys(("grid", "block"), Any)  # who writes them as text is not refused for that
    arguments = [(name, kind, None) for name, kind in kinds.items()]
    args = msgspec.defstruct("Arguments", arguments, rename=_ARGUMENTS, gc=False)
    fields: dict[str, Any] = dict.fromkeys(("cat", "name"), str | None) | dict.fromkeys(("ts", "dur"), float | None)
    fields |= dict.fromkeys(("pid", "tid", "id"), word) | {"args": args | None}
    event = msgspec.defstruct("Event", [("ph", str, ""), *((f, kind, None) for f, kind in fields.items())], gc=False)
    listed: Any = list[event]  # type: ignore[valid-type]
    trace = msgspec.defstruct("Trace", [("events", listed | None, None)], rename={"events": "traceEvents"})
    return trace, listed


class _TraceReader:
    """One trace on its way to events; threads get numbers in the order of appearance."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._threads: dict[tuple[Any, Any], int] = {}
        self._begin = 0.0

    def events(self, raw: Sequence[Any]) -> Events:
        """Return what is read of the events of a file."""
        complete = [(n, event) for n, event in enumerate(raw) if event.ph == "X" and not _was_not_timed(event)]
        self._begin = min((event.ts for _, event in complete if event.ts is not None), default=0.0)

        def of(categories: Collection[str]) -> list[tuple[int, Any]]:
            return [(n, event) for n, event in complete if event.cat in categories]

        operations = [self._operation(*each) for each in of(_OPERATIONS) if not by_profiler(each[1].name or "")]
        activities, doubts = plausible([self._activity(*each) for each in of(_ACTIVITIES)])
        launches = [each for each in of(_LAUNCHES) if each[1].args is not None and each[1].args.correlation is not None]
        return Events(
            operations=tuple(self._with_threads(operations, raw)),
            launches=tuple(
                LaunchCall(**self._on_host(*each), correlation=each[1].args.correlation) for each in launches
            ),
            # Older profilers wrote the marks of steps as operations.
            ranges=tuple(
                NamedRange(**self._on_host(n, event))
                for n, event in of(_RANGES | _OPERATIONS)
                if event.cat in _RANGES or by_profiler(event.name or "")
            ),
            activities=activities,
            notes=(*_left_out(raw), *doubts),
        )

    def _on_host(self, number: int, event: Any) -> dict[str, Any]:
        """The fields of any host event."""
        start, seconds = self._times(number, event)
        thread = self._thread(event.pid, event.tid)
        return {"name": event.name or "", "start": start, "seconds": seconds, "thread": thread}

    def _operation(self, number: int, event: Any) -> HostOperation:
        args = event.args or _NO_ARGUMENTS
        return HostOperation(
            **self._on_host(number, event),
            identity=_identity(args),
            sequence=None if args.sequence is None or args.sequence < 0 else args.sequence,
            backward=bool(args.forward_thread),
            forward_thread=args.forward_thread,  # the profiler's own number of the thread for now
            shapes=None if args.shapes is None else tuple(_shapes(args.shapes)),
        )

    def _activity(self, number: int, event: Any) -> DeviceActivity:
        args, (start, seconds) = event.args or _NO_ARGUMENTS, self._times(number, event)
        identity = _identity(args)
        return DeviceActivity(
            name=event.name or "",
            kind=_ACTIVITIES[event.cat],
            start=start,
            seconds=seconds,
            device=_whole(args.device),
            stream=_whole(event.tid if args.stream is None else args.stream),
            correlation=args.correlation,
            # Until 2024 Kineto wrote the correlation here too, which names no operation.
            identity=None if identity == args.correlation else identity,
            shape=_launch_shape(args.grid, args.block),
        )

    def _times(self, number: int, event: Any) -> tuple[float, float]:
        """Start and duration in seconds; no event is given a time that it does not have."""
        ts, duration = event.ts, event.dur
        if ts is None or duration is None or not 0 <= duration < math.inf or not abs(ts) < math.inf:
            raise FileError(
                f"{self._where}: event {number} ({event.name!r}) has no usable time: ts {ts}, dur {duration};"
                " export the trace again"
            )
        return (ts - self._begin) * _MICROSECOND, duration * _MICROSECOND

    def _thread(self, process: Any, thread: Any) -> int:
        return self._threads.setdefault((process, thread), len(self._threads))

    def _with_threads(self, operations: Sequence[HostOperation], raw: Sequence[Any]) -> Iterator[HostOperation]:
        """The operations with our numbers of forward threads in place of the profiler's.

        A file does not tell them. The arrows from forward to backward operations do; without arrows it is the thread
        that made autograd nodes, if only one did.
        """
        told = self._told_by_arrows(operations, raw)
        makers = {op.thread for op in operations if op.sequence is not None and not op.backward}
        only = makers.pop() if len(makers) == 1 else None
        for op in operations:
            known = told.get(op.forward_thread, only) if op.backward and op.forward_thread is not None else None
            yield op if op.forward_thread == known else replace(op, forward_thread=known)

    def _told_by_arrows(self, operations: Sequence[HostOperation], raw: Sequence[Any]) -> dict[int, int]:
        flows = [event for event in raw if event.cat == _FLOW and event.ts is not None]
        tails = {event.id: self._thread(event.pid, event.tid) for event in flows if event.ph == "s"}
        heads = {
            (self._thread(event.pid, event.tid), round((event.ts - self._begin) * _MICROSECOND, 9)): event.id
            for event in flows
            if event.ph == "f"
        }
        votes: Counter[tuple[int, int]] = Counter()
        for op in operations:
            arrow = heads.get((op.thread, round(op.start, 9))) if op.backward else None
            if arrow in tails and op.forward_thread is not None:
                votes[op.forward_thread, tails[arrow]] += 1
        told: dict[int, int] = {}
        for (theirs, ours), _ in votes.most_common():
            told.setdefault(theirs, ours)
        return told


def _was_not_timed(event: Any) -> bool:
    """True if the profiler lost the time of an event: it writes zeros then, for start and duration."""
    return bool(event.ts == 0 and event.dur == 0)


def _left_out(raw: Iterable[Any]) -> Iterator[str]:
    """Notes on events without a usable time: a total without them is too small."""
    whole = Counter(event.cat for event in raw if event.ph == "X")
    lost = Counter(event.cat for event in raw if event.ph == "X" and _was_not_timed(event))
    halves = Counter(event.cat for event in raw if event.ph in ("B", "E"))
    for what, categories in _READ:
        of_all, of_lost, of_halves = (sum(counts[name] for name in categories) for counts in (whole, lost, halves))
        reasons = (
            (of_lost, f"of {of_all} {what} have no time (ts 0, dur 0: the profiler lost it) and are"),
            (of_halves, f"events of {what} that are written as begin and end (ph B, E) and not as a whole (ph X) are"),
        )
        yield from (f"{count} {reason} left out: totals are too small" for count, reason in reasons if count)
    unread = Counter({name: count for name, count in whole.items() if name not in _KNOWN | _NO_TIME})
    if unread:
        yield f"not read: {_counts(unread)}"


def _identity(args: Any) -> int | None:
    return _whole(args.identity if args.identity is not None else args.old_identity)


def _whole(value: int | str | None) -> int | None:
    """A number that some versions write as text."""
    if isinstance(value, str):
        value = value.removeprefix("stream ")
        return int(value, 0) if re.fullmatch(r"-?(?:0x[0-9a-fA-F]{1,16}|[1-9][0-9]{0,18}|0)", value) else None
    return value


def _launch_shape(grid: Any, block: Any) -> tuple[int, ...]:
    """Grid and block of a kernel in one, () where one is not written as three numbers."""
    sizes = [*grid, *block] if isinstance(grid, list) and isinstance(block, list) else []
    return tuple(sizes) if len(sizes) == 6 and all(isinstance(size, int) for size in sizes) else ()


def _shapes(sizes: Iterable[Any]) -> Iterator[tuple[int, ...]]:
    """Sizes of tensors, and of those in a list; a number without dimensions looks like an input that is no tensor."""
    for size in sizes:
        if isinstance(size, list) and size and all(isinstance(n, int) for n in size):
            yield tuple(size)
        elif isinstance(size, list):
            yield from (
                tuple(one) for one in size if isinstance(one, list) and one and all(type(n) is int for n in one)
            )
