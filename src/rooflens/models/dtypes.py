"""torch's element types by their names in rooflens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch


@cache
def floating_types() -> Mapping[str, torch.dtype]:
    """Return the floating types by name; other types have torch's names."""
    return {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
