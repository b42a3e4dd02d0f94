"""Operations whose operands have to be of one type, which fake tensors do not ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

_ALIKE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("_grouped_mm", "mm"), ("self", "mat2")),
    **dict.fromkeys(("addmm", "addmm_", "_addmm_activation"), ("self", "mat1", "mat2")),
    "mv": ("self", "vec"),
    **dict.fromkeys(("addmv", "addmv_"), ("self", "mat", "vec")),
    "convolution": ("input", "weight", "bias"),
    **dict.fromkeys(("attention", "varlen_attention"), ("query", "key", "value")),
    "recurrent": ("input", "states", "weights"),
    **dict.fromkeys(("index_add", "index_add_"), ("self", "source")),
    **dict.fromkeys(("index_put", "index_put_", "_unsafe_index_put"), ("self", "values")),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), ("weight", "per_sample_weights")),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), ("input", "grid")),
}
"""The arguments, by operation, that torch wants of one type on every device."""


def check_types(name: str, given: Mapping[str, Any]) -> None:
    """Raise where torch does: the step would end there, and its numbers would be those of no program.

    Raises:
        RuntimeError: the operands are of several types.
    """
    names = _ALIKE.get(name)
    if names is None:
        return
    found = [
        (argument, leaf.dtype)
        for argument in names
        for leaf in tree_leaves(given.get(argument))
        if isinstance(leaf, Tensor)
    ]
    if len({dtype for _, dtype in found}) > 1:
        operands = ", ".join(f"{argument} {dtype}" for argument, dtype in dict.fromkeys(found))
        raise RuntimeError(f"operands of {name.strip('_')} have to be of one type, not {operands}")
