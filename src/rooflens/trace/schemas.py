"""What operators are, as far as a trace asks: views, free ones, and those of which the recorder needs to know more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

_VIEWS = frozenset(
    {
        *("_reshape_alias", "_unsafe_view", "as_strided_", "detach_", "squeeze_", "swapaxes_", "swapdims_", "t_"),
        *("transpose_", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze_"),
    }
)
"""Views whose schema does not say so. The others give results that alias an argument which is not written."""
_FREE = frozenset(
    {
        *("_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_efficientzerotensor"),
        *("_functional_assert_async", "_functional_assert_scalar", "_functional_sym_constrain_range"),
        *("_functional_sym_constrain_range_for_size", "_has_same_storage_numel", "_linalg_check_errors"),
        *("_nested_tensor_from_mask_left_aligned", "_record_function_enter_new", "_record_function_exit"),
        *("_sparse_compressed_tensor_unsafe", "_sparse_coo_tensor_unsafe", "_sparse_coo_tensor_with_dims"),
        *("_sparse_coo_tensor_with_dims_and_tensors", "empty", "empty_like", "empty_permuted", "empty_strided"),
        *("is_coalesced", "is_same_size", "lift_fresh_copy", "new_empty", "new_empty_strided", "resize_", "set_"),
        *("sym_constrain_range", "sym_constrain_range_for_size", "sym_numel", "sym_size", "sym_storage_offset"),
        "sym_stride",
    }
)
"""Operations that move and compute nothing and are no views."""
_WHOLE = frozenset({"mish_backward", "silu_backward"})
"""Operations that torch could take apart, and does not where a device has a kernel of them, as all have."""
_LIFTS = frozenset({"lift", "lift_fresh", "lift_fresh_copy"})
"""Operations that bring in a tensor which the step itself has just made from numbers."""
_QUANTISING = frozenset({"quantize_per_channel", "quantize_per_tensor", "quantize_per_tensor_dynamic"})
_UNTOLD = frozenset(
    f"_scaled_dot_product_{kernel}_attention{device}_backward"
    for kernel, device in (("flash", ""), ("flash", "_for_cpu"), ("cudnn", ""))
)
"""Operations of torch that are not told which gradients are needed."""
_NOTES = {
    "_nested_tensor_from_mask_left_aligned": "nn.TransformerEncoder may leave out padding in inference; here all rows"
    " of the input are counted (enable_nested_tensor=False runs them all)"
}
"""What to know of a step with such an operation."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What the recorder needs of an operator's schema.

    Attributes:
        name: without namespace and overload; a custom operator keeps its namespace.
        view: it gives another view of memory.
        free: it moves and computes nothing.
        composite: torch takes it apart itself.
        packed: it takes objects of torch's C++ classes.
        lifts: it brings in a tensor that the step itself has just made from numbers.
        quantises: it makes torch's quantised tensors, of which there are no fake ones.
        untold: it is a backward of torch that is not told which gradients are needed.
        note: what to know of a step with it; nothing of most.
        arguments: names of all; `mutated` are written, and `unread` are not read.
    """

    name: str
    view: bool
    free: bool
    composite: bool
    packed: bool
    lifts: bool
    quantises: bool
    untold: bool
    note: str
    arguments: tuple[str, ...]
    mutated: tuple[str, ...]
    unread: frozenset[str]


@cache
def schema_of(operator: torch._ops.OpOverload, custom: bool) -> Schema:
    """What the recorder needs of an operator. A `custom` one has a registered formula and keeps its namespace."""
    schema = operator._schema
    name = schema.name if custom else schema.name.split("::")[-1]
    if operator.namespace == "quantized" and not custom:  # layers on packed weights have the names of plain ones
        name = f"quantized_{name}"
    returns = [r.alias_info for r in schema.returns]
    aliases = bool(returns) and all(alias is not None and not alias.is_write for alias in returns)
    view = aliases or name in _VIEWS
    return Schema(
        name=name,
        view=view,
        free=view or name in _FREE or operator.namespace == "prim",
        composite=operator.namespace == "aten"
        and name not in _WHOLE
        and torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd"),
        packed=any("__torch__" in str(a.type) for a in schema.arguments),
        lifts=name in _LIFTS,
        quantises=name in _QUANTISING,
        untold=name in _UNTOLD,
        note=_NOTES.get(name, ""),
        arguments=tuple(a.name for a in schema.arguments),
        mutated=tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write),
        unread=frozenset(a.name for a in schema.arguments if a.is_out),
    )
