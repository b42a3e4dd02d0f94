"""Measures cache bandwidth: reads the same few bytes again and again, for growing working sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from rooflens.sources.calibrate.kernels import cuda_kernel
from rooflens.sources.calibrate.trial import Action, Bench, Best, MeasuredRates, rate_of
from rooflens.sources.calibrate.trial_sizes import KIB, MIB
from rooflens.units import show

FALL = 0.85
"""A rate below this share of a level's best belongs to the next level."""
PLACES = 8
SURELY = 0.5
"""A set of at most this share of L2 stays there: the halves of a large L2 keep copies of each other's lines."""
BLOCK = 256
LOADS = 8
"""Loads in flight per thread, 16 bytes each (kernels.cu)."""
BLOCKS_PER_UNIT = 4
"""So few run all at once, whatever registers they take: a second wave would be a small one."""
_CACHES = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """Working sets that are read at one rate: that of one level of memory."""

    rate: float
    sizes: tuple[int, ...]


def plateaus(points: Sequence[tuple[int, float]]) -> list[Plateau]:
    """The plateaus of a sweep, the nearest level first.

    Args:
        points: working set in bytes and rate, by growing size. The rate rises within a level, since small sets spend
            time on starting, and falls from one level to the next. A single size, between two levels, is no plateau.
    """
    groups: list[list[tuple[int, float]]] = []
    for size, rate in points:
        if groups and rate >= FALL * max(r for _, r in groups[-1]):
            groups[-1].append((size, rate))
        else:
            groups.append([(size, rate)])
    return [
        Plateau(rate=max(rate for _, rate in group), sizes=tuple(size for size, _ in group))
        for group in groups
        if len(group) > 1
    ]


def core_caches(bench: Bench, seconds: float) -> MeasuredRates:
    """The ceilings ``l1`` and ``l2`` of a CPU, the caches of its cores, all cores together."""
    sweep = [(size, _again(size, bench)) for size in bench.sizes.working_sets]
    levels = plateaus(_timed(sweep, bench, seconds))
    how = f"read again and again by torch.sum, {bench.pinning.threads} threads"
    return _rates(("l1", "l2"), levels, how)


def card_l1(bench: Bench, seconds: float) -> MeasuredRates:
    """The ceiling ``l1`` of a GPU: every block reads the same set."""
    sweep = [(size, _on_card("read_l1", size, bench)) for size in bench.sizes.working_sets]
    levels = plateaus(_timed(sweep, bench, seconds))
    return _rates(("l1",), levels, "read again and again by every block of a CUDA kernel")


def card_l2(bench: Bench, seconds: float) -> MeasuredRates:
    """The ceiling ``l2`` of a GPU: the blocks divide the set among them, past L1.

    Where L2 ends, the rate falls slowly: hits and misses mix. So the best of the sets that surely fit is its rate. A
    set's address decides which slices of L2 hold it. Each size is tried in several places, allocated at the same time,
    and the median counts: the best place differs from run to run.
    """
    cache = torch.cuda.get_device_properties().L2_cache_size
    fitting = [size for size in bench.sizes.shared_sets if size <= SURELY * cache]
    sweep = [(size, _on_card("read_l2", size, bench)) for _ in range(PLACES) for size in fitting]
    points = _timed(sweep, bench, seconds)
    how = "read again and again by the blocks of a CUDA kernel together, past L1"
    rates = [median(rate for size, rate in points if size == each) for each in fitting]
    return _rates(("l2",), [Plateau(rate=max(rates), sizes=tuple(fitting))] if rates else [], how)


CountedAction = tuple[float, Action]
"""Bytes that an action reads, and the action."""


def _timed(sweep: Sequence[tuple[int, CountedAction]], bench: Bench, seconds: float) -> list[tuple[int, float]]:
    return [(size, amount / bench.timer(call, seconds / len(sweep))) for size, (amount, call) in sweep]


def _rates(wanted: Sequence[str], levels: Sequence[Plateau], how: str) -> MeasuredRates:
    rates = {
        name: rate_of(Best(rate=level.rate, how=f"best of {_size(level.sizes[0])} to {_size(level.sizes[-1])} {how}"))
        for name, level in zip(wanted, levels, strict=False)
    }
    missing = tuple(f"{name} left out: no plateau over the working sets" for name in wanted if name not in rates)
    return MeasuredRates(rates=rates, notes=missing)


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size % MIB == 0 else f"{size // KIB} KiB" if size % KIB == 0 else show(size, "B")


def _again(size: int, bench: Bench) -> CountedAction:
    """A sum over rows that are all the same memory."""
    x = torch.empty(size // 4).fill_(0.5)
    rows = max(1, bench.sizes.sweep_bytes // size) * bench.pinning.threads
    return float(rows * size), partial(torch.sum, x.expand(rows, x.numel()))


def _on_card(name: str, size: int, bench: Bench) -> CountedAction:
    blocks = torch.cuda.get_device_properties().multi_processor_count * BLOCKS_PER_UNIT
    per_round = blocks * BLOCK * LOADS * 16
    rounds = max(1, bench.sizes.sweep_bytes // per_round)
    data = torch.rand(size // 4, device="cuda")
    out = torch.empty(blocks * BLOCK, device="cuda")
    kernel = partial(cuda_kernel(name), grid=(blocks, 1, 1), block=(BLOCK, 1, 1), args=[data, out, size // 16, rounds])
    return float(per_round * rounds), kernel


def last_level_bytes() -> int:
    """Bytes of all last-level caches of a CPU, 0 where the system does not tell."""
    caches: dict[tuple[int, str], int] = {}
    for entry in _CACHES.glob("cpu[0-9]*/cache/index*"):
        level, shared, size = (
            (entry / name).read_text().strip() if (entry / name).exists() else ""
            for name in ("level", "shared_cpu_list", "size")
        )
        if level.isdigit() and size.endswith("K") and size[:-1].isdigit():
            caches[int(level), shared] = int(size[:-1]) * KIB
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)
