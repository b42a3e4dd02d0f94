"""Types of the command line's options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from rooflens.runs.dtype_names import dtype_hint, dtype_named


class OptionType(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no parameters of types
    """What the text of an option becomes."""


class OneOf(click.Choice):  # type: ignore[type-arg]
    """One of some words; of a word that is none of them the message says which was meant.

    Args:
        meant: words that people type for some of them.
    """

    def __init__(self, choices: Sequence[str], meant: Mapping[str, str] | None = None) -> None:
        super().__init__(choices)
        self.meant = meant or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            word = str(value).lower()
            near = [self.meant[word]] if word in self.meant else get_close_matches(word, self.choices, n=2, cutoff=0.6)
            if not near:
                raise
            hint = f"; did you mean {' or '.join(map(repr, near))}?"
            raise click.BadParameter(error.message.rstrip(".") + hint, ctx, param) from error


class Millimetres(OptionType):
    """A width, with its unit or without."""

    name = "mm"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(str(value).removesuffix("mm"))
        except ValueError:
            self.fail(f"{value!r} is no width in millimetres; write 85", param, ctx)


class IntList(OptionType):
    """Whole numbers of at least 1, separated by commas."""

    name = "n,n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            numbers = [int(word) for word in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is no list of whole numbers; write 64 or 1,64,256", param, ctx)
        wrong = [n for n in numbers if n < 1]
        if wrong:
            self.fail(f"{wrong[0]} cannot be run; give numbers of at least 1", param, ctx)
        return numbers


class WordList(OptionType):
    """Words, separated by commas."""

    name = "name,name,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return value if isinstance(value, tuple) else tuple(filter(None, map(str.strip, str(value).split(","))))


class Dtype(OptionType):
    """A dtype; the names that torch has for it are known too."""

    name = "dtype"

    def __init__(self, *known: str) -> None:
        self.known = known

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self.known)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.named([value], param, ctx)[0]

    def named(self, words: Sequence[str], param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Return dtypes as rooflens names them, or fail with all that are not known."""
        names = [dtype_named(word.strip()) for word in words]
        wrong = [word for word in names if word not in self.known]
        if wrong:
            hints = "".join(map(dtype_hint, wrong))
            self.fail(f"{', '.join(map(repr, wrong))}: not known; known: {', '.join(self.known)}{hints}", param, ctx)
        return names


class DtypeList(Dtype):
    """Dtypes, separated by commas."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self.known)},...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        return self.named(value if isinstance(value, list) else str(value).split(","), param, ctx)


class OutputPath(OptionType):
    """A file whose suffix says what is written.

    Args:
        known: the suffixes that can be written.
    """

    name = "file"

    def __init__(self, *known: str) -> None:
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.suffix.lower() not in self.known:
            self.fail(f"{str(path)!r}: the suffix says what to write; known: {' '.join(self.known)}", param, ctx)
        if os.path.isdir(path):
            self.fail(f"{str(path)!r} is a folder; name a file", param, ctx)
        return path


class NamedSize(OptionType):
    """A name and a whole number, split at the last ``=``."""

    name = "name=n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, _, size = str(value).rpartition("=")
        if not name or not size.isdecimal():
            self.fail(f"{value!r} is no name with a size; write past_sequence_length=128", param, ctx)
        return name, int(size)
