"""Operations that an accelerator runs as one: attention and recurrent layers, forward and backward.

They exist for tracing only: each has a schema, the shapes of its results and a backward. The recorder sees
``rooflens::attention`` where a GPU would run a fused attention kernel. Their CPU kernels serve models that are run with
values: results are right, gradients are zeros of the right shape, since nothing is decided by a gradient.
"""

from __future__ import annotations

from typing import Any

import torch

from rooflens.errors import ModelError

LIBRARY = torch.library.Library("rooflens", "DEF")
LIBRARY.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float dropout, bool causal, bool saving)"
    " -> (Tensor, Tensor)"
)
LIBRARY.define(
    "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor output, Tensor logsumexp,"
    " Tensor? mask, float dropout, bool causal, bool[4] needed) -> Tensor[]"
)
LIBRARY.define(
    "recurrent(Tensor input, Tensor[] states, Tensor[] weights, Tensor? batch_sizes, str kind, int layers,"
    " float dropout, bool train, bool bidirectional, bool batch_first, bool saving) -> Tensor[]"
)
LIBRARY.define(
    "recurrent_backward(Tensor[] grads, Tensor input, Tensor[] states, Tensor[] weights, Tensor? batch_sizes,"
    " Tensor output, Tensor reserve, str kind, int layers, bool bidirectional, bool batch_first, bool[] needed)"
    " -> Tensor[]"
)

LIBRARY.define("_grouped_mm(Tensor self, Tensor mat2, Tensor? offs, ScalarType? out_dtype) -> Tensor")


def saving(*tensors: torch.Tensor) -> bool:
    """Whether backward will need what a call leaves behind."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


@torch.library.register_fake("rooflens::attention")
def _attention_shapes(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    saving: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    # Fused kernels write (batch, sequence, heads, width) and return a transposed view of it.
    # Grouped keys have fewer heads than queries, so only the dimensions before the heads are broadcast.
    *batch, queries, _ = query.shape
    if batch:
        batch = [*torch.broadcast_shapes(batch[:-1], key.shape[:-3]), max(batch[-1], key.shape[-3])]
        output = query.new_empty((*batch[:-1], queries, batch[-1], value.shape[-1])).transpose(-3, -2)
    else:
        output = query.new_empty((queries, value.shape[-1]))
    return output, query.new_empty((*batch, queries) if saving else (0,), dtype=torch.float32)


@torch.library.register_fake("rooflens::attention_backward")
def _attention_backward_shapes(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    logsumexp: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    needed: list[bool],
) -> list[torch.Tensor]:
    sources = (query, key, value, mask)
    return [torch.empty_like(s) for s, wanted in zip(sources, needed, strict=True) if wanted and s is not None]


@torch.library.impl(LIBRARY, "attention", "CPU")
def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    saving: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    with torch._C.DisableTorchFunction():
        grouped = query.dim() > 2 and query.shape[-3] != key.shape[-3] != 1
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, dropout, causal, enable_gqa=grouped
        )
    output, logsumexp = _attention_shapes(query, key, value, mask, dropout, causal, saving)
    return output.copy_(result), logsumexp.zero_()


@torch.library.impl(LIBRARY, "attention_backward", "CPU")
def _attention_backward(*arguments: Any) -> list[torch.Tensor]:
    return [gradient.zero_() for gradient in _attention_backward_shapes(*arguments)]


class Once(torch.autograd.Function):
    """The gradients of a fused kernel, which has no second derivative: backward through them is refused."""

    @staticmethod
    def forward(ctx: Any, advice: str, count: int, *gradients: torch.Tensor) -> Any:
        ctx.advice = advice
        return tuple(gradients[:count])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise ModelError(f"a fused kernel has no second derivative; {ctx.advice}")


def _once(grads: list[torch.Tensor], advice: str, *sources: torch.Tensor) -> list[torch.Tensor]:
    """`grads`, which depend on `sources` in a way that cannot be differentiated again."""
    if not torch.is_grad_enabled():
        return grads
    return list(Once.apply(advice, len(grads), *grads, *sources))


_WRITE_ATTENTION_OUT = "run attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"


class Attention(torch.autograd.Function):
    """Scaled dot-product attention as one operation: softmax(Q K^T) V with Q (..., heads, queries, width).

    Grouped queries have fewer heads in K and V. Saved for backward, as flash attention does: inputs, output and one
    log-sum-exp per query, never the matrix of weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        dropout: float,
        causal: bool,
    ) -> torch.Tensor:
        output, logsumexp = torch.ops.rooflens.attention(query, key, value, mask, dropout, causal, True)
        ctx.save_for_backward(query, key, value, mask, output, logsumexp)
        ctx.dropout, ctx.causal = dropout, causal
        return output  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        query, key, value, mask, output, logsumexp = ctx.saved_tensors
        needed = list(ctx.needs_input_grad[:4])
        grads = torch.ops.rooflens.attention_backward(
            grad, query, key, value, output, logsumexp, mask, ctx.dropout, ctx.causal, needed
        )
        grads = _once(grads, _WRITE_ATTENTION_OUT, grad, query, key, value)
        return *scattered(grads, needed), None, None


def scattered(grads: list[torch.Tensor], needed: list[bool]) -> list[torch.Tensor | None]:
    """The gradients at the places where one is needed, None elsewhere."""
    remaining = iter(grads)
    return [next(remaining) if wanted else None for wanted in needed]


@torch.library.register_fake("rooflens::recurrent")
def _recurrent_shapes(
    input: torch.Tensor,
    states: list[torch.Tensor],
    weights: list[torch.Tensor],
    batch_sizes: torch.Tensor | None,
    kind: str,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    saving: bool,
) -> list[torch.Tensor]:
    directions = 2 if bidirectional else 1
    width = states[0].shape[-1]
    output = input.new_empty((*input.shape[:-1], directions * width))
    # What backward needs of every step: the gates, and the cell of an LSTM.
    hidden = weights[0].shape[0]
    kept = hidden + (states[-1].shape[-1] if kind == "lstm" else 0)
    steps = input.numel() // max(1, input.shape[-1])
    reserve = input.new_empty((steps * layers * directions * kept,) if saving else (0,))
    return [output, *(torch.empty_like(s) for s in states), reserve]


@torch.library.register_fake("rooflens::recurrent_backward")
def _recurrent_backward_shapes(
    grads: list[torch.Tensor],
    input: torch.Tensor,
    states: list[torch.Tensor],
    weights: list[torch.Tensor],
    batch_sizes: torch.Tensor | None,
    output: torch.Tensor,
    reserve: torch.Tensor,
    kind: str,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    needed: list[bool],
) -> list[torch.Tensor]:
    sources = [input, *states, *weights]
    return [torch.empty_like(s) for s, wanted in zip(sources, needed, strict=True) if wanted]


@torch.library.impl(LIBRARY, "recurrent", "CPU")
def _recurrent(
    input: torch.Tensor,
    states: list[torch.Tensor],
    weights: list[torch.Tensor],
    batch_sizes: torch.Tensor | None,
    kind: str,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    saving: bool,
) -> list[torch.Tensor]:
    biased = len(weights) // (layers * (2 if bidirectional else 1)) > 3
    state = tuple(states) if kind == "lstm" else states[0]
    settings = (weights, biased, layers, dropout, train, bidirectional)
    with torch._C.DisableTorchFunction():
        run = getattr(torch, kind)
        if batch_sizes is None:
            results = run(input, state, *settings, batch_first)
        else:
            results = run(input, batch_sizes, state, *settings)
    made = _recurrent_shapes(
        input, states, weights, batch_sizes, kind, layers, dropout, train, bidirectional, batch_first, saving
    )
    return [*(m.copy_(r) for m, r in zip(made, results, strict=False)), made[-1].zero_()]


@torch.library.impl(LIBRARY, "recurrent_backward", "CPU")
def _recurrent_backward(*arguments: Any) -> list[torch.Tensor]:
    return [gradient.zero_() for gradient in _recurrent_backward_shapes(*arguments)]


def run_recurrent(
    options: dict[str, Any],
    input: torch.Tensor,
    states: list[torch.Tensor],
    weights: list[torch.Tensor],
    batch_sizes: torch.Tensor | None,
    saving: bool,
) -> list[torch.Tensor]:
    """Outputs, last states and, where backward will need it, what every step keeps."""
    results: list[torch.Tensor] = torch.ops.rooflens.recurrent(
        input,
        states,
        weights,
        batch_sizes,
        options["kind"],
        options["layers"],
        options["dropout"],
        options["train"],
        options["bidirectional"],
        options["batch_first"],
        saving,
    )
    return results


class Recurrent(torch.autograd.Function):
    """All layers and steps of an LSTM, GRU or plain recurrent net as one operation, as cuDNN runs it."""

    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], n_states: int, batch_sizes: Any, *tensors: torch.Tensor) -> Any:
        input, states, weights = tensors[0], list(tensors[1 : 1 + n_states]), list(tensors[1 + n_states :])
        *outputs, reserve = run_recurrent(options, input, states, weights, batch_sizes, saving=True)
        ctx.options, ctx.n_states = options, n_states
        ctx.save_for_backward(*tensors, batch_sizes, outputs[0], reserve)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        *tensors, batch_sizes, output, reserve = ctx.saved_tensors
        input, states, weights = tensors[0], tensors[1 : 1 + ctx.n_states], tensors[1 + ctx.n_states :]
        needed = list(ctx.needs_input_grad[3:])
        options = ctx.options
        results = torch.ops.rooflens.recurrent_backward(
            [g for g in grads if g is not None],
            input,
            list(states),
            list(weights),
            batch_sizes,
            output,
            reserve,
            options["kind"],
            options["layers"],
            options["bidirectional"],
            options["batch_first"],
            needed,
        )
        results = _once(results, "run the layer under torch.backends.cudnn.flags(enabled=False)", *grads, *tensors)
        return None, None, None, *scattered(results, needed)


@torch.library.register_fake("rooflens::_grouped_mm")
def _grouped_shapes(
    self: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor | None, out_dtype: torch.dtype | None
) -> torch.Tensor:
    groups: tuple[int, ...] = ()  # the result has a matrix per group where none of its sides is cut into groups
    if self.dim() == mat2.dim():
        groups = (self.shape[0],) if offs is None else (offs.shape[0],)
    return self.new_empty((*groups, self.shape[-2], mat2.shape[-1]), dtype=out_dtype)


@torch.library.impl(LIBRARY, "_grouped_mm", "CPU")
def _grouped_mm(
    self: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor | None, out_dtype: torch.dtype | None
) -> torch.Tensor:
    if offs is None:
        return torch.bmm(self, mat2).to(out_dtype or self.dtype)
    result: torch.Tensor = _grouped_shapes(self, mat2, offs, out_dtype).zero_()
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


class GroupedProduct(torch.autograd.Function):
    """A product per group of rows, as experts make them: `offs` says where each group ends.

    torch's own asks for types, sizes and strides that depend on the card. The gradients are products of the same kind.
    """

    @staticmethod
    def forward(
        ctx: Any, self: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor | None, out_dtype: torch.dtype | None
    ) -> torch.Tensor:
        ctx.save_for_backward(self, mat2, offs)
        result: torch.Tensor = torch.ops.rooflens._grouped_mm(self, mat2, offs, out_dtype)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        self, mat2, offs = ctx.saved_tensors
        product = torch.ops.rooflens._grouped_mm
        left = product(grad, mat2.transpose(-2, -1), offs, self.dtype) if ctx.needs_input_grad[0] else None
        right = product(self.transpose(-2, -1), grad, offs, mat2.dtype) if ctx.needs_input_grad[1] else None
        return left, right, None, None
