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
    """Judged steps of image models on an H200, the latest first, and training that was profiled."""
    rows = [json.loads(line) for line in (H200 / "truth.jsonl").read_text().splitlines()]
    yield from sorted((row for row in rows if row["mode"] == "train"), key=lambda row: -int(row["session"]))
    yield from training(SIBLINGS)
    for dtype in ("tf32", "bf16", "fp32"):
        yield from (row for row in rows if row["mode"] == "inference" and row["dtype"] == dtype)


def missing(traces: Traces) -> Iterator[tuple[str, Call, bool]]:
    """Step, call and whether products run in TF32, each call once."""
    known = set(replayed_calls("h200"))
    for case in steps():
        tf32 = case["dtype"] == "tf32"
        for record in traces.step(case):
            laid = record.layouts or (((record.call, record.calls),) if record.call is not None else ())
            for call, _ in laid:
                key = (call, call.layout, tf32)
                if key not in known:
                    known.add(key)
                    yield f"{case['model']}, {case['mode']}, {case['dtype']}, {case['batch']}", call, tf32


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
