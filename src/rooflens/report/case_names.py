"""Words on a roofline figure: title, names of cases and what their colours tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rooflens.records import Case, Phase, Source

PHASE_WORDS: Mapping[Phase | None, str] = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    None: "whole step",
}
SHORT_PHASES: Mapping[Phase | None, str] = {
    "forward": "fwd",
    "backward": "bwd",
    "optimizer": "opt",
    None: "step",
}
SOURCE_WORDS: Mapping[Source, str] = {
    "estimate": "estimate (at its bound)",
    "measure": "measured",
    "counters": "hardware counters",
    "profile": "profiler",
}
LONGEST_LABEL = 30
_FEW = 3

# Of two cases, the reader first asks which model, then which batch ... A case is named by the fields that differ.
_FIELDS: Mapping[str, Callable[[Case], str]] = {
    "model": lambda c: c.model,
    "batch size": lambda c: "" if c.batch is None else f"batch {c.batch}",
    "dtype": lambda c: c.dtype,
    "mode": lambda c: c.mode,
    "options": lambda c: " ".join(f"{name}={value}" for name, value in c.options),
}


def shorten(text: str, longest: int = LONGEST_LABEL) -> str:
    """Cut `text` in front: the end of a module path tells more than its beginning.

    >>> shorten("encoder.layers.11.mlp", 8)
    '…11.mlp'
    """
    return text if len(text) <= longest else "…" + text[-(longest - 1) :].lstrip("._")


def cut(text: str, longest: int) -> str:
    """Cut `text` at its end: the beginning of a kernel's name, or of a device's, tells more than the rest of it.

    >>> cut("gemm_kernel<float, 128>", 12)
    'gemm_kernel…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def differing(cases: Sequence[Case]) -> tuple[str, ...]:
    """The fields in which `cases` differ, in the order in which people ask; the model where they do not."""
    found = tuple(field for field, words in _FIELDS.items() if len({words(case) for case in cases}) > 1)
    return found or ("model",)


def name_of(case: Case, fields: Iterable[str]) -> str:
    """The case in the words of some of its fields; where it has none of them, in that word."""
    asked = tuple(fields)
    return " ".join(filter(None, (_FIELDS[field](case) for field in asked))) or f"no {asked[0]}"


def colour_field(cases: Sequence[Case], several_phases: bool) -> str:
    """What colours should tell apart where each mark is a whole case: the first thing that differs."""
    if len({case.model for case in cases}) > 1:
        return "model"
    fields = [field for field in differing(cases) if field != "model"]
    return fields[0] if fields else "phase" if several_phases else "model"


def colour_group(case: Case, phase: Phase | None, field: str) -> str:
    """The group of a mark under :func:`colour_field`."""
    return PHASE_WORDS[phase] if field == "phase" else name_of(case, [field])


def title(cases: Sequence[Case], devices: Sequence[str]) -> str:
    """What the figure shows."""
    models = list(dict.fromkeys(case.model for case in cases))
    subject = _some(models, "models")
    place = _some(devices, "devices")
    if not subject:
        return f"Roofline{'' if len(devices) == 1 else 's'} of {place}" if place else "Roofline"
    roofline = "roofline" if len(devices) == 1 else "rooflines"
    return f"{subject} on the {roofline} of {place}" if place else f"{subject}: no roofline, the device is not known"


def subtitle(cases: Sequence[Case], what: str) -> str:
    """What all cases share, then what a mark is."""
    shared = [
        values.pop()
        for field, words in _FIELDS.items()
        if field != "model" and len(values := {words(case) for case in cases}) == 1
    ]
    return ", ".join(filter(None, [*shared, what]))


def _some(names: Sequence[str], plural: str) -> str:
    if len(names) <= _FEW:
        return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return f"{len(names)} {plural}"
