"""Take on a GPU the times by which predictions are judged: 46 image models and 3 language models, nothing estimated.

    PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/truth_on_gpu.py $OUT --seconds 350
    PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/truth_on_gpu.py $OUT --commands

Writes $OUT/truth.jsonl, a line for each case as soon as it is known, the most telling first: whatever cuts it off, what
is there counts. Eager runs and replays of CUDA graphs take turns, and before each turn a probe tells how fast the host
is. `--commands` runs `rooflens calibrate --suite` and `rooflens replay` as a user does, and tells their wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import torch
from benchmarks.prediction.truth_models import AGAIN, BATCHES, DECODERS, MODELS, TRAINING_BATCH

from rooflens.errors import RooflensError
from rooflens.models import Executable, Step, eager, placed, replayed, running, switches
from rooflens.models.construction import build
from rooflens.models.load import make_example, make_step
from rooflens.models.workload import workload_of
from rooflens.runs.options import Options
from rooflens.runs.run import Run
from rooflens.timing import Clock, CudaClock, MonotonicClock

TURNS, MOST = 3, 3
"""Turns of eager runs and replays, and runs in each, fewer where they take long."""
TURN = 0.03
"""Seconds that the runs of a turn may take."""
STEPS = 9
"""Training steps, with a probe of the host before and after each: it may be half as fast from one to the next."""
PROBED = 40
"""Calls of a small operation and of a small module in a probe."""
RESERVED = 80 << 30
"""Bytes above which torch's allocator gives back what it keeps."""

UNCAPTURED = frozenset({"gemma-3-1b"})
"""Models whose step copies from the host: a capture fails, and nothing of the process can be used after that."""

Case = dict[str, Any]


def images(names: tuple[str, ...], dtype: str, sizes: tuple[int, ...]) -> Iterator[Case]:
    """Inference of image models; 16-bit ones have channels last."""
    for model in names:
        for batch in sizes:
            last = dtype == "bf16"
            yield {"model": model, "mode": "inference", "dtype": dtype, "batch": batch, "channels_last": last}


def training(names: tuple[str, ...]) -> Iterator[Case]:
    """Training steps in autocast."""
    for model in names:
        yield {"model": model, "mode": "train", "dtype": "amp-bf16", "batch": TRAINING_BATCH, "optimizer": "sgd"}


def decoding(model: str) -> Iterator[Case]:
    """Prefill and decoding steps of a language model."""
    for length in (512, 2048):
        for batch in (1, 8):
            case = {"model": model, "dtype": "bf16", "batch": batch, "seq_len": length}
            yield {**case, "mode": "decode"}
            yield {**case, "mode": "prefill"}
            yield {**case, "mode": "decode", "kv_cache": "static"}


def parts(models: tuple[str, ...], batches: tuple[int, ...]) -> dict[str, Iterator[Case]]:
    """What is to be measured, the most telling first. Language models run in processes of their own."""
    half = len(models) // 2
    first, second = models[:half], models[half:]
    return {
        "bf16": images(models, "bf16", batches),
        "training": training(first),
        "again": (case for names in (AGAIN, models[:6]) for case in images(names, "bf16", batches)),
        "tf32": images(first, "tf32", batches),
        "decoders": iter(()),
        "fp32": images(first, "fp32", batches[:2]),
        "tf32-2": images(second, "tf32", batches),
        "training-2": training(second),
        "training-again": training(models),
        "fp32-2": images(second, "fp32", batches[:2]),
        "fp32-256": images(models, "fp32", batches[2:]),
    }


class Modules:
    """Modules that are made once, and brought from one element type into the next."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._made: dict[str, torch.nn.Module] = {}

    def step(self, case: Case) -> Step:
        """The step of a case on the device.

        Raises:
            RooflensError: it cannot be made.
        """
        options = {name: case[name] for name in ("seq_len", "kv_cache", "channels_last", "optimizer") if name in case}
        run = Run(
            model=case["model"],
            batch=case["batch"],
            dtype=case["dtype"],
            mode=case["mode"],
            options=Options(**options),
        )
        workload = workload_of(run)
        blueprint = workload.blueprint_of(run)
        if case["model"] not in self._made:
            self._made[case["model"]] = build(blueprint, self._where)
        module = self._made[case["model"]]
        if case["dtype"] != "bf16":
            module = module.float().to(memory_format=torch.contiguous_format)
        step = make_step(
            run.model, module, make_example(blueprint, run.batch, self._where), dtype=run.dtype, mode=run.mode,
            loss=blueprint.loss, optimizer=run.options.optimizer, channels_last=run.options.channels_last,
        )  # fmt: skip
        return placed(step, self._where, copy=False)


def probe(where: str) -> Case:
    """Seconds of the host for a small operation, a small module and its gradients: how fast it is just now."""
    x = torch.ones(64, device=where)
    layer = torch.nn.Linear(8, 8, device=where)
    one = torch.ones(1, 8, device=where)
    deep = torch.nn.Sequential(*(layer for _ in range(PROBED)))

    def each(call: Callable[[], object]) -> float:
        call()
        _wait(where)
        begun = time.perf_counter()
        for _ in range(PROBED):
            call()
        return (time.perf_counter() - begun) / PROBED

    with torch.no_grad():
        found = {"operation": each(lambda: torch.relu(x)), "module": each(lambda: layer(one))}
    with torch.enable_grad():
        loss = deep(one).sum()
    _wait(where)
    begun = time.perf_counter()
    loss.backward()
    found["gradients"] = (time.perf_counter() - begun) / PROBED
    _wait(where)
    return found


def timed(step: Step, where: str) -> Case:
    """Samples of a step, eager and replayed in turn, with probes of the host beside them."""
    clock = CudaClock() if where == "cuda" else MonotonicClock()
    captured = where == "cuda" and step.mode != "train" and step.name not in UNCAPTURED
    graph = replayed(step) if captured else None
    run = eager(step, where, dense=True)
    for _ in range(2 if graph is None else 1):
        first = once(run, clock)
    count = 1 if step.mode == "train" else max(1, min(MOST, int(TURN / sum(first.values()))))
    samples: dict[str, list[float]] = {}
    issued, probes = [], []
    for _ in range(STEPS if step.mode == "train" else TURNS):
        probes.append(probe(where))
        for _ in range(count):
            begun = time.perf_counter()
            times = once(run, clock)
            issued.append(times.pop("issued") - begun)
            for name, seconds in (("eager", sum(times.values())), *(times.items() if len(times) > 1 else ())):
                samples.setdefault(name, []).append(seconds)
        for _ in range(count if graph is not None else 0):
            assert graph is not None
            times = once(graph, clock)
            samples.setdefault("graph", []).append(sum(times.values()) - times["issued"])
    probes.append(probe(where))
    return {"samples": samples, "issued": issued, "probes": probes}


def once(run: Executable, clock: Clock) -> dict[str, float]:
    """Seconds of each phase, and the moment at which all was issued."""
    clock.start()
    run.once(clock.mark)
    issued = time.perf_counter()
    times: dict[str, float] = dict.fromkeys(run.phases, 0.0)
    for name, seconds in zip(run.phases, clock.seconds(), strict=True):
        times[name] += seconds
    return times | {"issued": issued}


def measured(modules: Modules, case: Case, where: str) -> Case:
    """A case with its samples, or with why there are none."""
    begun = time.monotonic()
    try:
        with switches(case["dtype"]), running(case["model"]):
            found = timed(modules.step(case), where)
    except RooflensError as error:
        found = {"error": str(error)}
    if where == "cuda" and torch.cuda.memory_reserved() > RESERVED:
        torch.cuda.empty_cache()
    return case | found | {"wall": round(time.monotonic() - begun, 2)}


def _wait(where: str) -> None:
    if where == "cuda":
        torch.cuda.synchronize()


def card(where: str) -> str:
    return torch.cuda.get_device_name() if where == "cuda" else "cpu"


def write(file: TextIO, row: Mapping[str, Any]) -> None:
    file.write(json.dumps(row) + "\n")
    file.flush()


def commands(out: Path) -> None:
    """Run the commands of the levels `calibrated` and `replayed` as a user does."""
    asked = (
        ("calibrate", "--quick", "--budget", "20", "--suite", "-o", str(out / "calibrated.toml")),
        ("replay", "resnet50", "-b", "32", "--dtype", "bf16", "--channels-last", "-o", str(out / "replay-1.jsonl")),
        ("replay", "resnet101", "-b", "32", "--dtype", "bf16", "--channels-last", "-o", str(out / "replay-2.jsonl")),
    )
    for words in asked:
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "rooflens", *words], capture_output=True, text=True, timeout=240, check=False,
            env=os.environ | {"XDG_CACHE_HOME": str((out / "cache").resolve())},
        )  # fmt: skip
        row = {"command": " ".join(words[:-1]), "wall": time.monotonic() - begun, "exit": done.returncode}
        with (out / "commands.jsonl").open("a") as file:
            write(file, row | {"stdout": done.stdout[-4000:], "stderr": done.stderr[-4000:]})
        print(row, done.stdout[-1500:], done.stderr[-1500:], sep="\n", flush=True)


def measure(out: Path, asked: Iterable[Case], end: float, where: str, modules: Modules) -> bool:
    """Append the cases that the time is enough for; False if it is over, or if a capture failed."""
    with (out / "truth.jsonl").open("a") as file:
        for number, case in enumerate(asked):
            if time.monotonic() > end:
                print(f"the time is over before {case}", flush=True)
                return False
            row = measured(modules, case, where)
            write(file, row)
            if "error" in row or number % 40 == 0:
                print(f"{end - time.monotonic():.0f} s left: {case} {row.get('error', '')}", flush=True)
            if "captur" in row.get("error", ""):
                return False
    return True


def decoders(out: Path, end: float, where: str) -> None:
    """Measure each language model in a process of its own: after a failed capture nothing of a process can be used."""
    for model in DECODERS:
        if (left := end - time.monotonic()) > 0:
            words = [sys.executable, __file__, str(out), "--seconds", str(left), "--where", where]
            subprocess.run([*words, "--decoder", model], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=350)
    parser.add_argument("--where", default="cuda", help="torch's device type; cpu to try the script out")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES))
    parser.add_argument("--parts", nargs="*", help="only these, in this order")
    parser.add_argument("--decoder", help="only this language model")
    parser.add_argument("--commands", action="store_true", help="only the commands, about 100 s")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.commands:
        commands(given.out)
        return
    end = time.monotonic() + given.seconds
    modules = Modules(given.where)
    if given.decoder:
        measure(given.out, decoding(given.decoder), end, given.where, modules)
        return
    with (given.out / "truth.jsonl").open("a") as file:
        write(file, {"card": card(given.where), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()})
    known = parts(tuple(given.models), tuple(given.batches))
    for name in given.parts or known:
        print(f"{name}: {end - time.monotonic():.0f} s left", flush=True)
        if name == "decoders":
            decoders(given.out, end, given.where)
        elif not measure(given.out, known[name], end, given.where, modules):
            break


if __name__ == "__main__":
    main()
