"""Lightning attention of MiniMax, whose module holds its loop in the middle: the layer with the loop as a function.

Everything but the loop calls the layer's own parts. The loop is the reference's, so that its work is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MODULE, LAYER = "transformers.models.minimax.modeling_minimax", "MiniMaxLightningAttention"


def in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor,
    query_decay: Tensor,
    key_decay: Tensor,
    diagonal_decay: Tensor,
    state: Tensor | None,
    block_size: int,
) -> tuple[Tensor, Tensor]:
    """Attention of (batch, heads, tokens, width) with a decay per head: what it gives, and the state after it.

    Without a state it takes a block at a time, within which each pair of tokens meets; with one, a token at a time.
    """
    length = query.shape[2]
    outputs = []
    if state is not None:
        ratio = torch.exp(-decay)
        for place in range(length):
            q, k, v = (t[:, :, place : place + 1] for t in (query, key, value))
            state = ratio * state + torch.matmul(k.transpose(-1, -2), v)
            outputs.append(torch.matmul(q, state))
        return torch.cat(outputs, dim=-2), state
    state = value.new_zeros((*key.shape[:2], key.shape[-1], value.shape[-1]))
    for begin in range(0, length, block_size):
        end = min(begin + block_size, length)
        size = end - begin
        q, k, v = (t[:, :, begin:end] for t in (query, key, value))
        pairs = torch.matmul(q, k.transpose(-1, -2))
        within = torch.matmul(pairs * diagonal_decay[:, :, :size, :size], v)
        outputs.append(torch.matmul(q * query_decay[:, :size], state) + within)
        added = torch.matmul((k * key_decay[:, -size:]).transpose(-1, -2), v)
        state = state * torch.exp(-decay * size) + added
    return torch.cat(outputs, dim=-2), state


def forward(
    layer: Any, attend: Any, hidden_states: Tensor, attention_mask: Tensor | None, cache: Any
) -> tuple[Tensor, Tensor]:
    """The layer's forward, with `attend` in the place of its loop."""
    batch, length, _ = hidden_states.shape
    heads, width = layer.num_attention_heads, layer.head_dim
    projected = layer.act_fn(layer.qkv_proj(hidden_states))
    if attention_mask is not None:
        projected = (projected * attention_mask[:, :, None]).to(projected.dtype)
    parts = torch.split(projected.reshape(batch, length, heads, 3 * width), width, dim=3)
    query, key, value = (part.transpose(1, 2) for part in parts)
    state = None if cache is None else cache.get_linear_cache(layer.layer_idx)
    decays = (layer.slope_rate, layer.query_decay, layer.key_decay, layer.diagonal_decay)
    attended, state = attend(query, key, value, *decays, state, layer.block_size if state is None else 1)
    attended = layer.norm(attended.transpose(1, 2).reshape(batch, length, heads * width))
    output = layer.out_proj(F.sigmoid(layer.output_gate(hidden_states)) * attended)
    if cache is not None:
        cache.set_linear_cache(layer.layer_idx, state)
    return output, state
