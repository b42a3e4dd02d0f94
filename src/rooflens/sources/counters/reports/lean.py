"""A report of Nsight Compute without what ncu adds to every launch, whatever was asked for, and rooflens never reads.

Two thirds of a launch are tables of the occupancy at other sizes of blocks, registers and shared memory. No option of
ncu leaves them out.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rooflens.sources.counters.reports.outline import (
    GRAPHS,
    PAYLOAD,
    REPORT_SIGN,
    RESULTS,
    SIZE,
    SOURCES,
    Damaged,
    bytes_in,
    fields_as_written,
    header_at,
    number_in,
)

NEEDLESS = b"launch__occupancy_per_"
"""What the names of those metrics begin with."""
_NAMES, _METRIC, _NAME = 4, 13, 1
"""Fields: names that a block's header adds to those before; a metric of a result; the number of a metric's name."""


def write_lean(report: Path, out: Path) -> None:
    """Write a report without needless metrics; as it is, if it is none, is damaged or a later ncu changed the form."""
    try:
        parts = list(_parts(report))
    except Damaged:
        shutil.copyfile(report, out)
        return
    out.write_bytes(b"".join(parts))


def _parts(report: Path) -> Iterator[bytes]:
    """The report, piece by piece."""
    names: list[bytes] = []
    size = report.stat().st_size
    with report.open("rb") as file:
        yield file.read(len(REPORT_SIGN))
        header = header_at(file, len(REPORT_SIGN))
        yield _sized(header)
        position = len(REPORT_SIGN) + SIZE + len(header)
        while position < size:
            header = header_at(file, position)
            payload = file.read(number_in(dict(_plain(header)), PAYLOAD))
            position += SIZE + len(header) + len(payload)
            fields = dict(_plain(header))
            names += [name for _, name, _ in fields_as_written(bytes_in(fields, _NAMES)) if isinstance(name, bytes)]
            if any(number_in(fields, its) for its in RESULTS) and not any(
                number_in(fields, i) for i in (SOURCES, GRAPHS)
            ):
                payload = b"".join(_sized(_lean(result, names)) for result in _entries(payload))
                header = b"".join(_resized(header, len(payload)))
            yield _sized(header)
            yield payload


def _plain(encoded: bytes) -> Iterator[tuple[int, int | bytes]]:
    return ((field, value) for field, value, _ in fields_as_written(encoded))


def _entries(payload: bytes) -> Iterator[bytes]:
    """What stands in a block, each behind its size."""
    position = 0
    while position < len(payload):
        size = int.from_bytes(payload[position : position + SIZE], "little")
        position += SIZE + size
        if position > len(payload):
            raise Damaged("an entry is longer than its block")
        yield payload[position - size : position]


def _lean(result: bytes, names: Sequence[bytes]) -> bytes:
    """A result without needless metrics."""
    return b"".join(
        written
        for field, value, written in fields_as_written(result)
        if field != _METRIC or not isinstance(value, bytes) or not _name(value, names).startswith(NEEDLESS)
    )


def _name(metric: bytes, names: Sequence[bytes]) -> bytes:
    number = next((its for field, its in _plain(metric) if field == _NAME and isinstance(its, int)), 0)
    if number >= len(names):
        raise Damaged(f"a metric has the name {number}, and there are {len(names)}")
    return names[number]


def _resized(header: bytes, size: int) -> Iterator[bytes]:
    """A header of a block whose payload has another size."""
    for field, _, written in fields_as_written(header):
        yield bytes([PAYLOAD << 3]) + _number(size) if field == PAYLOAD else written


def _number(value: int) -> bytes:
    """A number with seven bits in each byte."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _sized(encoded: bytes) -> bytes:
    return len(encoded).to_bytes(SIZE, "little") + encoded
