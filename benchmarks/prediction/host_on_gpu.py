"""Ask where the host's time goes: the same calls in a row, in a small model, in whole models; one line of JSON each.

PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/host_on_gpu.py $OUT
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from rooflens.sources.calibrate.host_costs import host_costs

MODELS = ("resnet50", "vit_b_16", "mobilenet_v3_large", "swin_t", "densenet121")
"""None of those by which predictions are judged."""


def issued(call: Callable[[], object], where: str, times: int = 1, tries: int = 9) -> float:
    """Seconds until `times` calls return, of one; the device is idle before."""
    samples = []
    for _ in range(tries + 2):
        _wait(where)
        begun = time.perf_counter()
        for _ in range(times):
            call()
        samples.append((time.perf_counter() - begun) / times)
    _wait(where)
    return median(samples[2:])


def _wait(where: str) -> None:
    if where == "cuda":
        torch.cuda.synchronize()


def leaves(module: nn.Module, x: torch.Tensor, where: str) -> dict[str, Any]:
    """Seconds of each kind of leaf in a row of its own, with the tensors that it gets in the model, summed."""
    seen: list[tuple[nn.Module, torch.Tensor]] = []
    hooks = [
        leaf.register_forward_hook(lambda m, given, _: seen.append((m, given[0])))
        for leaf in module.modules()
        if not list(leaf.children())
    ]
    module(x)
    for hook in hooks:
        hook.remove()
    total: dict[str, float] = {}
    count: Counter[str] = Counter()
    for leaf, given in seen[:80]:
        kind = type(leaf).__name__
        total[kind] = total.get(kind, 0.0) + issued(partial(leaf, given), where, 20, 3)
        count[kind] += 1
    return {kind: [count[kind], total[kind] / count[kind]] for kind in total}


def rows(where: str) -> Any:
    """What is measured, one after the other."""
    with torch.enable_grad():
        yield "host costs", host_costs(where)
    small = [(nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(40)]
    wide = [(nn.Conv2d(8 + 8 * n, 16 + 8 * n, 3, padding=1, bias=False), nn.BatchNorm2d(16 + 8 * n), nn.ReLU())
            for n in range(40)]  # fmt: skip
    for name, layers, side in (("equal layers", small, 8), ("distinct layers", wide, 14)):
        model = nn.Sequential(*(m for layer in layers for m in layer)).eval().to(where)
        x = torch.randn(1, 8, side, side, device=where)
        for times in (1, 10):
            yield f"{name}, {times} in a row, for each operation", issued(partial(model, x), where, times) / 120
    x, linear = torch.randn(64, 64, device=where), nn.Linear(64, 64, device=where)
    yield "relu, a tensor kept", issued(lambda: F.relu(x), where, 100)
    yield "linear module", issued(lambda: linear(x), where, 100)
    for name in MODELS:
        for kind in (torch.bfloat16, torch.float32):
            module = torchvision.models.get_model(name, weights=None).eval().to(where, kind)
            image = torch.randn(1, 3, 224, 224, device=where, dtype=kind)
            for times in (1, 5):
                yield f"{name} {kind}, {times} in a row", issued(partial(module, image), where, times)
            yield f"{name} {kind}, by leaf", leaves(module, image, where)
            if kind is torch.float32:
                module.train()
                with torch.enable_grad(), torch.autocast(where, torch.bfloat16):
                    both = image.repeat(2, 1, 1, 1)
                    yield f"{name} amp training, forward", issued(partial(module, both), where)
                with torch.enable_grad():
                    yield f"{name} training, forward", issued(partial(module, both), where)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--where", default="cuda")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "host.jsonl").open("w") as file, torch.no_grad():
        for what, found in rows(given.where):
            file.write(json.dumps({"what": what, "found": found}) + "\n")
            file.flush()
            print(what, found, flush=True)


if __name__ == "__main__":
    main()
