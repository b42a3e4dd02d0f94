"""Normalisation: batch norms by plane, by channel or with channels last, norms of rows; forward, training and backward.

With fixed statistics and channels first a block takes a plane: bytes, elements, planes per second, and at small batches
the time of one plane. In training a block takes a channel, plane after plane: few channels leave units idle. With
channels last the elements of a position are spread over the channels, so few channels are slow. Norms of rows run a
block for each row, after copies of what does not lie dense; in their backward few blocks go over all rows for the
gradients of weight and bias (profiles on an H200). Other forms and constants: a suite on an H100 (137 calls; cuDNN 9,
torch 2.11).
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CHANNELS_LAST, HALF, CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.copies import dense_copy
from rooflens.predict.effects.streams import moved, stream, stream_share
from rooflens.predict.terms import joined, longest, named
from rooflens.records import Tensor

FEW = 8
"""Channels with which a norm with channels last reaches half of its rate."""
JOIN = 3
"""Exponent of the norm that joins the start of such a kernel with its work."""
SPLIT, COLUMNS = 65_536, 32
"""Rows above which torch shares the gradients of weight and bias among blocks, and columns of a block."""
BLOCKS = 2
"""Blocks that share a unit where each takes a channel."""
TRAINING = 3 / 2
"""Readings and writings of a tensor over those of one pass: statistics first, then the values."""


def norm(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a normalisation or of its gradients."""
    name = piece.call.name
    if piece.compiled and ("batch_norm" in name or "group_norm" in name):
        return _generated(piece, card, name)
    if "batch_norm" in name:
        return _batch_norm(piece, card, name)
    if "layer_norm" in name or "rms_norm" in name:
        return _rows(piece, card, "backward" in name)
    if "group_norm" in name:
        return _groups(piece, card)
    return stream(piece, card)


def _generated(piece: CallOnDevice, card: Card, name: str) -> float:
    """Compiled code splits statistics among all blocks, and then goes over the tensor again; nobody has timed it."""
    fixed = "backward" not in name and "batch_norm" in name and not piece.call.get("training", "no_" not in name)
    passes, kernels = (1.0, 1) if fixed else (TRAINING, 2)
    return kernels * card["stream.start"] + moved(piece, card, stream_share(piece, card), passes)


def _groups(piece: CallOnDevice, card: Card) -> float:
    """Statistics, a block for each group, element after element; then all is scaled: two kernels."""
    inputs = piece.call.tensor("input")
    groups = max(1, inputs.shape[0] * piece.call.integer("group"))
    rounds = max(1.0, groups / card.units)
    statistics = card.of_a_unit(inputs.elements / groups * rounds * card["norm.group"])
    return 2 * card["stream.start"] + named("statistics", statistics) + moved(piece, card, card["norm.planar_share"])


def _rows(piece: CallOnDevice, card: Card, backward: bool) -> float:
    inputs = piece.call.tensor("input")
    kind = "narrow" if piece.narrow else "wide"
    width = max(1, inputs.shape[-1] if inputs.shape else 1)
    rows = inputs.elements / width
    made_dense = dense_copy(inputs, card)
    if backward:
        if isinstance(gradient := piece.call.get("grad_out", piece.call.get("grad_output")), Tensor):
            made_dense += dense_copy(gradient, card)
        return made_dense + _row_gradients(piece, card, rows, width)
    in_unit = named("rows in units", piece.nbytes / card.per_second(f"norm.row_bytes_{kind}"))
    reading = joined(JOIN, moved(piece, card, stream_share(piece, card)), in_unit)
    return made_dense + card["norm.row_start"] + longest(reading, _by_row(rows, card, f"norm.rows_{kind}"))


def _by_row(rows: float, card: Card, rate: str) -> float:
    """Seconds of a block for each row."""
    return named("rows", rows / card.per_second(rate), rows=rows)


def _row_gradients(piece: CallOnDevice, card: Card, rows: float, width: int) -> float:
    """Seconds of two kernels: the gradient of the input; those of weight and bias, where a block takes 32 columns."""
    moving = moved(piece, card, stream_share(piece, card))
    to_input = longest(moving, _by_row(rows, card, "norm.gradient_rows"))
    one_by_one = card.of_a_unit(rows * card["norm.gradient_each"])
    split = rows > SPLIT and width / COLUMNS < card.units / 2
    reading = moving * 2 / 3  # of three tensors it writes none
    to_weight = reading if split else longest(named("row after row", one_by_one, rows=rows), reading)
    return 2 * card["stream.start"] + to_input + to_weight


def _batch_norm(piece: CallOnDevice, card: Card, name: str) -> float:
    inputs = piece.call.tensor("input")
    backward = "backward" in name
    training = backward or bool(piece.call.get("training", "no_" not in name))
    if inputs.memory_format in CHANNELS_LAST or len(inputs.shape) == 2:
        return _channels_last(piece, card, inputs, training, backward)
    if training:
        return card["stream.start"] + longest(
            _by_channel(card, inputs, backward), moved(piece, card, card["norm.planar_share"], TRAINING)
        )
    planes = inputs.shape[0] * inputs.shape[1] if len(inputs.shape) > 1 else 1
    return card["stream.start"] + longest(
        moved(piece, card, card["norm.planar_share"]),
        named("elements", inputs.elements / card.per_second("norm.planar_elements"), elements=inputs.elements),
        named("planes", planes / card.per_second("norm.planes"), planes=planes),
        named("one plane", card.of_a_unit(inputs.elements / max(1, planes) * card["norm.alone"])),
    )


def _channels_last(piece: CallOnDevice, card: Card, inputs: Tensor, training: bool, backward: bool) -> float:
    channels = inputs.shape[1]
    kind = "gradients" if backward else "training" if training else "fixed"
    rate = card.per_second(f"norm.last_{kind}") * channels / (channels + FEW)
    start = card["norm.last_start"] * (2 if training and not backward else 1)
    elements = named("elements", inputs.elements / rate, elements=inputs.elements)
    return joined(JOIN, start, longest(elements, moved(piece, card, card["stream.share_narrow"])))


def _by_channel(card: Card, inputs: Tensor, backward: bool) -> float:
    """A block takes the planes of a channel one after the other."""
    batch, channels = inputs.shape[0], inputs.shape[1] if len(inputs.shape) > 1 else 1
    narrow = inputs.dtype in HALF
    kind = f"{'gradients' if backward else 'training'}_{'narrow' if narrow else 'wide'}"
    plane = inputs.elements / max(1, batch * channels)
    each = plane / card[f"norm.channel_{kind}"]
    each += 0.0 if backward else card["norm.plane_narrow" if narrow else "norm.plane_wide"]
    rounds = max(1.0, channels / (BLOCKS * card.units))
    return named("channels", card.of_a_unit(batch * each * rounds), channels=channels)
