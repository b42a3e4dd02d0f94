"""What every implementation of an operation needs, where the code as written does more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rooflens.records.work import Work

Cause = Literal[
    "optimizer passes",
    "cache copies",
    "element-wise passes",
    "attention matrix",
    "expansion",
    "masked pairs",
    "idle experts",
    "dequantisation",
    "loop",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""Why code does more than needed.

- optimizer passes: a foreach optimizer goes over its tensors several times;
- cache copies: the cache of a language model is copied, cast or repeated, or read beyond its valid part;
- element-wise passes: element-wise operations, norms and copies of a language model's step pass over values that the
  products beside them could take up as they read or write them;
- attention matrix: attention that is written out moves its matrix of weights through memory;
- expansion: what could be read in a small form (grouped heads, latents, values in 16 bits) is made large first;
- masked pairs: attention computes pairs that its mask or window throws away;
- idle experts: experts that no token is sent to are read or computed;
- dequantisation: quantised weights are written out in a wider type, or a product's result is scaled by itself;
- loop: a program of many small operations stands for one pass over its tensors.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What every implementation needs of one call.

    Attributes:
        work: less than the call's own, in FLOP, bytes or both.
        cause: why the code as written does more.
        formula: how `work` follows from sizes, with its numbers, in one sentence.
    """

    work: Work
    cause: Cause
    formula: str = ""
