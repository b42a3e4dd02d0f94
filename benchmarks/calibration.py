"""Compare calibrated ceilings with other public ways to find them, in the same process, and with a second calibration.

    python benchmarks/calibration.py --out benchmarks/results/calibration-h100.json
    python benchmarks/calibration.py --cpu --quick --out out/calibration.json

Prints each way's best rate, the ratio of the calibrated rate to the best of them, and how well two calibrations agree.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.benchmark import Timer

import rooflens as rl
from rooflens.sources import environment

sys.path.insert(0, str(Path(__file__).parents[1]))  # for benchmarks.calibration_triton, when run as a file

COPY_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}
SIDE = {"cpu": 2048, "cuda": 8192}
RUNS = 30
AGREE = 0.02
TROUBLE = (RuntimeError, ImportError, OSError, ValueError, TypeError, AttributeError)

Way = Callable[[], float]
"""Measures once and gives the best rate in FLOP/s or B/s."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--cpu", action="store_true", help="on the CPU")
    parser.add_argument("--quick", action="store_true", help="quick calibrations")
    parser.add_argument("--budget", type=float, help="seconds of each calibration")
    options = parser.parse_args()
    where = "cpu" if options.cpu else "cuda"
    first, first_seconds = calibrated(where, options.quick, options.budget)
    others = {resource: {name: tried(way) for name, way in ways.items()} for resource, ways in WAYS[where].items()}
    second, second_seconds = calibrated(where, options.quick, options.budget)
    result = {
        "device": first.title,
        "seconds": [first_seconds, second_seconds],
        "against_others": {resource: against(first, second, resource, found) for resource, found in others.items()},
        "two_runs": agreement(first, second),
        "ceilings": [{c.resource: {"rate": c.rate, "how": c.reference} for c in measured(d)} for d in (first, second)],
        "facts": [{name: f.value for name, f in d.facts.items() if f.origin == "measured"} for d in (first, second)],
        "notes": [first.notes, second.notes],
        "environment": asdict(environment.capture()),
    }
    show(result)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {options.out}", file=sys.stderr)


def calibrated(where: str, quick: bool, budget: float | None) -> tuple[rl.Device, float]:
    """A calibration and the seconds that it took; its file is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        found = rl.calibrate(where, output=Path(folder, "measured.toml"), quick=quick, budget=budget)
        return found, round(time.perf_counter() - begun, 2)


def tried(way: Way) -> float | str:
    """The rate, or why there is none."""
    try:
        return way()
    except TROUBLE as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measured(device: rl.Device) -> list[rl.Ceiling]:
    return [ceiling for ceiling in device.ceilings if ceiling.origin == "measured"]


def against(first: rl.Device, second: rl.Device, resource: str, others: Mapping[str, float | str]) -> dict[str, Any]:
    """The calibrated rates, those of the others, and the lower calibrated rate over the best of the others."""
    rates = [c.rate for c in (first.ceiling(resource), second.ceiling(resource)) if c is not None]
    best = max((rate for rate in others.values() if isinstance(rate, float)), default=None)
    ratio = min(rates) / best if best is not None and len(rates) == 2 else None
    return {"calibrated": rates, "others": dict(others), "ratio_to_best": ratio}


def agreement(first: rl.Device, second: rl.Device) -> dict[str, float | None]:
    """Difference of the second calibration from the first, by resource; None where one of them has no rate."""
    found: dict[str, float | None] = {}
    for ceiling in measured(first):
        again = second.ceiling(ceiling.resource)
        found[ceiling.resource] = again.rate / ceiling.rate - 1 if again is not None else None
    return found


def show(result: Mapping[str, Any]) -> None:
    print(f"{result['device']}, two calibrations of {result['seconds'][0]:.0f} and {result['seconds'][1]:.0f} s")
    for resource, found in result["against_others"].items():
        print(f"\n{resource}: calibrated {', '.join(f'{rate:.4g}' for rate in found['calibrated'])}")
        for name, rate in found["others"].items():
            print(f"  {name:45} {rate:.4g}" if isinstance(rate, float) else f"  {name:45} {rate}")
        if found["ratio_to_best"] is not None:
            print(f"  ratio to the best: {found['ratio_to_best']:.4f}")
    print("\nsecond calibration against the first")
    for resource, off in result["two_runs"].items():
        mark = "" if off is not None and abs(off) <= AGREE else f"  more than {AGREE:.0%} off"
        print(f"  {resource:14} {'-' if off is None else f'{off:+.2%}'}{mark}")
    for number, notes in enumerate(result["notes"], start=1):
        print(f"notes of run {number}: {notes}")


def copy_by_events() -> float:
    """A copy of several GB on the device, timed by a pair of events each."""
    source, target = cuda_arrays()
    return 2 * COPY_BYTES["cuda"] / by_events(partial(target.copy_, source))


def triad_by_events() -> float:
    """The triad of STREAM."""
    b, c = cuda_arrays()
    a = torch.empty_like(b)
    return 3 * COPY_BYTES["cuda"] / by_events(partial(torch.add, b, c, alpha=3.0, out=a))


def copy_by_triton() -> float:
    """torch's copy, timed by triton.testing.do_bench."""
    source, target = cuda_arrays()
    return 2 * COPY_BYTES["cuda"] / by_triton(partial(target.copy_, source))


def copy_in_triton() -> float:
    """A copy written in Triton."""
    from benchmarks.calibration_triton import copy

    source, target = cuda_arrays()
    seconds = by_triton(partial(copy, source, target))
    if not torch.equal(source, target):
        raise ValueError("the kernel copied something else")
    return 2 * COPY_BYTES["cuda"] / seconds


def product_by_timer(where: str, dtype: torch.dtype) -> float:
    """torch.mm, timed by torch.utils.benchmark.Timer."""
    a, b = factors(where, dtype)
    words = {"a": a, "b": b, "c": torch.empty_like(a)}
    timer = Timer("torch.mm(a, b, out=c)", globals=words, num_threads=torch.get_num_threads())
    seconds: list[float] = timer.blocked_autorange(min_run_time=2).times
    return 2 * SIDE[where] ** 3 / min(seconds)


def product_by_triton() -> float:
    """torch.mm, timed by triton.testing.do_bench."""
    a, b = factors("cuda", torch.bfloat16)
    return 2 * SIDE["cuda"] ** 3 / by_triton(partial(torch.mm, a, b, out=torch.empty_like(a)))


def product_by_events() -> float:
    """torch.mm, timed by events."""
    a, b = factors("cuda", torch.bfloat16)
    return 2 * SIDE["cuda"] ** 3 / by_events(partial(torch.mm, a, b, out=torch.empty_like(a)))


def product_in_triton() -> float:
    """A product written in Triton."""
    from benchmarks.calibration_triton import product

    a, b = factors("cuda", torch.bfloat16)
    c = torch.empty_like(a)
    seconds = by_triton(partial(product, a, b, c))
    torch.testing.assert_close(c[:64].float(), a[:64].float() @ b.float(), rtol=2e-2, atol=2.0)
    return 2 * SIDE["cuda"] ** 3 / seconds


def copy_by_timer() -> float:
    """A copy on the CPU, timed by torch.utils.benchmark.Timer."""
    source = torch.rand(COPY_BYTES["cpu"] // 4)
    words = {"a": torch.empty_like(source), "b": source}
    timer = Timer("a.copy_(b)", globals=words, num_threads=torch.get_num_threads())
    seconds: list[float] = timer.blocked_autorange(min_run_time=1).times
    return 2 * COPY_BYTES["cpu"] / min(seconds)


def copy_by_numpy() -> float:
    """numpy's copy, on one thread."""
    source = np.full(COPY_BYTES["cpu"] // 4, 0.5, dtype=np.float32)
    target = np.empty_like(source)
    return 2 * COPY_BYTES["cpu"] / by_clock(lambda: np.copyto(target, source))


def triad_by_clock() -> float:
    """The triad of STREAM on the CPU."""
    a, b, c = (torch.full((COPY_BYTES["cpu"] // 4,), 0.5) for _ in range(3))
    return 3 * COPY_BYTES["cpu"] / by_clock(lambda: torch.add(b, c, alpha=3.0, out=a))


def product_by_numpy() -> float:
    """numpy's product in fp32."""
    n = SIDE["cpu"]
    a, b = (np.random.default_rng(seed).standard_normal((n, n), dtype=np.float32) for seed in (0, 1))
    return 2 * n**3 / by_clock(lambda: a @ b)


def product_by_clock() -> float:
    """torch.mm in fp32, timed by a monotonic clock."""
    a, b = factors("cpu", torch.float32)
    return 2 * SIDE["cpu"] ** 3 / by_clock(partial(torch.mm, a, b))


def cuda_arrays() -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.rand(COPY_BYTES["cuda"] // 4, device="cuda")
    return source, torch.empty_like(source)


def factors(where: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal random numbers, as in the calibration."""
    a, b = (torch.randn(SIDE[where], SIDE[where], device=where).to(dtype) for _ in range(2))
    return a, b


def by_events(call: Callable[[], object]) -> float:
    """The shortest of several calls, in seconds."""
    for _ in range(3):
        call()
    seconds: list[float] = []
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return min(seconds)


def by_triton(call: Callable[[], object]) -> float:
    """The shortest call that triton.testing.do_bench timed, in seconds."""
    from triton.testing import do_bench

    milliseconds: float = do_bench(call, warmup=100, rep=1000, return_mode="min")
    return milliseconds / 1e3


def by_clock(call: Callable[[], object]) -> float:
    call()
    seconds: list[float] = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


WAYS: Mapping[str, Mapping[str, Mapping[str, Way]]] = {
    "cuda": {
        "dram": {
            "copy_ of 4 GiB, events": copy_by_events,
            "copy_ of 4 GiB, triton.testing.do_bench": copy_by_triton,
            "copy in Triton of 4 GiB, do_bench": copy_in_triton,
            "triad of 4 GiB, events": triad_by_events,
        },
        "matmul.bf16": {
            "torch.mm 8192^3, torch.utils.benchmark.Timer": partial(product_by_timer, "cuda", torch.bfloat16),
            "torch.mm 8192^3, events": product_by_events,
            "torch.mm 8192^3, triton.testing.do_bench": product_by_triton,
            "product in Triton 8192^3, do_bench": product_in_triton,
        },
    },
    "cpu": {
        "dram": {
            "copy_ of 256 MiB, torch.utils.benchmark.Timer": copy_by_timer,
            "triad of 256 MiB, clock": triad_by_clock,
            "numpy.copyto of 256 MiB, clock": copy_by_numpy,
        },
        "matmul.fp32": {
            "torch.mm 2048^3, torch.utils.benchmark.Timer": partial(product_by_timer, "cpu", torch.float32),
            "torch.mm 2048^3, clock": product_by_clock,
            "numpy 2048^3, clock": product_by_numpy,
        },
    },
}


if __name__ == "__main__":
    main()
