"""RMS normalisation as one operation, forward and backward, as a GPU runs it; the CPU takes it apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rooflens.trace.fused import define, empty_gradients, scattered
from rooflens.trace.replaced_operators import as_torch


def _shapes(input: Tensor, normalized_shape: list[int], weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    rows = input.shape[: input.dim() - len(normalized_shape)]
    wide = torch.promote_types(input.dtype, torch.float32)
    rstd = input.new_empty((*rows, *(1 for _ in normalized_shape)), dtype=wide)
    return torch.empty_like(input, memory_format=torch.contiguous_format), rstd


def _run(input: Tensor, normalized_shape: list[int], weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    output, rstd = _shapes(input, normalized_shape, weight, eps)
    dims = list(range(-len(normalized_shape), 0))
    rstd.copy_((input.to(rstd.dtype).pow(2).mean(dims, keepdim=True) + eps).rsqrt())
    normalised = input * rstd
    return output.copy_(normalised if weight is None else normalised * weight), rstd


define(
    "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float eps) -> (Tensor, Tensor)",
    _shapes,
    _run,
)
define(
    "_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight,"
    " bool[2] output_mask) -> Tensor[]",
    lambda _, input, shape, rstd, weight, output_mask: empty_gradients((input, weight), output_mask),
)


class RmsNorm(torch.autograd.Function):
    """x / sqrt(mean of squares + eps), times a weight. Saved: the input, the weight and one inverse root per row."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor | None, normalized_shape: list[int], eps: float) -> Tensor:
        output: Tensor
        output, rstd = torch.ops.rooflens._fused_rms_norm(input, normalized_shape, weight, eps)
        ctx.save_for_backward(input, weight, rstd)
        ctx.normalized_shape, ctx.eps = normalized_shape, eps
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        input, weight, rstd = ctx.saved_tensors
        needed = list(ctx.needs_input_grad[:2])
        if torch.is_grad_enabled():  # a gradient of this gradient will be asked for: it needs the parts
            with torch._C.DisableTorchFunction(), as_torch():
                output = torch.rms_norm(input, ctx.normalized_shape, weight, ctx.eps)
            sources = [t for t, wanted in zip((input, weight), needed, strict=True) if wanted]
            grads = list(torch.autograd.grad(output, sources, grad, create_graph=True))
        else:
            grads = torch.ops.rooflens._fused_rms_norm_backward(grad, input, ctx.normalized_shape, rstd, weight, needed)
        return *scattered(grads, needed), None, None
