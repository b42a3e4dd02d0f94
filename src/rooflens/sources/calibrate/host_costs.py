"""Measures what operations cost the host: seconds until a call returns, by kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

TIMES, TRIES = 100, 7
LAYERS = 40
"""Of a model whose time tells how much dearer calls are among others, when nothing of them is in a cache."""
FEW, MANY = 10, 300
"""Tensors in a short and a long list: what a list costs, and what each tensor of it."""


def host_costs(where: str, now: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Return the constants ``host.*`` of this machine: the median of several tries of many calls in a row.

    The operands are small, so the device keeps up and the host never waits for it. A call that is repeated is cheaper
    than the same one among others: all costs are scaled by what a whole model takes.
    """

    def each(call: Callable[[], object]) -> float:
        for _ in range(10):
            call()
        tries = []
        for _ in range(TRIES):
            _wait(where)
            begun = now()
            for _ in range(TIMES):
                call()
            tries.append((now() - begun) / TIMES)
        _wait(where)
        return sorted(tries)[TRIES // 2]

    with torch.no_grad():
        found = {f"host.{kind}": each(call) for kind, call in _calls(where).items()}
    few, many = (each(_scaling(where, count)) for count in (FEW, MANY))
    found["host.tensor"] = max(0.0, many - few) / (MANY - FEW)
    found["host.list"] = max(0.0, few - FEW * found["host.tensor"])
    found["host.backward"] = max(0.0, _backward(where, now) - found["host.operation"])
    dearer = max(1.0, _model(where, now) / _alike(found))
    return {name: dearer * seconds for name, seconds in found.items()}


def _model(where: str, now: Callable[[], float]) -> float:
    """Seconds in which the host runs a model of small layers, each with tensors and modules of its own."""
    layers = [(nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(LAYERS)]
    model = nn.Sequential(*(module for layer in layers for module in layer)).eval().to(where)
    image, tries = torch.ones(1, 8, 8, 8, device=where), []
    with torch.no_grad():
        for _ in range(TRIES + 1):
            _wait(where)
            begun = now()
            model(image)
            tries.append(now() - begun)
    _wait(where)
    return sorted(tries[1:])[TRIES // 2]


def _alike(costs: Mapping[str, float]) -> float:
    """What the same model costs by what its calls cost in a row of equal ones."""
    layer = costs["host.convolution"] + costs["host.normalization"] + costs["host.operation"]
    return LAYERS * layer + (3 * LAYERS + 1) * costs["host.module"]


def _calls(where: str) -> dict[str, Callable[[], object]]:
    x, image = torch.ones(64, 64, device=where), torch.ones(1, 8, 8, 8, device=where)
    kernel, vector = torch.ones(8, 8, 1, 1, device=where), torch.ones(8, device=where)
    heads = torch.ones(1, 4, 16, 32, device=where)
    identity = nn.Identity()
    return {
        "operation": lambda: F.relu(x),
        "convolution": lambda: F.conv2d(image, kernel),
        "normalization": lambda: F.batch_norm(image, vector, vector, vector, vector),
        "matmul": lambda: F.linear(x, x),
        "attention": lambda: F.scaled_dot_product_attention(heads, heads, heads),
        "view": lambda: x.transpose(0, 1),
        "module": lambda: identity(x),
    }


def _scaling(where: str, count: int) -> Callable[[], object]:
    some = [torch.ones(4, device=where) for _ in range(count)]
    return lambda: torch._foreach_mul_(some, 1.0)


def _backward(where: str, now: Callable[[], float]) -> float:
    """Seconds of each operation of a backward pass through a chain of them."""
    tries = []
    for _ in range(TRIES):
        x = torch.ones(64, 64, device=where, requires_grad=True)
        y = x
        for _ in range(TIMES):
            y = F.relu(y)
        total = y.sum()
        _wait(where)
        begun = now()
        total.backward()
        tries.append((now() - begun) / TIMES)
    _wait(where)
    return sorted(tries)[TRIES // 2]


def _wait(where: str) -> None:
    if where == "cuda":
        torch.cuda.synchronize()
