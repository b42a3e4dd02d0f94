"""Files opened within bounds: plain or gzip, with one error for all that cannot be read."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import tomllib
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from rooflens.errors import FileError, RooflensError

T = TypeVar("T")

MOST_BYTES = 2 << 30
"""Of a file when it is unpacked: some ten million events of a trace, which are decoded in one piece."""
MOST_TYPED = 64 << 20
"""The same of a file that people write: devices, studies, configurations, roofs."""
MOST_LINE = 1 << 24
"""Bytes of a line, where a file is read by line. The widest raw pages of ncu have some ten thousand columns."""
MOST_LINES = 1 << 23
"""Lines of a text; those of a whole file of :data:`MOST_BYTES` have 256 bytes on average, and no fewer."""
MOST_ROWS = 1 << 22
"""Rows that become records."""
MOST_LAUNCHES = 1 << 20
"""Launches in a file of counters, each of which may have hundreds of lines."""
MOST_COUNTERS = 1 << 16
"""Counters of a launch, and names of counters in a file."""
MOST_NESTED = 64
"""Levels of lists and objects in a JSON or TOML file."""
_HEAD, _CHUNK = 1 << 16, 1 << 17
_GZIP = b"\x1f\x8b"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    *((mark, "utf-32") for mark in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),  # one of them begins as UTF-16 does
    *((mark, "utf-16") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
)


@contextmanager
def opened(path: Path, *, error: type[RooflensError] = FileError, what: str = "") -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes; a compressed one is unpacked.

    Raises:
        FileError: it cannot be opened, read or unpacked, or has more than :data:`MOST_BYTES`. The class of what is
            raised is `error`, and `what` are words for the file, like ``"device file "``.
    """
    try:
        if "\0" in str(path):
            raise OSError("a path has no zero in it")
        if path.is_fifo():  # whoever opens it may wait for ever, and it can be read only once
            raise OSError("it is a pipe; write it into a file first")
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP
            if packed or not path.is_file():
                source = gzip.GzipFile(fileobj=file) if packed else file
                yield io.BufferedReader(_Bounded(cast("IO[bytes]", source)), _CHUNK)
            else:
                _bounded(path)
                yield file
    except _TooLong as problem:
        raise error(f"{what}{str(path)!r} holds {problem}; write less into one file") from problem
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or problem
        if str(path) == "-":
            reason = "standard input can be read only once; write it to a file, and give that"
        raise error(f"cannot read {what}{str(path)!r}: {reason}") from problem


def whole_size(path: Path) -> int:
    """Return the bytes of a file that is read in place, and not unpacked.

    Raises:
        FileError: it cannot be read, is no regular file, or has more than :data:`MOST_BYTES`.
    """
    try:
        if not path.is_file():
            raise FileError(f"cannot read {str(path)!r}: it is no file")
        return _bounded(path)
    except _TooLong as problem:
        raise FileError(f"{str(path)!r} holds {problem}; write less into one file") from problem
    except OSError as problem:
        raise FileError(f"cannot read {str(path)!r}: {problem.strerror}") from problem


def _bounded(path: Path) -> int:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise _TooLong(MOST_BYTES)
    return size


class _TooLong(Exception):
    """A file is longer than it may be."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} bytes when it is unpacked")


class _Bounded(io.RawIOBase):
    """The bytes of a file whose size nobody knows, up to the limit."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self._size = source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        self._size += len(data)
        if self._size > MOST_BYTES:
            raise _TooLong(MOST_BYTES)
        buffer[: len(data)] = data
        return len(data)


def head(path: Path) -> bytes:
    """Return the first 64 KiB of a file, unpacked.

    Raises:
        FileError: the file cannot be opened or unpacked.
    """
    with opened(path) as file:
        return file.read(_HEAD)


def encoding_of(start: bytes) -> str:
    """Return the encoding that the mark at the start of a text tells, else UTF-8."""
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


def text_of(start: bytes) -> str:
    """Return the text with which a file begins, in the encoding that its mark tells, else in UTF-8."""
    return start.decode(encoding_of(start), errors="replace")


def read_bytes(path: Path, *, most: int | None = None, error: type[RooflensError] = FileError, what: str = "") -> bytes:
    """Return a whole file, unpacked; `most` bytes, default :data:`MOST_BYTES`. The rest is as in :func:`opened`."""
    limit = MOST_BYTES if most is None else most
    with opened(path, error=error, what=what) as file:
        data = file.read(limit + 1)  # at once: a trace of gigabytes is not held twice
        if len(data) > limit:
            raise _TooLong(limit)
        return data


def read_text(path: Path, *, error: type[RooflensError] = FileError, what: str = "") -> str:
    """Return the text of a file that people write, without a mark of its encoding.

    Raises:
        FileError: as :func:`opened`, with at most :data:`MOST_TYPED` bytes; or it is no text in UTF-8, nor in what its
            mark tells.
    """
    raw = read_bytes(path, most=MOST_TYPED, error=error, what=what)
    encoding = encoding_of(raw[:4])
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as problem:
        told = encoding.removesuffix("-sig").upper()
        raise error(
            f"cannot read {what}{str(path)!r}: it is no text in {told} ({problem}); save it in UTF-8"
        ) from problem


def in_utf8(data: bytes, where: str) -> bytes:
    """Return a text in UTF-8 without a mark, whatever its mark tells.

    Raises:
        FileError: it is no text in the encoding that its mark tells.
    """
    encoding = encoding_of(data[:4])
    if encoding == "utf-8":
        return data
    if encoding == "utf-8-sig":
        return data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode(encoding).encode()
    except UnicodeError as problem:
        raise FileError(f"{where}: its text in {encoding.upper()} cannot be decoded ({problem})") from problem


@contextmanager
def opened_lines(path: Path) -> Iterator[Iterator[str]]:
    """Open the lines of a text in UTF-8, or as the mark at its start tells; bytes that are no text are replaced.

    A line that is too long is cut at :data:`MOST_LINE`: whoever reads them raises :func:`too_long` then.

    Raises:
        FileError: as :func:`opened`; or there are more than :data:`MOST_LINES`.
    """
    with opened(path) as file:
        try:
            with io.TextIOWrapper(file, encoding=encoding_of(file.peek(4)), errors="replace") as text:
                yield _at_most_lines(iter(partial(text.readline, MOST_LINE), ""), repr(str(path)))
        except UnicodeError as problem:
            raise FileError(f"{str(path)!r}: its text cannot be decoded ({problem})") from problem


def _at_most_lines(lines: Iterator[str], where: str) -> Iterator[str]:
    yield from islice(lines, MOST_LINES)
    if next(lines, None) is not None:
        raise FileError(f"{where} holds more than {MOST_LINES} lines; write less into one file")


def too_long(where: str, line: int, error: type[RooflensError] = FileError) -> RooflensError:
    """Return the error of a line that is too long."""
    return error(f"{where}, line {line}: it has {MOST_LINE} characters and more")


def rows_of(file: io.BufferedReader, where: str, error: type[RooflensError] = FileError) -> Iterator[bytes]:
    """Give the lines of a file of records in UTF-8, whatever encoding its mark tells.

    Raises:
        FileError: a line is too long, there are too many, or the text is in another encoding.
    """
    encoding = encoding_of(file.peek(4))
    for number, line in enumerate(at_most(_utf8_lines(file, encoding, where, error), where, error), start=1):
        if len(line) >= MOST_LINE:
            raise too_long(where, number, error)
        if number == 1 and b"\x00" in line[:4]:
            raise error(f"{where} is no text in UTF-8 but seems to be one in UTF-16: write it again in UTF-8")
        yield line


def _utf8_lines(file: io.BufferedReader, encoding: str, where: str, error: type[RooflensError]) -> Iterator[bytes]:
    """The lines of a file; those in UTF-8 are not looked into."""
    if encoding in ("utf-8", "utf-8-sig"):
        file.read(len(codecs.BOM_UTF8) if encoding == "utf-8-sig" else 0)
        yield from iter(partial(file.readline, MOST_LINE), b"")
        return
    text = io.TextIOWrapper(file, encoding=encoding, newline="\n")
    try:
        yield from (line.encode() for line in iter(partial(text.readline, MOST_LINE), ""))
    except UnicodeError as problem:
        raise error(f"{where}: its text in {encoding.upper()} cannot be decoded ({problem})") from problem
    finally:
        text.detach()


def too_many(where: str, most: int, what: str, error: type[RooflensError] = FileError) -> RooflensError:
    """Return the error of a file with more of something than it may have."""
    return error(f"{where} holds more than {most} {what}; write less of it into one file")


def at_most(
    rows: Iterable[T],
    where: str,
    error: type[RooflensError] = FileError,
    *,
    most: int | None = None,
    what: str = "rows",
) -> Iterator[T]:
    """Give the rows of a file one by one.

    Raises:
        FileError: there are more than `most`, default :data:`MOST_ROWS`.
    """
    limit = MOST_ROWS if most is None else most
    for number, row in enumerate(rows):
        if number >= limit:
            raise too_many(where, limit, what, error)
        yield row


def check_columns(names: Iterable[str], read: Container[str], place: str) -> None:
    """Raise FileError if a column that is read stands twice in a header: which of the two holds is not known."""
    twice = next((name for name, times in Counter(names).items() if times > 1 and name in read), None)
    if twice is not None:
        raise FileError(
            f"{place}: column {twice!r} stands twice, and which one holds is not known; write the file again"
        )


_KEY = re.compile(rb'"\s*:')


def check_keys(text: bytes, value: object) -> None:
    """Raise ValueError if an object of a JSON text has a key twice: parsers keep the last value without a word.

    Args:
        value: what the text was parsed to.
    """
    if len(_KEY.findall(text)) != _keys(value):  # a string may hold what looks like a key
        json.loads(text, object_pairs_hook=_once)


def _keys(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_keys, value.values()))
    return sum(map(_keys, value)) if isinstance(value, list) else 0


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"key {twice!r} stands twice in one object, and which value holds is not known")
    return found


def parsed_json(text: str | bytes, where: str, error: type[RooflensError] = FileError, **options: Any) -> Any:
    """Return the value of a JSON text; `options` are those of :func:`json.loads`.

    Raises:
        FileError: it is no JSON, has a key twice, or has more than :data:`MOST_NESTED` levels.
    """
    return _parsed(lambda: json.loads(text, object_pairs_hook=_once, **options), "JSON", where, error)


def parsed_toml(text: str, where: str, error: type[RooflensError] = FileError) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        FileError: it is no TOML, or has more than :data:`MOST_NESTED` levels.
    """
    tables: dict[str, Any] = _parsed(lambda: tomllib.loads(text), "TOML file", where, error)
    return tables


def _parsed(parse: Callable[[], Any], form: str, where: str, error: type[RooflensError]) -> Any:
    deep = f"{where} is no {form} that can be read: it has more than {MOST_NESTED} levels"
    try:
        value = parse()
    except ValueError as problem:
        raise error(f"{where} is no {form}: {problem}") from problem
    except RecursionError as problem:
        raise error(deep) from problem
    nested = [value]
    for _ in range(MOST_NESTED + 1):
        nested = [each for each in nested if isinstance(each, dict | list)]
        if not nested:
            return value
        nested = [each for outer in nested for each in (outer.values() if isinstance(outer, dict) else outer)]
    raise error(deep)
