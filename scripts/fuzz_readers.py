"""Damage files of every kind that rooflens reads, guided by the branches that the readers take.

    .venv/bin/python scripts/fuzz_readers.py [SECONDS] [--jobs N] [--reader NAME]... [--seed N] [--save]

A fault is any exception but the reader's own error, a call that hangs or needs much time or memory, and a number that
is in no undamaged row of the file: a few lines of csv, json or tomllib check what a reader accepts. The input goes to
`out/fuzz`, and the exit code is 1. Inputs that once were faults lie in `tests/data/fuzz` and are tried first. SECONDS
are per reader; the default of 5 is a smoke test. Each reader has a process of its own, and `--jobs` of them run at
once. `--save` writes the results into `benchmarks/results/fuzz.json` and docs/evidence.md; do that with 600 seconds or
more.

It imports pytest, msgspec, onnx and numpy beside rooflens, and needs no network, no torch and no device.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the parts of this script, when run as a file

from scripts import fuzz_dispatches as dispatches  # noqa: E402
from scripts import fuzz_foreign as foreign  # noqa: E402
from scripts import fuzz_graphs as graphs  # noqa: E402
from scripts import fuzz_oracles as oracles  # noqa: E402
from scripts.fuzzing import Outcome, Reader, fuzz, limit_memory, save  # noqa: E402
from tests import nvprof_samples, rocprof_samples  # noqa: E402

from rooflens.errors import FileError, RooflensError  # noqa: E402

DATA = ROOT / "tests" / "data"
ONCE = DATA / "fuzz"
OUT = ROOT / "out" / "fuzz"
PAGE = ROOT / "docs" / "evidence.md"
RESULTS = ROOT / "benchmarks" / "results" / "fuzz.json"
REFUSED = (FileError,)

NCU_WORDS = (
    *(b"==PROF== ", b"==ERROR== ", b'"ID",', b'"Metric Name"', b'"Metric Unit"', b'"Metric Value"', b"(!) n/a"),
    *(b"byte", b"Mbyte", b"nsecond", b"us", b"inst", b"%", b"dram__bytes.sum", b"gpu__time_duration.sum", b"1.024"),
)
TRACE_WORDS = (
    *(b'"ph": "X"', b'"cat": "kernel"', b'"cat": "cpu_op"', b'"cat": "cuda_runtime"', b'"cat": "user_annotation"'),
    *(b'"ts": ', b'"dur": ', b'"correlation": ', b'"External id": ', b'"Sequence number": ', b'"Fwd thread id": '),
    *(b"NaN", b"-inf", b'"1.5"', b'{"traceEvents": ', b"rooflens:module:a", b"rooflens:phase:forward"),
)
RECORD_WORDS = (
    b'{"type":"record",',
    b'{"type":"case",',
    b'"number":',
    b'"case":0',
    b'"samples":[',
    b'"calls":',
    b'"notes":',
)
FIGURE_WORDS = (
    b"GFLOP",
    b"MB",
    b"MiB",
    b"ms",
    b"FLOP/s",
    b"quantity",
    b"value",
    b"flops",
    b"memory",
    b"forward",
    b"fp32",
)
TOML_WORDS = (
    b"[facts]\n",
    b"[matmul]\n",
    b"[[run]]\n",
    b'"312 TFLOP/s"',
    b'"1555 GB/s"',
    b"value = ",
    b"'''",
    b"1979-05-27",
)
STUDY_WORDS = (
    *(b"models = ", b"devices = ", b"batches = ", b"[[exclude]]\n", b"[[hypothesis]]\n", b"[measure]\n"),
    *(b"[options]\n", b'">= 4"', b'quantity = "time"', b'left = {device = "t4"}', b'right = "10 ms"', b'"5 %"'),
)


@cache
def readers() -> dict[str, Reader]:
    """What reads files, with seeds from the data of the tests. Add yours here.

    "any" finds the reader by what is in the file, and shows and checks what was read.
    """
    ncu = [path.read_bytes() for path in sorted((DATA / "ncu" / "layouts").iterdir())]
    ncu += [oracles.shortened(path.read_bytes(), 5) for path in sorted((DATA / "ncu").glob("*nvtx.csv"))]
    figures = (DATA / "figures.csv").read_bytes().splitlines(keepends=True)
    return {
        "counters": Reader(call=oracles.counters, seeds=ncu, refusals=REFUSED, words=NCU_WORDS),
        "reports": Reader(
            call=oracles.report,
            seeds=oracles.reports(),
            refusals=REFUSED,
            words=(b"NVR\x00", b"\x08\x01", b"Nsight Compute"),
        ),
        "any": Reader(
            call=foreign.any_file, seeds=foreign.any_files(), refusals=(RooflensError,), words=foreign.TIME_WORDS
        ),
        "graphs": Reader(call=graphs.graph, seeds=graphs.graph_files(), refusals=(RooflensError,), words=graphs.WORDS),
        "folders": Reader(
            call=dispatches.folder,
            seeds=rocprof_samples.FOLDERS,
            refusals=REFUSED,
            words=(*rocprof_samples.WORDS, *rocprof_samples.FOLDER_WORDS),
        ),
        "rocprof": Reader(
            call=dispatches.table, seeds=rocprof_samples.FILES, refusals=REFUSED, words=rocprof_samples.WORDS
        ),
        "nvprof": Reader(
            call=foreign.nvprof_logs, seeds=nvprof_samples.FILES, refusals=REFUSED, words=nvprof_samples.WORDS
        ),
        "traces": Reader(call=oracles.trace, seeds=oracles.traces(), refusals=REFUSED, words=TRACE_WORDS),
        "records": Reader(call=oracles.records, seeds=oracles.record_files(), refusals=REFUSED, words=RECORD_WORDS),
        "figures": Reader(
            call=oracles.figures,
            seeds=[b"".join([figures[0], *figures[n : n + 12]]) for n in range(1, len(figures), 12)],
            refusals=REFUSED,
            words=FIGURE_WORDS,
        ),
        "databases": Reader(
            call=foreign.database, seeds=foreign.databases(), refusals=REFUSED, words=foreign.DATABASE_WORDS
        ),
        "rows": Reader(call=foreign.rows, seeds=foreign.row_files(), refusals=REFUSED, words=foreign.ROW_WORDS),
        "roofs": Reader(call=foreign.roof, seeds=foreign.roof_files(), refusals=REFUSED, words=foreign.ROOF_WORDS),
        "times": Reader(
            call=foreign.time_table, seeds=foreign.time_tables(), refusals=REFUSED, words=foreign.TIME_WORDS
        ),
        "studies": Reader(call=oracles.study, seeds=oracles.studies(), refusals=REFUSED, words=STUDY_WORDS),
        "devices": Reader(call=oracles.device, seeds=oracles.device_files(), refusals=REFUSED, words=TOML_WORDS),
    }


def main() -> int:
    asked = _arguments()
    if asked.alone:
        print(json.dumps(asdict(_fuzzed(asked.reader[0], asked.seconds, asked.seed))))
        return 0
    found = 0
    for name, outcome in _outcomes(asked.reader or list(readers()), asked.seconds, asked.seed, asked.jobs):
        found += len(outcome.findings)
        mended = len(list(ONCE.glob(f"{name}-*")))
        print(
            f"{name}: {outcome.inputs} inputs in {outcome.seconds:.0f} s, {outcome.kept} kept, {outcome.branches}"
            f" branches, {len(outcome.findings)} findings, {mended} mended before",
            flush=True,
        )
        if asked.save:
            save(RESULTS, PAGE, name, outcome, mended)
    return int(found > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seconds", nargs="?", type=float, default=5.0)
    parser.add_argument("--reader", choices=list(readers()), action="append", help="default: every one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="readers at once; default: all cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _fuzzed(name: str, seconds: float, seed: int) -> Outcome:
    """Fuzz a reader in this process; what once was a fault is tried first."""
    limit_memory()
    known = readers()[name]
    once = [path.read_bytes() for path in sorted(ONCE.glob(f"{name}-*"))]
    return fuzz(replace(known, seeds=[*once, *known.seeds]), seconds, random.Random(seed), OUT, name)


def _outcomes(names: Sequence[str], seconds: float, seed: int, jobs: int) -> Iterator[tuple[str, Outcome]]:
    """Give what each reader came to in a process of its own, as soon as that ends; one that dies is a finding."""

    def one(name: str) -> tuple[str, Outcome]:
        asked = ["--alone", "--reader", name, "--seed", str(seed), str(seconds)]
        ran = subprocess.run([sys.executable, __file__, *asked], stdout=subprocess.PIPE, text=True, check=False)
        if ran.returncode:
            return name, Outcome(findings=[f"its process ended with exit code {ran.returncode}"])
        return name, Outcome(**json.loads(ran.stdout))

    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(one, name) for name in names]):
            yield future.result()


if __name__ == "__main__":
    sys.exit(main())
