"""Conditions on cases, as exclusions and hypotheses name them: each value has to be one that some case could have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rooflens.records import AS_IS, DTYPES, EVERY_PHASE, MODES, Scalar
from rooflens.study.grid import COMPARISON, agrees
from rooflens.study.study import OPTIONS, SOURCES
from rooflens.study.toml_table import TomlTable, near

NUMBERS = ("batch", "seq_len", "img_size", *(name for name, line in OPTIONS.items() if line.kind in (int, float)))
FLAGS = tuple(name for name, line in OPTIONS.items() if line.kind is bool)
WORDS: Mapping[str, Sequence[str]] = {
    "source": SOURCES,
    "dtype": (*DTYPES, AS_IS),
    "mode": MODES,
    "phase": EVERY_PHASE,
    **{name: line.choices for name, line in OPTIONS.items() if line.choices},
}


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
