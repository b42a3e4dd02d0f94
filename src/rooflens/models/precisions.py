"""The precision in which torch computes on fp32 tensors, which can be set in two ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


def tf32_allowed() -> tuple[bool, bool]:
    """True, for products and for cuDNN's convolutions, if they may use TF32.

    Read by operation, because ``allow_tf32`` raises an error if the newer precisions were set.
    """
    products, convolutions, _ = _on_cards()
    return products.fp32_precision == "tf32", convolutions.fp32_precision == "tf32"


@contextmanager
def precisions(tf32: bool) -> Iterator[None]:
    """Compute products, convolutions and recurrent layers of fp32 tensors in TF32 or in fp32."""
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
    """Put the precisions of fp32 operations back on leaving, whichever way they were set."""
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
    """Return torch's settings for products, convolutions and recurrent layers on a GPU."""
    cudnn: Any = torch.backends.cudnn
    return torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn


def _on_processors() -> tuple[Any, Any, Any]:
    """Return the same for a CPU."""
    onednn: Any = torch.backends.mkldnn
    return onednn.matmul, onednn.conv, onednn.rnn
