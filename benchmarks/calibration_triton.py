"""Triton kernels that copy and multiply, for comparison with a calibration. Triton needs a C compiler to launch them.

The kernels have no annotations: Triton would read them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

COPY_BLOCK = 4096
M, N, K = 128, 256, 64
"""The tile of a product: rows, columns, and the depth that is loaded at a time."""


@triton.jit  # type: ignore[untyped-decorator]
def _copy(source, target, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < size), mask=at < size)


@triton.jit  # type: ignore[untyped-decorator]
def _product(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Square matrices whose side is a multiple of every side of the tile; groups of 8 rows of tiles share L2."""
    columns = n // N
    group = tl.program_id(0) // (8 * columns)
    inside = tl.program_id(0) % (8 * columns)
    rows = (group * 8 + inside % 8) * M + tl.arange(0, M)
    cols = inside // 8 * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    left = a + rows[:, None] * n + depth[None, :]
    right = b + depth[:, None] * n + cols[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, n, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K * n
    tl.store(c + rows[:, None] * n + cols[None, :], total.to(c.dtype.element_ty))


def copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy a flat tensor."""
    _copy[(triton.cdiv(source.numel(), COPY_BLOCK),)](source, target, source.numel(), BLOCK=COPY_BLOCK, num_warps=8)


def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """The product of two square bf16 matrices, side a multiple of 1024."""
    n = a.shape[0]
    _product[(n // M * (n // N),)](a, b, c, n, M=M, N=N, K=K, num_warps=8, num_stages=3)
