"""How cases, their phases and the sources of their records are named for a reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from rooflens.records import Case, Phase, Source

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
    "options": lambda c: " ".join(f"{name}={value}" for name, value in c.options),
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
    """Return the fields in which `cases` differ; the model if they differ in none."""
    fields = tuple(field for field, text in _FIELDS.items() if len({text(case) for case in cases}) > 1)
    return fields or ("model",)


def shared(cases: Sequence[Case]) -> str:
    """Return what all cases have in common beside the model."""
    texts = ({text(case) for case in cases} for field, text in _FIELDS.items() if field != "model")
    return ", ".join(filter(None, (values.pop() for values in texts if len(values) == 1)))


def name_of(case: Case, fields: Iterable[str]) -> str:
    """Return the values of some fields of a case; "no batch size" if it has none of them."""
    asked = tuple(fields)
    return " ".join(filter(None, (_FIELDS[field](case) for field in asked))) or f"no {asked[0]}"
