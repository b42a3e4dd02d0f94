"""What kernels of scans return: their code runs on a GPU only, so their results are known from the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from rooflens.records.operation import dense_strides
from rooflens.trace.code_work import CodeWork, Growth, Result

FINAL_STATE = ("return_last_state", "return_final_states", "output_final_state")
"""Parameters by which a kernel is asked for the state after the last token."""


def kernel_results(operation: str, tensors: Mapping[str, Tensor], options: Mapping[str, Any]) -> CodeWork:
    """The results of a kernel. It is what the operation stands for, so it has no work of its own beside it."""
    like = tensors["value" if operation == "gated_delta_rule" else "hidden_states"]
    output, state = _dense(tuple(like.shape), like.dtype), None
    if any(options.get(name) for name in FINAL_STATE):
        state = _dense(_state(operation, tensors), torch.float32)
    # flash-linear-attention always returns a pair.
    pair = operation == "gated_delta_rule" or state is not None
    leaves, structure = tree_flatten((output, state) if pair else output)
    return CodeWork(Growth(), Growth(), tuple(leaves), structure)


def _state(operation: str, tensors: Mapping[str, Tensor]) -> tuple[int, ...]:
    """The shape of a state: a matrix per head, or a vector per channel."""
    if operation == "gated_delta_rule":
        batch, _, heads, width = tensors["value"].shape
        return batch, heads, tensors["key"].shape[-1], width
    if operation == "chunk_scan":
        batch, _, heads, width = tensors["hidden_states"].shape
        return batch, heads, width, tensors["B"].shape[-1]
    batch, channels, _ = tensors["hidden_states"].shape
    return batch, channels, tensors["A"].shape[-1]


def _dense(shape: tuple[int, ...], dtype: torch.dtype) -> Result:
    return Result(shape, dense_strides(shape), dtype)
