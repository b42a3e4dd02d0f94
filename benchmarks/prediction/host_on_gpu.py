"""Ask where the host's time goes: the same calls in a row, in a small model, in whole models; one line of JSON each.

    PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/host_on_gpu.py $OUT
    PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/host_on_gpu.py $OUT --training 35

`--training` asks how long the host takes to issue forward, backward and optimizer of training steps in autocast, with
images so small that the device is ready sooner: of models by which nothing is judged, and of layers in a row. Then it
times forward and backward on the device, at batch 64, as they are and with a pause before each, in which the host gets
so far ahead that the device never waits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from rooflens.sources.calibrate.host_costs import host_costs, small_layer

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


TRAINED = (
    *("resnet50", "vit_b_16", "densenet121", "vgg16", "mobilenet_v3_large", "convnext_tiny", "regnet_y_3_2gf"),
    *("swin_t", "efficientnet_b0", "googlenet", "resnext50_32x4d", "shufflenet_v2_x1_0", "wide_resnet101_2"),
    *("resnet18", "mnasnet1_0", "regnet_x_1_6gf", "swin_v2_s", "maxvit_t", "efficientnet_b1", "vgg11"),
)
SIDE = {"vit_b_16": 224, "swin_t": 224, "swin_v2_s": 256, "maxvit_t": 224}
"""Pixels of models that take no small images."""
WIDTH, DEEP = 32, 20
"""Channels of a layer in a row, and how many are in a row."""


class Row(nn.Module):
    """Equal layers, one after the other."""

    def __init__(self, layer: Callable[[], Callable[[torch.Tensor], torch.Tensor]]) -> None:
        super().__init__()
        self.each = [layer() for _ in range(DEEP)]
        self.modules_of_it = nn.ModuleList(each for each in self.each if isinstance(each, nn.Module))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.each:
            x = each(x)
        return x


def layers_in_a_row() -> Iterator[tuple[str, Row, tuple[int, ...]]]:
    """Name, layers and shape of what they are given."""
    image, rows = (2, WIDTH, 8, 8), (2, 16, WIDTH)
    conv = partial(nn.Conv2d, WIDTH, WIDTH, bias=False)
    yield "relu", Row(nn.ReLU), image
    yield "gelu", Row(nn.GELU), rows
    yield "add", Row(lambda: lambda x: x + x), image
    yield "transpose", Row(lambda: lambda x: x.transpose(1, 2)), rows
    yield "linear", Row(partial(nn.Linear, WIDTH, WIDTH)), rows
    yield "linear, no bias", Row(partial(nn.Linear, WIDTH, WIDTH, bias=False)), rows
    yield "convolution 1x1", Row(partial(conv, 1)), image
    yield "convolution 3x3", Row(partial(conv, 3, padding=1)), image
    yield "depthwise", Row(partial(conv, 3, padding=1, groups=WIDTH)), image
    yield "batch norm", Row(partial(nn.BatchNorm2d, WIDTH)), image
    yield "layer norm", Row(partial(nn.LayerNorm, WIDTH)), rows
    yield "attention", Row(lambda: lambda x: F.scaled_dot_product_attention(x, x, x)), (2, 4, 16, WIDTH)
    yield "join, part", Row(lambda: lambda x: torch.cat([x, x], 1)[:, :WIDTH]), image
    yield "by its mean", Row(lambda: lambda x: x * x.mean((2, 3), keepdim=True)), image


def of_training(module: nn.Module, shape: tuple[int, ...], where: str, tries: int = 6) -> dict[str, float]:
    """Seconds until forward, backward and optimizer of a step are issued, the device idle before each."""
    module = module.train().to(where)
    parameters = list(module.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-6, momentum=0.9) if parameters else None
    x, samples = torch.randn(shape, device=where, requires_grad=True), []
    for _ in range(tries + 2):
        marks = []
        for phase in range(3):
            _wait(where)
            begun = time.perf_counter()
            if phase == 0:
                with torch.autocast(where, torch.bfloat16):
                    y = module(x)
                    loss = (y.logits if hasattr(y, "logits") else y).float().sum()
            elif phase == 1:
                loss.backward()
            elif optimizer is not None:
                optimizer.step()
            marks.append(time.perf_counter() - begun)
        module.zero_grad()
        samples.append(marks)
    return {
        name: median(its)
        for name, its in zip(("forward", "backward", "optimizer"), zip(*samples[2:], strict=True), strict=False)
    }


AHEAD = ("wide_resnet101_2", "vgg16", "resnet50", "resnext50_32x4d", "vit_b_16", "mobilenet_v3_large", "vgg11")
PAUSE = 60_000_000
"""Cycles for which the device pauses: 30 ms, more than the host needs to issue a phase of these models."""


def on_the_device(name: str, where: str, tries: int = 3) -> dict[str, list[float]]:
    """Seconds of forward and backward by events, of single steps; and after a pause, so without a host in them."""
    module = torchvision.models.get_model(name, weights=None).train().to(where)
    x, y = torch.randn(64, 3, 224, 224, device=where), torch.randint(0, 1000, (64,), device=where)
    found: dict[str, list[float]] = {}
    for paused in (False, True):
        for number in range(tries + 2):
            module.zero_grad()
            _wait(where)
            begin, middle, end, last = (torch.cuda.Event(enable_timing=True) for _ in range(4))
            if paused:
                torch.cuda._sleep(PAUSE)
            begin.record()
            with torch.autocast(where, torch.bfloat16):
                loss = F.cross_entropy(module(x), y)
            middle.record()
            if paused:
                torch.cuda._sleep(PAUSE)
            end.record()
            loss.backward()
            last.record()
            _wait(where)
            if number > 1:
                kind = ", ahead" if paused else ""
                found.setdefault(f"forward{kind}", []).append(begin.elapsed_time(middle) / 1e3)
                found.setdefault(f"backward{kind}", []).append(end.elapsed_time(last) / 1e3)
    return found


def rows_of_training(where: str, seconds: float) -> Iterator[tuple[str, Any]]:
    """Models and layers in turn with a probe of the host, until the time is over."""
    end = time.monotonic() + seconds
    for name, row, shape in layers_in_a_row():
        yield f"{DEEP} x {name}", of_training(row, shape, where) | {"shape": shape, "layer": small_layer(where)}
    for name in TRAINED:
        if time.monotonic() > end:
            return
        options = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
        module = torchvision.models.get_model(name, weights=None, **options)
        shape = (2, 3, SIDE.get(name, 64), SIDE.get(name, 64))
        before = small_layer(where)
        found = of_training(module, shape, where)
        yield name, found | {"shape": shape, "layer": before, "layer after": small_layer(where)}
        if name in AHEAD and where == "cuda":
            yield f"{name}, on the device", on_the_device(name, where)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--where", default="cuda")
    parser.add_argument("--training", type=float, help="only training, and no longer than these seconds")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    training = given.training is not None
    asked = rows_of_training(given.where, given.training) if training else rows(given.where)
    with (given.out / "host.jsonl").open("w") as file, torch.set_grad_enabled(training):
        for what, found in asked:
            file.write(json.dumps({"what": what, "found": found}) + "\n")
            file.flush()
            print(what, found, flush=True)


if __name__ == "__main__":
    main()
