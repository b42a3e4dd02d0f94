"""What a report of Nsight Compute holds, by its framing alone.

NVIDIA documents the format in the Customization Guide and ships its message definitions with ncu: after a sign and a
header come blocks, each with the counts and the size of what it holds. The package that reads reports is silent about
what it cannot read: of a report that was cut off it gives the part that is left. So its results are compared with this.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rooflens.errors import FileError
from rooflens.opening import whole_size

REPORT_SIGN = b"NVR\x00"
_SESSION, PAYLOAD, _PROCESS = 3, 5, 6
SOURCES, GRAPHS = 1, 10
RESULTS = frozenset({2, 7, 8, 9})
"""Fields of a block's header: how many kernels, ranges, command lists and graphs were measured."""
_VERSIONS, _PROVIDER, _VERSION, _PROCESS_ID = 8, 1, 2, 1
_TOOL = b"Nsight Compute"
_NUMBERS = re.compile(rb"(\d{4})\.(\d{1,2})", re.ASCII)
_LEAST = 32
"""Bytes of an entry at least; a kernel's names alone have more."""

_VARINT, _SIZED, _FIXED = 0, 2, {1: 8, 5: 4}
"""Kinds of fields: a number, bytes behind their size, and those of always as many bytes."""
SIZE, _MOST = 4, 64 * 2**20
"""Bytes of the size of a header, and of a header at most: it holds the names of all metrics."""
_64_BITS = 2**64 - 1

Field = int | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The results of a report, in the order of the file.

    Attributes:
        version: year and release of the ncu that wrote it, None where it does not tell.
        sizes: bytes of each result; where a block has several, all are taken to be alike.
        processes: the number of the process of each result.
    """

    version: tuple[int, int] | None
    sizes: array[int]
    processes: array[int]

    def ordered(self) -> list[int]:
        """Return the results process after process, as ncu prints them; a file interleaves those of several."""
        order: dict[int, int] = {}
        ranks = [order.setdefault(process, len(order)) for process in self.processes]
        return sorted(range(len(ranks)), key=ranks.__getitem__)


class Damaged(Exception):
    """Says that the framing of a report does not hold."""


def outline_of(path: Path, where: str) -> Outline:
    """Return the outline of a report; FileError if it cannot be opened, is none, was cut off or is damaged.

    It takes memory for a few bytes per result, not for the file.
    """
    size = whole_size(path)
    try:
        with path.open("rb") as file:
            if file.read(len(REPORT_SIGN)) != REPORT_SIGN:
                raise FileError(
                    f"{where} is damaged or compressed: reports begin otherwise; unpack it or copy it again"
                )
            return outline(file, size, where)
    except OSError as error:
        raise FileError(f"cannot read {where}: {error.strerror}") from error


def outline(file: BinaryIO, size: int, where: str) -> Outline:
    """Return the outline of a report of `size` bytes; FileError if it was cut off or is damaged."""
    try:
        return _outline(file, size)
    except Damaged as error:
        raise FileError(f"{where} is damaged: {error}; copy it once more, or measure again") from error


def _outline(file: BinaryIO, size: int) -> Outline:
    version: tuple[int, int] | None = None
    sizes, processes = array("Q"), array("Q")
    position = len(REPORT_SIGN)
    position += len(header_at(file, position)) + SIZE
    while position < size:
        encoded = header_at(file, position)
        header = dict(_fields(encoded))
        payload = number_in(header, PAYLOAD)
        following = position + SIZE + len(encoded) + payload
        if following > size:
            raise Damaged(f"it was cut off, its block at byte {position} reaches to byte {following}")
        results = sum(number_in(header, field) for field in RESULTS)
        entries = results + number_in(header, SOURCES) + number_in(header, GRAPHS)
        if entries * _LEAST > payload:
            raise Damaged(f"its block at byte {position} cannot hold {entries} entries in {payload} bytes")
        if results:
            sizes.extend([payload // results] * results)
            processes.extend([number_in(dict(_fields(bytes_in(header, _PROCESS))), _PROCESS_ID)] * results)
        version = version or _written_by(bytes_in(header, _SESSION))
        position = following
    return Outline(version=version, sizes=sizes, processes=processes)


def header_at(file: BinaryIO, position: int) -> bytes:
    """Return a header; its size stands before it, at `position`."""
    file.seek(position)
    size = int.from_bytes(file.read(SIZE), "little")
    encoded = file.read(min(size, _MOST))
    if not encoded or len(encoded) < size:
        raise Damaged(f"the header at byte {position} was cut off, or is none")
    return encoded


def _fields(encoded: bytes) -> Iterator[tuple[int, Field]]:
    """The fields of a Protocol Buffers message."""
    return ((field, value) for field, value, _ in fields_as_written(encoded))


def fields_as_written(encoded: bytes) -> Iterator[tuple[int, Field, bytes]]:
    """Yield the fields of a Protocol Buffers message, each with the bytes that it takes."""
    position = 0
    while position < len(encoded):
        begun = position
        tag, position = _varint(encoded, position)
        field, kind = tag >> 3, tag & 7
        value: Field
        if kind == _VARINT:
            value, position = _varint(encoded, position)
        else:
            if kind == _SIZED:
                size, position = _varint(encoded, position)
            elif kind in _FIXED:
                size = _FIXED[kind]
            else:
                raise Damaged(f"a field of its header is of no kind ({kind})")
            position += size
            if position > len(encoded):
                raise Damaged("a field of its header is longer than the header")
            value = encoded[position - size : position]
        yield field, value, encoded[begun:position]


def _varint(encoded: bytes, position: int) -> tuple[int, int]:
    """A number with seven bits in each byte, and where it ends."""
    value = 0
    for shift, byte in enumerate(encoded[position : position + 10]):
        value |= (byte & 127) << (7 * shift)
        if byte < 128:
            return value & _64_BITS, position + shift + 1
    raise Damaged("a number in its header does not end")


def number_in(header: Mapping[int, Field], field: int) -> int:
    value = header.get(field, 0)
    return value if isinstance(value, int) else 0


def bytes_in(header: Mapping[int, Field], field: int) -> bytes:
    value = header.get(field, b"")
    return value if isinstance(value, bytes) else b""


def _written_by(session: bytes) -> tuple[int, int] | None:
    """Year and release of ncu, if these details of a session tell."""
    for field, value in _fields(session):
        if field == _VERSIONS and isinstance(value, bytes):
            texts = dict(_fields(value))
            match = _NUMBERS.match(bytes_in(texts, _VERSION))
            if match is not None and bytes_in(texts, _PROVIDER).startswith(_TOOL):
                return int(match[1]), int(match[2])
    return None
