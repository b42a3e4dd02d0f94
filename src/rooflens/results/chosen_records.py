"""Conditions by which records are chosen: fields of a record or of its case, and options of the case."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields

from rooflens.errors import InvalidValue
from rooflens.records import Case, Failure, Record
from rooflens.runs.options import FIRST_RUN, OPTIONS, RUN

_UNNAMED: Mapping[str, object] = {**{name: line.default for name, line in OPTIONS.items()}, RUN: FIRST_RUN}
"""What each option is where a case does not name it."""
_OF_RECORD = {field.name for field in fields(Record)} - _UNNAMED.keys()
_OF_CASE = {field.name for field in fields(Case)}


def check_conditions(names: Collection[str]) -> None:
    """Raise InvalidValue for a name that no record, case or option has."""
    known = _OF_RECORD | _OF_CASE | _UNNAMED.keys()
    if unknown := set(names) - known:
        raise InvalidValue(f"unknown condition {min(unknown)!r}; known: {', '.join(sorted(known))}")


def hold_for_cases(names: Collection[str]) -> bool:
    """True if conditions are on what all records of a case and a source share."""
    return set(names) <= _OF_CASE | _UNNAMED.keys() | {"source"}


def meets(item: Record | Failure, conditions: Mapping[str, object]) -> bool:
    """True if a record meets every condition, of several values any; an option that no case names has its default."""
    options = dict(item.case.options)
    for name, wanted in conditions.items():
        if name in _UNNAMED:
            value: object = options.get(name, _UNNAMED[name])
        else:
            value = getattr(item.case if name in _OF_CASE else item, name, None)
        nothing = OPTIONS[name].nothing if value is None and name in OPTIONS else ()
        if value != wanted and not any(value == one or one in nothing for one in any_of(wanted)):
            return False
    return True


def any_of(wanted: object) -> Iterable[object]:
    """The values that a condition names."""
    return wanted if isinstance(wanted, list | tuple | set | frozenset | range) else (wanted,)
