"""What a call costs a processor: one thread launches it and all compute it, so nothing overlaps.

Every call has a start. Elements come from the last-level cache or from memory; functions like exp cost a time for each
element. Products of few rows are slow, and of one row they read their weights. Convolutions (oneDNN) pad channels to
whole vectors and copy the input into blocks of them; a 1x1 kernel computes slower than a wide one. Results too large
for the allocator to keep are new memory each time, and its pages cost more than the work. Forms and general constants:
183 calls on two cores of an EPYC with AVX-512 (benchmarks/prediction).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, prod

from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.pooling import window
from rooflens.predict.effects.products import SLOWEST, product_sizes
from rooflens.predict.terms import longest, named
from rooflens.records import Tensor

LANES = 16
"""Channels of a block: oneDNN pads to whole ones."""
GROUP = 8
"""Channels of a group that are computed at least."""
STEM = 4
"""Most input channels that are not padded."""
FRESH = 32 << 20
"""Bytes from which glibc gives the memory of a result back when it is freed."""


def on_processor(piece: CallOnDevice, card: Card) -> float:
    """Return the seconds of one call on a processor."""
    if not piece.nbytes and not piece.flops:
        return 0.0
    seconds = _COSTS.get(piece.family, _elements)(piece, card)
    new = sum(t.nbytes for t in piece.call.outputs if t.nbytes > FRESH and not piece.call.name.endswith("_"))
    return seconds + named("new memory", new * card["processor.fresh"] / card.dram)


def _elements(piece: CallOnDevice, card: Card) -> float:
    """Bytes, arithmetic, or a time for each element of functions like exp."""
    special = piece.main.elements * card["processor.special"] if "special.fp32" in piece.flops else 0.0
    vector = piece.flops.get("vector.fp32", 0.0) / (card["processor.vector"] * card.rates.get("vector.fp32", card.dram))
    functions, arithmetic = named("functions", special), named("arithmetic", vector)
    return _start(piece, card) + longest(functions, arithmetic, _moved(piece, card))


def _start(piece: CallOnDevice, card: Card) -> float:
    return piece.own * card["processor.start"]


def _moved(piece: CallOnDevice, card: Card) -> float:
    """Seconds of the bytes; what is written where it was read is near. Weights are cold where the step is large."""
    warm = (piece.nbytes - _cold(piece, card)) / (2 if piece.call.name.endswith("_") else 1)
    outside = _outside(warm, card)
    slow = 1 / (card["processor.streamed"] * card.dram)
    moving = named("bytes", warm * (outside * slow + (1 - outside) * slow / card["processor.cached"]))
    return moving + _reading(piece, card)


def _outside(nbytes: float, card: Card) -> float:
    """The share of a working set that the last-level cache has lost: of one twice as large as it, all."""
    return min(1.0, max(0.0, nbytes / card["processor.cache"] - 1.0))


def _cold(piece: CallOnDevice, card: Card) -> float:
    """Bytes of weights that the rest of the step has driven out of the cache."""
    held = piece.nbytes if piece.held is None else piece.held
    return min(piece.weights, piece.nbytes) * _outside(held, card)


def _reading(piece: CallOnDevice, card: Card) -> float:
    """Seconds of weights from memory: read once, in no stream that the hardware foresees."""
    return named("weights", _cold(piece, card) / (card["processor.read"] * card.dram))


def _rate(piece: CallOnDevice, card: Card, share: str) -> float:
    peak = card.rates.get(f"matmul.{piece.precision}") or card.rates.get("vector.fp32", SLOWEST)
    return peak * card[share]


def _product(piece: CallOnDevice, card: Card) -> float:
    sizes = product_sizes(piece.call)
    m, n, k, batch = sizes or (LANES, 1, 1, 1)
    flops = 2.0 * m * n * k * batch if sizes else piece.matmul_flops
    outside = _outside(piece.nbytes, card)
    slow = 1 / (card["processor.read"] * card.dram)
    reading = named("bytes", piece.nbytes * outside * slow) if outside else _reading(piece, card)
    if min(m, n) == 1:
        inside = (1 - outside) * piece.nbytes - (0.0 if outside else _cold(piece, card))
        near = named("bytes in the cache", inside * slow / card["processor.read_cached"])
        return _start(piece, card) + reading + near
    rows = card["processor.few_rows"]
    arithmetic = flops / _rate(piece, card, "processor.product") * (m + rows) / m
    return _start(piece, card) + named("arithmetic", arithmetic, flops=flops) + reading


def _attention(piece: CallOnDevice, card: Card) -> float:
    arithmetic = named("arithmetic", piece.matmul_flops / _rate(piece, card, "processor.attention"))
    return card["processor.start"] + longest(arithmetic, _moved(piece, card))


def _convolution(piece: CallOnDevice, card: Card) -> float:
    call = piece.call
    if not isinstance(call.get("weight"), Tensor) or not isinstance(call.get("input"), Tensor):
        return _product(piece, card)
    inputs, weight = call.tensor("input"), call.tensor("weight")
    result = call.tensor("grad_output") if call.name == "convolution_backward" else call.outputs[0]
    groups, taps = max(1, call.integer("groups")), prod(weight.shape[2:])
    lone = prod(inputs.shape[2:]) == 1
    start = card["processor.pixels" if lone and inputs.shape[0] > 1 else "processor.start_convolution"]
    if lone and inputs.shape[0] == 1:
        start = card["processor.start_lone"]
    flops = piece.matmul_flops * _padded(weight, groups)
    share = "pointwise" if taps == 1 else "convolution"
    if groups > 1:
        share = "depthwise" if weight.shape[1] == 1 else "grouped"
    computing = named("arithmetic", flops / _rate(piece, card, f"processor.{share}"), flops=flops)
    return start + computing + _copied(piece, card, inputs, weight, result)


def _padded(weight: Tensor, groups: int) -> float:
    """FLOP with channels in whole blocks, over those of the call."""
    outer, inner = weight.shape[0] // groups, weight.shape[1]
    if groups > 1:
        return GROUP / min(inner, GROUP) if inner > 1 else 1.0
    return _whole(outer) * (1.0 if inner <= STEM else _whole(inner))


def _whole(channels: int) -> float:
    return ceil(channels / LANES) * LANES / channels


def _copied(piece: CallOnDevice, card: Card, inputs: Tensor, weight: Tensor, result: Tensor) -> float:
    """Seconds of reading the input into blocks, of writing the result, and of weights that are in no cache."""
    per_byte = 1 / (card["processor.cached"] * card["processor.streamed"] * card.dram)
    copied = inputs.nbytes * card["processor.blocks"] + result.nbytes * card["processor.written"]
    return named("blocks", copied * per_byte) + _reading(piece, card)


def _norm(piece: CallOnDevice, card: Card) -> float:
    name = "planes" if "batch_norm" in piece.call.name else "rows"
    elements = named("elements", piece.main.elements * card[f"processor.norm_{name}"])
    return card["processor.start_norm"] + longest(elements, _moved(piece, card))


def _rows(piece: CallOnDevice, card: Card) -> float:
    """Softmax and losses: a time for each element and for each row; sums read theirs."""
    tensor = piece.call.inputs[0]
    if "softmax" not in piece.call.name:
        return card["processor.start_norm"] + _moved(piece, card)
    each = tensor.elements * card["processor.softmax"] + tensor.elements / max(1, piece.row) * card["processor.row"]
    return card["processor.start"] + longest(named("elements and rows", each), _moved(piece, card))


def _pooling(piece: CallOnDevice, card: Card) -> float:
    out, elements = piece.main, window(piece)
    if "max" not in piece.call.name:
        results = named("results", out.elements * elements * card["processor.average"])
        return card["processor.start"] + longest(results, _moved(piece, card))
    results = named("results", out.elements * (card["processor.pool"] + elements * card["processor.tap"]))
    return card["processor.start"] + results


_COSTS: Mapping[str, Callable[[CallOnDevice, Card], float]] = {
    "attention": _attention,
    "convolution": _convolution,
    "loss": _rows,
    "matmul": _product,
    "normalization": _norm,
    "pooling": _pooling,
    "reduction": _rows,
    "softmax": _rows,
}
"""What each family costs; all others move their elements."""
