"""Ceilings that a counter file holds itself: what the hardware can do per cycle, times the clock it ran at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from rooflens.records import LEVELS, Ceiling
from rooflens.sources.counters.launches import CounterNames
from rooflens.sources.counters.metrics import tensor_resource
from rooflens.sources.counters.printed_numbers import CounterValue

_SUFFIX = ".sum.peak_sustained"
_LANES = re.compile(r"(?:sm|smsp)__sass_thread_inst_executed_op_([dfh])fma_pred_on")
_PRECISIONS = {"d": ("vector.fp64", 2), "f": ("vector.fp32", 2), "h": ("vector.fp16", 4)}
"""FLOP of one instruction that counts once per thread: hfma at its peak works on two numbers."""
_DENSE = re.compile(r"sm__ops_path_tensor_(?:op_[a-z0-9]+_)?src_([a-z0-9_]+?)(?:_dst_[a-z0-9]+)?_sparsity_off")
_SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
_LEVELS = {
    "dram__bytes": ("dram", 1, "dram__cycles_elapsed.avg.per_second"),
    "lts__t_bytes": ("l2", 1, "lts__cycles_elapsed.avg.per_second"),
    "lts__t_sectors": ("l2", 32, "lts__cycles_elapsed.avg.per_second"),
    "l1tex__t_bytes": ("l1", 1, _SM_CLOCK),
}
"""Of caches those that pass the same tags as the bytes that are counted; NVIDIA's own charts hold others."""


@lru_cache(maxsize=1024)
def has_peaks(names: CounterNames) -> bool:
    """True if some of these counters are peaks."""
    return any(name.endswith(_SUFFIX) for name in names.all)


class Peaks:
    """The ceilings of one chip; the first launch that tells a peak counts."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._rates)

    def see(self, counters: Mapping[str, CounterValue]) -> None:
        """Take the peaks of a launch, each with the clock of its own unit; of tensor operations the dense peak only."""
        for metric, value in counters.items():
            if not metric.endswith(_SUFFIX) or not value:
                continue
            base = metric.removesuffix(_SUFFIX)
            resource, factor, clock = _meaning(base)
            hertz = counters.get(clock)
            if resource is not None and hertz:
                self._rates[resource] = max(self._rates.get(resource, 0.0), factor * value * hertz)

    def ceilings(self, reference: str) -> Iterator[Ceiling]:
        """Give the ceilings, with this reference."""
        for resource, rate in sorted(self._rates.items()):
            silicon = "memory" if resource in LEVELS else "tensor" if resource.startswith("matmul.") else "fma"
            yield Ceiling(
                resource=resource,
                rate=rate,
                silicon=silicon,  # type: ignore[arg-type]
                origin="derived",
                reference=reference,
            )


def _meaning(base: str) -> tuple[str | None, int, str]:
    """The resource of a peak, FLOP or bytes of its unit, and the clock whose cycles it is per."""
    if base in _LEVELS:
        return _LEVELS[base]
    if match := _LANES.fullmatch(base):
        resource, factor = _PRECISIONS[match[1]]
        return resource, factor, _SM_CLOCK
    if match := _DENSE.fullmatch(base):
        return tensor_resource(match[1]), 1, _SM_CLOCK
    return None, 1, _SM_CLOCK
