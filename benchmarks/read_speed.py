"""Measure how fast a counter file is read, over the csv module of the standard library on the same file.

    .venv/bin/python benchmarks/read_speed.py [MEGABYTES]

Repeats the launches of a recorded file of each layout until the file is large, each time under new numbers and with
other times and bytes: a kernel that is launched again executes the same instructions, and nothing else stays the same.
Prints for each layout the speed of a bare `csv.reader` and of `rooflens.read`, their ratio and the peak memory per
record, from the least processor time of five runs, taken in turns. Exit code 1 if a ratio is below 0.5.
"""

from __future__ import annotations

import csv
import itertools
import math
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import rooflens as rl

LEAST = 0.5
RUNS = 5
RECORDED = Path(__file__).parents[1] / "tests" / "data" / "ncu"
LAYOUTS = {
    "long": "long_mobilenet_b8_train_fp32_truncated.csv",
    "long, NVTX": "long_alexnet_b4_fp16_nvtx.csv",
    "details": "layouts/details_labels.csv",
    "raw": "raw_resnet18_b32_tf32.csv",
    "raw, NVTX": "raw_alexnet_b4_fp16_nvtx.csv",
}
ROWS_OF_DETAILS = 60
"""What `--set detailed` prints of a launch, about; the recorded file has the rows that are read."""
DOUBLE = '""'
VARYING = ("dram__", "l1tex__t_bytes", "lts__", "gpu__time", "Duration")


def written(path: Path, recorded: Path, size: int) -> int:
    """A file of about `size` bytes: the launches of `recorded` again and again, each under a number of its own."""
    with recorded.open(newline="") as file:
        header, *rows = csv.reader(line for line in file if line.startswith('"'))
    units = rows[:1] if rows[0][0] == "" else []
    launches = list(_launches(header, rows[len(units) :]))
    with path.open("w", newline="") as file:
        file.writelines(map(_line, (header, *units)))
        for turn in itertools.count():
            for place, launch in enumerate(launches):
                number = turn * len(launches) + place
                file.writelines(_line(_varied(header, row, turn, number), len(header)) for row in launch)
            if file.tell() >= size:
                return file.tell()
    return 0


def _line(row: list[str], columns: int = 0) -> str:
    """A row as ncu writes it: every cell in quotes, and nothing after the last comma of a short row."""
    cells = [f'"{cell.replace(DOUBLE[0], DOUBLE)}"' for cell in row]
    if len(row) < columns and not row[-1]:
        cells[-1] = ""
    return ",".join(cells) + "\n"


def _launches(header: list[str], rows: list[list[str]]) -> Iterator[list[list[str]]]:
    for _, launch in itertools.groupby(rows, key=lambda row: row[0]):
        found = list(launch)
        if "Rule Name" in header:
            name, value = header.index("Metric Name"), header.index("Metric Value")
            row = found[0]
            found += [
                [*row[:name], f"Metric {n}", "inst", f"{7 * n}.{n:02}", *row[value + 1 :]]
                for n in range(ROWS_OF_DETAILS)
            ]
        yield found


def _varied(header: list[str], row: list[str], turn: int, number: int) -> list[str]:
    """A row of another launch: its times and bytes differ by up to 10 %."""
    if "Metric Value" in header:
        value = header.index("Metric Value")
        places = [value] if row[header.index("Metric Name")].startswith(VARYING) else []
    else:
        places = [i for i, name in enumerate(header) if name.startswith(VARYING) and name.endswith(".sum")]
    varied = [str(number), *row[1:]]
    for i in places:
        if (digits := row[i].replace(",", "")).isdecimal():
            varied[i] = f"{int(digits) * (1000 + turn % 100) // 1000:,}"
    return varied


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


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
            path, small = Path(folder) / "large.csv", Path(folder) / "small.csv"
            size = written(path, RECORDED / recorded, megabytes * 10**6)
            written(small, RECORDED / recorded, 10**7)
            both = [(seconds(partial(bare, path)), seconds(partial(rl.read, path))) for _ in range(RUNS)]
            plain, ours = (min(times) for times in zip(*both, strict=True))
            worst = min(worst, plain / ours)
            print(
                f"{name}: {size / 1e6:.0f} MB, csv.reader {size / plain / 1e6:.0f} MB/s, rooflens"
                f" {size / ours / 1e6:.0f} MB/s, ratio {plain / ours:.2f}, {memory_per_record(small):.0f} B per record"
            )
    return int(worst < LEAST)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
