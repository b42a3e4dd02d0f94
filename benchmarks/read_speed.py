"""How fast a counter file is read, against the csv module of the standard library on the same file.

    .venv/bin/python benchmarks/read_speed.py [MEGABYTES]

Repeats the launches of a recorded file of each layout under new numbers until the file is large, and prints for each
the speed of a bare `csv.reader`, that of `rooflens.read`, their ratio and the peak memory per record; the best of
three runs. Exit code 1 if a ratio is below 0.5.
"""

from __future__ import annotations

import csv
import itertools
import math
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import rooflens as rl

LEAST = 0.5
RECORDED = Path(__file__).parents[1] / "tests" / "data" / "ncu"
LAYOUTS = {"long": "long_mobilenet_b8_train_fp32_truncated.csv", "raw": "raw_resnet18_b32_tf32.csv"}


def written(path: Path, recorded: Path, size: int) -> int:
    """A file of about `size` bytes: the launches of `recorded` again and again, each under a number of its own."""
    lines = recorded.read_text().splitlines(keepends=True)
    header = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    begin = header + (2 if lines[header + 1].startswith('"",') else 1)
    rows = [(int(number.strip('"')), rest) for number, _, rest in (line.partition(",") for line in lines[begin:])]
    launches = rows[-1][0] + 1
    total = 0
    with path.open("w") as file:
        file.writelines(lines[:begin])
        for turn in itertools.count():
            total += sum(file.write(f'"{turn * launches + number}",{rest}') for number, rest in rows)
            if total >= size:
                return total
    return total


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def bare(path: Path) -> int:
    with path.open(newline="") as file:
        return sum(1 for _ in csv.reader(file))


def memory_per_record(path: Path) -> float:
    tracemalloc.start()
    records = rl.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / len(records)


def main(megabytes: int) -> int:
    worst = math.inf
    with tempfile.TemporaryDirectory() as folder:
        for name, recorded in LAYOUTS.items():
            path, small = Path(folder) / f"{name}.csv", Path(folder) / f"{name}_small.csv"
            size = written(path, RECORDED / recorded, megabytes * 10**6)
            written(small, RECORDED / recorded, 10**7)
            plain = min(seconds(lambda path=path: bare(path)) for _ in range(3))  # type: ignore[misc]
            ours = min(seconds(lambda path=path: rl.read(path)) for _ in range(3))  # type: ignore[misc]
            worst = min(worst, plain / ours)
            print(
                f"{name}: {size / 1e6:.0f} MB, csv.reader {size / plain / 1e6:.0f} MB/s, rooflens"
                f" {size / ours / 1e6:.0f} MB/s, ratio {plain / ours:.2f}, {memory_per_record(small):.0f} B per record"
            )
    return int(worst < LEAST)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
