"""Untrusted SQLite files: plain tables, known columns, checked types, a bounded number of steps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflens.errors import FileError
from rooflens.opening import at_most, whole_size

SqlType = type[int] | type[str]

MAGIC = b"SQLite format 3\x00"
_STEPS, _STEPS_PER_BYTE, _SLICE = 1_000_000, 20, 100_000
"""Steps of SQLite's virtual machine that a file of so many bytes may take: a row of 30 bytes takes about 40."""
_HEADER = 100
_MANY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlColumn:
    """A column that is read: the kind of its cells, which SQLite does not enforce; `needed` in every row or not."""

    name: str
    kind: SqlType = int
    needed: bool = False


class Database:
    """The plain tables of one file. Everything that reads raises FileError, which names file, table, row and column."""

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self.where = where
        self._connection = connection
        self._plain = self._names()
        self._known: dict[str, Sequence[str]] = {}

    def columns(self, table: str) -> Sequence[str]:
        """Return the names of the columns of a table, none where the file lacks it."""
        if table not in self._known:
            # A view or a virtual table would run what its author wrote.
            if not self._plain.get(table, True):
                raise FileError(f"{self.where}: {table} is no plain table, and others are not read")
            self._known[table] = self._columns(table) if table in self._plain else ()
        return self._known[table]

    def rows(self, table: str, *columns: SqlColumn) -> Iterator[tuple[Any, ...]]:
        """Give the cells of these columns, row by row: each None or of the kind of its column.

        A column that the file lacks is None, a table that it lacks has no rows.
        """
        has = self.columns(table)
        if not has:
            return
        for column in columns:
            if column.needed and column.name not in has:
                listed = ", ".join(has[:_MANY]) + (", ..." if len(has) > _MANY else "")
                raise FileError(f"{self.where}: table {table} has no column {column.name!r}; it has {listed}")
        wanted = ", ".join(f'"{column.name}"' if column.name in has else "NULL" for column in columns)
        with _read_of(self.where, f"table {table}"):
            every = self._connection.execute(f'SELECT {wanted} FROM "{table}"')
            for number, row in enumerate(at_most(every, f"{self.where}: table {table}"), start=1):
                for column, cell in zip(columns, row, strict=True):
                    if (cell is None and column.needed) or (cell is not None and not isinstance(cell, column.kind)):
                        raise FileError(
                            f"{self.where}: table {table}, row {number}, column {column.name} holds {_shown(cell)},"
                            f" which is no {_WORDS[column.kind]}; export the report again"
                        )
                yield row

    def _names(self) -> Mapping[str, bool]:
        """Everything in the file by its name, and True for a plain table."""
        every = "SELECT name, type = 'table' AND substr(sql, 1, 13) = 'CREATE TABLE ' FROM sqlite_master"
        with _read_of(self.where, "the list of tables"):
            return {name: plain == 1 for name, plain in self._connection.execute(every) if isinstance(name, str)}

    def _columns(self, table: str) -> Sequence[str]:
        """The columns of a table that is whole: damaged pages may lose rows without a word, unless one looks for it."""
        with _read_of(self.where, f"table {table}"):
            columns = self._connection.execute(f'SELECT * FROM "{table}" LIMIT 0').description
            (word,) = next(self._connection.execute(f'PRAGMA quick_check("{table}")'), ("nothing",))
        if word != "ok":
            raise FileError(f"{self.where}: table {table} is damaged: {_shown(word)}; export the report again")
        return tuple(name for name, *_ in columns)


_WORDS: Mapping[SqlType, str] = {int: "whole number", str: "text"}


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open the database in a file for reading.

    Raises:
        FileError: it cannot be opened, is no whole database, or was not closed by its writer.
    """
    where = repr(str(path))
    size = _whole_size(path, where)
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    with _read_of(where, "it"):
        connection = sqlite3.connect(uri, uri=True)
    with closing(connection):
        connection.text_factory = _text
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(size + _HEADER, 2**30))
        connection.set_authorizer(_may)
        connection.set_progress_handler(_Patience(_STEPS + _STEPS_PER_BYTE * size), _SLICE)
        yield Database(connection, where)


def _whole_size(path: Path, where: str) -> int:
    """Bytes of a file that is as long as its header says."""
    size = whole_size(path)
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
        pending = [side for end in ("-wal", "-journal") if _holds(side := path.with_name(path.name + end))]
    except OSError as error:
        raise FileError(f"cannot read {where}: {error.strerror}") from error
    if not header.startswith(MAGIC):
        raise FileError(f"{where} is no SQLite database; if it is compressed, unpack it")
    if pending:
        raise FileError(f"{where} was not closed by its writer, {pending[0].name} lies beside it; export it again")
    page = int.from_bytes(header[16:18])
    promised = int.from_bytes(header[28:32]) * (65536 if page == 1 else page)
    if promised > size:
        raise FileError(f"{where} is cut: it has {size} of {promised} bytes; export or copy it again")
    return size


def _holds(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


_READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})
_FUNCTIONS = frozenset({"substr"})


def _may(action: int, first: str | None, second: str | None, _: str | None, inside: str | None) -> int:
    """SQLite's answer to what a statement wants to do: it may read, but nothing on behalf of a view or trigger."""
    if inside is not None:
        return sqlite3.SQLITE_DENY
    known = (
        action in _READS
        or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and first == "quick_check")
    )
    return sqlite3.SQLITE_OK if known else sqlite3.SQLITE_DENY


class _Patience:
    """Ends what takes more steps than a file of its size can need: a damaged tree may lead in circles."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def __call__(self) -> int:
        self._left -= _SLICE
        return int(self._left < 0)


@contextmanager
def _read_of(where: str, what: str) -> Iterator[None]:
    """What SQLite raises meanwhile is an error of the file."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # names and messages of a damaged file may be no text
        raise FileError(f"{where}: {what} cannot be read: {error}; export the report again") from error


def _shown(cell: object) -> str:
    return "nothing" if cell is None else repr(cell)[:60]
