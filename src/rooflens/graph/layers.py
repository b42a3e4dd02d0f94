"""Normalisation, softmax, pooling, reductions and interpolation."""

from __future__ import annotations

from math import prod

from rooflens.graph.node import Node, operator
from rooflens.graph.operators import OF_FIRST_INPUT
from rooflens.graph.value import GraphValue, integers

INTERPOLATIONS = {
    ("linear", 1): "upsample_linear1d",
    ("linear", 2): "upsample_bilinear2d",
    ("linear", 3): "upsample_trilinear3d",
    ("cubic", 2): "upsample_bicubic2d",
}


@operator("BatchNormalization")
def batch_norm(node: Node) -> None:
    names = ("input", "weight", "bias", "running_mean", "running_var")
    given = {name: node.value(i) for i, name in enumerate(names)}
    training = bool(node.integer("training_mode"))
    node.emit("native_batch_norm", node.like(node.value(0)), **given, training=training)


@operator("InstanceNormalization")
def instance_norm(node: Node) -> None:
    """A batch norm in training, with the channels of every sample as channels of its own."""
    inputs, out = node.value(0), node.output()
    channels = prod(inputs.shape[:2])
    shape = (1, channels, *inputs.shape[2:])
    outputs = [out.shaped(shape), *(node.temporary((channels,), inputs.dtype) for _ in range(2))]
    given = {"input": inputs.shaped(shape), "weight": node.value(1), "bias": node.value(2)}
    node.emit("native_batch_norm", outputs, **given, running_mean=None, running_var=None, training=True)


@operator("LayerNormalization", "com.microsoft.SkipLayerNormalization")
def layer_norm(node: Node) -> None:
    """The mean and the deviation of every row are written too, as PyTorch's kernel does."""
    skipping = node.key != "LayerNormalization"
    inputs = _with_skipped(node) if skipping else node.value(0)
    weight, bias = (2, 3) if skipping else (1, 2)
    outputs = [node.output(), *(_row_statistic(node, inputs, place) for place in (1, 2))]
    node.emit("native_layer_norm", outputs, input=inputs, weight=node.value(weight), bias=node.optional(bias))


@operator("com.microsoft.EmbedLayerNormalization")
def embedded(node: Node) -> None:
    """Rows for the tokens, their positions and their segments are added up and normalized."""
    ids, segments, tokens, places = node.value(0), node.optional(1), node.value(2), node.value(3)
    rows = (*ids.shape, tokens.shape[-1])
    total = node.asked(2) or node.temporary(rows, tokens.dtype)
    node.emit("embedding", total, weight=tokens, indices=ids)
    positions = node.optional(8)
    if positions is None:  # the first rows, the same for every sample
        fetched = places.view((ids.shape[-1], places.shape[-1]), places.strides)
    else:
        fetched = node.temporary((*positions.shape, places.shape[-1]), places.dtype)
        node.emit("embedding", fetched, weight=places, indices=positions)
    node.emit("add", total, self=total, other=fetched)
    if segments is not None:
        kind = node.temporary(rows, tokens.dtype)
        node.emit("embedding", kind, weight=node.value(4), indices=segments)
        node.emit("add", total, self=total, other=kind)
    outputs = [node.output(), *(node.temporary((*ids.shape, 1), "fp32") for _ in range(2))]
    node.emit("native_layer_norm", outputs, input=total, weight=node.value(5), bias=node.value(6))
    mask, lengths = node.optional(7), node.asked(1)
    if mask is not None and lengths is not None:
        node.emit("sum", lengths, self=mask)


@operator(
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    "com.microsoft.SimplifiedLayerNormalization",
    "com.microsoft.SkipSimplifiedLayerNormalization",
)
def rms_norm(node: Node) -> None:
    skipping = "Skip" in node.key
    inputs = _with_skipped(node) if skipping else node.value(0)
    statistic = _row_statistic(node, inputs, 2 if skipping else 1)
    node.emit("_fused_rms_norm", [node.output(), statistic], input=inputs, weight=node.value(2 if skipping else 1))


def _with_skipped(node: Node) -> GraphValue:
    """The sum of input, skip connection and bias, which is normalized; it is the fourth output."""
    inputs, skip = node.value(0), node.value(1)
    total = node.asked(3) or node.temporary(inputs.shape, inputs.dtype)
    node.emit("add", total, self=inputs, other=skip)
    bias = node.optional(3 if "Simplified" in node.key else 4)
    if bias is not None:
        node.emit("add", total, self=total, other=bias)
    return total


def _row_statistic(node: Node, inputs: GraphValue, place: int) -> GraphValue:
    """One number per row: an output where the graph asks for it."""
    rank = len(inputs.shape)
    axis = node.integer("axis", -1) % max(1, rank)
    return node.asked(place) or node.temporary((*inputs.shape[:axis], *(1,) * (rank - axis)), "fp32")


@operator("GroupNormalization")
def group_norm(node: Node) -> None:
    inputs = node.value(0)
    groups = (inputs.shape[0], node.integer("num_groups", 1))
    outputs = [node.output(), *(node.temporary(groups, "fp32") for _ in range(2))]
    node.emit("native_group_norm", outputs, input=inputs, weight=node.value(1), bias=node.value(2))


@operator("LpNormalization")
def vector_norm(node: Node) -> None:
    inputs, out = node.value(0), node.output()
    axis = node.integer("axis", -1) % max(1, len(inputs.shape))
    norm = node.temporary((*inputs.shape[:axis], 1, *inputs.shape[axis + 1 :]), inputs.dtype)
    node.emit("linalg_vector_norm", norm, self=inputs)
    node.emit("div", out, self=inputs, other=norm)


@operator("LRN")
def local_response_norm(node: Node) -> None:
    """x / (bias + alpha / size times the sum of squares of neighbouring channels) ^ beta, as PyTorch takes it apart."""
    inputs, out = node.value(0), node.output()
    square, mean = (node.temporary(inputs.shape, inputs.dtype) for _ in range(2))
    node.emit("mul", square, self=inputs, other=inputs)
    node.emit("avg_pool3d", mean, self=square, kernel_size=(node.integer("size", 1), 1, 1))
    node.emit("mul", mean, self=mean, other=node.number("alpha", 0.0001))
    node.emit("add", mean, self=mean, other=node.number("bias", 1.0))
    node.emit("pow", mean, self=mean, exponent=node.number("beta", 0.75))
    node.emit("div", out, self=inputs, other=mean)


@operator("MeanVarianceNormalization")
def standardized(node: Node) -> None:
    """(x - mean) / deviation, along all axes but the channels unless others are named."""
    inputs, out = node.value(0), node.output()
    axes = {axis % max(1, len(inputs.shape)) for axis in node.integers("axes") or (0, 2, 3)}
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(inputs.shape))
    variance, mean = (node.temporary(kept, inputs.dtype) for _ in range(2))
    node.emit("var_mean", [variance, mean], self=inputs)
    node.emit("sub", out, self=inputs, other=mean)
    node.emit("sqrt", variance, self=variance)
    node.emit("div", out, self=out, other=variance)


@operator("Softmax", "LogSoftmax")
def softmax(node: Node) -> None:
    name = "_softmax" if node.key == "Softmax" else "_log_softmax"
    node.emit(name, node.like(node.value(0)), self=node.value(0), dim=node.integer("axis", -1))


@operator(*OF_FIRST_INPUT)
def of_first_input(node: Node) -> None:
    node.emit(OF_FIRST_INPUT[node.key], node.output(), self=node.value(0))


@operator("ReduceSumSquare")
def sum_of_squares(node: Node) -> None:
    inputs = node.value(0)
    square = node.temporary(inputs.shape, inputs.dtype)
    node.emit("mul", square, self=inputs, other=inputs)
    node.emit("sum", node.output(), self=square)


@operator("ReduceLogSum")
def log_of_sum(node: Node) -> None:
    out = node.output()
    node.emit("sum", out, self=node.value(0))
    node.emit("log", out, self=out)


@operator("TopK")
def topk(node: Node) -> None:
    node.emit("topk", node.made, self=node.value(0))


@operator("MaxPool", "AveragePool")
def pool(node: Node) -> None:
    """PyTorch pools rows as images of height 1. Indices are written where the graph asks for them."""
    kernel = node.integers("kernel_shape")
    name = "max_pool" if node.key == "MaxPool" else "avg_pool"
    indexed = "_with_indices" if name == "max_pool" and (len(node.made) > 1 or len(kernel) == 3) else ""
    node.emit(
        f"{name}{max(2, len(kernel))}d{indexed}",
        node.made,
        self=node.value(0),
        kernel_size=(1, *kernel) if len(kernel) == 1 else kernel,
        stride=node.integers("strides") or (1,) * len(kernel),
    )


@operator("Resize", "Upsample")
def resize(node: Node) -> None:
    inputs, out = node.value(0), node.output()
    if inputs.shape == out.shape:
        node.becomes(0, inputs)
        return
    mode, spatial = node.text("mode", "nearest"), len(inputs.shape) - 2
    smooth = "_aa" if node.integer("antialias") else ""
    if mode == "nearest":
        name = f"upsample_nearest{spatial}d"
    else:
        known = INTERPOLATIONS.get((mode, spatial))
        name = node.key if known is None else f"_{known}{smooth}" if smooth else known
    node.emit(name, out, self=inputs, output_size=out.shape[2:])


@operator("GridSample")
def grid_sample(node: Node) -> None:
    """Only the bilinear (trilinear) kernels have a formula."""
    inputs, grid, out = node.value(0), node.value(1), node.output()
    plain = node.text("mode", "linear") in ("linear", "bilinear")
    node.emit(f"grid_sampler_{len(inputs.shape) - 2}d" if plain else node.key, out, input=inputs, grid=grid)


def axes_of(node: Node, position: int) -> tuple[int, ...] | None:
    """Axes as an input (newer versions) or an attribute (older ones); None where they are not known."""
    if node.optional(position) is None:
        return node.integers("axes")
    axes = integers(node.optional(position))
    return None if axes is None else tuple(axes)
