"""Operations that an accelerator runs as one: attention, recurrent layers and grouped products, forward and backward.

They exist for tracing only: each has a schema, the shapes of its results and a backward. The recorder sees
``rooflens::attention`` where a GPU would run a fused attention kernel. Their CPU kernels serve models that are run with
values: results are right, gradients are zeros of the right shape, since nothing is decided by a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rooflens.errors import ModelError
from rooflens.trace.replaced_operators import as_torch

LIBRARY = torch.library.Library("rooflens", "DEF")


def define(schema: str, shapes: Callable[..., Any], kernel: Callable[..., Any] | None = None) -> None:
    """Define an operation of our own.

    Args:
        schema: its name, arguments and results, as torch writes them.
        shapes: makes empty results.
        kernel: computes the results on the CPU; without one they are zeros.
    """
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    torch.library.register_fake(f"rooflens::{name}", shapes)
    LIBRARY.impl(name, kernel or (lambda *arguments: [result.zero_() for result in shapes(*arguments)]), "CPU")


def saving(*tensors: Tensor | None) -> bool:
    """True if backward will need what a call leaves behind."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def empty_gradients(sources: Sequence[Tensor | None], needed: list[bool]) -> list[Tensor]:
    """Empty gradients of the sources that need one."""
    return [torch.empty_like(s) for s, wanted in zip(sources, needed, strict=True) if wanted and s is not None]


def scattered(grads: list[Tensor], needed: list[bool]) -> list[Tensor | None]:
    """The gradients at the places where one is needed, None elsewhere."""
    remaining = iter(grads)
    return [next(remaining) if wanted else None for wanted in needed]


class Once(torch.autograd.Function):
    """The gradients of a fused kernel. It has no second derivative, so backward through them raises."""

    @staticmethod
    def forward(ctx: Any, advice: str, count: int, *gradients: Tensor) -> Any:
        ctx.advice = advice
        return tuple(gradients[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise ModelError(f"a fused kernel has no second derivative; {ctx.advice}")


def once(grads: list[Tensor], advice: str, *sources: Tensor) -> list[Tensor]:
    """`grads`, which depend on `sources` and cannot be differentiated again."""
    if not torch.is_grad_enabled():
        return grads
    return list(Once.apply(advice, len(grads), *grads, *sources))


# Attention ------------------------------------------------------------------------------------------------------------


def _attention_shapes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool, saving: bool
) -> tuple[Tensor, Tensor]:
    # Fused kernels write (batch, sequence, heads, width) and return a transposed view of it.
    # Grouped keys have fewer heads than queries, so only the dimensions before the heads are broadcast.
    *batch, queries, _ = query.shape
    if batch:
        batch = [*torch.broadcast_shapes(batch[:-1], key.shape[:-3]), max(batch[-1], key.shape[-3])]
        output = query.new_empty((*batch[:-1], queries, batch[-1], value.shape[-1])).transpose(-3, -2)
    else:
        output = query.new_empty((queries, value.shape[-1]))
    return output, query.new_empty((*batch, queries) if saving else (0,), dtype=torch.float32)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool, saving: bool
) -> tuple[Tensor, Tensor]:
    with torch._C.DisableTorchFunction(), as_torch():
        grouped = query.dim() > 2 and query.shape[-3] != key.shape[-3] != 1
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, dropout, causal, enable_gqa=grouped
        )
    output, logsumexp = _attention_shapes(query, key, value, mask, dropout, causal, saving)
    return output.copy_(result), logsumexp.zero_()


define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float dropout, bool causal, bool saving)"
    " -> (Tensor, Tensor)",
    _attention_shapes,
    _attention,
)
define(
    "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor output, Tensor logsumexp,"
    " Tensor? mask, float dropout, bool causal, bool[4] needed) -> Tensor[]",
    lambda _, query, key, value, *rest: empty_gradients((query, key, value, rest[2]), rest[-1]),
)


class Attention(torch.autograd.Function):
    """Scaled dot-product attention as one operation: softmax(Q K^T) V with Q (..., heads, queries, width).

    Grouped queries have fewer heads in K and V. Saved for backward, as flash attention does: inputs, output and one
    log-sum-exp per query, never the matrix of weights.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool
    ) -> Tensor:
        output: Tensor
        output, logsumexp = torch.ops.rooflens.attention(query, key, value, mask, dropout, causal, True)
        ctx.save_for_backward(query, key, value, mask, output, logsumexp)
        ctx.dropout, ctx.causal = dropout, causal
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, mask, output, logsumexp = ctx.saved_tensors
        needed = list(ctx.needs_input_grad[:4])
        grads = torch.ops.rooflens.attention_backward(
            grad, query, key, value, output, logsumexp, mask, ctx.dropout, ctx.causal, needed
        )
        advice = "run attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        return *scattered(once(grads, advice, grad, query, key, value), needed), None, None


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0, causal: bool = False
) -> Tensor:
    """Attention as one operation, with a backward where one is needed."""
    if saving(query, key, value, mask):
        output: Tensor = Attention.apply(query, key, value, mask, dropout, causal)
    else:
        output = torch.ops.rooflens.attention(query, key, value, mask, dropout, causal, False)[0]
    return output


# Recurrent layers -----------------------------------------------------------------------------------------------------


class RecurrentOptions(NamedTuple):
    """What a recurrent layer is, in the order of the operation's arguments."""

    kind: str
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool


def _recurrent_shapes(
    input: Tensor, states: list[Tensor], weights: list[Tensor], batch_sizes: Tensor | None, *settings: Any
) -> list[Tensor]:
    *given, saving = settings
    options = RecurrentOptions(*given)
    directions = 2 if options.bidirectional else 1
    output = input.new_empty((*input.shape[:-1], directions * states[0].shape[-1]))
    # What backward needs of every step: the gates, and the cell of an LSTM.
    kept = weights[0].shape[0] + (states[-1].shape[-1] if options.kind == "lstm" else 0)
    steps = input.numel() // max(1, input.shape[-1])
    reserve = input.new_empty((steps * options.layers * directions * kept,) if saving else (0,))
    return [output, *(torch.empty_like(s) for s in states), reserve]


def _recurrent(
    input: Tensor, states: list[Tensor], weights: list[Tensor], batch_sizes: Tensor | None, *settings: Any
) -> list[Tensor]:
    kind, layers, dropout, train, bidirectional, batch_first, _ = settings
    biased = len(weights) // (layers * (2 if bidirectional else 1)) > 3
    state = tuple(states) if kind == "lstm" else states[0]
    common = (weights, biased, layers, dropout, train, bidirectional)
    with torch._C.DisableTorchFunction(), as_torch():
        run = getattr(torch, kind)
        if batch_sizes is None:
            results = run(input, state, *common, batch_first)
        else:
            results = run(input, batch_sizes, state, *common)
    made = _recurrent_shapes(input, states, weights, batch_sizes, *settings)
    return [*(m.copy_(r) for m, r in zip(made, results, strict=False)), made[-1].zero_()]


define(
    "recurrent(Tensor input, Tensor[] states, Tensor[] weights, Tensor? batch_sizes, str kind, int layers,"
    " float dropout, bool train, bool bidirectional, bool batch_first, bool saving) -> Tensor[]",
    _recurrent_shapes,
    _recurrent,
)
define(
    "recurrent_backward(Tensor[] grads, Tensor input, Tensor[] states, Tensor[] weights, Tensor? batch_sizes,"
    " Tensor output, Tensor reserve, str kind, int layers, bool bidirectional, bool batch_first, bool[] needed)"
    " -> Tensor[]",
    lambda _, input, states, weights, *rest: empty_gradients((input, *states, *weights), rest[-1]),
)


class Recurrent(torch.autograd.Function):
    """All layers and steps of an LSTM, GRU or plain recurrent net as one operation, as cuDNN runs it."""

    @staticmethod
    def forward(ctx: Any, options: RecurrentOptions, n_states: int, batch_sizes: Any, *tensors: Tensor) -> Any:
        input, states, weights = tensors[0], list(tensors[1 : 1 + n_states]), list(tensors[1 + n_states :])
        *outputs, reserve = torch.ops.rooflens.recurrent(input, states, weights, batch_sizes, *options, True)
        ctx.options, ctx.n_states = options, n_states
        ctx.save_for_backward(*tensors, batch_sizes, outputs[0], reserve)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        *tensors, batch_sizes, output, reserve = ctx.saved_tensors
        input, states, weights = tensors[0], tensors[1 : 1 + ctx.n_states], tensors[1 + ctx.n_states :]
        needed = list(ctx.needs_input_grad[3:])
        kind, layers, _, _, bidirectional, batch_first = ctx.options
        given = [g for g in grads if g is not None]
        options = (kind, layers, bidirectional, batch_first)
        results = torch.ops.rooflens.recurrent_backward(
            given, input, list(states), list(weights), batch_sizes, output, reserve, *options, needed
        )
        results = once(results, "run the layer under torch.backends.cudnn.flags(enabled=False)", *grads, *tensors)
        return None, None, None, *scattered(results, needed)


# Grouped products -----------------------------------------------------------------------------------------------------


def _grouped_shapes(self: Tensor, mat2: Tensor, offs: Tensor | None, out_dtype: torch.dtype | None) -> Tensor:
    groups: tuple[int, ...] = ()  # the result has a matrix per group where none of its sides is cut into groups
    if self.dim() == mat2.dim():
        groups = (self.shape[0],) if offs is None else (offs.shape[0],)
    return self.new_empty((*groups, self.shape[-2], mat2.shape[-1]), dtype=out_dtype)


def _grouped_mm(self: Tensor, mat2: Tensor, offs: Tensor | None, out_dtype: torch.dtype | None) -> Tensor:
    if offs is None:
        return torch.bmm(self, mat2).to(out_dtype or self.dtype)
    result: Tensor = _grouped_shapes(self, mat2, offs, out_dtype).zero_()
    begin = 0
    for group, end in enumerate(offs.tolist()):
        rows = slice(begin, end)
        if self.dim() == mat2.dim():  # the contracted side is cut
            result[group] = self[:, rows] @ mat2[rows]
        elif self.dim() == 2:
            result[rows] = self[rows] @ mat2[group]
        else:
            result[:, rows] = self[group] @ mat2[:, rows]
        begin = end
    return result


define(
    "_grouped_mm(Tensor self, Tensor mat2, Tensor? offs, ScalarType? out_dtype) -> Tensor", _grouped_shapes, _grouped_mm
)


class GroupedProduct(torch.autograd.Function):
    """A product per group of rows, as experts make them: `offs` says where each group ends.

    torch's own asks for types, sizes and strides that depend on the card. The gradients are products of the same kind.
    """

    @staticmethod
    def forward(ctx: Any, self: Tensor, mat2: Tensor, offs: Tensor | None, out_dtype: torch.dtype | None) -> Tensor:
        ctx.save_for_backward(self, mat2, offs)
        result: Tensor = torch.ops.rooflens._grouped_mm(self, mat2, offs, out_dtype)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        self, mat2, offs = ctx.saved_tensors
        product = torch.ops.rooflens._grouped_mm
        left = product(grad, mat2.transpose(-2, -1), offs, self.dtype) if ctx.needs_input_grad[0] else None
        right = product(self.transpose(-2, -1), grad, offs, mat2.dtype) if ctx.needs_input_grad[1] else None
        return left, right, None, None
