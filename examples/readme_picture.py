"""Draw the picture of the README from recorded times; with --measure, first record them again on this GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import rooflens as rl

MODELS = ("resnet18", "alexnet", "mobilenet_v3_large")
BATCHES = (1, 256)
IMAGES = Path(__file__).parents[1] / "docs" / "images"
TIMES = IMAGES / "roofline.jsonl"
"""Measurements alone: estimates of the same cases are made when the picture is drawn."""


def main() -> None:
    if "--measure" in sys.argv[1:]:
        recorded().save(TIMES)
    times = rl.read(TIMES)
    devices = list(times.devices.values())
    estimates = [rl.estimate(model, batch=BATCHES, device=devices) for model in MODELS]
    print(rl.roofline(*estimates, times).save(IMAGES / "roofline.png"))


def recorded() -> rl.RecordSet:
    """Times of every model at every batch, with the ceilings of the GPU's data sheet."""
    sets = [rl.measure(model, batch=BATCHES, device="cuda") for model in MODELS]
    return sum(sets[1:], start=sets[0])


if __name__ == "__main__":
    main()
