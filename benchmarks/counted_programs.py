"""Count programs on a card as docs/counters.md tells, and check what comes out: PYTHONPATH=src:. python THIS OUT

A program that marks one step itself, the same with a region, the same as two processes of torchrun (gloo, on one card),
and two that are cut off by their limit. The work is known: products of 1,024 in bf16, whose tiles fit. A line for each
check, and the records in OUT/programs.tgz after each program; what ncu says goes to the standard error, with times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rooflens as rl
from rooflens.results import RecordSet

LAYERS, WIDTH, TOKENS = 4, 1024, 512
PRODUCT = 2 * TOKENS * WIDTH * WIDTH
FORWARD, BACKWARD = LAYERS * PRODUCT, (2 * LAYERS - 1) * PRODUCT
"""FLOP of a step's products: the first layer needs no gradient of its input."""
TRAIN, MODEL = "train", "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", action="append", help="one of these: without it, all")
    parser.add_argument("--train", choices=("marks", "region", "long"), help="be the program")
    asked = parser.parse_args()
    if asked.train is not None:
        train(asked.train)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    python = [sys.executable, str(Path(__file__).resolve()), str(asked.out), "--train"]
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *python[1:]]
    commands = {
        "marks": ["--limit", "100", "--", *python, "marks"],
        "region": ["--limit", "100", "--", *python, "region"],
        "ranks": ["--limit", "100", "--", *ranks, "region"],
        "cut program": ["--limit", "12", "--", *python, "long"],
        "cut model": ["resnet18", "-b", "32", "--dtype", "amp-bf16", "--mode", TRAIN, "--limit", "8", "--no-estimate"],
    }
    found: dict[str, RecordSet] = {}
    kept = Path(tempfile.mkdtemp())
    for name, words in commands.items():
        if asked.only and name not in asked.only:
            continue
        file = kept / f"{name.replace(' ', '-')}.jsonl"
        began = time.monotonic()
        timeline = [sys.executable, str(Path(__file__).with_name("counted_timeline.py"))]
        done = subprocess.run(
            [*timeline, "counters", "-o", str(file), *words], stdout=subprocess.PIPE, text=True, check=False
        )
        print(f"== {name}: {time.monotonic() - began:.1f} s, exit code {done.returncode}", flush=True)
        file.with_suffix(".txt").write_text(done.stdout)
        if not file.exists():
            print(f"FAILED {name}: no records", flush=True)
            continue
        found[name] = rl.read(file).where(source="counters")
        for holds, what in CHECKS[name](found[name], found):
            print(f"{'holds ' if holds else 'FAILED'} {name}: {what}", flush=True)
        with tarfile.open(asked.out / "programs.tgz", "w:gz") as archive:
            archive.add(kept, ".")


Checks = Iterator[tuple[bool, str]]


def counted_whole(records: RecordSet) -> Checks:
    """The products' FLOP are those that were made, and each kernel has bytes."""
    flops = records.total().matmul_flops
    yield flops == FORWARD + BACKWARD, f"{flops} FLOP of products, {FORWARD + BACKWARD} were made"
    launches = [record for record in records if record.scope == "kernel" and record.work is not None]
    lacking = [record.name for record in launches if record.work is not None and "dram" not in record.work.bytes]
    yield bool(launches) and not lacking, f"{len(launches)} launches, {len(lacking)} without bytes"
    yield not noted(records, "partial"), "nothing is missing"


def marks(records: RecordSet, _: Any) -> Checks:
    """A program with marks of its own: each launch is counted."""
    yield from counted_whole(records)
    yield not noted(records, "were counted for"), "each launch is counted"


def region(records: RecordSet, others: dict[str, RecordSet]) -> Checks:
    """A region counts equal layers once, with modules and phases."""
    yield from counted_whole(records)
    yield bool(noted(records, "were counted for")), f"equal calls are counted once: {noted(records, 'counted for')}"
    forward = records.total("forward").matmul_flops
    yield forward == FORWARD, f"{forward} FLOP of forward, {FORWARD} were made"
    paths = {record.path for record in records if record.scope == "kernel" and record.phase == "forward"}
    yield {str(n) for n in range(LAYERS)} <= paths, f"modules: {sorted(paths)}"
    if "marks" in others:
        a, b = (its.total().bytes.get("dram") for its in (records, others["marks"]))
        yield bool(a and b and abs(a / b - 1) < 0.05), f"{a} bytes of DRAM, {b} where each launch is counted"


def ranks(records: RecordSet, others: dict[str, RecordSet]) -> Checks:
    """Of two processes one counts, and says so."""
    yield bool(noted(records, "one of 2 processes")), f"{noted(records, 'processes')}"
    yield from counted_whole(records)


def cut_program(records: RecordSet, _: Any) -> Checks:
    """A program that is cut off keeps what was counted."""
    yield bool(noted(records, "partial")), f"{noted(records, 'partial')}"
    yield any(record.work is not None for record in records), "what was counted is there"


def cut_model(records: RecordSet, _: Any) -> Checks:
    """A model's step that is cut off says for which share of the time the counted launches stand."""
    yield from cut_program(records, _)
    yield bool(noted(records, "stand for")), f"{noted(records, 'stand for')}"
    unknown = [r for r in records if r.scope == "kernel" and r.work is not None and r.work.missing]
    yield bool(unknown) and all(r.timing is not None for r in unknown), f"{len(unknown)} launches have times alone"


CHECKS: dict[str, Any] = {
    "marks": marks,
    "region": region,
    "ranks": ranks,
    "cut program": cut_program,
    "cut model": cut_model,
}


def noted(records: RecordSet, words: str) -> str:
    """The notes with these words."""
    return "; ".join(dict.fromkeys(note for note in records.notes if words in note))


def train(how: str) -> None:
    """Be a training loop of equal layers, alone or as one of several processes."""
    import torch
    from torch import nn

    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    layers = LAYERS if how != "long" else 200
    inner = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    inner.to("cuda", torch.bfloat16)
    model = nn.parallel.DistributedDataParallel(inner, device_ids=[0]) if several else inner
    optimizer = torch.optim.SGD(inner.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    if how == "region":
        around = rl.region("step", model=inner, skip=3, iterations=2)
        for _ in range(7):
            with around:
                step()
    else:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        step()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    if several:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
