"""The sizes that a calibration tries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

ProductShape = tuple[int, int, int]
"""m, n, k: a product of (m, k) and (k, n)."""
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSizes:
    """The sizes that are tried.

    Attributes:
        products: shapes of the products, each in several layouts; multiples of 128, since odd sizes run slower. The
            smallest tells whether a precision is too slow for the others.
        convolution: batch, channels, height and width, kernel. torch asks oneDNN for its direct algorithm, which on a
            CPU may be faster than a product. None on a card: cuDNN may use Winograd or FFT.
        stream_bytes: size of each array that is streamed through memory.
        stream_caches: an array is at least so many times the last-level cache (STREAM's rule is four).
        working_sets: bytes, for the caches of a core.
        shared_sets: bytes, for the cache that a GPU's cores share; below 4 MiB the rate depends on which of its slices
            hold the set.
        sweep_bytes: bytes that one trial of a working set reads.
        rounds: of the loops in the kernels for vector and special rates: some milliseconds.
        link_bytes: size of each copy over a link.
        launches: operations in a row, for overheads; fewer than the driver's queue holds.
        compiled: whether to build our own kernels.
    """

    products: tuple[ProductShape, ...]
    convolution: tuple[int, int, int, int] | None = None
    stream_bytes: int
    stream_caches: int = 4
    working_sets: tuple[int, ...]
    shared_sets: tuple[int, ...] = ()
    sweep_bytes: int
    rounds: int
    link_bytes: int = 256 * MIB
    launches: int = 500
    compiled: bool = True


def _doubling(first: int, last: int) -> tuple[int, ...]:
    """`first`, and its doubles up to `last`."""
    return tuple(first << n for n in range((last // first).bit_length()))


CPU = TrialSizes(
    products=((256,) * 3, (1024,) * 3, (2048,) * 3, (3072,) * 3, (4096, 1024, 2048), (512, 4096, 1024)),
    convolution=(16, 256, 28, 3),
    stream_bytes=256 * MIB,
    working_sets=_doubling(4 * KIB, 64 * MIB),
    sweep_bytes=64 * MIB,
    rounds=200_000,
)
CUDA = TrialSizes(
    products=(
        (4096,) * 3,
        (6144,) * 3,
        (8192,) * 3,
        (8192, 4096, 4096),
        (4096, 14336, 4096),
        (8192, 8192, 16384),
        (16384, 8192, 4096),
        (16384,) * 3,
    ),
    stream_bytes=4 * GIB,
    working_sets=_doubling(4 * KIB, 1 * MIB),
    shared_sets=_doubling(4 * MIB, 512 * MIB),
    sweep_bytes=32 * GIB,
    rounds=1000,
)
SIZES: Mapping[tuple[str, bool], TrialSizes] = {
    ("cpu", False): CPU,
    ("cuda", False): CUDA,
    ("cpu", True): replace(
        CPU, products=((256,) * 3, (1024,) * 3, (2048,) * 3), working_sets=_doubling(8 * KIB, 16 * MIB)
    ),
    ("cuda", True): replace(
        CUDA,
        products=((4096,) * 3, (8192,) * 3),
        stream_bytes=2 * GIB,
        working_sets=_doubling(16 * KIB, 512 * KIB),
        shared_sets=_doubling(4 * MIB, 128 * MIB),
    ),
}
"""By device type, and whether it has to be quick."""
SECONDS = {"full": 90.0, "quick": 30.0}
"""Default budget of a calibration."""
