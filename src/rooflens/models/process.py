"""What is changed in torch while a user's code runs, and put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_switches() -> Iterator[None]:
    """Put torch's default type, gradient mode, TF32 and cuDNN switches back on leaving."""
    import torch

    dtype, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    products, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    benchmark = torch.backends.cudnn.benchmark
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = products, cudnn
        torch.backends.cudnn.benchmark = benchmark


@contextmanager
def meta_parameters() -> Iterator[None]:
    """Every parameter that a module gets lies on meta from then on, so that neither memory nor values are made for it.

    One that is shared by several modules stays one. Lazy parameters, which have no shape yet, are left alone.
    """
    from torch import nn
    from torch.utils.weak import WeakTensorKeyDictionary

    moved = WeakTensorKeyDictionary()
    original = nn.Module.register_parameter

    def register(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if type(param) is nn.Parameter and not param.is_meta:
            if param not in moved:
                moved[param] = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
                moved[param].__dict__.update(param.__dict__)
            param = moved[param]
        original(module, name, param)

    nn.Module.register_parameter = register  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = original  # type: ignore[method-assign]
