"""Attention over sequences of unequal length, which lie one after the other in one tensor.

Their lengths are values, so a step without values is run on the CPU. A GPU runs one kernel for all sequences; so does
this operation, forward and backward. It is defined for tracing only, as those of :mod:`rooflens.trace.fused`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from rooflens.errors import DataDependent, ModelError
from rooflens.trace.fused import define, empty_gradients, once, saving, scattered
from rooflens.trace.replaced_operators import as_torch

ANYWHERE = (-1, -1)
"""The window of a query that sees every key of its sequence; a causal one is (-1, 0)."""


class Sequences(NamedTuple):
    """Which queries and keys belong together.

    Attributes:
        query_lengths: how many queries each sequence has.
        key_lengths: how many keys and values.
        window: how many keys before and after its own place a query sees; -1 is all of them.
        from_end: the last query stands at the last key; otherwise the first at the first.
    """

    query_lengths: Sequence[int]
    key_lengths: Sequence[int]
    window: Sequence[int] = ANYWHERE
    from_end: bool = True


def jagged_of(parts: Sequence[Tensor], offsets: dict[tuple[int, ...], Tensor] | None = None) -> Tensor:
    """The nested tensor of these parts in jagged layout, which tells its shape; strided layout does not.

    Args:
        offsets: where parts of these lengths begin. Equal lengths are one size to torch if these are one tensor.
    """
    ragged = [dim for dim in range(parts[0].dim()) if len({part.shape[dim] for part in parts}) > 1]
    if len(ragged) > 1:
        raise ModelError(f"a nested tensor whose parts differ in dimensions {ragged} has no jagged form")
    dim = ragged[0] if ragged else max(0, parts[0].dim() - 2)
    ends = (0, *accumulate(part.shape[dim] for part in parts))
    begins = torch.tensor(ends) if offsets is None else offsets.setdefault(ends, torch.tensor(ends))
    values = torch.cat([part.transpose(0, dim) for part in parts])
    jagged: Tensor = torch.nested.nested_tensor_from_jagged(values, begins).transpose(1, dim + 1)
    return jagged


def lengths_of(cumulative: Tensor) -> list[int]:
    """The lengths of sequences that begin and end at these places."""
    places = numbers_in(cumulative)
    return [end - begin for begin, end in pairwise(places)]


def numbers_in(tensor: Tensor) -> list[int]:
    """The whole numbers in a tensor."""
    if isinstance(tensor, FakeTensor):
        raise DataDependent("the lengths of sequences are values, and an estimate has only shapes")
    with _disable_current_modes():
        return [int(n) for n in tensor.tolist()]


def used(tensor: Tensor, starts: Sequence[int], lengths: Sequence[int], table: Tensor | None) -> Tensor:
    """The keys (or values) that take part: the first ones after each start, or of the pages that a table names."""
    with torch.no_grad(), _disable_current_modes():
        if table is None:
            return torch.cat([tensor[start : start + length] for start, length in zip(starts, lengths, strict=True)])
        pages = [tensor[row.long()].flatten(0, 1) for row in table]
        return torch.cat([page[:length] for page, length in zip(pages, lengths, strict=True)])


def attend_each(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Attention of each sequence to itself: queries (tokens, heads, width), and one log-sum-exp per head and query."""
    _check(query, key, value, sequences)
    if saving(query, key, value):
        attended: tuple[Tensor, Tensor] = VarlenAttention.apply(query, key, value, sequences, dropout)
    else:
        attended = torch.ops.rooflens.varlen_attention(query, key, value, *sequences, dropout, False)
    return attended


def _check(query: Tensor, key: Tensor, value: Tensor, sequences: Sequences) -> None:
    """Raise where lengths and tensors do not fit together."""
    for name, tensor, lengths in (
        ("query", query, sequences.query_lengths),
        ("key", key, sequences.key_lengths),
        ("value", value, sequences.key_lengths),
    ):
        if tensor.dim() != 3 or tensor.shape[0] != sum(lengths):
            raise ModelError(f"{name} of shape {tuple(tensor.shape)} does not hold sequences of {sum(lengths)} tokens")
    if len(sequences.query_lengths) != len(sequences.key_lengths) or query.shape[1] % key.shape[1]:
        raise ModelError("queries and keys have different numbers of sequences, or of heads that do not share evenly")


def _shapes(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    tokens, heads, _ = query.shape
    output = query.new_empty((tokens, heads, value.shape[-1]))
    return output, query.new_empty((heads, tokens) if rest[-1] else (0,), dtype=torch.float32)


def _run(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    *given, dropout, _ = rest
    sequences = Sequences(*given)
    output, logsumexp = _shapes(query, key, value, *rest)
    parts = (query.split(list(sequences.query_lengths)), *(t.split(list(sequences.key_lengths)) for t in (key, value)))
    results = []
    with torch._C.DisableTorchFunction(), as_torch():
        for q, k, v in zip(*parts, strict=True):
            mask = _mask(q.shape[0], k.shape[0], sequences)
            q, k, v = (t.transpose(0, 1) for t in (q, k, v))  # noqa: PLW2901
            attended = F.scaled_dot_product_attention(q, k, v, mask, dropout, enable_gqa=q.shape[0] != k.shape[0])
            results.append(attended.transpose(0, 1))
    return output.copy_(torch.cat(results)), logsumexp.zero_()


def _mask(queries: int, keys: int, sequences: Sequences) -> Tensor | None:
    """True where a query sees a key."""
    before, after = sequences.window
    if before < 0 and after < 0:
        return None
    shift = keys - queries if sequences.from_end else 0
    ahead = torch.arange(keys) - torch.arange(queries).unsqueeze(1) - shift
    seen = torch.ones_like(ahead, dtype=torch.bool)
    if before >= 0:
        seen &= ahead >= -before
    return seen & (ahead <= after) if after >= 0 else seen


def _gradients(*arguments: Any) -> list[Tensor]:
    _, query, key, value, *_, needed = arguments
    return empty_gradients((query, key, value), needed)


_SEQUENCES = "int[] query_lengths, int[] key_lengths, int[2] window, bool from_end"
define(
    f"varlen_attention(Tensor query, Tensor key, Tensor value, {_SEQUENCES}, float dropout, bool saving)"
    " -> (Tensor, Tensor)",
    _shapes,
    _run,
)
define(
    "varlen_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor output, Tensor logsumexp,"
    f" {_SEQUENCES}, float dropout, bool[3] needed) -> Tensor[]",
    _gradients,
)


class VarlenAttention(torch.autograd.Function):
    """Saved for backward, as flash attention does: inputs, output and one log-sum-exp per query and head."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, dropout: float
    ) -> tuple[Tensor, Tensor]:
        output, logsumexp = torch.ops.rooflens.varlen_attention(query, key, value, *sequences, dropout, True)
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.sequences, ctx.dropout = sequences, dropout
        ctx.mark_non_differentiable(logsumexp)
        ctx.set_materialize_grads(False)
        return output, logsumexp

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        query, key, value, output, logsumexp = ctx.saved_tensors
        needed = list(ctx.needs_input_grad[:3])
        grads = torch.ops.rooflens.varlen_attention_backward(
            grad, query, key, value, output, logsumexp, *ctx.sequences, ctx.dropout, needed
        )
        advice = "write attention out to differentiate it twice"
        return *scattered(once(grads, advice, grad, query, key, value), needed), None, None
