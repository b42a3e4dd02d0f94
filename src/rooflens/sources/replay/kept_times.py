"""Replays the calls of estimates: each distinct one is timed alone, once, whatever the model and however often."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rooflens.costs.registry import arithmetic_of
from rooflens.errors import FileError
from rooflens.opening import parsed_json, read_text
from rooflens.progress import Progress
from rooflens.records import Call, Case, Device, Record, Timing
from rooflens.records.calls import to_plain

ALONE = "each distinct operation was timed alone, warm and in its layout; what lies between them takes no time"
CallTimer = Callable[[Call, bool, bool], float | None]
"""Seconds of a call with TF32 for products and for convolutions; None where it cannot be timed."""


@dataclass(slots=True)
class KeptTimes:
    """Times of calls that are known already, in a file that models share.

    Attributes:
        path: the file; one line for each call.
        times: seconds by the call's key.
    """

    path: Path
    times: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> KeptTimes:
        """Return the times of a file; none if there is no file.

        Raises:
            FileError: a line is damaged.
        """
        kept = cls(path)
        for number, line in enumerate(read_text(path).splitlines() if path.exists() else (), 1):
            row = parsed_json(line, f"line {number} of {path.name}")
            if not isinstance(row, dict) or not isinstance(row.get("seconds"), float) or row["seconds"] <= 0:
                raise FileError(
                    f"line {number} of {path.name} holds no time of a call; delete the file and replay again"
                )
            kept.times[_key(row.get("call"), row.get("tf32"))] = row["seconds"]
        return kept

    def add(self, call: Call, tf32: tuple[bool, bool], seconds: float) -> None:
        """Keep the time of a call."""
        plain = to_plain(call)
        self.times[_key(plain, list(tf32))] = seconds
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"tf32": tf32, "call": plain, "seconds": seconds}) + "\n")

    def of(self, call: Call, tf32: tuple[bool, bool]) -> float | None:
        """Return the time of a call, None if it is not known."""
        return self.times.get(_key(to_plain(call), list(tf32)))


def _key(plain: object, tf32: object) -> str:
    return json.dumps([plain, tf32], sort_keys=True)


def replayed(
    records: Iterable[Record],
    devices: Mapping[str, Device],
    timer: CallTimer,
    kept: KeptTimes,
    progress: Progress | None = None,
) -> Iterator[Record]:
    """Return a record of source ``replay`` for each call of estimates in each layout, and one for each model.

    A call that cannot be timed has a record without a time, so that the step's time is unknown and not too small.
    """
    estimates = [record for record in records if record.source == "estimate"]
    seen: dict[Case, None] = {}
    for number, record in enumerate(estimates):
        if record.call is None:
            continue
        seen[record.case] = None
        if progress is not None:
            progress(number / len(estimates), record.name)
        arithmetic = arithmetic_of(record.case.dtype, devices.get(record.case.device or ""))
        tf32 = (arithmetic.products == "tf32", arithmetic.convolutions == "tf32")
        for call, calls in record.layouts or ((record.call, record.calls),):
            seconds = kept.of(call, tf32)
            if seconds is None:
                seconds = timer(call, *tf32)
                if seconds is not None:
                    kept.add(call, tf32, seconds)
            yield _observed(record, call, calls, seconds)
    for case in seen:
        yield Record(case=case, source="replay", scope="model", notes=(ALONE,))


def _observed(record: Record, call: Call, calls: int, seconds: float | None) -> Record:
    return Record(
        case=record.case,
        source="replay",
        scope="op",
        path=record.path,
        kind=record.kind,
        name=record.name,
        phase=record.phase,
        timing=None if seconds is None else Timing(samples=(seconds,), origin="cuda-events"),
        call=call,
        calls=calls,
        recomputed=record.recomputed,
        notes=() if seconds is not None else (f"{record.name} cannot be replayed alone here",),
    )
