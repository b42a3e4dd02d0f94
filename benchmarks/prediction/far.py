"""Count how many of our own measured times the check by the band would call far outside.

    python -m benchmarks.prediction.far --traces FOLDER

The traces are those of judge.py. A row of the check is a step; here each phase is one too, which is harder.
"""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

from benchmarks.prediction import own_models
from benchmarks.prediction.tables import Judged
from benchmarks.prediction.traces import Traces

from rooflens.checks.expected import FAR, NEAR


def ends(row: Judged) -> tuple[float, float]:
    """The measured time over the lower and over the upper end of the band."""
    return row.measured / (row.low or row.predicted), row.measured / (row.high or row.predicted)


def main() -> None:
    """Print, by what a step waits for, the rows, the nearest to each limit, and those beyond."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True)
    traces = Traces(parser.parse_args().traces)
    sets = (
        own_models.unseen,
        own_models.models_with_graphs,
        own_models.earlier_h200,
        own_models.decoders,
        own_models.processors,
    )
    every = [row for row in chain.from_iterable(rows(traces) for rows in sets) if row.level != "replayed"]
    for regime, limit in FAR.items():
        rows = [row for row in every if row.regime == regime]
        beyond = [row for row in rows if ends(row)[0] < NEAR or ends(row)[1] > limit]
        within = [ends(row) for row in rows if row not in beyond]
        lowest, highest = min(low for low, _ in within), max(high for _, high in within)
        print(f"{regime}: {len(rows)} rows, {lowest:.2f} lower to {highest:.2f} upper ends (limits {NEAR}, {limit})")
        for row in beyond:
            which = f"{row.source} {row.model} {row.mode} {row.batch} {row.level}"
            print(f"  far: {which}: {row.ratio:.2f} times expected")


if __name__ == "__main__":
    main()
