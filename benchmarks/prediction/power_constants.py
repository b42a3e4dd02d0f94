"""Read the constants of [power] off products, streams and mixes that ran for a while (power_on_gpu.py).

    python -m benchmarks.prediction.power_constants [FILE]

A mix that became slower drew the limit all the time, so its joules are limit x seconds: products alone, and attention,
tell those of a FLOP. What did not become slower tells what a card draws in any kernel, as a share of the limit. Prints
the constants, and of each mix its seconds at the beginning, those that joules take, and those that it lasted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.prediction.own_models import H200
from benchmarks.prediction.power_on_gpu import Mix, mixes

import rooflens as rl
from rooflens.predict import CallOnDevice, Card, card_of, constants_of
from rooflens.predict.fitting import priced
from rooflens.predict.power import held_back, joules
from rooflens.predict.suite_calls import SuiteCall
from rooflens.records import Call

SLOWER = 1.02
"""Seconds at the end over those at the beginning, from which on a mix was held back."""
SETTLED = 3
"""Readings of the power at the end, when their average has settled."""
Row = Mapping[str, Any]


def pieces(mix: Mix) -> list[tuple[CallOnDevice, int]]:
    """The calls of a mix as the effects see them, with how often each comes."""
    return [(priced(SuiteCall("power", call)), times) for call, times in mix]


def constants(rows: Sequence[Row], by_name: Mapping[str, Mix]) -> dict[str, float]:
    """Joules of a FLOP of products and of attention, and the share of the limit that any kernel draws."""
    each: dict[str, list[float]] = {"product": [], "attention": [], "busy": []}
    for row in rows:
        limit = row["told"][-1][1]
        if row["lasting"] < SLOWER * row["begun"]:
            each["busy"].append(median(told[0] for told in row["told"][-SETTLED:]) / limit)
        elif len(row["calls"]) == 1:
            ((piece, _),) = pieces(by_name[row["mix"]])
            kind = "attention" if piece.family == "attention" else "product"
            each[kind].append(limit * row["lasting"] / piece.matmul_flops)
    return {f"power.{name}": median(values) for name, values in each.items()}


def lasting(row: Row, mix: Mix, alone: Mapping[Call, float], card: Card) -> float:
    """Seconds that a mix takes after a while: those at its beginning, or the joules of its calls over the limit.

    Args:
        alone: seconds of each call at the beginning of a mix that has nothing else.
    """
    energy = sum(times * joules(piece, alone[piece.call], card) for piece, times in pieces(mix))
    return held_back(row["begun"], energy, card)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=H200 / "power.jsonl")
    rows = [json.loads(line) for line in parser.parse_args().file.read_text().splitlines()]
    by_name = dict(mixes())
    values = constants(rows, by_name)
    print(*(f"{name} = {value:.4g}" for name, value in values.items()), sep="\n")
    device = rl.device("h200")
    card = card_of(device, constants_of(device).measured(values, device.name, "these rows"))
    assert card is not None
    alone = {mix[0][0]: row["begun"] for row in rows if len(mix := by_name[row["mix"]]) == 1}
    for row in rows:
        found = lasting(row, by_name[row["mix"]], alone, card)
        print(f"{row['mix']:26} {row['begun']:.6f} {found:.6f} {row['lasting']:.6f} {found / row['lasting'] - 1:+.1%}")


if __name__ == "__main__":
    main()
