"""CUDA's autocast for tensors that lie on the CPU.

The CPU's autocast casts for other operators than CUDA's. torch casts in its dispatcher, below all functions and methods
of Python, so the casts are made there too: our kernels are on the autocast key of a device that nobody has (IPU). It
comes before the CPU's key, and only the thread that enters `cuda_casts` looks at it. Which operators these are, the
installed torch says. How each is cast stands in torch's lists for CUDA (``AT_FORALL_...`` in
aten/src/ATen/autocast_mode.h), of which those that the CPU treats alike are left out.

A model may itself turn autocast for CUDA on or off, or ask whether it is on. There it is the same as that of the CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.amp import autocast_mode
from torch.utils._pytree import tree_leaves, tree_map_only

from rooflens.models.dtypes import torch_name

LOWER = (torch.float16, torch.bfloat16)
_Given = dict[str, Any]
"""The arguments of a call by the names in the operator's schema."""
_Cast = Callable[[OpOverload, _Given], tuple[OpOverload, _Given]]
"""From a call to the operator and arguments that CUDA runs for it."""

CAST_DOWN = frozenset(
    {
        *("_convolution", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "addmv", "addr", "chain_matmul"),
        *("convolution", "einsum", "gru_cell", "linalg_multi_dot", "lstm_cell", "mv", "rnn_relu_cell", "rnn_tanh_cell"),
    }
)
"""Tensors of 32 bits are cast to the lower type."""

CAST_UP = frozenset(
    {
        *("acos", "asin", "cosh", "cosine_similarity", "dist", "erfinv", "exp", "expm1", "frobenius_norm"),
        *("group_norm", "layer_norm", "log", "log10", "log1p", "log2", "logsumexp", "native_layer_norm"),
        *("nuclear_norm", "pdist", "pow", "reciprocal", "renorm", "rms_norm", "rsqrt", "sinh", "softplus", "tan"),
        *("_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_lanczos2d_aa", "upsample_bicubic2d"),
        *("upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d"),
        *(f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    }
)
"""Tensors of the lower type are cast to fp32 before the call."""

RESULT_UP = frozenset(
    {
        *("cumprod", "cumsum", "linalg_matrix_norm", "linalg_vector_norm", "log_softmax", "norm", "prod", "softmax"),
        "sum",
    }
)
"""The call reads the lower type and gives fp32, unless it names a type itself."""

WIDEST = frozenset(
    {
        *("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "scatter_add"),
        *("tensordot", "vdot"),
    }
)
"""The tensors are brought to the widest type among them."""

REFUSED = frozenset({"binary_cross_entropy"})
"""An error: fp16 has no room for the gradients."""

_LIBRARY = torch.library.Library("aten", "IMPL")
_UNLISTED = torch.library.Library("_", "IMPL")
_BEYOND = torch._C._dispatch_keyset_full_after(DispatchKey.AutocastCPU)
"""Everything that comes after autocast."""


@contextmanager
def cuda_casts() -> Iterator[set[torch.dtype]]:
    """Where autocast for the CPU or for CUDA is on, make CUDA's casts in this thread, and give their types."""
    before, types = torch.is_autocast_enabled("ipu"), set[torch.dtype]()
    outer, _of_thread.types = getattr(_of_thread, "types", None), types
    torch.set_autocast_enabled("ipu", True)
    try:
        with (
            torch._C._IncludeDispatchKeyGuard(torch._C._dispatch_key_parse("AutocastIPU")),
            patch.multiple(torch.autocast, __init__=_init, __enter__=_enter, __exit__=_exit),
            patch.object(autocast_mode, "_cast", _cast_inputs),
        ):
            yield types
    finally:
        torch.set_autocast_enabled("ipu", before)
        _of_thread.types = outer


def other_casts(name: str, types: Iterable[torch.dtype], own: torch.dtype | None) -> tuple[str, ...]:
    """Return a note where a step casts to other types than its case says."""
    others = sorted(map(torch_name, set(types) - {own}))
    note = (
        f"{name} turns autocast to {' and '.join(others)} on for parts of itself, which ran so whatever the case says"
    )
    return (note,) if others else ()


_of_thread = threading.local()
_INIT, _ENTER, _EXIT = torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__
_CAST: Callable[[Any, str, torch.dtype], Any] = autocast_mode._cast


def _cast_inputs(value: Any, device_type: str, dtype: torch.dtype) -> Any:
    """The inputs of a function of autograd that asks for a type (`torch.amp.custom_fwd`)."""
    traced = device_type == "cuda" and torch.is_autocast_enabled("ipu")
    return _CAST(value, "cpu" if traced else device_type, dtype)


def _init(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any) -> None:
    """Autocast, for the CPU where CUDA is meant: all tensors of a trace lie there."""
    if device_type == "cuda" and torch.is_autocast_enabled("ipu"):
        device_type, dtype = "cpu", torch.get_autocast_dtype("cuda") if dtype is None else dtype
    _INIT(self, device_type, dtype, *args, **kwargs)


def _enter(self: Any) -> Any:
    result = _ENTER(self)  # type: ignore[no-untyped-call]
    if self.device == "cpu" and torch.is_autocast_enabled("ipu"):
        if self._enabled:
            _of_thread.types.add(self.fast_dtype)
        self.of_cuda = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        torch.set_autocast_enabled("cuda", self._enabled)
        torch.set_autocast_dtype("cuda", self.fast_dtype)
    return result


def _exit(self: Any, *error: Any) -> Any:
    result = _EXIT(self, *error)
    if self.device == "cpu" and torch.is_autocast_enabled("ipu"):
        enabled, dtype = self.of_cuda
        torch.set_autocast_enabled("cuda", enabled)
        torch.set_autocast_dtype("cuda", dtype)
    return result


def cast_down(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the type to which autocast brings the arguments of a matrix operation."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    return tuple(map(_lowered, tensors))


def cast_up(tensor: Tensor) -> Tensor:
    """The tensor in the type to which autocast brings the arguments of a normalisation."""
    return tensor.float() if torch.is_autocast_enabled("cpu") and _is_lower(tensor) else tensor


def listed(key: str) -> dict[str, OpOverload]:
    """The operators of ATen for which torch has a kernel on an autocast key, by name with overload."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    own = sorted(name.removeprefix("aten::") for name in names if name.startswith("aten::"))
    return {name: _operator(*name.split(".")) for name in own}


def _operator(name: str, overload: str = "default") -> OpOverload:
    operator: OpOverload = getattr(getattr(torch.ops.aten, name), overload)
    return operator


def _register() -> None:
    """Put a kernel on our key for every operator that one of the two devices casts, and not both alike."""
    on_cpu, on_cuda = listed("AutocastCPU"), listed("AutocastCUDA")
    _UNLISTED.fallback(torch.library.fallthrough_kernel, "AutocastIPU")
    kernels = {name: _without_cast(on_cpu[name]) for name in on_cpu.keys() - on_cuda.keys()}
    for names, cast in _CASTS:
        kernels |= {name: _kernel(operator, cast) for name, operator in on_cuda.items() if name.split(".")[0] in names}
    for name in ("softmax", "log_softmax"):
        kernels[f"{name}.int"] = _softmax_kernel(on_cuda[f"{name}.int"], _operator(f"_{name}"))
    for name, kernel in kernels.items():
        _LIBRARY.impl(name, kernel, "AutocastIPU", with_keyset=True)


def _kernel(operator: OpOverload, cast: _Cast) -> Callable[..., Any]:
    """The operator on arguments that are cast, without autocast inside, as torch's own kernels run it."""
    names = [argument.name for argument in operator._schema.arguments]

    def kernel(keys: DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return operator.redispatch(keys & _BEYOND, *args, **kwargs)
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCPU)):
            chosen, given = cast(operator, dict(zip(names, args, strict=False)) | kwargs)
            return chosen(**given)

    return kernel


def _softmax_kernel(operator: OpOverload, fused: OpOverload) -> Callable[..., Any]:
    """A softmax of fp16 that gives fp32 is one kernel on CUDA, with autocast or without.

    The CPU has none, so with values it is a cast and a softmax, as for bf16 on both.
    """
    plain = _kernel(operator, _result_up)

    def kernel(keys: DispatchKeySet, self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        given = torch.float32 if dtype is None and torch.is_autocast_enabled("cpu") else dtype
        if given is torch.float32 and self.dtype is torch.float16 and isinstance(self, FakeTensor):
            return fused(self, dim, half_to_float=True)
        return plain(keys, self, dim, dtype)

    return kernel


def _without_cast(operator: OpOverload) -> Callable[..., Any]:
    """The operator past the CPU's own cast; what it is made of is cast as anywhere."""
    return lambda keys, *args, **kwargs: operator.redispatch(keys & _BEYOND, *args, **kwargs)


def _down(operator: OpOverload, given: _Given) -> tuple[OpOverload, _Given]:
    return operator, tree_map_only(Tensor, _lowered, given)


def _up(operator: OpOverload, given: _Given) -> tuple[OpOverload, _Given]:
    return operator, tree_map_only(Tensor, _raised, given)


def _result_up(operator: OpOverload, given: _Given) -> tuple[OpOverload, _Given]:
    first = next(iter(given.values()))
    name = operator._schema.name.removeprefix("aten::")
    if name == "norm":  # its forms without a type become those with one
        typed = torch.ops.aten.norm.ScalarOpt_dim_dtype if "dim" in given else torch.ops.aten.norm.ScalarOpt_dtype
        dim = {"keepdim": False} if "dim" in given else {}
        return typed, {"p": 2, **dim, **given, "dtype": torch.float32 if _is_lower(first) else first.dtype}
    settled = given.get("dtype") is not None or not _is_lower(first)
    return operator, given if settled else given | {"dtype": torch.float32}


def _widest(operator: OpOverload, given: _Given) -> tuple[OpOverload, _Given]:
    types = {t.dtype for t in tree_leaves(given) if isinstance(t, Tensor) and (_is_lower(t) or _is_single(t))}
    return (operator, given) if len(types) < 2 else _up(operator, given)


def _refused(operator: OpOverload, given: _Given) -> tuple[OpOverload, _Given]:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast; use"
        " binary_cross_entropy_with_logits, or turn autocast off around them"
    )


_CASTS = ((CAST_DOWN, _down), (CAST_UP, _up), (RESULT_UP, _result_up), (WIDEST, _widest), (REFUSED, _refused))


def _is_lower(tensor: Tensor) -> bool:
    return tensor.dtype in LOWER


def _is_single(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32


def _lowered(tensor: Tensor) -> Tensor:
    return tensor.to(torch.get_autocast_dtype("cpu")) if _is_lower(tensor) or _is_single(tensor) else tensor


def _raised(tensor: Tensor) -> Tensor:
    return tensor.float() if _is_lower(tensor) else tensor


_register()
