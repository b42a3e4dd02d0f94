"""What people call dtypes."""

from __future__ import annotations

from collections.abc import Mapping

from rooflens.errors import meant
from rooflens.records import DTYPES
from rooflens.runs.options import WEIGHTS

DTYPES_BY_OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("float32", "float", "f32", "single"), "fp32"),
    **dict.fromkeys(("float16", "half", "f16"), "fp16"),
    "bfloat16": "bf16",
    **dict.fromkeys(("amp", "mixed", "autocast", "amp-float16", "amp-half"), "amp-fp16"),
    "amp-bfloat16": "amp-bf16",
}
"""What people call a dtype; torch's autocast takes float16 on CUDA."""


def dtype_named(word: str) -> str:
    """Return a dtype by the name that rooflens uses; of a word that is none only the case changes.

    >>> dtype_named("torch.bfloat16")
    'bf16'
    """
    plain = word.lower().removeprefix("torch.").replace("_", "-")
    return DTYPES_BY_OTHER_NAMES.get(plain, plain)


def dtype_hint(word: str) -> str:
    """Return what to do instead of naming a format of weights as a dtype; of another word what may be meant."""
    if word not in WEIGHTS:
        return meant(word, DTYPES)
    return f"; {word} is a format of weights: --weights {word} (in Python weights={word!r})"
