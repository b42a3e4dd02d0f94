"""Time language models on this machine's card, and hold each time and each peak of memory against its estimate.

    python benchmarks/measured_decoders.py measure results.ndjson --seconds 480
    python benchmarks/measured_decoders.py measure training.ndjson --seconds 150 --training
    python benchmarks/measured_decoders.py compare results.ndjson --device h100-sxm

`measure` takes whole answers, prefill, decode (eager, from CUDA graphs, with a static cache) and training steps in
bf16, and decode with int8 and fp8 weights: what the file lacks, the most telling ones first, until its time is over.
One worker serves all, and nothing runs beside it: short steps wait for the host. Every line is written as soon as it
is known. `compare` makes the estimates that the file lacks; it needs no card, but the versions of torch and
transformers that ran.
Both end with what they found, and exit with 1 if a time is below its floor.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks import quantised_decoders
from benchmarks.decoder_cases import OF_TRAINING, STATES, Row, cases, expected, tiny, training

from rooflens.errors import RooflensError
from rooflens.machine import find, machine_of
from rooflens.records import Device
from rooflens.results import RecordSet
from rooflens.running.estimating import estimated_here
from rooflens.running.measuring import WorkerMeasurer, measurer_in_workers
from rooflens.runs.options import OPTIONS, Options
from rooflens.runs.run import Request, Run

OF_CASE = (
    *("model", "mode", "seq_len", "prompt_len", "output_len", "batch", "kv_cache", "cuda_graph", "compile"),
    *("optimizer", *OF_TRAINING, "weights", "kernel"),
)
"""What tells two rows apart."""
BUDGET, LIMIT = 0.3, 90.0
CAPTURING = "transformers.utils.import_utils.is_cuda_stream_capturing"


def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in OF_CASE)


def read(path: Path) -> list[Row]:
    """The rows of a file: what is known of each case, of which later lines say more, or anew."""
    rows: dict[tuple[Any, ...], Row] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        rows[key(row)] = rows.get(key(row), {}) | row
    return list(rows.values())


def wanted(asked: Iterable[Row], known: Iterable[Row]) -> list[Row]:
    """The cases that were not measured as they are now, or without a peak; each once, in their order."""
    measured_so = (row for row in known if not was_cut(row))
    whole = {key(row) for row in measured_so if row.get("seconds") and row.get("peak") is not None}
    once: dict[tuple[Any, ...], Row] = {}
    for row in asked:
        once.setdefault(key(row), row)
    return [row for of_case, row in once.items() if of_case not in whole]


def run_of(row: Row) -> Run:
    """The run of a row, in bf16; its weights in fewer bits are for an estimate."""
    given = {name: row[name] for name in OF_CASE if name in row}
    options = Options(**{name: value for name, value in given.items() if name in OPTIONS})
    return Run(model=row["model"], batch=row["batch"], dtype="bf16", mode=row["mode"], options=options)


def measured(measurer: WorkerMeasurer, machine: Any, row: Row) -> Row:
    """Run a step in a worker: its seconds and its peak, or why there are none."""
    (run,) = measurer.runs(Request.of_run(run_of(row)))
    file = measurer(run, machine, BUDGET, lambda _share, _what: None)
    if file.failures:
        return {"error": file.failures[0].message}
    records = RecordSet.of(file)
    peak = None if records.memory is None else records.memory.peak
    found = {"seconds": records.total().measured_seconds, "peak": peak, **of_phases(records, "measured_seconds")}
    found |= {"dense": True} if grows(row) else {}
    left = [note for record in file.records for note in record.notes if "no part of the peak" in note]
    return found | ({"left": left[0]} if left else {})


def of_phases(records: RecordSet, name: str) -> Row:
    """Of a whole answer, the seconds of its prefill and of all its steps of decode."""
    (case,) = records.cases
    if case.mode != "generate":
        return {}
    return {f"{phase} {name}": getattr(records.total(phase), name) for phase in records.phases}


def estimated(row: Row, device: Device) -> Row:
    """The floor of a step, its bound as written, and the peak of its memory; `kept`: what its run keeps beside that."""
    run, kept = run_of(row), 0
    asked = replace(run, options=run.options.of_source("estimate"))
    with patch(CAPTURING, lambda: True) if grows_in_graph(row) else nullcontext():
        made = RecordSet.of(estimated_here(asked, (device,), None))
    if grows_in_graph(row) and made.kv_cache is not None:
        kept = made.kv_cache.held  # a graph reads the old cache at its place, and writes the longer one elsewhere
    if "weights" in row:
        kept = quantised_decoders.kept(asked)
    total, memory = made.total(), made.memory
    written = None if total.written_bound is None else total.written_bound.seconds
    by = f"torch {version('torch')}, transformers {version('transformers')}"
    estimates = {"floor": total.seconds, "as_written": written, "estimated": memory and memory.with_workspace, "by": by}
    return estimates | ({"kept": kept} if kept else {}) | of_phases(made, "seconds")


def grows(row: Row) -> bool:
    """True of a step of decode whose cache grows."""
    return row["mode"] == "decode" and "kv_cache" not in row and row["model"] != STATES


def was_cut(row: Row) -> bool:
    """True if a step found its growing cache cut, which took a quarter more: earlier rows."""
    return grows(row) and not row.get("dense")


def grows_in_graph(row: Row) -> bool:
    """True of a step from a CUDA graph whose cache grows. transformers 5.17 sees the capture: it makes a mask then, for
    which it repeats the heads of keys and values.
    """
    return bool(row.get("cuda_graph")) and grows(row)


def attempt(row: Row, what: Any, *arguments: Any) -> Row:
    """The case of a row, with what came of it."""
    of_case = {name: row[name] for name in OF_CASE if name in row}
    try:
        return {**of_case, **what(*arguments)}
    except RooflensError as error:
        return {**of_case, "error": str(error)}


def measure(out: Path, seconds: float, where: str, asked: Iterable[Row]) -> None:
    """Append rows to `out` until the time is over."""
    end = time.monotonic() + seconds
    with measurer_in_workers(where, limit=LIMIT, fresh=False) as measurer:
        machine = machine_of(measurer.found())
        for row in wanted(asked, read(out)):
            if end - time.monotonic() < expected(row):
                print("no time for", json.dumps(row), flush=True)
                continue
            began = time.monotonic()
            if "weights" in row:
                done = attempt(row, quantised_decoders.measured, run_of(row), row["kernel"], where, BUDGET, LIMIT)
            else:
                done = attempt(row, measured, measurer, machine, row)
            here = {"card": machine.title, "torch": version("torch"), "transformers": version("transformers")}
            append(out, {**done, "wall": round(time.monotonic() - began, 2), **here})


def append(out: Path, row: Row) -> None:
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def compare(out: Path, device: Device, again: str | None = None) -> None:
    """Append the estimates that the file lacks, and anew those of rows that have a key."""
    for row in read(out):
        if row.get("seconds") and ("floor" not in row or again in row):
            append(out, attempt(row, estimated, row, device))


def engine(row: Row) -> str:
    """How the step was run."""
    kept = "static" if "kv_cache" in row else "growing"
    cache = f", {kept} cache" if row["mode"] == "decode" and row["model"] != STATES else ""
    if row["mode"] == "generate":
        cache = f", {kept} cache{', compiled' if 'compile' in row else ''}"
    weights = f", {row['weights']} weights ({row['kernel']})" if "weights" in row else ""
    options = "".join(f", {name} {row[name]}" for name in OF_TRAINING if name in row)
    return ("CUDA graph" if row.get("cuda_graph") else "eager") + cache + weights + options


def span(values: Iterable[float | None], form: str) -> str:
    """The least and the most of some values."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return "–"
    low, high = (format(value, form) if value >= 0.005 else "< 0.01" for value in (known[0], known[-1]))
    return low if low == high else f"{low} to {high}"


def efficiency(row: Row) -> float:
    return float(row["floor"] / row["seconds"])


def peak_ratio(row: Row) -> float | None:
    """The estimated peak, and what the run keeps beside it, over the measured one.

    A graph keeps the cache that it reads beside the longer one; weights in 8 bits that this script makes are there
    beside the embedding that a model uses for its output too.
    """
    whole = row.get("peak") and row.get("estimated")
    return float((row["estimated"] + row.get("kept", 0)) / row["peak"]) if whole else None


def grouped(rows: Iterable[Row], *by: Any) -> list[tuple[tuple[Any, ...], list[Row]]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(one(row) for one in by), []).append(row)
    return list(groups.items())


def compared(path: Path) -> list[Row]:
    """The rows that were measured and estimated."""
    return [row for row in read(path) if row.get("seconds") and row.get("floor")]


def table_of_models(path: Path) -> Iterator[str]:
    """Every model and engine: floor over time, and peaks."""
    rows = sorted(compared(path), key=lambda row: (row["mode"], engine(row), row["model"]))
    below = sum(efficiency(row) > 1 for row in rows)
    yield f"{below or 'None'} of {len(rows)} steps {'is' if below < 2 else 'are'} below the floor."
    yield ""
    yield "| model | step | tokens | batch | rows | floor over time | peak, estimated over measured |"
    yield "|---|---|---|---|---:|---:|---:|"
    for (model, mode, how), some in grouped(rows, lambda r: r["model"], lambda r: r["mode"], engine):
        lengths, batches = (", ".join(map(str, sorted(set(map(of, some))))) for of in (tokens, lambda r: r["batch"]))
        ratios = span(map(efficiency, some), ".2f"), span(map(peak_ratio, some), ".3f")
        yield f"| {model} | {mode}, {how} | {lengths} | {batches} | {len(some)} | {ratios[0]} | {ratios[1]} |"


def tokens(row: Row) -> Any:
    """Tokens of a step, or of prompt and output."""
    return row["seq_len"] if "seq_len" in row else f"{row['prompt_len']} + {row['output_len']}"


def table_of_answers(path: Path) -> Iterator[str]:
    """Whole answers: the first token and each further one, and their floors over time."""
    rows = [row for row in compared(path) if row["mode"] == "generate"]
    yield "| model | engine | tokens | batch | first token | floor over time | per token | floor over time |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for row in rows:
        first, rest = (row[f"{phase} measured_seconds"] for phase in ("prefill", "decode"))
        ratios = span([row["prefill seconds"] / first], ".2f"), span([row["decode seconds"] / rest], ".2f")
        each = rest / (row["output_len"] - 1)
        yield (
            f"| {row['model']} | {engine(row)} | {tokens(row)} | {row['batch']} |"
            f" {first * 1e3:.1f} ms | {ratios[0]} | {each * 1e3:.2f} ms | {ratios[1]} |"
        )


def table_of_regimes(*paths: Path) -> Iterator[str]:
    """Floor over time by engine and regime, all models and cards together."""
    every = [row for path in paths for row in compared(path)]
    rows = sorted(every, key=lambda row: (row["mode"], engine(row), row["batch"]))
    yield "| step | engine | batch | rows | floor over time | median |"
    yield "|---|---|---:|---:|---:|---:|"
    for (mode, how, batch), some in grouped(rows, lambda r: r["mode"], engine, lambda r: r["batch"]):
        ratios = list(map(efficiency, some))
        yield f"| {mode} | {how} | {batch} | {len(some)} | {span(ratios, '.2f')} | {span([median(ratios)], '.2f')} |"


def told(path: Path) -> int:
    """Print what a file says; 1 if a time is below its floor."""
    rows = compared(path)
    for line in (*table_of_models(path), "", *table_of_regimes(path), "", *table_of_answers(path)):
        print(line)
    off = sorted(abs(ratio - 1) for row in rows if (ratio := peak_ratio(row)) is not None)
    if off:
        print(f"peak of {len(off)} rows off by {median(off):.1%} at the median and {off[-1]:.1%} at worst")
    for row in read(path):
        if "error" in row and not row.get("seconds"):
            print("not measured:", json.dumps(row))
    return 1 if any(efficiency(row) > 1 for row in rows) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("measure", "compare"))
    parser.add_argument("results", type=Path)
    parser.add_argument("--seconds", type=float, default=480, help="measure: how long")
    parser.add_argument("--where", default="cuda", help="measure: torch's device type")
    parser.add_argument("--tiny", metavar="CONFIG", help="measure: a small model instead, like hf:config.json")
    parser.add_argument("--training", action="store_true", help="measure: training steps and their options instead")
    parser.add_argument("--only", metavar="KEY", help="measure: cases with this key, like compile")
    parser.add_argument("--without", metavar="KEY", help="measure: no cases with this key, like compile")
    parser.add_argument("--device", help="compare: on which the times were taken")
    parser.add_argument("--again", metavar="KEY", help="compare: also rows with this key, by what is installed here")
    given = parser.parse_args()
    if given.do == "measure":
        small = tiny(given.tiny) if given.tiny and not given.training else None
        steps = training(given.tiny, given.tiny, 16) if given.tiny else training()
        asked = small or (steps if given.training else cases())
        some = [row for row in asked if (given.only is None or given.only in row) and given.without not in row]
        measure(given.results, given.seconds, given.where, some)
    elif given.device is None:
        parser.error("give the --device on which the times were taken")
    else:
        compare(given.results, find(given.device), given.again)
    return told(given.results)


if __name__ == "__main__":
    sys.exit(main())
