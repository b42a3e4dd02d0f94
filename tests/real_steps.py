"""Real steps on the CPU, whose memory is seen tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

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
        name = func._schema.name.split("::")[-1]
        for tensor in tree_leaves(results):
            # Optimizers count their steps in memory of the host, also on a GPU.
            if isinstance(tensor, torch.Tensor) and not (name == "_foreach_add_" and tensor.dim() == 0):
                self.lifetimes.see(tensor)
        self.names[name] = self.names.get(name, 0) + 1
        return results


def step_of(**arguments: Any) -> Step:
    """The step of a call of `rl.estimate`, placed on the CPU."""
    asked = workload(Request.of({"mode": "train", **arguments}))
    return placed(asked.step(asked.runs[0], "cpu"), "cpu", copy=True)


def watched(step: Step) -> tuple[Memory, dict[str, int]]:
    """The memory of a warm step at its peak, and its operations by name."""
    made: list[Any] = []
    optimizer_of = Step.optimizer_of

    def remembered(step: Step, parameters: Sequence[torch.Tensor]) -> Any:
        made.append(optimizer_of(step, parameters))
        return made[-1]

    with patch.object(Step, "optimizer_of", remembered):
        run = eager(step, "cpu")
    run.once(lambda: None)
    run.once(lambda: None)
    watching = Watching()
    state = [value for one in made if one is not None for kept in one.state.values() for value in kept.values()]
    held = (*step.module.parameters(), *step.module.buffers(), *tree_leaves((step.args, step.kwargs, step.targets)))
    for tensor in (*held, *state):
        if isinstance(tensor, torch.Tensor) and tensor.dim():
            watching.lifetimes.see(tensor)
    with watching:
        run.once(lambda: None)
    return watching.lifetimes.peak(), watching.names
