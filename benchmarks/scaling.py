"""Measure how the cost of an estimate grows: linearly with the number of operations, not with their sizes.

    python benchmarks/scaling.py [--most OPERATIONS]

Models of up to 100,000 operations: layers in a row, one layer in a loop, layers that learn, and layers that all differ
(a tenth as many). Prints a table and exits with 1 if the fitted exponent of a kind is above 1.15, or if a
model that is many times as large, with as many operations, takes more than 1.2 times as long.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from benchmarks.estimate_cost import interleaved  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import rooflens as rl  # noqa: E402

MOST_EXPONENT = 1.15
MOST_RATIO = 1.2
SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Shares of the largest number of operations."""


class Loop(nn.Module):
    """One layer, called over and over."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.layer, self.times = nn.Linear(8, 8), times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.layer(x)
        return x


def row(layers: int, widths: int) -> nn.Module:
    """Linear layers of that many different widths, repeated."""
    return nn.Sequential(*(nn.Linear(8 + n % widths, 8 + (n + 1) % widths) for n in range(layers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of model: how it is made with any number of operations, its mode, and its share of the largest number."""

    make: Callable[[int], nn.Module]
    mode: str = "inference"
    share: float = 1.0


KINDS = {
    "layers of 64 shapes": Kind(make=lambda n: row(n, 64)),
    "one layer in a loop": Kind(make=Loop),
    # Four operations: one product forward; backward two, and the sum for the bias.
    "layers of 64 shapes that learn": Kind(make=lambda n: row(n // 4, 64), mode="train"),
    # Nothing is remembered from one operation to the next: torch's fake tensors take ten times as long.
    "layers of which no two are alike": Kind(make=lambda n: row(n, n), share=0.1),
}


def estimated(module: nn.Module, inputs: Any, mode: str = "inference") -> rl.RecordSet:
    found = rl.estimate(module, inputs=inputs, mode=mode, optimizer="none")
    found.total()
    return found


def growth(kind: str, most: int) -> float:
    """The exponent of the time over the number of operations, from all points or, if larger, the last three.

    A constant cost makes the exponent of small models too small.
    """
    chosen = KINDS[kind]
    operations, seconds = [], []
    for share in SIZES:
        with torch.device("meta"):
            module, inputs = chosen.make(round(share * chosen.share * most)), torch.empty(2, 8)
        gc.collect()
        begun = time.process_time()  # not the clock on the wall: a busy machine must not bend the line
        found = estimated(module, inputs, chosen.mode)
        seconds.append(time.process_time() - begun)
        operations.append(found.coverage.operations)
        each = seconds[-1] / operations[-1]
        print(f"{kind:<32} {operations[-1]:>8,} operations {seconds[-1]:8.2f} s {1e6 * each:6.0f} us each", flush=True)
    return max(float(np.polyfit(np.log(operations[n:]), np.log(seconds[n:]), 1)[0]) for n in (0, 2))


def encoder(width: int, tokens: int) -> Callable[[], object]:
    with torch.device("meta"):
        module = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True), 4)
        inputs = torch.empty(1, tokens, width)
    return lambda: estimated(module, inputs, "train")


def size_ratios() -> dict[str, float]:
    """Time of a large model over that of a small one with the same operations."""

    def resnet(batch: int) -> Callable[[], object]:
        return lambda: rl.estimate("resnet18", batch=batch).total()

    pairs = {
        "resnet18, batch 1024 over 1": (resnet(1024), resnet(1)),
        "transformer, width 16384 over 64": (encoder(16384, 128), encoder(64, 128)),
        "transformer, 131072 tokens over 16": (encoder(256, 131072), encoder(256, 16)),
    }
    ratios = {}
    for what, (large, small) in pairs.items():
        slow, quick = interleaved(large, small)
        print(f"{what:<36} {slow * 1e3:7.1f} ms over {quick * 1e3:7.1f} ms")
        ratios[what] = slow / quick
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=100_000, help="operations of the largest model")
    options = parser.parse_args()
    estimated(nn.Linear(2, 2), torch.ones(1, 2), "train")
    claims = [(f"exponent, {kind}", growth(kind, options.most), MOST_EXPONENT) for kind in KINDS]
    claims += [(what, ratio, MOST_RATIO) for what, ratio in size_ratios().items()]
    for what, value, limit in claims:
        print(f"{'holds' if value <= limit else 'FAILS'}: {what} {value:.3f} (at most {limit:g})")
    return int(any(value > limit for _, value, limit in claims))


if __name__ == "__main__":
    sys.exit(main())
