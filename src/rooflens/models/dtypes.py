"""torch's element types by the names that rooflens has for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch


@cache
def floating_types() -> Mapping[str, torch.dtype]:
    """The floating types with names of rooflens's own; the other types go by torch's."""
    return {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
