"""Counted kernels and devices with caches, in numbers that can be followed with a pencil."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.figure_samples import device

from rooflens.records import Case, Ceiling, Device, Record, Timing, Work

CASE = Case(model="report", device="toy-100")
WHERE = ("l1", "l2", "dram")


def cached(dram: float = 1e12, l2: float | None = 4e12, l1: float | None = 1.6e13, **given: Any) -> Device:
    """1 TB/s of memory, 4 of L2 and 16 of L1; one flat of 10 TFLOP/s unless `compute` says otherwise."""
    plain = device(dram=dram, **{"compute": {"vector.fp32": 1e13}} | given)
    rates = {"l2": l2, "l1": l1}
    more = tuple(
        Ceiling(resource=level, rate=rate, silicon="memory", origin="measured", reference="made up for a test")
        for level, rate in rates.items()
        if rate is not None
    )
    return replace(plain, ceilings=plain.ceilings + more)


def kernel(
    name: str = "gemm",
    *,
    flops: float | Mapping[str, float] = 1e9,
    moved: Mapping[str, float] | None = None,
    seconds: float | None = 1e-3,
    case: Case = CASE,
    kind: str = "other",
    **given: Any,
) -> Record:
    """A launch: 1 GFLOP in 1 ms; 400 MB through L1, 100 through L2 and 10 from memory."""
    return Record(
        case=case,
        source="counters",
        scope="kernel",
        kind=kind,
        name=name,
        work=Work(
            flops={"vector.fp32": flops} if isinstance(flops, float) else flops,
            bytes={"l1": 4e8, "l2": 1e8, "dram": 1e7} if moved is None else moved,
            origin="executed",
        ),
        timing=None if seconds is None else Timing(samples=(seconds,), origin="ncu"),
        **given,
    )


def crowd(names: int = 19, launches: int = 3, case: Case = CASE) -> list[Record]:
    """Launches of kernels with long names, all over the plane: the first take most time, every fifth does no FLOP."""
    return [
        kernel(
            f"void some::namespace::a_kernel_with_a_long_name_{i}<float, (int){i}, {'x' * 60}>(int, float const *)",
            flops={} if i % 5 == 4 else 10.0 ** (6 + i % 5) * (1 + i),
            moved={"l1": 1e8 * (1 + i % 7), "l2": 3e7 * (1 + i % 3), "dram": 1e6 * (1 + i % 11)},
            seconds=1e-3 / (1 + i),
            case=case,
            path=f"layers.{i % 14}.block",
        )
        for i in range(names)
        for _ in range(launches)
    ]
