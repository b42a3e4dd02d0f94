"""Element types as rooflens writes them."""

from __future__ import annotations

import torch

from rooflens.models.dtypes import FLOATING_TYPES

NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in FLOATING_TYPES.items()}


def name_of(dtype: torch.dtype) -> str:
    """The name of an element type: fp32, bf16 ... for the common floating types, torch's own name for the others."""
    return NAMES.get(dtype) or str(dtype).removeprefix("torch.")
