"""Measures how fast the host launches, and returns its constants: those of a reference host, scaled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

from rooflens.predict import generation
from rooflens.predict.constants import GENERAL

TIMES, TRIES = 40, 15
"""Calls in a row, and how often: the host waits for the device in between."""
RATIOS = frozenset({"host.layer", "host.gradients", "host.thread", "host.recording", "host.share_backward"})
"""Constants of the host that do not scale with it."""


def host_costs(where: str, now: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Return the constants ``host.*`` of this machine.

    What single operations cost in a row tells little of what they cost in a model, where nothing of them is in a cache:
    a ResNet-50 took 2.4 times the sum of its parts. But models and a small layer slow down together: of 23 models and
    two hosts on an H200, times over that of the layer differed by 10 to 14 % (benchmarks/prediction).
    """
    known = generation(GENERAL).values
    return scaled_host(known, small_layer(where, now), small_gradients(where, now))


def scaled_host(known: Mapping[str, float], layer: float, gradients: float | None = None) -> dict[str, float]:
    """Return the constants of a host by the seconds of a small layer, and of its gradients, which have a thread."""
    scale = layer / known["host.layer"]
    found = {name: scale * value for name, value in known.items() if name.startswith("host.") and name not in RATIOS}
    if gradients is not None:
        found["host.thread"] = gradients / known["host.gradients"] / scale
    return found


def small_layer(where: str, now: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a call of a small layer, of several in a row."""
    layer, x = torch.nn.Linear(8, 8, device=where), torch.ones(1, 8, device=where)
    tries = []
    with torch.no_grad():
        layer(x)
        for _ in range(TRIES):
            _wait(where)
            begun = now()
            for _ in range(TIMES):
                layer(x)
            tries.append((now() - begun) / TIMES)
    _wait(where)
    return median(tries)


def small_gradients(where: str, now: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds until backward of a small layer is launched, of several in a row."""
    layer, x = torch.nn.Linear(8, 8, device=where), torch.ones(1, 8, device=where)
    row, tries = torch.nn.Sequential(*(layer for _ in range(TIMES))), []
    for _ in range(TRIES):
        with torch.enable_grad():
            loss = row(x).sum()
        _wait(where)
        begun = now()
        loss.backward()
        tries.append((now() - begun) / TIMES)
    _wait(where)
    return median(tries)


def _wait(where: str) -> None:
    if where == "cuda":
        torch.cuda.synchronize()
