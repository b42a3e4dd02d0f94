"""Element types as rooflens writes them."""

from __future__ import annotations

import torch

NAMES: dict[torch.dtype, str] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}


def name_of(dtype: torch.dtype) -> str:
    """The name of an element type: fp32, bf16 ... for the common floating types, torch's own name for the others."""
    return NAMES.get(dtype) or str(dtype).removeprefix("torch.")
