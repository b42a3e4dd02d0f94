"""Real steps on the CPU, whose memory is seen tensor by tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rooflens.models import Step, eager, placed, workload
from rooflens.records import Memory
from rooflens.runs.run import Request
from rooflens.trace.lifetimes import Lifetimes


class Watching(TorchDispatchMode):
    """Sees every tensor that an operation makes, and counts the operations by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lifetimes = Lifetimes()
        self.names: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, torch.Tensor):
                self.lifetimes.see(tensor)
        name = func._schema.name.split("::")[-1]
        self.names[name] = self.names.get(name, 0) + 1
        return results


def step_of(**arguments: Any) -> Step:
    """The step of a call of `rl.estimate`, placed on the CPU."""
    asked = workload(Request.of({"mode": "train", **arguments}))
    return placed(asked.step(asked.runs[0], "cpu"), "cpu", copy=True)


def watched(step: Step) -> tuple[Memory, dict[str, int]]:
    """The memory of a warm step at its peak, and its operations by name."""
    run = eager(step, "cpu")
    run.once(lambda: None)
    run.once(lambda: None)
    watching = Watching()
    held = (*step.module.parameters(), *step.module.buffers(), *tree_leaves((step.args, step.kwargs, step.targets)))
    for tensor in held:
        if isinstance(tensor, torch.Tensor):
            watching.lifetimes.see(tensor)
    with watching:
        run.once(lambda: None)
    return watching.lifetimes.peak(), watching.names
