"""Where the elements of a tensor lie: ONNX operators that only move elements are views, as they are in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.records import Strides, dense_strides


def is_dense(shape: Sequence[int], strides: Strides) -> bool:
    """True if the elements fill their memory, in any order of the dimensions."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def reshaped(shape: Sequence[int], strides: Strides, new: Sequence[int]) -> Strides | None:
    """Strides under which the same memory has the shape `new`; None where the elements would have to move.

    Dimensions that lie evenly behind each other are one run of memory. Every new dimension has to be cut from the end
    of one run.
    """
    if 0 in shape:
        return dense_strides(new)
    runs: list[tuple[int, int]] = []  # (elements, stride)
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    left, step = runs.pop() if runs else (1, 1)
    strides_of_new: list[int] = []
    for size in reversed(new):
        if size > 1 and left == 1 and runs:
            left, step = runs.pop()
        if left % size:
            return None
        strides_of_new.append(step)
        left, step = left // size, step * size
    return tuple(reversed(strides_of_new))


def expanded(shape: Sequence[int], strides: Strides, new: Sequence[int]) -> Strides:
    """Strides of a tensor that is repeated to the shape `new`: 0 along what is repeated."""
    missing = len(new) - len(shape)
    kept = (stride if size == want else 0 for size, stride, want in zip(shape, strides, new[missing:], strict=True))
    return (0,) * missing + tuple(kept)
