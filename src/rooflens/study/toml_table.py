"""Tables of a study file, read strictly: an error names file, line, key and value, what is allowed, and near names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from rooflens.errors import RooflensError, StudyFileError, checked
from rooflens.study.toml_lines import Path, line_of


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyKind:
    """What may stand under a key.

    Attributes:
        fits: True for a value that may.
        needs: what a value has to be, for those that do not fit.
        choices: the words that may stand there, where these are few.
        make: makes what is kept of a value that fits; an error of rooflens says what is wrong with it.
        hint: what to do instead of a value that does not fit, "" for most.
        many: a list without repetitions; a single value is a list of one.
    """

    fits: Callable[[Any], bool]
    needs: str = ""
    choices: Sequence[str] = ()
    make: Callable[[Any], Any] = lambda value: value
    hint: Callable[[Any], str] = lambda value: ""
    many: bool = False


TEXT = KeyKind(fits=lambda value: isinstance(value, str), needs="it has to be text", make=str.strip)
TEXTS = replace(TEXT, fits=lambda value: isinstance(value, str) and bool(value.strip()), many=True)
COUNT = KeyKind(fits=lambda value: type(value) is int and value >= 1, needs="it has to be a whole number of at least 1")
COUNTS = replace(COUNT, many=True)
NUMBER = KeyKind(
    fits=lambda value: type(value) in (int, float) and 0 < value < float("inf"),
    needs="it has to be a number above 0",
    make=float,
)
SECONDS = replace(NUMBER, needs="it has to be a number of seconds above 0")
FLAG = KeyKind(fits=lambda value: isinstance(value, bool), needs="allowed: true, false")
NUMBERS = replace(NUMBER, many=True)
FLAGS = replace(FLAG, many=True)
SCALAR = KeyKind(
    fits=lambda value: isinstance(value, str | int | float), needs="it has to be text, a number, true or false"
)
SCALARS = replace(SCALAR, many=True)


def one_of(choices: Sequence[str], *, many: bool = False) -> KeyKind:
    """Words of a vocabulary."""
    return KeyKind(fits=choices.__contains__, choices=choices, many=many)


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

    def read(self, kinds: Mapping[str, KeyKind], others: Iterable[str] = (), remedy: str = "") -> dict[str, Any]:
        """The values of the keys that the file gives, each of its kind.

        Args:
            others: further keys that may stand here, which somebody else reads.
            remedy: for keys that mean nothing here.
        """
        allowed = [*kinds, *others]
        for key in self.values:
            if key not in allowed:
                self.fail(key, f"is not known here{near(key, allowed)}; allowed: {', '.join(allowed)}{remedy}")
        given = [key for key in self.values if key in kinds]
        values = checked(*(partial(self._value, key, kinds[key]) for key in given))
        return dict(zip(given, values, strict=True))

    def _value(self, key: str, kind: KeyKind) -> Any:
        given = self.values[key]
        is_list = isinstance(given, list)
        if is_list and not kind.many:
            self.fail(key, f"is {given!r}; it has one value and not a list")
        places = [(value, (n,) if is_list else ()) for n, value in enumerate(given if is_list else [given])]
        items = checked(*(partial(self._item, key, kind, value, at) for value, at in places))
        seen = set()
        for n, item in enumerate(items):
            mark = type(item), item  # 1 == True, so types are compared too
            if mark in seen:
                self.fail(key, f"names {item!r} twice", *places[n][1])
            seen.add(mark)
        if not items:
            self.fail(key, "is empty; leave it out, or name something")
        return tuple(items) if kind.many else items[0]

    def _item(self, key: str, kind: KeyKind, value: Any, at: tuple[int, ...]) -> Any:
        """A value of a key, made from what stands there."""
        if not kind.fits(value):
            needs = kind.needs or f"allowed: {', '.join(kind.choices)}"
            self.fail(key, f"is {value!r}{near(value, kind.choices)}; {needs}{kind.hint(value)}", *at)
        try:
            return kind.make(value)
        except RooflensError as error:
            self.fail(key, f"is {value!r}: {error}", *at)

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
