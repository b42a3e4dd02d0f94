"""In which precision torch computes on fp32 tensors, in both of the ways in which it can be set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


def tf32_allowed() -> tuple[bool, bool]:
    """Whether products, and cuDNN's convolutions, may use TF32.

    Asked for by operation: the switches ``allow_tf32`` refuse to answer where somebody has set the newer precisions.
    """
    products, convolutions, _ = _on_cards()
    return products.fp32_precision == "tf32", convolutions.fp32_precision == "tf32"


@contextmanager
def precisions(tf32: bool) -> Iterator[None]:
    """Let products, convolutions and recurrent layers of fp32 tensors use TF32 on a card, or compute them in full."""
    with kept_precisions():
        # The older switches first: torch refuses to compile where they contradict the newer ones.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        for operation in _on_cards():
            operation.fp32_precision = "tf32" if tf32 else "ieee"
        for operation in _on_processors():
            operation.fp32_precision = "ieee"
        yield


@contextmanager
def kept_precisions() -> Iterator[None]:
    """Put the precisions of fp32 operations back on leaving, whichever of torch's two ways they were set in."""
    every: list[Any] = [torch.backends, torch.backends.cudnn, torch.backends.mkldnn]
    each = [*_on_cards(), *_on_processors()]
    before = [(owner, owner.fp32_precision) for owner in (*every, *each)]
    products, cudnn = tf32_allowed()
    with ExitStack() as older:
        try:
            older.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        except RuntimeError:  # the two ways contradict each other, so the older switch is the opposite
            older.callback(setattr, torch.backends.cuda.matmul, "allow_tf32", not products)
        try:
            older.callback(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
        except RuntimeError:
            older.callback(setattr, torch.backends.cudnn, "allow_tf32", not cudnn)
        try:
            yield
        finally:
            for owner, precision in before[: len(every)]:  # which sets each operation below it too
                owner.fp32_precision = precision
            older.close()
            for owner, precision in before[len(every) :]:
                owner.fp32_precision = precision


def _on_cards() -> tuple[Any, Any, Any]:
    """What has a precision of its own for fp32 tensors on a card: products, convolutions and recurrent layers."""
    cudnn: Any = torch.backends.cudnn
    return torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn


def _on_processors() -> tuple[Any, Any, Any]:
    """The same on a processor."""
    onednn: Any = torch.backends.mkldnn
    return onednn.matmul, onednn.conv, onednn.rnn
