"""The band of a prediction: between which times the measured one lies in 80 of 100 cases.

`bands.toml` has the 10th and 90th percentile of measured over predicted: of steps by level and regime, of operations
by level and family. `benchmarks/prediction/judge.py --bands` makes it; how much it held is counted with models left
out. Errors of one family go together, those of different families do not: the band of some pieces joins those of their
families as independent errors, weighted by their seconds.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from math import hypot
from typing import Literal

from rooflens.predict.constants import Level

Regime = Literal["device-bound", "mixed", "host-bound", "graph", "in turn", "pieces"]
"""What a step waits for: one queue is `LONGER` than the other, or both count. A graph has no host. A processor launches
and computes in turn. Pieces are no step."""
LONGER = 1.6
"""Times the seconds of the other queue from which on a step waits for one alone."""
REST = "other"
"""Families that have no band of their own."""
PROCESSOR_FAMILY = "processor"
"""All families of a processor: too few models were timed on one to tell them apart."""
SHORT = 8e-6
"""Seconds of a kernel, on average, below which a step is one of short kernels: what lies between them counts."""
Band = tuple[float, float]


def kinds(regime: str, mode: str, each: float) -> tuple[str, ...]:
    """Return the names of the bands that suit a step, the most fitting first.

    Args:
        mode: of the step: inference, train, prefill or decode.
        each: seconds of a kernel on average.
    """
    length = "short kernels" if each < SHORT else "long kernels"
    return f"{regime}, {mode}, {length}", f"{regime}, {mode}", regime


def waits_for(device: float, host: float) -> Regime:
    """Return what a step waits for whose queues take so many seconds."""
    return "device-bound" if device > LONGER * host else "host-bound" if host > LONGER * device else "mixed"


def band(
    families: Mapping[str, float], regime: Regime, level: Level, mode: str = "inference", each: float = 1.0
) -> Band:
    """Return the factors between which measured over predicted lies, for seconds by family."""
    steps, table = _bands()[level]
    if regime != "pieces":
        return next(steps[name] for name in kinds(regime, mode, each) if name in steps)
    total = sum(families.values())
    if not total:
        return table[REST]
    low = high = 0.0
    for family, seconds in families.items():
        down, up = table.get(family, table[REST])
        low, high = hypot(low, seconds / total * (1 - down)), hypot(high, seconds / total * (up - 1))
    return 1 - low, 1 + high


@cache
def _bands() -> Mapping[str, tuple[Mapping[str, Band], Mapping[str, Band]]]:
    text = files(__package__).joinpath("bands.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    return {level: (_pairs(its["steps"]), _pairs(its["families"])) for level, its in table.items()}


def _pairs(table: Mapping[str, list[float]]) -> dict[str, Band]:
    return {name: (pair[0], pair[1]) for name, pair in table.items()}
