"""Ask ncu on this card what its manual leaves open: passes and seconds per kernel, filters, and what runs beside it.

    PYTHONPATH=src:. python benchmarks/ncu_probe.py OUT [SECONDS] [--sets] [--together] [--only NAME]...

Each variant runs one small program under ncu. A table goes to the standard output and to OUT/probe.json; a variant that
does not fit into SECONDS (default 170) is left out, so the most important ones come first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rooflens.sources import counters
from rooflens.sources.counters.ncu import find, metric_set
from rooflens.sources.counters.ncu.tool import Tool

_PROFILING = re.compile(r'==PROF== Profiling "(.*?)"(?:.*- (\d+) pass(?:es)?)?')
_PATCHED = "smsp__sass"
_TENSOR = "sm__ops_path_tensor"
_PIPE, _MOVES = "sm__inst_executed_pipe_tensor.sum", "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"
ROUNDS = 3
MOST_SECONDS = 60.0
TOGETHER = ("plain", "patched counters only, no pre-pass")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to run ncu; `child` says what the program does, `options` stand before the program."""

    name: str
    metrics: tuple[str, ...]
    child: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    cache: str = "all"
    environment: dict[str, str] = field(default_factory=dict)


def variants(every: tuple[str, ...]) -> list[Variant]:
    """The questions, the most important ones first."""
    hardware = tuple(name for name in every if not name.startswith(_PATCHED))
    plain = tuple(name for name in hardware if _TENSOR not in name)
    no_pre_pass = {"NV_COMPUTE_PROFILER_DISABLE_SW_PRE_PASS": "1"}
    lean = ("--disable-extra-suffixes", "--apply-rules", "no", "--import-source", "no")
    return [
        Variant(name="as today", metrics=every),
        Variant(name="no pre-pass", metrics=every, environment=no_pre_pass),
        Variant(name="lean, no pre-pass", metrics=every, environment=no_pre_pass, options=lean),
        Variant(name="hardware counters only", metrics=hardware),
        Variant(name="windows around every third operation, profiler first", metrics=plain, child=("windows",)),
        Variant(name="8 GiB more allocated", metrics=every, child=("large",), environment=no_pre_pass),
        Variant(name="patched counters only, no pre-pass", metrics=tuple(n for n in every if n.startswith(_PATCHED)),
                environment=no_pre_pass),
        Variant(name="no tensor counters, no pre-pass", metrics=tuple(n for n in every if _TENSOR not in n),
                environment=no_pre_pass),
        Variant(name="first of each kernel-id", metrics=plain, options=("--kernel-id", "::regex:.:1")),
        Variant(name="first two of each launch config", metrics=plain,
                options=("--filter-mode", "per-launch-config", "--launch-count", "2")),
        Variant(name="application replay", metrics=every, options=("--replay-mode", "application"),
                environment=no_pre_pass),
        Variant(name="nvtx include", metrics=plain, child=("ranges",), options=("--nvtx-include", "counted/")),
        Variant(name="emit_nvtx", metrics=plain, child=("emit",)),
        Variant(name="caches left", metrics=every, cache="none", environment=no_pre_pass),
        Variant(name="time only", metrics=("gpu__time_duration.sum",)),
    ]  # fmt: skip


def sets(every: tuple[str, ...]) -> list[Variant]:
    """Which counters go together in one pass, which needs no memory to be saved and put back."""
    hardware = tuple(name for name in every if not name.startswith(_PATCHED))
    plain = tuple(name for name in hardware if _TENSOR not in name)
    patched = tuple(name for name in every if name.startswith(_PATCHED))
    hgmma, hmma = (f"{_TENSOR}_op_{op}_src_bf16_dst_fp32_sparsity_off.sum" for op in ("hgmma", "hmma"))
    total, time_only = f"{_TENSOR}_src_bf16_dst_fp32.sum", "gpu__time_duration.sum"
    bare = tuple(name for name in plain if name not in (_MOVES, _PIPE))
    asked = {
        "plain": plain,
        "plain and hgmma": (*plain, hgmma),
        "plain and hmma": (*plain, hmma),
        "total alone": (total,),
        "hgmma and hmma alone": (hgmma, hmma),
        "patched and time": (*patched, time_only),
        "patched and hgmma": (*patched, hgmma),
        "patched and total": (*patched, total),
        "dram and time": (time_only, *(name for name in plain if name.startswith("dram__"))),
        "lts, l1tex and time": (time_only, *(name for name in plain if name.startswith(("lts__", "l1tex__")))),
        "lts and time": (time_only, *(name for name in plain if name.startswith("lts__"))),
        "l1tex and time": (time_only, *(name for name in plain if name.startswith("l1tex__"))),
        "all of dram, lts and time": (time_only, *(n for n in plain if n.startswith(("dram__", "lts__")))),
        "pipe and cycles": tuple(name for name in plain if name.startswith("sm__")),
        "both, no moves": (*(name for name in plain if name != _MOVES), hgmma, hmma),
        "both, no pipe": (*(name for name in plain if name != _PIPE), hgmma, hmma),
        "both, neither": (*bare, hgmma, hmma),
        "plain, no L2 writes": tuple(name for name in plain if "op_write" not in name),
        "hgmma, no cycles": (*(name for name in plain if "cycles" not in name), hgmma),
    }
    no_pre_pass = {"NV_COMPUTE_PROFILER_DISABLE_SW_PRE_PASS": "1"}
    large = Variant(name="plain, 8 GiB more", metrics=plain, child=("large",), environment=no_pre_pass)
    return [large, *(Variant(name=name, metrics=its, environment=no_pre_pass) for name, its in asked.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float, nargs="?", default=170.0)
    parser.add_argument("--sets", action="store_true", help="ask which counters take one pass together")
    parser.add_argument("--together", action="store_true", help="first run variants (--only) at the same time")
    parser.add_argument("--only", action="append", help="a variant; without one, all")
    parser.add_argument("--child", nargs="*", help="be the program that runs under ncu")
    asked = parser.parse_args()
    if asked.child is not None:
        child(set(asked.child))
        return
    import torch

    tool, until, answers = find(), time.monotonic() + asked.seconds, []
    asked.out.mkdir(parents=True, exist_ok=True)
    every = metric_set(".".join(map(str, torch.cuda.get_device_capability())), "bf16")
    print(f"ncu {tool.version}, {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    if asked.together:
        names = asked.only or TOGETHER
        both = [variant for variant in (*variants(every), *sets(every)) if variant.name in names]
        with ThreadPoolExecutor(len(both)) as pool:
            for found in pool.map(lambda variant: answer(tool, variant, asked.out, MOST_SECONDS), both):
                print(json.dumps(found | {"variant": f"{found['variant']}, at the same time"}), flush=True)
        return
    for variant in (sets if asked.sets else variants)(every):
        if asked.only and variant.name not in asked.only:
            continue
        if time.monotonic() > until - 10:
            print(f"left out: {variant.name}")
            continue
        answers.append(answer(tool, variant, asked.out, min(MOST_SECONDS, until - time.monotonic())))
        print(json.dumps(answers[-1]), flush=True)
        (asked.out / "probe.json").write_text(json.dumps(answers, indent=1))


def answer(tool: Tool, variant: Variant, out: Path, limit: float) -> dict[str, Any]:
    """What came of a variant."""
    report = out / f"{variant.name.replace(' ', '-')}.ncu-rep"
    report.unlink(missing_ok=True)
    program = [sys.executable, __file__, str(out), "--child", *variant.child]
    command = tool.command(variant.metrics, report, cache=variant.cache, program=program)
    command[1:1] = variant.options
    begun, kernels, passes, said = time.monotonic(), [], set(), []
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | variant.environment
    )
    assert run.stdout is not None
    ends = [threading.Timer(limit, run.send_signal, [signal.SIGINT]), threading.Timer(limit + 8, run.kill)]
    for end in ends:
        end.start()
    for line in run.stdout:
        now = time.monotonic() - begun
        if (profiling := _PROFILING.match(line)) is not None:
            kernels.append((now, profiling[1]))
            passes.add(profiling[2])
        elif not line.startswith("==PROF==") or "WARN" in line:
            said.append(f"{now:.1f} {line.strip()[:150]}")
    run.wait()
    for end in ends:
        end.cancel()
    total = time.monotonic() - begun
    gaps = [b - a for (a, _), (b, _) in itertools.pairwise(kernels)]
    began = time.monotonic()
    added = sums(tool, report) if report.exists() else None
    read = round(time.monotonic() - began, 2)
    return {
        "variant": variant.name,
        "seconds": round(total, 1),
        "first kernel": round(kernels[0][0], 1) if kernels else None,
        "after the last": round(total - kernels[-1][0], 1) if kernels else None,
        "per kernel": round(median(gaps), 4) if gaps else None,
        "most": round(max(gaps), 3) if gaps else None,
        "passes": sorted(map(str, passes)),
        "kernels": dict(Counter(name[:40] for _, name in kernels)),
        "report": report.stat().st_size if report.exists() else None,
        "sums": added,
        "said": said[-14:],
        "read": read,
    }


def sums(tool: Tool, report: Path) -> dict[str, float]:
    """FLOP by unit and bytes by level of all launches: equal for equal kernels, however they were counted."""
    from rooflens.records import AS_IS, Case

    reading = counters.CounterReading(str(report))
    case = Case(model="probe", device="probe", dtype=AS_IS)
    total: Counter[str] = Counter()
    with tool.printed(report) as lines:
        for record in counters.found_in(counters.parse(lines, reading), reading, lambda _: case).records:
            if record.work is not None:
                total.update(record.work.flops)
                total.update(record.work.bytes)
    return dict(total)


def child(how: set[str]) -> None:
    """Run a few operations of a decoder, three times the same, between the marks of ncu."""
    begun = time.monotonic()
    import torch

    marks: Any = torch.cuda.cudart()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - begun:.2f} s: {what}", flush=True)

    tell("torch is imported")

    def random(*size: int) -> torch.Tensor:
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16)

    x, up, down, square = random(512, 2048), random(2048, 5632), random(5632, 2048), random(2048, 2048)
    images, kernel = random(16, 64, 56, 56), random(64, 64, 3, 3)
    held = torch.empty(8 << 30, dtype=torch.uint8, device="cuda") if "large" in how else None
    operations: list[Callable[[], object]] = [
        lambda: torch.mm(x, square),
        lambda: torch.mm(torch.mm(x, up), down),
        lambda: torch.relu(x),
        lambda: torch.softmax(x, -1),
        lambda: torch.nn.functional.layer_norm(x, (2048,)),
        lambda: torch.conv2d(images, kernel, padding=1),
    ]
    with torch.no_grad():
        for _ in range(2):
            for operation in operations:
                operation()
        torch.cuda.synchronize()
        tell("warm")
        if "windows" in how:
            tell(f"torch's profiler sees {profiled(operations)} kernels under ncu")
        run_marked(operations * ROUNDS, marks, windows="windows" in how, emit="emit" in how)
    tell(f"done{'' if held is None else ' with 8 GiB held'}")


def run_marked(operations: Sequence[Callable[[], object]], marks: Any, *, windows: bool, emit: bool) -> None:
    """Run operations between the marks of ncu; with windows, only every third is."""
    import torch

    if not windows:
        marks.cudaProfilerStart()
    with torch.autograd.profiler.emit_nvtx(enabled=emit):
        for n, operation in enumerate(operations):
            marked = n % 3 == 0
            if windows and marked:
                marks.cudaProfilerStart()
            if marked:
                torch.cuda.nvtx.range_push("counted")
            operation()
            if marked:
                torch.cuda.nvtx.range_pop()
            if windows and marked:
                marks.cudaProfilerStop()
    torch.cuda.synchronize()
    marks.cudaProfilerStop()


def profiled(operations: Sequence[Callable[[], object]]) -> int | str:
    """How many kernels torch's profiler sees here; its error where it cannot run."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for operation in operations:
                operation()
            torch.cuda.synchronize()
        events = profiler.events() or []
        return sum(1 for event in events if event.device_type == torch.autograd.DeviceType.CUDA)
    except RuntimeError as error:
        return f"no ({error})"


if __name__ == "__main__":
    main()
