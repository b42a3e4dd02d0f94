"""Tables of a study file, read strictly: an error names file, line, key and value, what is allowed, and near names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

from rooflens.errors import StudyFileError
from rooflens.records import Scalar
from rooflens.study.toml_lines import Path, line_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A table of a file, and where it stands: what every error needs.

    Attributes:
        name: of the file.
        text: of the whole file.
        path: keys from the top of the file to this table.
    """

    name: str
    text: str
    values: Mapping[str, Any]
    path: Path = ()

    def fail(self, key: str | int, problem: str, *more: str | int) -> NoReturn:
        """Raise what is wrong with a key of this table; `more` leads on to a part of its value."""
        path = (*self.path, *([key] if key != "" else []), *more)
        line = next((n for end in range(len(path), 0, -1) if (n := line_of(self.text, path[:end])) is not None), None)
        place = f"{self.name}, line {line}" if line is not None else self.name
        raise StudyFileError(f"{place}: {_dotted(path)} {problem}".replace(":  ", ": "))

    def line(self) -> int | None:
        """The line on which this table begins."""
        return line_of(self.text, self.path)

    def refuse_others(self, known: Iterable[str], remedy: str = "") -> None:
        """Refuse keys that mean nothing here."""
        allowed = list(known)
        for key in self.values:
            if key not in allowed:
                self.fail(key, f"is not known here{near(key, allowed)}; allowed: {', '.join(allowed)}{remedy}")

    def has(self, key: str) -> bool:
        """True if the file gives a key."""
        return key in self.values

    def list_of(self, key: str, one: Callable[[str, object, tuple[int, ...]], T]) -> tuple[T, ...]:
        """A list without repetitions; a single value is a list of one.

        Args:
            one: makes an item of its key, its value and its place in the list.
        """
        value = self.values.get(key, [])
        if not isinstance(value, list):
            return (one(key, value, ()),)
        items = [one(key, item, (n,)) for n, item in enumerate(value)]
        for n, item in enumerate(items):
            # 1 == True, so types are compared too.
            if any(other == item and type(other) is type(item) for other in items[:n]):
                self.fail(key, f"names {item!r} twice", n)
        if self.has(key) and not items:
            self.fail(key, "is empty; leave it out, or name something")
        return tuple(items)

    def _checked(self, key: str, is_allowed: Callable[[Any], bool], problem: str) -> tuple[Any, ...]:
        """A list of values that are allowed; the `problem` says what they have to be."""

        def one(key: str, value: object, at: tuple[int, ...]) -> object:
            if not is_allowed(value):
                self.fail(key, f"is {value!r}; {problem}", *at)
            return value

        return self.list_of(key, one)

    def text_of(self, key: str, default: str = "") -> str:
        """One text."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            self.fail(key, f"is {value!r}; it has to be text")
        return value.strip()

    def texts(self, key: str) -> tuple[str, ...]:
        """Texts that are not empty."""

        def one(key: str, value: object, at: tuple[int, ...]) -> str:
            if not isinstance(value, str) or not value.strip():
                self.fail(key, f"is {value!r}; it has to be text", *at)
            return value.strip()

        return self.list_of(key, one)

    def chosen(self, key: str, allowed: Sequence[str]) -> tuple[Any, ...]:
        """Words of a vocabulary."""

        def one(key: str, value: object, at: tuple[int, ...]) -> object:
            if value not in allowed:
                self.fail(key, f"is {value!r}{near(value, allowed)}; allowed: {', '.join(allowed)}", *at)
            return value

        return self.list_of(key, one)

    def word(self, key: str, allowed: Sequence[str]) -> Any:
        """One word of a vocabulary, None where the file gives none."""
        self._refuse_list(key)
        return next(iter(self.chosen(key, allowed)), None)

    def counts(self, key: str) -> tuple[int, ...]:
        """Whole numbers above zero."""
        problem = "it has to be a whole number of at least 1"
        return self._checked(key, lambda value: type(value) is int and value >= 1, problem)

    def count(self, key: str) -> int | None:
        """One whole number above zero."""
        self._refuse_list(key)
        return next(iter(self.counts(key)), None)

    def number(self, key: str, default: T, what: str = "a number") -> float | T:
        """A number above zero."""
        value = self.values.get(key)
        if value is None:
            return default
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            self.fail(key, f"is {value!r}; it has to be {what} above 0")
        return float(value)

    def seconds(self, key: str, default: T) -> float | T:
        """A number of seconds above zero."""
        return self.number(key, default, "a number of seconds")

    def flag(self, key: str) -> bool:
        """True or false; false where the file gives none."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            self.fail(key, f"is {value!r}; allowed: true, false")
        return value

    def flags(self, key: str) -> tuple[bool, ...]:
        """True, false or both."""
        return self._checked(key, lambda value: isinstance(value, bool), "allowed: true, false")

    def scalars(self, key: str) -> tuple[Scalar, ...]:
        """Texts, numbers and flags."""
        problem = "it has to be text, a number, true or false"
        return self._checked(key, lambda value: isinstance(value, str | int | float), problem)

    def _refuse_list(self, key: str) -> None:
        if isinstance(self.values.get(key), list):
            self.fail(key, f"is {self.values[key]!r}; it has one value and not a list")

    def table(self, key: str) -> TomlTable:
        """A table within this one; empty where the file has none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"is {value!r}; it has to be a table: [{_dotted((*self.path, key))}]")
        return TomlTable(self.name, self.text, value, (*self.path, key))

    def tables(self, key: str) -> Iterator[TomlTable]:
        """The tables of a list: each ``[[key]]`` of the file."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.fail(key, f"has to be a list of tables, each under [[{_dotted((*self.path, key))}]]")
        for n, item in enumerate(value):
            yield TomlTable(self.name, self.text, item, (*self.path, key, n))


def near(value: object, allowed: Iterable[str]) -> str:
    """The names that somebody may have meant."""
    names = get_close_matches(str(value).lower(), list(allowed), n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(names)}?)" if names else ""


def _dotted(path: Path) -> str:
    """A path as people write it: ``grid[1].batches[0]``, lists counted from 1 as lines are."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step + 1}]"
        else:
            text += ("." if text else "") + (step if re.fullmatch(r"[\w-]+", step) else f'"{step}"')
    return text
