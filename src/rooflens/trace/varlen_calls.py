"""Calls of attention over sequences of unequal length: nested tensors, `varlen_attn`, and torch's kernels by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from rooflens.errors import ModelError
from rooflens.trace import fused
from rooflens.trace.replaced_operators import tracing
from rooflens.trace.varlen import ANYWHERE, Sequences, attend_each, jagged_of, lengths_of, numbers_in, used

_VECTOR = 8
"""Elements that the kernels of attention load at once."""
_BIASED = "attention over sequences of unequal length is not counted with a bias"


def nested_attention(query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float, causal: bool) -> Tensor:
    """`scaled_dot_product_attention` of jagged tensors (batch, heads, length of each, width)."""
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths

    operands: list[Any] = [query, key, value]
    if mask is not None or not all(t.is_nested and t.layout is torch.jagged and t.dim() == 4 for t in operands):
        raise ModelError(
            "attention of nested tensors is counted for queries, keys and values of layout jagged, of four dimensions,"
            " without a mask"
        )
    if query._ragged_idx == 1:  # type: ignore[attr-defined]  # a ragged batch of equal sequences
        q, k, v = (t.values() for t in operands)
        output = fused.attend(q, k, v, None, dropout, causal)
        nested: Tensor = nested_view_from_values_offsets_lengths(output, operands[0].offsets(), None)
        return nested
    by_token = [t.transpose(1, 2) for t in operands]
    by_token = [t.contiguous() if t.lengths() is not None else t for t in by_token]  # without holes, as torch does
    queries, keys, values = (lengths_of(t.offsets()) for t in by_token)
    if keys != values:
        raise ModelError(f"keys of lengths {keys} have values of lengths {values}")
    sequences = Sequences(queries, keys, (-1, 0) if causal else ANYWHERE, from_end=False)
    q, k, v = (t.values() for t in by_token)
    attended, _ = attend_each(q, k, v, sequences, dropout)
    first = by_token[0]
    result: Tensor = nested_view_from_values_offsets_lengths(
        attended, first.offsets(), None, min_seqlen=first._maybe_min_seqlen, max_seqlen=first._maybe_max_seqlen
    )
    return result.transpose(1, 2)


@contextmanager
def nested_layers() -> Iterator[None]:
    """Let attention layers run as a GPU runs them, take jagged tensors, and nested tensors be jagged where made.

    torch runs such a layer as one operation of its own; counted are the operations in it.
    """
    plain_layer, plain_tensor = nn.MultiheadAttention.forward, torch.nested.nested_tensor

    def layer(self: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        itself = tracing() and query is key is value
        jagged = itself and query.is_nested and query.layout is torch.jagged and _takes_jagged(self, args, kwargs)
        if not jagged and not (itself and _runs_natively(self, query, args, kwargs)):
            return plain_layer(self, query, key, value, *args, **kwargs)
        packed = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        by_head = [part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in packed]
        attended = F.scaled_dot_product_attention(*by_head, dropout_p=self.dropout if self.training else 0.0)  # type: ignore[misc]
        return self.out_proj(attended.transpose(1, 2).flatten(-2)), None

    def tensor(parts: Any, *, layout: torch.layout | None = None, **options: Any) -> Any:
        if not tracing() or layout is torch.jagged or not all(isinstance(part, Tensor) for part in parts):
            return plain_tensor(parts, layout=layout, **options)
        dtype, wants_gradient = options.get("dtype"), options.get("requires_grad", False)
        return jagged_of([part.detach().to(dtype or part.dtype) for part in parts]).requires_grad_(wants_gradient)

    with (
        patch.object(nn.MultiheadAttention, "forward", layer),
        patch.object(torch.nested, "nested_tensor", tensor),
    ):
        yield


def _takes_jagged(layer: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if a layer can be run on jagged tensors: no masks, one matrix for query, key and value."""
    masks = any(isinstance(given, Tensor) for given in (*args, *kwargs.values()))
    return not masks and layer.batch_first and layer.in_proj_weight is not None and layer.bias_k is None


def _runs_natively(layer: nn.MultiheadAttention, tokens: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if torch leaves its Python code for `_native_multi_head_attention`, and that takes a fused kernel.

    The former are the conditions of `MultiheadAttention.forward`, the latter those of its CUDA code: no mask, no
    weights to return, heads of whole vectors. The result is the same; copies between the two layouts are not made.
    """
    names = ("key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal")
    given = dict(zip(names, args, strict=False)) | kwargs
    tensors = (tokens, *layer.parameters())
    return (
        torch.backends.mha.get_fastpath_enabled()
        and _takes_jagged(layer, args, kwargs)
        and layer.in_proj_bias is not None
        and not (given.get("need_weights", True) or layer.training or layer.add_zero_attn or tokens.is_nested)
        and tokens.dim() == 3
        and layer.num_heads % 2 == 0
        and layer.head_dim % _VECTOR == 0
        and not torch.is_autocast_enabled("cpu")
        and len({tensor.dtype for tensor in tensors}) == 1
        and not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
    )


def nested_from_list(
    list: Sequence[Tensor],
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """What `torch.nested.as_nested_tensor` calls for strided layout."""
    return jagged_of([part.to(dtype or part.dtype) for part in list])


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    begins: tuple[Tensor | None, Tensor | None],
    window: tuple[int, int],
    *,
    dropout: float = 0.0,
    from_end: bool = True,
    lengths: Tensor | None = None,
    pages: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of (tokens, heads, width), or of (batch, length, heads, width) where all lengths are equal.

    Args:
        begins: where sequences of queries and of keys begin, and where the last one ends.
        lengths: how many keys of each sequence take part.
        pages: the pages of a cache (pages, tokens, heads, width) that each sequence has its keys in.
    """
    if begins[0] is None and pages is None:
        batch, length = query.shape[:2]
        sequences = Sequences([length] * batch, [key.shape[1]] * batch, window, from_end)
        query, key, value = (t.flatten(0, 1) for t in (query, key, value))
        output, logsumexp = attend_each(query, key, value, sequences, dropout)
        return output.unflatten(0, (batch, length)), logsumexp
    queries = lengths_of(begins[0]) if begins[0] is not None else [query.shape[0]]
    keys = lengths_of(begins[1]) if begins[1] is not None and pages is None else queries
    if lengths is not None:
        starts = [0, *accumulate(keys)][:-1]
        keys = numbers_in(lengths)
        key, value = (used(t, starts, keys, pages) for t in (key, value))
    return attend_each(query, key, value, Sequences(queries, keys, window, from_end), dropout)


def _window(left: int | None, right: int | None, causal: bool) -> tuple[int, int]:
    return (-1 if left is None else left, 0 if causal else -1 if right is None else right)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, ...]:
    window = _window(window_size_left, window_size_right, is_causal)
    begins = (cum_seq_q, cum_seq_k)
    results = _kernel(query, key, value, begins, window, dropout=dropout_p, lengths=seqused_k, pages=block_table)
    return *results, *(query.new_empty(0) for _ in range(3))


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    window_size: int | None = None,
) -> tuple[Any, ...]:
    """Mask types: 0 is none, 1 causal from the first key, 2 causal from the last."""
    causal, seeds = bool(custom_mask_type), [query.new_empty(0) for _ in range(2)]
    if bias is not None:
        if cu_seqlens_q is not None:
            raise ModelError(_BIASED)
        q, k, v = (t.transpose(1, 2) for t in (query, key, value))
        attended = fused.attend(q, k, v, bias, dropout_p, causal).transpose(1, 2)
        return attended, query.new_empty(0), *seeds, max_seqlen_q, max_seqlen_k
    packed = cu_seqlens_q is not None
    q, k, v = (t.squeeze(0) if packed else t for t in (query, key, value))
    window = _window(None if window_size is None else window_size - 1, None, causal)
    begins, from_end = (cu_seqlens_q, cu_seqlens_k), custom_mask_type != 1
    output, logsumexp = _kernel(q, k, v, begins, window, dropout=dropout_p, lengths=seqlen_k, from_end=from_end)
    return output.unsqueeze(0) if packed else output, logsumexp, *seeds, max_seqlen_q, max_seqlen_k


def _varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: list[int] | None = None,
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, ...]:
    left, right = window_size or ANYWHERE
    window = _window(left, right, is_causal)
    results = _kernel(query, key, value, (cu_seq_q, cu_seq_k), window, lengths=seqused_k, pages=block_table)
    return *results, query.new_empty(0)


def _varlen_out(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: list[int] | None = None,
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor:
    """The same into a tensor that is given."""
    more = (is_causal, scale, window_size, enable_gqa, seqused_k, block_table, num_splits)
    attended, logsumexp, _ = _varlen(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *more)
    with torch.no_grad(), _disable_current_modes():  # the kernel writes there itself
        out.copy_(attended)
    return logsumexp


def _cudnn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
) -> tuple[Any, ...]:
    """Of (tokens, heads, width), or where all lengths are equal of (batch, heads, length, width)."""
    seeds = [query.new_empty(0) for _ in range(3)]
    if cum_seq_q is None:
        attended = fused.attend(query, key, value, attn_bias, dropout_p, is_causal)
        return attended, query.new_empty(0), cum_seq_q, cum_seq_k, max_q, max_k, *seeds
    if attn_bias is not None:
        raise ModelError(_BIASED)
    window = _window(None, None, is_causal)
    begins = (cum_seq_q, cum_seq_k)
    results = _kernel(query, key, value, begins, window, dropout=dropout_p, lengths=seqused_k, pages=block_table)
    return *results, *begins, max_q, max_k, *seeds


KERNELS: dict[str, Callable[..., Any]] = {
    "aten::_flash_attention_forward": _flash,
    "aten::_efficient_attention_forward": _efficient,
    "aten::_cudnn_attention_forward": _cudnn,
    "torch_attn::_varlen_attn": _varlen,
    "torch_attn::_varlen_attn_out": _varlen_out,
}
"""Kernels of torch that a call may name, which run on a GPU only."""
