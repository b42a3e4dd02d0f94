"""How cases, their phases and the sources of their records are named for a reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from rooflens.records import Case, Phase, Source
from rooflens.runs.options import FIRST_RUN, RUN

PHASE_WORDS: Mapping[Phase | None, str] = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "prefill": "prefill",
    "decode": "decode",
    None: "whole step",
}
SHORT_PHASES: Mapping[Phase | None, str] = {
    "forward": "fwd",
    "backward": "bwd",
    "optimizer": "opt",
    "prefill": "prefill",
    "decode": "decode",
    None: "step",
}
SOURCE_WORDS: Mapping[Source, str] = {
    "estimate": "bound (estimated)",
    "measure": "measured",
    "counters": "hardware counters",
    "profile": "profiler",
    "replay": "replayed alone",
}

# In the order in which people ask: first for the model, then for the batch ...
_FIELDS: Mapping[str, Callable[[Case], str]] = {
    "model": lambda c: c.model,
    "batch size": lambda c: "" if c.batch is None else f"batch {c.batch}",
    "dtype": lambda c: c.dtype,
    "mode": lambda c: c.mode,
}


_NEEDLESS = re.compile(r"-(r|tm|cpu|processor|with-radeon-graphics|\d+-core|\d+-\d+ghz)(?=-|$)")
"""What the names of processors hold beside what tells them apart."""


def short_device(name: str) -> str:
    """Return the name of a device for people.

    >>> short_device("intel-r-xeon-r-platinum-8480-cpu-2-00ghz-measured"), short_device("geforce-rtx-4090")
    ('intel-xeon-platinum-8480-measured', 'geforce-rtx-4090')
    """
    return _NEEDLESS.sub("", name)


def differing(cases: Sequence[Case]) -> tuple[str, ...]:
    """Return the fields and options in which `cases` differ; the model if they differ in none."""
    return tuple(name for name, texts in _texts(cases).items() if len(set(texts)) > 1) or ("model",)


def shared(cases: Sequence[Case]) -> str:
    """Return what all cases have in common beside the model."""
    texts = {name: texts[0] for name, texts in _texts(cases).items() if name != "model" and len(set(texts)) == 1}
    options = " ".join(text for name, text in texts.items() if name not in _FIELDS)
    return ", ".join(filter(None, (*(text for name, text in texts.items() if name in _FIELDS), options)))


def name_of(case: Case, fields: Iterable[str]) -> str:
    """Return the values of some fields and options of a case; "no batch", "no option work" if it has none of them."""
    asked = tuple(fields)
    absent = asked[0] if asked[0] in _FIELDS else f"option {asked[0]}"
    return " ".join(filter(None, (_text(case, field) for field in asked))) or f"no {absent}"


def _texts(cases: Sequence[Case]) -> dict[str, list[str]]:
    """Return the values of each field, and of each option that any case has, case by case."""
    options = dict.fromkeys(name for case in cases for name, _ in case.options)
    return {name: [_text(case, name) for case in cases] for name in (*_FIELDS, *options)}


def _text(case: Case, field: str) -> str:
    """Return the value of a field or of an option; "" where a case has none."""
    if field in _FIELDS:
        return _FIELDS[field](case)
    value = dict(case.options).get(field, FIRST_RUN if field == RUN else None)
    return "" if value is None else f"{field}={value}"
