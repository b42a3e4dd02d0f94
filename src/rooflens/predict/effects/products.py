"""Matrix products: tiles, waves and split-K.

The result is cut into tiles. Each unit works on one at a time, so tiles run in waves and the last wave may be mostly
empty. A tile costs its multiply-adds plus a fixed depth (filling the pipeline, writing the result). Where there are
fewer tiles than units, the sum is split and partial sums are added. The library takes the fastest tile; so does this.
Arithmetic and bytes overlap but for their ends: a norm with exponent 3 joins them. Form and depths: a trial on an H100.
Rows that are no whole vectors of 16 bytes cost their bytes at a small share of the bandwidth. Cards that cannot hold
their clock in products (T4, L4) are held back by power: FLOP/s are at most watts / joules, whatever the tiles.
Groups of rows (experts) have a kernel of their own, whose tiles belong to one group each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, prod

from rooflens.predict.call_on_device import HALF, CallOnDevice
from rooflens.predict.card import Card
from rooflens.predict.effects.streams import bytes_time, cached_share, stream
from rooflens.predict.terms import joined, longest, named
from rooflens.records import Call, Tensor

TILES = ((256, 128), (128, 128), (128, 64), (64, 64), (64, 32), (32, 32))
"""Rows and columns of the result that a unit computes at once."""
SPLITS = (1, 2, 4, 8, 16, 32)
"""Parts that a sum may be cut into."""
LEAST_DEPTH = 64
"""Of a sum that is split: shorter parts are not worth their start."""
TENSOR = HALF | {"tf32"}
"""Precisions whose products run on tensor cores."""
FEW_ROWS, MANY_ROWS = (64, 128), (128, 256)
"""Tiles of the kernel for groups (torch's GroupMM.cu, on Hopper): where a group has few rows on average, and many."""
MOST_OF_FEW = 128
"""Rows of a group on average, or columns, up to which the smaller tile is taken."""
SLOWEST = 1e9
"""FLOP/s of a device that tells none."""
ROW = 16
"""Bytes of a vector: kernels on tensor cores load rows in whole ones."""


def product(piece: CallOnDevice, card: Card) -> float:
    """Seconds of a matrix product."""
    if is_grouped(piece.call):
        return grouped(piece, card)
    sizes = product_sizes(piece.call)
    if sizes is None:
        return contraction(piece, card)
    m, n, k, batch = sizes
    fixed = min(piece.weights, piece.nbytes)
    seconds = product_time(card, piece.precision, m, n, k, batch, fixed, piece.nbytes - fixed, piece.held)
    if piece.precision in TENSOR and unaligned(piece.call):
        return longest(seconds, card["product.start"] + unaligned_bytes(piece, card))
    return seconds


def grouped(piece: CallOnDevice, card: Card) -> float:
    """Seconds of the products of groups of rows, each with a matrix of its own; rows are dealt out at random.

    One kernel makes the addresses of all groups, another one walks over their tiles. A group's last tile is half empty
    on average, and one that has few rows has a single tile.
    """
    left, matrices, out = piece.call.tensor("self"), piece.call.tensor("mat2"), piece.call.outputs[0]
    rows, depth = left.shape
    groups, n = matrices.shape[0], out.shape[-1]
    kind, (tall, across) = ("few", FEW_ROWS) if min(rows / groups, n) <= MOST_OF_FEW else ("many", MANY_ROWS)
    hit = groups * (1 - (1 - 1 / groups) ** rows)
    tiles = max(hit, rows / tall + hit / 2) * ceil(n / across)
    one = tall * across * (depth + card[f"product.depth_{_kind(piece.precision)}"])
    per_unit = full_rate(card, piece.precision) * card[f"grouped.{kind}"] / card.units / 2
    computing = max(1.0, tiles / card.units) * one / per_unit
    read = matrices.nbytes * hit / groups
    moving = bytes_time(read, left.nbytes + out.nbytes, piece.nbytes, card, card["grouped.streamed"])
    arithmetic = named("arithmetic", computing, tile=f"{tall}x{across}", tiles=tiles, groups=hit)
    return card["grouped.start"] + joined(card["product.join"], arithmetic, moving)


def unaligned_bytes(piece: CallOnDevice, card: Card) -> float:
    """Seconds of the bytes of a call whose rows are no whole vectors."""
    return named("unaligned bytes", piece.nbytes / (card["product.unaligned"] * card.dram))


def unaligned(call: Call) -> bool:
    """True if rows of an operand or of the result are no whole vectors of 16 bytes, which kernels load."""
    given = (t for _, t in call.arguments if isinstance(t, Tensor) and len(t.shape) > 1 and t.elements)
    return any(
        t.shape and t.shape[-1] > 1 and t.shape[-1] * t.nbytes // t.elements % ROW for t in (*given, *call.outputs)
    )


def contraction(piece: CallOnDevice, card: Card) -> float:
    """Seconds of any other matrix work: a share of the peak, or its bytes."""
    rate = full_rate(card, piece.precision)
    arithmetic = named("arithmetic", piece.matmul_flops / rate, flops=piece.matmul_flops, rate=rate)
    held_back = at_full_power(card, piece.precision, piece.matmul_flops, arithmetic)
    return longest(held_back, stream(piece, card)) + card["product.start"]


def is_grouped(call: Call) -> bool:
    """True of (rows, depth) times (groups, depth, n) in 16 bits: each group of rows has a matrix of its own."""
    if call.name != "_grouped_mm":
        return False
    left, matrices = call.tensor("self"), call.tensor("mat2")
    return len(left.shape) == 2 and len(matrices.shape) == 3 and left.dtype in HALF and matrices.nbytes > 0


@lru_cache(maxsize=20_000)
def product_time(
    card: Card, precision: str, m: int, n: int, k: int, batch: int, cold: float, warm: float, held: float | None
) -> float:
    """Seconds of `batch` products of (m, k) and (k, n) that read some bytes from memory and others maybe from L2."""
    if cold and held is not None:
        kept = cold * cached_share(held, card)
        cold, warm = cold - kept, warm + kept
    moving = bytes_time(cold, warm, cold + warm, card, card["product.streamed"])
    arithmetic = at_full_power(card, precision, 2.0 * batch * m * n * k, tiled(card, precision, m, n, k, batch))
    return card["product.start"] + joined(card["product.join"], arithmetic, moving)


@lru_cache(maxsize=50_000)
def tiled(
    card: Card, precision: str, m: int, n: int, k: int, batch: int = 1, splits: tuple[int, ...] = SPLITS
) -> float:
    """Seconds of the arithmetic of products with the best tile and split."""
    seconds, tile, split, waves = min(_candidates(card, precision, m, n, k, batch, splits))
    best = full_rate(card, precision)
    return named("arithmetic", seconds, tile=f"{tile[0]}x{tile[1]}", split=split, waves=waves, at_best=best)


def _candidates(
    card: Card, precision: str, m: int, n: int, k: int, batch: int, splits: tuple[int, ...]
) -> Iterator[tuple[float, tuple[int, int], int, int]]:
    """Seconds with each tile and split, and in how many waves.

    A unit works on several small tiles at once, up to a rate for all of them.
    """
    per_unit = full_rate(card, precision) / card.units / 2  # multiply-adds of a unit per second
    depth = card[f"product.depth_{_kind(precision)}"] * _slowed(card, precision)
    adding = card["product.partial"] * 2 / card.per_second("stream.cached")
    lone = card["product.lone_fp32"] if _kind(precision) == "fp32" else 1.0
    for wide, thin, alone, together in tiles_of(card):
        tiles = batch * min(ceil(m / wide) * ceil(n / thin), ceil(m / thin) * ceil(n / wide))
        for split in splits:
            waves = ceil(tiles * split / card.units)
            one = wide * thin * (k / split + depth) / per_unit
            extra = split * batch * m * n * adding if split > 1 else 0.0
            yield max(one / min(1.0, alone * lone), waves * one / together) + extra, (wide, thin), split, waves
            if tiles * split >= 2 * card.units or k // (2 * split) < LEAST_DEPTH:
                break


def _slowed(card: Card, precision: str) -> float:
    """The rate of a unit over that of its generation: what a tile costs besides its products takes no longer by it.

    Cards for games multiply 16-bit elements at half rate when they add in fp32.
    """
    full = card["product.unit_half"] * {"tf32": 0.5}.get(precision, float(precision in HALF))
    return min(1.0, full_rate(card, precision) / card.cycles / full) if full else 1.0


@lru_cache(maxsize=256)
def tiles_of(card: Card) -> tuple[tuple[int, int, float, float], ...]:
    """Height and width of each tile, and the share of the full rate of one in a unit, and of several."""
    return tuple((w, t, card[f"tile.alone_{w}x{t}"], card[f"tile.together_{w}x{t}"]) for w, t in TILES)


@lru_cache(maxsize=512)
def full_rate(card: Card, precision: str) -> float:
    """FLOP/s of products with the largest tile, at the full clock: a share of the peak."""
    peak = card.rates.get(f"matmul.{precision}") or max(card.rates.get("vector.fp32", 0.0), SLOWEST)
    return peak * card[f"product.rate_{_kind(precision)}"]


def at_full_power(card: Card, precision: str, flops: float, arithmetic: float) -> float:
    """Seconds of the arithmetic, or of its energy at the card's power: then the clock falls.

    Units that wait take no power, so no tiles or waves make that longer.
    """
    if not card.power:
        return arithmetic
    joules = card["product.joules_fp32" if _kind(precision) == "fp32" else "product.joules_half"]
    return longest(arithmetic, named("power", flops * joules / card.power, flops=flops))


def _kind(precision: str) -> str:
    """The constants that a precision shares."""
    if precision in HALF:
        return "half"
    if precision == "tf32":
        return "tf32"
    return "int8" if precision in ("int8", "fp8", "fp4", "int4") else "fp32"


def product_sizes(call: Call) -> tuple[int, int, int, int] | None:
    """Rows, columns, depth and number of the products of a call; None of one that is no plain product."""
    if not call.outputs or call.name.startswith(("_trilinear", "linalg", "_euclidean", "affine", "grouped")):
        return None
    tensors = [value for _, value in call.arguments if isinstance(value, Tensor)]
    biased = call.name.startswith(("addmm", "_addmm", "baddbmm", "addmv")) and len(tensors) > 2
    first, out = tensors[1 if biased else 0], call.outputs[0]
    if not first.shape or not out.shape:
        return (1, 1, first.shape[-1] if first.shape else 1, 1)
    m, n = (out.shape[-2], out.shape[-1]) if len(out.shape) > 1 else (out.shape[-1], 1)
    return max(1, m), max(1, n), max(1, first.shape[-1]), max(1, prod(out.shape[:-2]))
