"""What differs first in two values of one type, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass


def first_difference(one: object, other: object, name: str = "") -> str:
    """Return the first value that differs, by the names of the fields that lead to it."""
    for inner, its, theirs in _inner(one, other):
        if its != theirs:
            return first_difference(its, theirs, f"{name}.{inner}" if name else inner)
    return f"{name} is {_text(one)} in one and {_text(other)} in the other"


def _inner(one: object, other: object) -> Iterator[tuple[str, object, object]]:
    """What two values consist of, side by side by name; nothing of plain values and of two types."""
    if is_dataclass(one) and type(one) is type(other):
        yield from ((f.name, getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.compare)
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        yield from ((str(key), one.get(key), other.get(key)) for key in {**one, **other})
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        yield from ((str(n), *pair) for n, pair in enumerate(zip(one, other, strict=True)))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"a list of {len(value)}"
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int | float) else repr(value)
