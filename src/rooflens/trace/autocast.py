"""What autocast does on CUDA and not on the CPU, and the other way round.

The names are those of torch's lists for CUDA (`AT_FORALL_LOWER_PRECISION_FP`, `AT_FORALL_FP32`,
`AT_FORALL_FP32_SET_OPT_DTYPE` and `AT_FORALL_PROMOTE` in aten/src/ATen/autocast_mode.h, torch 2.14), as Python calls
them. Within such a call autocast is off on CUDA, so it is off here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

LOWER = (torch.float16, torch.bfloat16)

CAST_DOWN = frozenset({"addmv", "addr", "mv"})
"""fp32 tensors are cast to the lower type: products that the CPU's list does not have."""

CAST_UP = frozenset(
    {
        *("__pow__", "__rpow__", "__rdiv__", "__rtruediv__", "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log"),
        *("log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan", "pow", "softplus", "layer_norm"),
        *("group_norm", "norm", "normalize", "nuclear_norm", "cosine_similarity", "poisson_nll_loss"),
        *("cosine_embedding_loss", "cross_entropy", "nll_loss", "hinge_embedding_loss", "kl_div", "l1_loss"),
        *("smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss"),
        *("soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "dist"),
        *("pdist", "cdist", "renorm", "logsumexp", "rms_norm", "interpolate", "upsample", "upsample_bilinear"),
        "upsample_nearest",
    }
)
"""Tensors of the lower type are cast to fp32 before the call."""

RESULT_UP = frozenset(
    {
        *("cumprod", "cumsum", "linalg_matrix_norm", "linalg_vector_norm", "log_softmax", "prod", "softmax", "softmin"),
        "sum",
    }
)
"""The call reads the lower type and gives fp32, unless it names a type itself."""

WIDEST = frozenset(
    {
        *("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sample", "grid_sampler", "index_put"),
        *("scatter_add", "tensordot", "vdot"),
    }
)
"""The tensors are brought to the widest type among them."""

ON_THE_CPU = frozenset(
    {
        *("adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool3d"),
        *("fractional_max_pool2d", "fractional_max_pool3d", "max_unpool2d", "max_unpool3d", "pad", "trace"),
    }
)
"""The CPU's autocast brings these up to fp32, CUDA's leaves them as they are."""


def as_on_cuda(
    func: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any], AbstractContextManager[Any]]:
    """The arguments with which CUDA's autocast would make this call, and the context in which it would."""
    name = getattr(func, "__name__", "")
    off = torch.autocast("cpu", enabled=False)
    if name in CAST_DOWN:
        return *_cast(args, kwargs, torch.get_autocast_dtype("cpu")), off
    if name in CAST_UP and not _by_area(name, args, kwargs):
        args, kwargs = tree_map_only(Tensor, _up, (args, kwargs))
        return args, kwargs, off
    if name in RESULT_UP and kwargs.get("dtype") is None and args and _is_lower(args[0]):
        return args, kwargs | {"dtype": torch.float32}, off
    if name in WIDEST:
        types = {t.dtype for t in tree_leaves((args, kwargs)) if _is_lower(t) or _is_single(t)}
        return *(_cast(args, kwargs, torch.float32) if len(types) > 1 else (args, kwargs)), off
    return args, kwargs, off if name in ON_THE_CPU else nullcontext()


def _by_area(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """True for interpolation by area, which is averaging and stays in its type."""
    return name == "interpolate" and "area" in (*args[3:4], kwargs.get("mode"))


def _cast(args: Any, kwargs: dict[str, Any], dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    """Cast every tensor of 32 or 16 bits to one type."""

    def cast(tensor: Tensor) -> Tensor:
        return tensor.to(dtype) if _is_lower(tensor) or _is_single(tensor) else tensor

    cast_all: tuple[Any, dict[str, Any]] = tree_map_only(Tensor, cast, (args, kwargs))
    return cast_all


def _is_lower(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in LOWER


def _is_single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _up(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in LOWER else tensor
