"""The switches of a process that a user's code may turn, put back."""

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
