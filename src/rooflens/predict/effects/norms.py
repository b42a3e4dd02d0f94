"""Normalisation: batch norms by plane or with channels last, norms of rows; forward, training and backward.

Batch norm with channels first runs a block for each plane: at most 1.65 G planes/s on an H100, and 0.70 of the
bandwidth; with channels last 0.55 to 0.62 of it and never under 6 to 8 us. Norms of rows: a block per row, 0.6 G rows/s
(fp32) or 0.8 G (16 bit). All from a trial on an H100. A batch's statistics take a pass of their own over the input, so
training reads it twice, and backward reads input and gradient twice; what fits L2 is found there by the second pass.
"""

from __future__ import annotations

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import moved, stream

TRAINING, BACKWARD = 3 / 2, 5 / 3
"""Passes over tensors, over those of one pass: in, in, out for in, out; two of gradient and input, and out."""


def norm(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a normalisation or of its gradients."""
    name = piece.call.name
    if "batch_norm" in name:
        return _batch_norm(piece, card, name)
    if "layer_norm" in name or "rms_norm" in name:
        inputs = piece.call.tensor("input")
        rows = inputs.elements / max(1, inputs.shape[-1] if inputs.shape else 1)
        speed = card.per_second("norm.rows_narrow" if piece.narrow else "norm.rows_wide")
        passes = card["norm.row_passes"]
        if "backward" in name:  # the gradients of weight and bias are a kernel of their own
            return card["stream.start"] + 1.3 * passes * max(stream(piece, card), rows / speed)
        return max(passes * stream(piece, card), rows / speed)
    if "group_norm" in name:  # statistics, then scaled: two kernels
        return card["stream.start"] + card["stream.start"] + moved(piece, card, card["norm.planar_share"], TRAINING)
    return stream(piece, card)


def _batch_norm(piece: CallOnDevice, card: Card, name: str) -> float:
    inputs = piece.call.tensor("input")
    times = BACKWARD if "backward" in name else TRAINING if _training(piece) else 1.0
    if inputs.memory_format in ("channels_last", "channels_last_3d"):
        return max(card["norm.last_start"], card["stream.start"] + moved(piece, card, card["norm.last_share"], times))
    planes = inputs.shape[0] * inputs.shape[1] if len(inputs.shape) > 1 else 1
    seconds = max(
        moved(piece, card, card["norm.planar_share"], times),
        times * planes / card.per_second("norm.planes"),
        times * inputs.elements / max(1, planes) * card["norm.alone"] * card.units / card.cycles,
    )
    return card["stream.start"] + seconds


def _training(piece: CallOnDevice) -> bool:
    return bool(piece.call.get("training", "no_" not in piece.call.name))
