"""Tell which operations a prediction gets wrong: a profile's kernels beside the expected seconds, call by call.

    python -m benchmarks.prediction.explained PROFILE... [--device h200] [--calls]

PROFILE is a trace that profile_on_gpu.py wrote. A kernel belongs to the operation that launched it: the outermost one
whose name and shapes the estimate has too. The sums are by phase and operation (with --calls also by shapes), those
with the largest difference first. What only one side has is a line of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.prediction import own_models
from benchmarks.prediction.profile_on_gpu import cases, name_of
from benchmarks.prediction.traces import Traces

import rooflens as rl
from rooflens.devices.files import cache_folder
from rooflens.predict import Card, calls_on_device, expected_seconds
from rooflens.records import Call
from rooflens.results import RecordSet

ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
CALLED = {
    "scaled_dot_product_attention": "attention",
    "_scaled_dot_product_attention_math": "attention",
    "_scaled_dot_product_cudnn_attention": "attention",
    "_scaled_dot_product_flash_attention": "attention",
    "_scaled_dot_product_efficient_attention": "attention",
    "_scaled_dot_product_cudnn_attention_backward": "attention_backward",
    "_scaled_dot_product_flash_attention_backward": "attention_backward",
    "_scaled_dot_product_efficient_attention_backward": "attention_backward",
    "cudnn_batch_norm": "native_batch_norm",
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
    "nll_loss": "nll_loss_forward",
    "_fused_rms_norm": "rms_norm",
}
"""Operations that an estimate has under another name."""
Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Sum:
    """Calls and seconds of equal calls, as they were measured and as they are expected."""

    calls: list[int] = field(default_factory=lambda: [0, 0])
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    kernels: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, side: int, calls: int, seconds: float) -> None:
        self.calls[side] += calls
        self.seconds[side] += seconds


def shapes_of(call: Call) -> Shapes:
    """Shapes of a call's tensors, without those of lists."""
    return tuple(t.shape for t in call.inputs[:3])


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel or copy with the operations around its launch, the outermost first."""

    name: str
    seconds: float
    around: tuple[Mapping[str, Any], ...]
    backward: bool


def launched(events: Iterable[Mapping[str, Any]]) -> Iterator[Launched]:
    """Every kernel of a trace, in the order of their launches."""
    listed = list(events)
    launches = {
        e["args"]["correlation"]: e
        for e in listed
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    threads: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for event in sorted((e for e in listed if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])):
        threads[event["tid"]].append(event)
    begins = {tid: [e["ts"] for e in its] for tid, its in threads.items()}
    for event in sorted((e for e in listed if e.get("cat") in ON_DEVICE), key=lambda e: float(e["ts"])):
        launch = launches.get(event["args"].get("correlation"))
        if launch is None:
            continue
        its, at = threads.get(launch["tid"], []), launch["ts"]
        before = its[: bisect_right(begins.get(launch["tid"], []), at)][-400:]
        around = tuple(e for e in before if e["ts"] + e["dur"] >= at)
        backward = any(e["name"].startswith("autograd::engine") for e in around)
        yield Launched(event["name"], event["dur"] / 1e6, around, backward)


def plain(name: str) -> str:
    base = name.removeprefix("aten::")
    return CALLED.get(base, base)


def measured(profile: Path, names: frozenset[str]) -> Iterator[tuple[tuple[str, str, Shapes], int, float, str]]:
    """Calls of a profile: key, identity, seconds and kernel; the outermost operation whose name an estimate has."""
    with gzip.open(profile, "rt") as file:
        events = json.load(file)["traceEvents"]
    for one in launched(events):
        named = [e for e in one.around if e["name"].startswith(("aten::", "Optimizer", "rooflens"))]
        mine = next((e for e in named if plain(e["name"]) in names), named[0] if named else None)
        if mine is None:
            yield ("forward", "(no operation)", ()), 0, one.seconds, one.name
            continue
        name = plain(mine["name"])
        phase = "backward" if one.backward else "optimizer" if "_foreach" in name or "_fused" in name else "forward"
        yield (phase, name, dims_of(mine)[:3]), id(mine), one.seconds, one.name


def dims_of(operation: Mapping[str, Any]) -> Shapes:
    """Shapes of an operation's tensors as a profile has them, those of lists among them."""
    given = operation["args"].get("Input Dims", [])
    each = chain.from_iterable(d if d and isinstance(d[0], list) else (d,) for d in given)
    return tuple(tuple(d) for d in each if d)


def expected(records: RecordSet, card: Card) -> Iterator[tuple[tuple[str, str, Shapes], int, float]]:
    """Calls of an estimate: key, calls and seconds."""
    total = records.under(card.device, None, "graph")
    held = records.conduct("graph", {}).held
    for record in total.records:
        for piece, calls in calls_on_device(record, held) if record.work is not None else ():
            key = (record.phase or "forward", record.name, shapes_of(piece.call))
            yield key, calls, calls * expected_seconds(piece, card)


def joined(profile: Path, records: RecordSet, card: Card, shapes: bool) -> dict[tuple[Any, ...], Sum]:
    """Sums of both sides."""
    sums: dict[tuple[Any, ...], Sum] = defaultdict(Sum)
    names: set[str] = set()
    for (phase, name, its), calls, seconds in expected(records, card):
        names.add(name)
        sums[(phase, name, its) if shapes else (phase, name)].add(1, calls, seconds)
    seen: set[int] = set()
    for (phase, name, its), identity, seconds, kernel in measured(profile, frozenset(names)):
        one = sums[(phase, name, its) if shapes else (phase, name)]
        one.add(0, identity not in seen, seconds)
        one.kernels[re.sub(r"^void ", "", kernel)[:60]] += seconds
        seen.add(identity)
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", type=Path, nargs="+")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--traces", type=Path, default=cache_folder() / "prediction-traces")
    parser.add_argument("--calibrated", action="store_true", help="with the constants of the card's suite")
    parser.add_argument("--calls", action="store_true", help="by shapes of operands")
    parser.add_argument("--top", type=int, default=25)
    given = parser.parse_args()
    traces = Traces(given.traces)
    known = {name_of(case): case for case in cases()}
    card = own_models.on_sheets(rl.device(given.device))[0]
    if given.calibrated:
        card = own_models.calibrated(given.device)
    for profile in given.profiles:
        name = profile.name.removesuffix(".json.gz")
        sums = joined(profile, traces.step(known[name]), card, given.calls)
        whole = [sum(s.seconds[side] for s in sums.values()) for side in (0, 1)]
        print(f"\n{name}: measured {whole[0] * 1e3:.3f} ms, expected {whole[1] * 1e3:.3f} ms")
        ranked = sorted(sums.items(), key=lambda item: -abs(item[1].seconds[1] - item[1].seconds[0]))
        for key, one in ranked[: given.top]:
            (took, should), (ran, listed) = one.seconds, one.calls
            most = max(one.kernels, key=one.kernels.__getitem__, default="")
            times = f"{1e6 * (should - took):9.0f} us = {1e6 * should:7.0f} - {1e6 * took:7.0f}"
            print(f"{times}  {listed:4d} / {ran:4d}  {' '.join(map(str, key))}  {most}")


if __name__ == "__main__":
    main()
