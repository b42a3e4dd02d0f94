"""Which models are of one kind, by their names: what colours tell where there are more models than colours."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rooflens.records import Case
from rooflens.report.case_names import differing, name_of
from rooflens.report.figures.palette import MOST_MODELS

FAMILIES = "model family"
"""What colours tell where there are more models than colours."""

_WORDS = re.compile(r"[\s_\-.]+")
_SIZES = frozenset(
    (
        *("nano", "tiny", "small", "medium", "base", "large", "huge", "giant", "mini", "lite", "pico", "femto", "atto"),
        *("xs", "xl", "xxl"),
    )
)


def family_of(model: str) -> str:
    """Return the name of a model without what tells its size: a number, a letter, or a word such as ``large``.

    >>> [family_of(name) for name in ("resnet18", "wide_resnet50_2", "timm:convnext_tiny", "meta-llama/Llama-3.1-8B")]
    ['resnet', 'wide resnet', 'convnext', 'llama']
    """
    path = model.rpartition(":")[2].removesuffix("/config.json")
    words = []
    for word in _WORDS.split(path.rpartition("/")[2].lower()):
        letters = re.split(r"\d", word, maxsplit=1)[0]
        if word in _SIZES or len(letters) < 2:
            break
        words.append(letters)
        if letters != word:
            break
    return " ".join(words) or model


def colours_tell(cases: Sequence[Case]) -> tuple[str, Callable[[Case], str]]:
    """Return what colours tell of whole cases, and its value of each: the first thing that differs, or the family."""
    if len({case.model for case in cases}) > MOST_MODELS:
        return FAMILIES, lambda case: family_of(case.model)
    first = differing(cases)[0]
    return first, lambda case: name_of(case, [first])
