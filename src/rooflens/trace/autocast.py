"""What autocast does on CUDA and not on the CPU: some operations are brought up to fp32.

The names are those of torch's list for CUDA (`AT_FORALL_FP32` and `AT_FORALL_FP32_SET_OPT_DTYPE` in
aten/src/ATen/autocast_mode.h, torch 2.11), as Python calls them. Products go down to the lower type on both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

LOWER = (torch.float16, torch.bfloat16)

CAST_UP = frozenset(
    {
        "__pow__",
        "__rpow__",
        "__rdiv__",
        "__rtruediv__",
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log2",
        "log1p",
        "reciprocal",
        "rsqrt",
        "sinh",
        "tan",
        "pow",
        "softplus",
        "layer_norm",
        "group_norm",
        "norm",
        "normalize",
        "nuclear_norm",
        "cosine_similarity",
        "poisson_nll_loss",
        "cosine_embedding_loss",
        "cross_entropy",
        "nll_loss",
        "hinge_embedding_loss",
        "kl_div",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "mse_loss",
        "margin_ranking_loss",
        "multilabel_margin_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
        "binary_cross_entropy_with_logits",
        "dist",
        "pdist",
        "cdist",
        "renorm",
        "logsumexp",
    }
)
"""Tensors of the lower type are cast to fp32 before the call."""

RESULT_UP = frozenset({"prod", "softmax", "log_softmax", "softmin", "cumprod", "cumsum", "sum"})
"""The call reads the lower type and gives fp32, unless it names a type itself."""


def raised(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments with which CUDA's autocast would make this call."""
    name = getattr(func, "__name__", "")
    if name in CAST_UP:
        args, kwargs = tree_map_only(torch.Tensor, _up, (args, kwargs))
        return args, kwargs
    if name in RESULT_UP and kwargs.get("dtype") is None and args and _is_lower(args[0]):
        return args, kwargs | {"dtype": torch.float32}
    return args, kwargs


def _is_lower(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in LOWER


def _up(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in LOWER else tensor
