"""torch's element types by their names in rooflens."""

from __future__ import annotations

import torch

FLOATING_TYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""Floating types by name; other types have torch's names."""
