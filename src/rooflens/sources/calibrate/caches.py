"""Cache bandwidth: the same few bytes read again and again, for growing working sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from rooflens.sources.calibrate.kernels import cuda_kernel
from rooflens.sources.calibrate.plan import KIB, MIB
from rooflens.sources.calibrate.trial import Bench, Best, Call, Found, stated
from rooflens.units import show

FALL = 0.85
"""A rate below this part of a level's best belongs to the next level."""
PLACES = 8
SURELY = 0.5
"""Share of L2 that a set may have to stay there: the halves of a large L2 keep copies of each other's lines."""
BLOCK = 256
LOADS = 8
"""Loads in flight per thread, 16 bytes each (kernels.cu)."""
BLOCKS_PER_UNIT = 4
"""All of them run at once, whatever registers they take: a second wave would be a small one."""
_CACHES = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A plateau of the rate over the working set: what one level of memory gives."""

    rate: float
    sizes: tuple[int, ...]


def levels(points: Sequence[tuple[int, float]]) -> list[Level]:
    """The plateaus of a sweep, the nearest level first.

    Args:
        points: working set in bytes and rate, by growing size. The rate rises within a level, since small sets spend
            time on getting started, and falls from one to the next. A size alone, on the slope between two, is none.
    """
    groups: list[list[tuple[int, float]]] = []
    for size, rate in points:
        if groups and rate >= FALL * max(r for _, r in groups[-1]):
            groups[-1].append((size, rate))
        else:
            groups.append([(size, rate)])
    return [
        Level(rate=max(rate for _, rate in group), sizes=tuple(size for size, _ in group))
        for group in groups
        if len(group) > 1
    ]


def core_caches(bench: Bench, seconds: float) -> Found:
    """The ceilings ``l1`` and ``l2`` of a CPU, the caches of its cores, all cores together."""
    sweep = [(size, _again(size, bench)) for size in bench.plan.working_sets]
    found = levels(_timed(sweep, bench, seconds))
    words = f"read again and again by torch.sum, {bench.pinning.threads} threads"
    return _stated(dict(zip(("l1", "l2"), found, strict=False)), words, ("l1", "l2"))


def card_l1(bench: Bench, seconds: float) -> Found:
    """The ceiling ``l1`` of a GPU: every block reads the same set."""
    sweep = [(size, _on_card("read_l1", size, bench)) for size in bench.plan.working_sets]
    found = levels(_timed(sweep, bench, seconds))
    return _stated({"l1": found[0]} if found else {}, "read again and again by every block of a CUDA kernel", ("l1",))


def card_l2(bench: Bench, seconds: float) -> Found:
    """The ceiling ``l2`` of a GPU: all blocks share the set out, past L1.

    Where L2 ends, the rate falls slowly: hits and misses mix. The best of the sets that surely fit is its rate. Which
    slices of L2 hold a set depends on where it lies: each is tried in several places, all taken at once, and the median
    counts, since the luckiest place is another one in each run.
    """
    cache = torch.cuda.get_device_properties().L2_cache_size
    fitting = [size for size in bench.plan.shared_sets if size <= SURELY * cache]
    sweep = [(size, _on_card("read_l2", size, bench)) for _ in range(PLACES) for size in fitting]
    points = _timed(sweep, bench, seconds)
    words = "read again and again by the blocks of a CUDA kernel together, past L1"
    rates = [median(rate for size, rate in points if size == each) for each in fitting]
    best = [Level(rate=max(rates), sizes=tuple(fitting))] if rates else []
    return _stated(dict(zip(("l2",), best, strict=False)), words, ("l2",))


Trial = tuple[float, Call]
"""Bytes that a call reads, and the call."""


def _timed(sweep: Sequence[tuple[int, Trial]], bench: Bench, seconds: float) -> list[tuple[int, float]]:
    return [(size, amount / bench.timer(call, seconds / len(sweep))) for size, (amount, call) in sweep]


def _stated(found: dict[str, Level], words: str, wanted: Sequence[str]) -> Found:
    missing = [level for level in wanted if level not in found]
    return Found(
        rates={
            name: stated(
                Best(rate=level.rate, how=f"best of {_size(level.sizes[0])} to {_size(level.sizes[-1])} {words}")
            )
            for name, level in found.items()
        },
        notes=tuple(f"{level} left out: no plateau over the working sets" for level in missing),
    )


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size % MIB == 0 else f"{size // KIB} KiB" if size % KIB == 0 else show(size, "B")


def _again(size: int, bench: Bench) -> Trial:
    """A sum over rows that are all the same memory."""
    x = torch.empty(size // 4).fill_(0.5)
    rows = max(1, bench.plan.sweep_bytes // size) * bench.pinning.threads
    return float(rows * size), partial(torch.sum, x.expand(rows, x.numel()))


def _on_card(name: str, size: int, bench: Bench) -> Trial:
    blocks = torch.cuda.get_device_properties().multi_processor_count * BLOCKS_PER_UNIT
    per_round = blocks * BLOCK * LOADS * 16
    rounds = max(1, bench.plan.sweep_bytes // per_round)
    data = torch.rand(size // 4, device="cuda")
    out = torch.empty(blocks * BLOCK, device="cuda")
    words = {"grid": (blocks, 1, 1), "block": (BLOCK, 1, 1), "args": [data, out, size // 16, rounds]}
    return float(per_round * rounds), partial(cuda_kernel(name), **words)


def last_level_bytes() -> int:
    """The size of a CPU's last-level caches together, 0 where the system does not tell."""
    found: dict[tuple[int, str], int] = {}
    for entry in _CACHES.glob("cpu[0-9]*/cache/index*"):
        level, shared, size = (
            (entry / name).read_text().strip() if (entry / name).exists() else ""
            for name in ("level", "shared_cpu_list", "size")
        )
        if level.isdigit() and size.endswith("K") and size[:-1].isdigit():
            found[int(level), shared] = int(size[:-1]) * KIB
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last)
