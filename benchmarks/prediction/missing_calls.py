"""List the calls of judged steps that no GPU has replayed, the most telling steps first: training, then inference.

    python -m benchmarks.prediction.missing_calls FILE --traces FOLDER
    PYTHONPATH=src:. python3 benchmarks/prediction/on_gpu.py OUT --seconds 95 --calls FILE

FILE has one line for each call, packed with gzip; `on_gpu.py` replays them, and needs neither models nor traces.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.prediction.own_models import H200, replayed_calls
from benchmarks.prediction.profile_on_gpu import SIBLINGS
from benchmarks.prediction.traces import Traces
from benchmarks.prediction.truth_on_gpu import training

from rooflens.devices.files import cache_folder
from rooflens.records import Call
from rooflens.records.calls import to_plain


def steps() -> Iterator[Mapping[str, Any]]:
    """Judged steps of image models on an H200, and training that was profiled."""
    rows = [json.loads(line) for line in (H200 / "truth.jsonl").read_text().splitlines()]
    yield from (row for row in rows if row["mode"] == "train")
    yield from training(SIBLINGS)
    for dtype in ("tf32", "bf16", "fp32"):
        yield from (row for row in rows if row["mode"] == "inference" and row["dtype"] == dtype)


def missing(traces: Traces) -> Iterator[tuple[str, Call, bool]]:
    """Step, call and whether products run in TF32, each call once; first of training, of which the least is missing."""
    known = set(replayed_calls("h200"))
    found: dict[str, list[tuple[Call, bool]]] = {}
    for case in steps():
        tf32 = case["dtype"] == "tf32"
        mine = found.setdefault(f"{case['model']}, {case['mode']}, {case['dtype']}, {case['batch']}", [])
        for record in traces.step(case):
            for call, _ in record.layouts or (((record.call, record.calls),) if record.call is not None else ()):
                if (key := (call, call.layout, tf32)) not in known:
                    known.add(key)
                    mine.append((call, tf32))
    for step, calls in sorted(found.items(), key=lambda item: len(item[1]) if ", train," in item[0] else 1e9):
        yield from ((step, call, tf32) for call, tf32 in calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--traces", type=Path, default=cache_folder() / "prediction-traces")
    given = parser.parse_args()
    count: Counter[str] = Counter()
    with gzip.open(given.file, "wt") as file:
        for step, call, tf32 in missing(Traces(given.traces)):
            count[step] += 1
            file.write(json.dumps({"model": step, "tf32": tf32, "call": to_plain(call)}) + "\n")
    print("\n".join(f"{number:5d} {step}" for step, number in count.items()), sum(count.values()), sep="\n")


if __name__ == "__main__":
    main()
