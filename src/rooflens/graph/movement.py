"""Operators that only move elements: views where strides can express the result, copies elsewhere."""

from __future__ import annotations

from rooflens.errors import ModelError
from rooflens.graph.layers import axes_of
from rooflens.graph.node import Node, operator, scalar
from rooflens.graph.operators import RANDOM
from rooflens.graph.strides import expanded, reshaped
from rooflens.graph.value import integers

VIEWS = frozenset({"Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose results are views of their first input, unless the elements have to move."""
SHAPES = frozenset({"Shape", "Size"})
"""Operators that ask for a shape: they are free also where the answer is not known."""
PADDING = {"reflect": "reflection_pad", "edge": "replication_pad"}
FILLED = {"ConstantOfShape": "full", "EyeLike": "eye"}
SHUFFLED = {
    "SpaceToDepth": ("pixel_unshuffle", "downscale_factor"),
    "DepthToSpace": ("pixel_shuffle", "upscale_factor"),
}


@operator(*FILLED)
def filled(node: Node) -> None:
    node.emit(FILLED[node.key], node.output())


@operator(*SHUFFLED)
def shuffled(node: Node) -> None:
    name, factor = SHUFFLED[node.key]
    node.emit(name, node.output(), self=node.value(0), **{factor: node.integer("blocksize", 1)})


@operator("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(node: Node) -> None:
    """A view, or a copy where no strides express the new shape, as in PyTorch."""
    inputs, out = node.value(0), node.output()
    strides = reshaped(inputs.shape, inputs.strides, out.shape)
    if strides is None:
        node.emit("clone", out, self=inputs)
    else:
        node.becomes(0, inputs.view(out.shape, strides))


@operator("Transpose")
def transpose(node: Node) -> None:
    inputs, out = node.value(0), node.output()
    rank = len(inputs.shape)
    order = node.integers("perm") or tuple(reversed(range(rank)))
    node.becomes(0, inputs.view(out.shape, tuple(inputs.strides[axis] for axis in order)))


@operator("Expand")
def expand(node: Node) -> None:
    """What is repeated is stored once."""
    inputs, out = node.value(0), node.output()
    node.becomes(0, inputs.view(out.shape, expanded(inputs.shape, inputs.strides, out.shape)))


@operator("Slice")
def slice_(node: Node) -> None:
    """A view; running backwards, a copy, as PyTorch has no negative strides."""
    inputs, out = node.value(0), node.output()
    inputs_of = [integers(node.optional(i)) for i in (1, 2, 4)]
    starts = inputs_of[0] if node.optional(1) is not None else list(node.integers("starts"))
    steps = inputs_of[2] if node.optional(4) is not None else [1] * len(starts or ())
    axes = axes_of(node, 3)
    if starts is None or steps is None or axes is None or any(step < 0 for step in steps):
        node.emit("flip" if steps is None or any(step < 0 for step in steps) else "clone", out, self=inputs)
        return
    strides, offset = list(inputs.strides), 0
    for start, axis, step in zip(starts, axes or range(len(starts)), steps, strict=False):
        size = inputs.shape[axis]
        first = min(max(start + size if start < 0 else start, 0), size)
        offset += first * strides[axis]
        strides[axis] *= step
    node.becomes(0, inputs.view(out.shape, tuple(strides), offset))


@operator("Split")
def split(node: Node) -> None:
    inputs = node.value(0)
    axis, offset = node.integer("axis"), 0
    for position, part in enumerate(node.outputs):
        if part is not None:
            node.becomes(position, inputs.view(part.shape, inputs.strides, offset * inputs.strides[axis]))
            offset += part.shape[axis]


@operator("Concat")
def concat(node: Node) -> None:
    parts = [node.value(i) for i in range(len(node.inputs))]
    if len(parts) == 1:
        node.becomes(0, parts[0])
    else:
        node.emit("cat", node.output(), tensors=parts)


@operator("Pad")
def pad(node: Node) -> None:
    inputs, mode = node.value(0), node.text("mode", "constant")
    spatial = max(1, len(inputs.shape) - 2)
    name = f"{PADDING[mode]}{spatial}d" if mode in PADDING else "roll" if mode == "wrap" else "constant_pad_nd"
    node.emit(name, node.output(), self=inputs)


@operator("Trilu")
def triangle(node: Node) -> None:
    node.emit("triu" if node.integer("upper", 1) else "tril", node.output(), self=node.value(0))


@operator("Gather")
def gather(node: Node) -> None:
    """One known place along an axis is a view, rows of a table are an embedding."""
    table, indices, out = node.value(0), node.value(1), node.output()
    axis = node.integer("axis") % max(1, len(table.shape))
    place = indices.number
    if place is not None and indices.shape == ():
        strides = table.strides[:axis] + table.strides[axis + 1 :]
        start = int(place) % max(1, table.shape[axis])
        node.becomes(0, table.view(out.shape, strides, start * table.strides[axis]))
    elif axis == 0 and len(table.shape) == 2:
        node.emit("embedding", out, weight=table, indices=indices)
    else:
        node.emit("index", out, self=table, indices=(*(None,) * axis, indices))


@operator("GatherElements")
def gather_elements(node: Node) -> None:
    node.emit("gather", node.output(), self=node.value(0), dim=node.integer("axis"), index=node.value(1))


@operator("GatherND")
def gather_nd(node: Node) -> None:
    node.emit("index", node.output(), self=node.value(0), indices=(node.value(1),))


@operator("ScatterND")
def scatter_nd(node: Node) -> None:
    """Each row of indices names one place in the first dimensions of the target."""
    target, places, updates = node.value(0), node.value(1), node.value(2)
    depth = places.shape[-1]
    if depth > len(target.shape):
        raise ModelError(f"an index of {depth} numbers names no place in {len(target.shape)} dimensions")
    indices = (places.shaped(places.shape[:-1]),) * depth
    accumulate = node.text("reduction", "none") != "none"
    node.emit("index_put", node.output(), self=target, indices=indices, values=updates, accumulate=accumulate)


@operator("ScatterElements", "Scatter")
def scatter(node: Node) -> None:
    target, index, updates = node.value(0), node.value(1), node.value(2)
    how = node.text("reduction", "none")
    reduce = None if how == "none" else how
    node.emit("scatter", node.output(), self=target, dim=node.integer("axis"), index=index, src=updates, reduce=reduce)


@operator("Range")
def arange(node: Node) -> None:
    bounds = [scalar(node.value(i)) for i in range(3)]
    node.emit("arange", node.output(), start=bounds[0], end=bounds[1], step=bounds[2])


@operator(*RANDOM)
def random(node: Node) -> None:
    inputs = node.optional(0)
    node.emit(RANDOM[node.key], node.output(), self=inputs if node.key == "Bernoulli" else None)
