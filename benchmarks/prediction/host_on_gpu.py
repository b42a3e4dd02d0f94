"""Time training steps on a GPU whose host is so far ahead that the device never waits; a line of JSON for each model.

    PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/host_on_gpu.py $OUT

Forward and backward at batch 64 in autocast are timed as they are, and with a pause of the device before each. What a
step takes beyond the sum of its calls is read off these. quiet_on_gpu.py asks how long the host takes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torchvision
from torch.nn import functional as F

from rooflens.sources.calibrate.host_costs import small_layer

AHEAD = ("wide_resnet101_2", "vgg16", "resnet50", "resnext50_32x4d", "vit_b_16", "mobilenet_v3_large", "vgg11")
PAUSE = 60_000_000
"""Cycles for which the device pauses: 30 ms, more than the host needs to issue a phase of these models."""


def on_the_device(name: str, tries: int = 3) -> dict[str, list[float]]:
    """Seconds of forward and backward by events, of single steps; and after a pause, so without a host in them."""
    module = torchvision.models.get_model(name, weights=None).train().to("cuda")
    x, y = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (64,), device="cuda")
    found: dict[str, list[float]] = {}
    for paused in (False, True):
        for number in range(tries + 2):
            module.zero_grad()
            torch.cuda.synchronize()
            begin, middle, end, last = (torch.cuda.Event(enable_timing=True) for _ in range(4))
            if paused:
                torch.cuda._sleep(PAUSE)
            begin.record()
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(module(x), y)
            middle.record()
            if paused:
                torch.cuda._sleep(PAUSE)
            end.record()
            loss.backward()
            last.record()
            torch.cuda.synchronize()
            if number > 1:
                kind = ", ahead" if paused else ""
                found.setdefault(f"forward{kind}", []).append(begin.elapsed_time(middle) / 1e3)
                found.setdefault(f"backward{kind}", []).append(end.elapsed_time(last) / 1e3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "host.jsonl").open("w") as file:
        for name in AHEAD:
            row = {"model": name, "layer": small_layer("cuda"), **on_the_device(name)}
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(row, flush=True)


if __name__ == "__main__":
    main()
