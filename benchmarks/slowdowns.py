"""Measure how often `rooflens compare` calls a step slower, with planted slowdowns in noise of several kinds.

    python benchmarks/slowdowns.py --out benchmarks/results/slowdowns.json

A slowdown of 0 % that is called a difference is a false alarm; one of 1, 3 or 5 % that is not called slower is missed.
Noise is 2 % (log-normal). With one run a side samples are independent, or correlated as under a clock that wanders
(first-order autoregressive). With several runs a side each run is also off by 1 %.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rooflens.compare.statistics import change
from rooflens.compare.uncertainty import LEVEL

NOISE = 0.02
BETWEEN_RUNS = 0.01
SLOWDOWNS = (0.0, 0.01, 0.03, 0.05)
ONE_RUN = tuple((samples, hanging) for hanging in (0.0, 0.5, 0.8) for samples in (20, 50, 200, 1000))
SEVERAL_RUNS = (2, 3, 5, 10)
SAMPLES_OF_A_RUN = 30
SEED = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=1000, help="comparisons per row and slowdown")
    options = parser.parse_args()
    rows = list(_rows(options.repeats))
    options.out.write_text(json.dumps({"repeats": options.repeats, "rows": rows}, indent=1) + "\n")


def _rows(repeats: int) -> Iterator[dict[str, float]]:
    settings = [(1, samples, hanging, 0.0) for samples, hanging in ONE_RUN]
    settings += [(runs, SAMPLES_OF_A_RUN, 0.0, BETWEEN_RUNS) for runs in SEVERAL_RUNS]
    for runs, samples, hanging, between in settings:
        rng = np.random.default_rng(SEED)
        said = {
            slowdown: [_verdict(rng, runs, samples, hanging, between, slowdown) for _ in range(repeats)]
            for slowdown in SLOWDOWNS
        }
        row = {"runs": runs, "samples": samples, "hanging": hanging, "false alarms": _share(said[0.0], 1, -1)}
        row |= {f"{100 * slowdown:g} % found": _share(said[slowdown], 1) for slowdown in SLOWDOWNS[1:]}
        row["undecided"] = _share(said[0.0], None)
        print("  ".join(f"{name} {value:g}" for name, value in row.items()), flush=True)
        yield row


def _verdict(
    rng: np.random.Generator, runs: int, samples: int, hanging: float, between: float, slowdown: float
) -> int | None:
    """1 for slower, -1 for faster, 0 for no difference, None where there is no answer."""
    before = [run(rng, samples, hanging, between) for _ in range(runs)]
    after = [[(1 + slowdown) * value for value in run(rng, samples, hanging, between)] for _ in range(runs)]
    changed = change(before, after)
    significant = changed.significant()
    if significant is None or changed.ratio is None:
        return None
    return (1 if changed.ratio > 1 else -1) if significant else 0


def run(rng: np.random.Generator, samples: int, hanging: float, between: float) -> list[float]:
    """Samples of a run around 1 ms."""
    fresh = rng.normal(size=samples) * math.sqrt(1 - hanging**2)
    wander = np.empty(samples)
    wander[0] = rng.normal()
    for n in range(1, samples):
        wander[n] = hanging * wander[n - 1] + fresh[n]
    return [float(value) for value in 1e-3 * np.exp(NOISE * wander + between * rng.normal())]


def _share(verdicts: Sequence[int | None], *wanted: int | None) -> float:
    return round(sum(verdict in wanted for verdict in verdicts) / len(verdicts), 4)


if __name__ == "__main__":
    print(f"level {LEVEL:g}")
    main()
