"""torch's element types by their names in rooflens."""

from __future__ import annotations

import torch

FLOATING_TYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""Floating types by name; other types have torch's names."""
_NAMES = {dtype: name for name, dtype in FLOATING_TYPES.items()}


def name_of(dtype: torch.dtype) -> str:
    """The name of an element type: fp32, bf16 ... for the common floating types, torch's own name for the others."""
    return _NAMES.get(dtype) or torch_name(dtype)


def torch_name(dtype: torch.dtype) -> str:
    """The name of an element type in torch: float32, bfloat16, int64 ..."""
    return str(dtype).removeprefix("torch.")
