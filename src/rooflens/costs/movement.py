"""Operations that only move bytes: copies, fills, gathers and scatters."""

from __future__ import annotations

from itertools import zip_longest
from math import prod

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import per_element, pointwise
from rooflens.records import Call, Tensor

VIEWS = (
    *("_conj", "_neg_view", "_reshape", "_reshape_alias", "alias", "as_strided", "detach", "diagonal", "expand"),
    *("narrow", "permute", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind"),
    *("unsqueeze", "view", "view_as_complex", "view_as_real"),
)
"""Views that have a form which copies."""
PADS = tuple(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3))
NEAREST = tuple(f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3))
SHUFFLES = ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "im2col", "unfold_copy")
REORDERED = ("cat", "stack", "constant_pad_nd", "roll", "flip", "rot90", "repeat", "repeat_interleave")
PIECES = ("slice_backward", "select_backward", "diagonal_backward")
PLACED = ("as_strided_scatter", "slice_scatter", "select_scatter", "diagonal_scatter", "diag_embed", "block_diag")
UNPOOLED = ("max_unpool2d", "max_unpool3d")
OTHERS = (
    "poisson",
    "_standard_gamma",
    "lift",
    "_local_scalar_dense",
    "_pack_padded_sequence",
    "masked_select",
    "sparse_mask",
)


@register("copy", "clone", "contiguous", "_to_copy", *REORDERED, *PADS, *NEAREST, *SHUFFLES, *PIECES, *PLACED, *OTHERS)
@register("copy", *UNPOOLED, "to_padded_tensor", "_pin_memory")
@register("copy", *(f"{view}_copy" for view in VIEWS))
def copy(call: Call) -> Demand:
    """Read once, written once."""
    return Demand()


@register("copy", "copy", "_foreach_copy")
def copy_into(call: Call) -> Demand:
    """The target is written, not read."""
    target = sum(t.nbytes for t in call.tensors("self"))
    return Demand(bytes=call.reads - target + call.writes if call.name.endswith("_") else None)


@register("copy", "col2im", "unfold_backward", *(f"{name}_backward" for name in (*PADS, *NEAREST)))
def folded(call: Call) -> Demand:
    """Overlapping pieces are added: one addition per element that is read. A padded input's values are not read."""
    source = call.inputs[0]
    return Demand(flops=pointwise(source, vector=source.elements), bytes=source.nbytes + call.writes)


CONSTANTS = ("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full")
INDICES = ("scalar_tensor", "arange", "range", "linspace", "logspace", "eye", "tril_indices", "triu_indices")
RANDOM = ("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm")
RANDOM_IN_PLACE = ("bernoulli", "uniform", "normal", "exponential", "random", "cauchy", "geometric", "log_normal")


@register("fill", "_new_zeros_with_same_feature_meta", "fill", "zero", *CONSTANTS, *INDICES, *RANDOM, *RANDOM_IN_PLACE)
def fill(call: Call) -> Demand:
    """Written, not read. Random numbers are integer work."""
    return Demand(bytes=call.writes)


WINDOWS = ("hann_window", "hamming_window", "bartlett_window", "blackman_window", "kaiser_window")


@register("fill", *WINDOWS)
def window(call: Call) -> Demand:
    """Written, not read: a cosine (or its like), scaled and shifted, per element."""
    out = call.outputs[0]
    return Demand(flops=pointwise(out, vector=2 * out.elements, special=out.elements), bytes=call.writes)


@register("gather", "embedding", "index_select", "gather", "index", "_unsafe_index", "take", "take_along_dim")
def gather(call: Call) -> Demand:
    """The elements that are fetched are read, at most the whole table, and written; the indices are read."""
    table = call.tensor("weight" if call.name == "embedding" else "self")
    fetched = sum(t.nbytes for t in call.outputs)
    return Demand(bytes=min(fetched, table.nbytes) + (call.reads - table.nbytes) + call.writes)


@register("gather", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(call: Call) -> Demand:
    """The rows of a bag are read and added up; the table's other rows are not read."""
    table, indices, out = call.tensor("weight"), call.tensor("indices"), call.outputs[0]
    rows = indices.elements * (table.nbytes // max(1, table.shape[0]))
    adds = indices.elements * table.shape[-1]
    read = min(rows, table.nbytes) + (call.reads - table.nbytes)
    return Demand(flops=pointwise(out, vector=adds), bytes=read + call.writes)


@register(
    "gather", "_embedding_bag_backward", "_embedding_bag_dense_backward", "_embedding_bag_per_sample_weights_backward"
)
def embedding_bag_backward(call: Call) -> Demand:
    """Every row of a bag gets the bag's gradient: one addition per element of a row that was read, as forward."""
    grad = call.tensor("grad")
    return Demand(flops=pointwise(grad, vector=call.tensor("indices").elements * grad.shape[-1]))


@register("gather", "embedding_renorm")
def embedding_renorm(call: Call) -> Demand:
    """Rows that are looked up are brought to a largest norm: square, add, scale, and a root per row. Only they move."""
    table, indices = call.tensor("self"), call.tensor("indices")
    width = table.shape[-1]
    rows = min(indices.elements, table.shape[0])
    moved = rows * (table.nbytes // max(1, table.shape[0]))
    flops = pointwise(table, vector=3 * rows * width, special=rows)
    return Demand(flops=flops, bytes=indices.nbytes + 2 * moved)


@register("gather", "embedding_dense_backward")
def embedding_backward(call: Call) -> Demand:
    """Every row's gradient is added into the table's, which is written whole."""
    return per_element(call.tensor("grad_output"), 1)


@register("gather", "masked_scatter_backward")
def masked_scatter_backward(call: Call) -> Demand:
    """The gradient at the places of the mask is fetched."""
    return Demand(bytes=call.tensor("mask").nbytes + 2 * call.writes)


INDEXED = (
    *("index_add", "index_put", "_unsafe_index_put", "_index_put_impl", "index_copy", "index_fill", "index_reduce"),
    "put",
)


@register("gather", "scatter", "scatter_add", "scatter_reduce", "masked_scatter", *INDEXED)
def scatter(call: Call) -> Demand:
    """Values are read and written at their places, and added there where the operation accumulates.

    In place, only these places of the target move; otherwise the whole target is copied.
    """
    target = call.tensor("self")
    adds = "add" in call.name or "reduce" in call.name or bool(call.get("accumulate") or call.get("reduce"))
    places = _places(call, target)
    flops = pointwise(target, vector=places) if adds else {}
    if not call.name.endswith("_"):
        return Demand(flops=flops)
    touched = min(places, target.elements) * (target.nbytes // max(1, target.elements))
    return Demand(flops=flops, bytes=(call.reads - target.nbytes) + touched * (2 if adds else 1))


def _places(call: Call, target: Tensor) -> int:
    """Elements of the target that are addressed: one per index, or a slice of the target per index."""
    name = call.name.removesuffix("_")
    if name == "masked_scatter":
        return min(call.tensor("source").elements, target.elements)
    if name.startswith("scatter") or name == "put":
        return call.tensor("index").elements
    if name.startswith("index_") and name != "index_put":
        dim = call.integer("dim")
        return call.tensor("index").elements * (prod(target.shape) // max(1, target.shape[dim] if target.shape else 1))
    return _indexed(call, target)


def _indexed(call: Call, target: Tensor) -> int:
    """Elements that a list of index tensors addresses: they are broadcast, and dimensions without one are whole.

    A mask may address all that it covers; how many it does depends on its values.
    """
    indices = call["indices"]
    assert isinstance(indices, tuple)
    whole, remaining = 1, list(target.shape)
    shapes: list[tuple[int, ...]] = []
    for index in indices:
        if not isinstance(index, Tensor):
            whole *= remaining.pop(0)
        elif index.dtype == "bool":
            shapes.append((index.elements,))
            del remaining[: len(index.shape)]
        else:
            shapes.append(index.shape)
            del remaining[0]
    aligned = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return whole * prod(remaining) * prod(max(sizes) for sizes in aligned)
