"""Measure what an estimate costs: time over torch's FlopCounterMode, memory, ten devices, start of the command line.

    python benchmarks/estimate_cost.py

Prints one line per claim and exits with 1 if one does not hold. Medians of interleaved repeats in one process.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

REPEATS = 15
TEN_DEVICES = (
    "tesla-v100-sxm2-16gb",
    "tesla-t4",
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "a10",
    "l4",
    "l40s",
    "h100-sxm5-80gb",
    "h200-sxm-141gb",
    "instinct-mi300x",
)


def seconds(call: Callable[[], object]) -> float:
    gc.collect()
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def interleaved(*calls: Callable[[], object]) -> list[float]:
    """The median time of each call; calls take turns, so that a busy machine slows all of them alike."""
    for call in calls:
        call()
    samples = [[seconds(call) for call in calls] for _ in range(REPEATS)]
    return [median(column) for column in zip(*samples, strict=True)]


def against_flop_counter(mode: str) -> float:
    """Tracing and costing ResNet-18 at batch 256 over FlopCounterMode on meta tensors, both with the model built."""
    import torch
    import torchvision
    from torch.utils.flop_counter import FlopCounterMode

    from rooflens.costs import cost
    from rooflens.models import find, make_example, make_step
    from rooflens.trace import trace

    blueprint = find("resnet18")
    with torch.device("meta"):
        model = torchvision.models.resnet18()
    example = make_example(blueprint, 256, "meta")
    step = make_step("resnet18", model, example, dtype="fp32", mode=mode, loss=blueprint.loss, optimizer="none")

    def ours() -> None:
        for operation in trace(step).operations:
            cost(operation.call)

    def theirs() -> None:
        with FlopCounterMode(display=False):
            if mode == "train":
                blueprint.loss(model.train()(*example.args), example.targets).backward()
            else:
                model.eval()(*example.args)

    mine, counter = interleaved(ours, theirs)
    print(f"resnet18 batch 256 {mode}: rooflens {mine * 1e3:.1f} ms, FlopCounterMode {counter * 1e3:.1f} ms")
    return mine / counter


def ten_devices_over_one() -> float:
    import rooflens

    one, ten = interleaved(
        lambda: rooflens.estimate("resnet18", batch=256, device=TEN_DEVICES[0]).total().seconds,
        lambda: [
            part.total().seconds for _, _, part in rooflens.estimate("resnet18", batch=256, device=TEN_DEVICES).split()
        ],
    )
    print(f"resnet18 batch 256: one device {one * 1e3:.1f} ms, ten devices {ten * 1e3:.1f} ms")
    return ten / one


MEMORY_PROGRAM = """
import resource, sys
import torch, torchvision, torch._subclasses.fake_tensor, torch.func, rooflens
from rooflens import estimate
import rooflens.trace, rooflens.costs.registry, rooflens.sources.estimate, rooflens.devices
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
before = resident()
estimate("resnet18", batch=256, device="a100-sxm4-40gb").total().seconds
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(max(resident(), peak) - before)
"""


def memory_above_imports() -> float:
    """Bytes resident above the imports after an estimate, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", MEMORY_PROGRAM], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def help_seconds() -> float:
    command = [str(Path(sys.executable).with_name("rooflens")), "--help"]
    return median(seconds(lambda: subprocess.run(command, capture_output=True, check=True)) for _ in range(10))


def main() -> int:
    claims = [
        ("forward over FlopCounterMode", against_flop_counter("inference"), 3.0, "x"),
        ("forward and backward over FlopCounterMode", against_flop_counter("train"), 3.0, "x"),
        ("ten devices over one", ten_devices_over_one(), 1.2, "x"),
        ("resident memory above the imports", memory_above_imports() / 1e6, 100.0, " MB"),
        ("rooflens --help", help_seconds(), 0.25, " s"),
    ]
    for what, value, limit, unit in claims:
        print(f"{'holds' if value <= limit else 'FAILS'}: {what} {value:.3g}{unit} (at most {limit:g}{unit})")
    return int(any(value > limit for _, value, limit, _ in claims))


if __name__ == "__main__":
    sys.exit(main())
