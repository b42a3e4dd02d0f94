"""Measure the processor time of a prediction for each operation and device; the goal is 20 us.

python -m benchmarks.prediction.cost
"""

from __future__ import annotations

import time
from statistics import median

import rooflens as rl
from rooflens.predict import card_of, predicted
from rooflens.records import Device

CASES = (("resnet50", "inference"), ("vit_b_16", "train"), ("densenet121", "inference"))
DEVICES = ("h100-sxm", "h200", "a100-sxm4-80gb", "rtx-4090", "tesla-t4")


def main() -> None:
    for model, mode in CASES:
        records = rl.estimate(model, batch=32, dtype="bf16", mode=mode)
        first: list[float] = []
        again: list[float] = []
        for name in DEVICES:
            device: Device = rl.device(name)
            card = card_of(device)
            assert card is not None
            total = records.under(device)
            conduct = records.conduct("eager")
            for kept in (first, again):  # the second time, what equal products cost is known
                begun = time.process_time()
                predicted(total.records, card, conduct)
                kept.append((time.process_time() - begun) / len(total.records))
        print(
            f"{model} {mode}, {len(total.records)} operations: {1e6 * median(first):.1f} us for each and device,"
            f" {1e6 * median(again):.1f} us once more"
        )


if __name__ == "__main__":
    main()
