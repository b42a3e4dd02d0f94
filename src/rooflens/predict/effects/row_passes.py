"""Softmax, losses and reductions: rows that stay in registers, or are read twice where they are long.

Constants: a suite on an H100. Sums over the inner dimensions of many short rows are bound by rows and not by bytes.
Sums over the outer ones (gradients of biases) are cut into parts as torch's Reduce.cuh does, and the block that ends
last adds what the others left, one part after the other: few columns of many rows take long (profiles on an H200).
"""

from __future__ import annotations

from math import ceil, prod

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.routing import CHOOSING, choosing
from rooflens.predict.effects.streams import moved, stream_share
from rooflens.predict.terms import joined, longest, named
from rooflens.records import Tensor

THREADS, PER_UNIT = 512, 2048
"""Threads of a block that reduces, and those that a unit holds."""
WARP = 32
VECTOR = 4
"""Columns that a thread takes at once, where their number allows."""
LEAST_ROWS, MOST_ROWS = 16, 256
"""Rows that a thread adds."""
JOIN = 3
"""Exponent of the norm that joins the time of the memory with that of the units."""
LONG = 4096
"""Elements of a row above which it is read twice."""


def row_passes(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a softmax, a loss or a reduction."""
    if piece.call.name in CHOOSING:
        return choosing(piece, card)
    tensor = piece.call.inputs[0]
    if "softmax" in piece.call.name:
        return card["rows.start"] + _softmax(piece, card, piece.row > LONG)
    seconds = moved(piece, card, card["rows.share"])
    dims = piece.call.get("dim")
    if isinstance(dims, tuple) and dims and tensor.memory_format == "contiguous":
        inner = {int(d) % len(tensor.shape) for d in dims if isinstance(d, int)}
        if inner == set(range(len(tensor.shape) - len(inner), len(tensor.shape))):
            rows = prod(tensor.shape[: -len(inner)])
            seconds = longest(seconds, named("rows", rows / card.per_second("rows.rows"), rows=rows))
    if isinstance(dims, tuple):
        seconds += column_parts(tensor, dims, card) * card["rows.part"]
    return card["rows.start_narrow" if piece.narrow else "rows.start"] + seconds


def _softmax(piece: CallOnDevice, card: Card, long: bool) -> float:
    """Seconds of rows: at the rate of the memory, or of a unit, which has few of them under way at once."""
    moving = moved(piece, card, stream_share(piece, card))
    in_unit = piece.nbytes / card.per_second("rows.row_bytes") / (card["rows.long"] if long else 1.0)
    return joined(JOIN, moving, named("rows in units", in_unit))


def column_parts(tensor: Tensor, dims: tuple[object, ...], card: Card) -> float:
    """Parts that one thread adds at the end of a sum which keeps the innermost dimension; 0 of any other."""
    reduced = {dim % len(tensor.shape) for dim in dims if isinstance(dim, int) and tensor.shape}
    fastest = min(
        (d for d, size in enumerate(tensor.shape) if size > 1),
        key=lambda d: tensor.strides[d] if tensor.strides else -d,
        default=None,
    )
    if not reduced or fastest is None or fastest in reduced:
        return 0.0
    rows = prod(tensor.shape[d] for d in reduced)
    columns = tensor.elements // max(1, rows)
    vector = VECTOR if columns % VECTOR == 0 else 1
    threads, across = THREADS // vector, max(1, columns // vector)
    width = min(_power_of_two(across), WARP)
    height = min(_power_of_two(rows), threads // width)
    each = rows / height
    if each < min(height * LEAST_ROWS, MOST_ROWS):
        return 0.0
    wanted = ceil(card.units * PER_UNIT / threads / ceil(across / width))
    return max(min(wanted, ceil(each / LEAST_ROWS)), ceil(each / MOST_ROWS)) / height


def _power_of_two(number: int) -> int:
    """The largest power of two that is no larger."""
    return 1 << (number.bit_length() - 1)
