"""Write src/rooflens/reported/right_values.csv from estimates: `.venv/bin/python scripts/right_values.py [MODEL ...]`.

`rooflens check` compares figures of torchvision's models with this table, so that it needs no torch. Every amount of a
phase is ``fixed + per_sample * batch``: three batches are estimated, two solve for both numbers and the third confirms
them. Names that are given replace their own rows; a test compares some of them with fresh estimates.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import rooflens as rl
from rooflens.models import find, make_example
from rooflens.reported.fast_convolutions import fewest_flops
from rooflens.reported.right_values import AMOUNTS, COLUMNS, TABLE
from rooflens.results import Total

BATCHES = (2, 4, 6)


def main(names: Sequence[str]) -> None:
    """Write the rows of `names`, or of all classification models, and keep the others."""
    path = Path(str(TABLE))
    kept = []
    if names and path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            kept = [row for row in csv.DictReader(file) if row["model"] not in names]
    found = [row for name in names or classification_models() for row in rows(name)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*kept, *found], key=lambda row: (row["model"], row["mode"])))
    print(path)


def classification_models() -> list[str]:
    """The names of torchvision's classification models; quantised ones have other names for the same work."""
    import torchvision

    return list(torchvision.models.list_models(module=torchvision.models))


def rows(name: str) -> Iterator[dict[str, object]]:
    """One row per mode and phase."""
    for mode in ("inference", "train"):
        sets = rl.estimate(name, batch=BATCHES, mode=mode)
        cases = [sets.where(batch=batch) for batch in BATCHES]
        for phase in cases[0].phases:
            amounts = [amounts_of(case.total(phase)) for case in cases]
            yield {
                "model": name,
                "image": image_size(name),
                "parameters": cases[0].parameters,
                "mode": mode,
                "phase": phase,
                **{key: value for each in AMOUNTS for key, value in line(name, each, amounts).items()},
                "fewest_share": fewest_share(cases[0].total(phase)),
            }
        print(name, mode, flush=True)


def image_size(name: str) -> int:
    """Height of the images that the estimates took."""
    blueprint = find(name)
    return int(make_example(blueprint, 1, "meta").args[0].shape[-1])


def amounts_of(total: Total) -> dict[str, float]:
    """The amounts of one phase at one batch."""
    traffic = [(r.traffic, r.calls) for r in total.records if r.traffic is not None]
    return {
        "matmul": total.matmul_flops or 0,
        "flops": total.flops or 0,
        "bytes": total.bytes["dram"],
        "weights": sum(t.weights * calls for t, calls in traffic),
        "operations": total.coverage.operations,
    }


def fewest_share(total: Total) -> str:
    """What fast convolutions leave of the matrix FLOP of one phase, rounded down."""
    matmul = total.matmul_flops
    return f"{math.floor(1e4 * fewest_flops(total.records) / matmul) / 1e4 if matmul else 1:.4f}"


def line(name: str, amount: str, found: Sequence[dict[str, float]]) -> dict[str, int]:
    """The straight line through an amount at all `BATCHES`."""
    first, second, third = (each[amount] for each in found)
    slope, rest = divmod(second - first, BATCHES[1] - BATCHES[0])
    fixed = first - slope * BATCHES[0]
    if rest or fixed + slope * BATCHES[2] != third:
        raise SystemExit(f"{name}: {amount} is no straight line over the batch: {first:.0f} {second:.0f} {third:.0f}")
    return {f"{amount}_fixed": int(fixed), f"{amount}_per_sample": int(slope)}


if __name__ == "__main__":
    main(sys.argv[1:])
