"""The band of a prediction: between which times the measured one lies in 80 of 100 cases.

`bands.toml` has the 10th and 90th percentile of measured over predicted, by level and family or regime, of what was
left out of fitting. Errors of one family go together, those of different families do not: a step's band joins the bands
of its families as independent errors, weighted by their seconds; where the host decides, the host's band counts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from math import hypot
from typing import Literal

from rooflens.predict.constants import Level

Regime = Literal["device-bound", "mixed", "host-bound", "graph"]
"""What a step waits for: the device is busy for over 1.6 times the host's time, or the other way round."""
REST = "other"
"""Families that have no band of their own."""


def band(families: Mapping[str, float], regime: Regime, level: Level) -> tuple[float, float]:
    """Return the factors between which measured over predicted lies, for seconds by family."""
    table = _bands()[level]
    if regime == "host-bound":
        return table["host"]
    total = sum(families.values())
    if not total:
        return table[REST]
    low = high = 0.0
    for family, seconds in families.items():
        down, up = table.get(family, table[REST])
        low, high = hypot(low, seconds / total * (1 - down)), hypot(high, seconds / total * (up - 1))
    if regime == "mixed":
        down, up = table["host"]
        low, high = max(low, (1 - down) / 2), max(high, (up - 1) / 2)
    return 1 - low, 1 + high


@cache
def _bands() -> Mapping[str, Mapping[str, tuple[float, float]]]:
    text = files(__package__).joinpath("bands.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    return {level: {name: (pair[0], pair[1]) for name, pair in its.items()} for level, its in table.items()}
