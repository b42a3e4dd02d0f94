"""Runs one counter on cells of the counting benchmark, each in a process of its own; started by counting.py.

    python -m benchmarks.peers.worker TOOL

Reads a JSON list of cells from standard input and writes one JSON line per cell to standard output, to which nothing
that a tool prints gets through. Time and memory are those of the call: before it, the tool has counted a model of one
layer in the same process, so that what it imports on its first use is there.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from benchmarks.apart import apart
from benchmarks.counting_models import MODELS
from benchmarks.peers.tools import TOOLS, Counter, Inputs, Tool
from torch import nn

LIMIT = 120.0
"""Seconds that a cell may take."""
LARGE_BATCH = 256


def measured(call: Callable[[], Any], build: Callable[[], Any] = lambda: None) -> dict[str, Any]:
    """What a call returns, its seconds, and the most memory in MB above the start; `build` runs before the clock."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # puts the high-water mark back to what is resident now
    start = _resident("VmRSS")
    build()
    begun = time.perf_counter()
    value = call()
    seconds = time.perf_counter() - begun
    return {"value": value, "seconds": round(seconds, 4), "mb": round((_resident("VmHWM") - start) / 1e6, 1)}


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system tells no {field}")


def warm(tool: Tool, counter: Counter, training: bool) -> None:
    counter(nn.Sequential(nn.Linear(1, 1)).to(tool.device).train(training), (torch.ones(1, 1, device=tool.device),))


def counted(tool: Tool, name: str, phase: str) -> dict[str, Any]:
    """FLOP, seconds and memory of one tool on one model."""
    model = next(model for model in MODELS if model.name == name)
    counter = tool.forward if phase == "forward" else tool.backward
    assert counter is not None
    training = phase == "backward" or model.training
    torch.manual_seed(0)
    module = model.build().to(tool.device).train(training)
    inputs: Inputs = tuple(x.to(tool.device) for x in model.inputs())
    warm(tool, counter, training)
    found = measured(lambda: counter(module, inputs))
    macs = model.macs.forward if phase == "forward" else model.macs.backward
    return {"flops": min(found.pop("value"), key=lambda flops: abs(flops - 2 * macs)), "form": 2 * macs, **found}


def whole(tool: Tool) -> dict[str, Any]:
    """ResNet-18 at a large batch with all that it takes: memory from before the model exists, time of the call.

    rooflens is called by name, so that its time holds the building of the model too.
    """
    from torchvision import models

    warm(tool, tool.forward, training=False)
    if tool.name == "rooflens":
        estimate = import_module("rooflens").estimate
        found = measured(lambda: estimate("resnet18", batch=LARGE_BATCH).total("forward").matmul_flops)
    else:
        held: list[Any] = []
        found = measured(
            lambda: tool.forward(held[0], (held[1],))[0],
            build=lambda: held.extend((models.resnet18().eval(), torch.randn(LARGE_BATCH, 3, 224, 224))),
        )
    return {"flops": found.pop("value"), **found}


def main() -> None:
    tool = next(tool for tool in TOOLS if tool.name == sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a tool prints joins the errors
    warnings.simplefilter("ignore")
    for name in ("torchvision", "timm", "transformers", *tool.imports):
        import_module(name)
    for name, phase in json.load(sys.stdin):
        outcome = apart(lambda: whole(tool) if phase == "whole" else counted(tool, name, phase), LIMIT)  # noqa: B023
        cell = {"tool": tool.name, "model": name, "phase": phase, "version": version(tool.package)}
        cell |= outcome.value if outcome.error is None else {"error": outcome.error, "message": outcome.message}
        answers.write(json.dumps(cell) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
