"""Conditions on cases, as exclusions and hypotheses name them: each value has to be one that some case could have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rooflens.records import AS_IS, DTYPES, EVERY_PHASE, MODES, Scalar
from rooflens.runs.dtype_names import dtype_named
from rooflens.runs.options import WEIGHTS
from rooflens.study.grid import COMPARISON, agrees
from rooflens.study.study import OPTIONS, SOURCES
from rooflens.study.toml_table import KeyKind, TomlTable, near, one_of

NUMBERS = ("batch", "seq_len", "img_size", *(name for name, line in OPTIONS.items() if line.kind in (int, float)))
FLAGS = tuple(name for name, line in OPTIONS.items() if line.kind is bool)
WORDS: Mapping[str, Sequence[str]] = {
    "source": SOURCES,
    "dtype": (*DTYPES, AS_IS),
    "mode": MODES,
    "phase": EVERY_PHASE,
    **{name: line.choices for name, line in OPTIONS.items() if line.choices},
}


def dtype_kind(*, many: bool = False) -> KeyKind:
    """A dtype; the names that torch has for it are known too."""
    return replace(
        one_of((*DTYPES, AS_IS), many=many),
        fits=lambda value: isinstance(value, str) and dtype_named(value) in (*DTYPES, AS_IS),
        make=dtype_named,
        hint=lambda value: f"; {value} is a format of weights: weights = {value!r}" if value in WEIGHTS else "",
    )


def as_named(name: str, value: Scalar) -> Scalar:
    """Return the value of a condition as cases have it: a dtype by the name that rooflens uses."""
    return dtype_named(value) if name == "dtype" and isinstance(value, str) else value


def check_condition(table: TomlTable, name: str, value: Scalar) -> None:
    """Refuse a condition that no case could meet, whatever the study holds.

    Raises:
        StudyFileError: a number where a word belongs, a word that nobody knows, a comparison that cannot be read.
    """
    if value is False and name in OPTIONS:  # of any option: it is off
        return
    if name in NUMBERS:
        kinds = (int, float) if name in OPTIONS and OPTIONS[name].kind is float else (int,)
        known = COMPARISON.fullmatch(value) if isinstance(value, str) else type(value) in kinds
        if not known:
            what = "a number" if float in kinds else "a whole number"
            table.fail(name, f"is {value!r}; it has to be {what}, or a comparison (<, <=, >, >=) like '>= 64'")
    elif name in FLAGS:
        if value is not True:
            table.fail(name, f"is {value!r}; allowed: true, false")
    elif name in WORDS:
        allowed = WORDS[name]
        if not any(agrees(word, value) for word in allowed):
            table.fail(name, f"is {value!r}{near(value, allowed)}; allowed: {', '.join(allowed)}")
    elif not isinstance(value, str):
        table.fail(name, f"is {value!r}; it has to be text, or a pattern like 'resnet*'")
