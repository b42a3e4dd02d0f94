"""Times steps of whole models on this machine's processor, operation by operation, and a probe beside each.

    python -m benchmarks.prediction.truth_on_cpu --out benchmarks/results/prediction-cpu/truth.jsonl [--rounds 8]

All cases run in turn, round after round, so that a busy minute hits all of them alike. Kept are the least step, and the
sum of the least time of each operation and of each gap between two: on a busy machine no long step runs undisturbed,
but every operation once does. The probe is a matrix product before each step: its least time over the median tells how
busy the machine was. Pages that a step takes anew from the system are counted: no estimate knows of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.agreement import ON_CPU, prepared
from torch.profiler import ProfilerActivity, profile

OTHERS = (
    ("resnet50", 1, "fp32"),
    ("vgg11", 1, "fp32"),
    ("densenet121", 1, "fp32"),
    ("efficientnet_b0", 4, "fp32"),
    ("convnext_tiny", 1, "fp32"),
    ("swin_t", 1, "fp32"),
    ("regnet_y_400mf", 4, "fp32"),
    ("shufflenet_v2_x1_0", 8, "fp32"),
    ("mnasnet1_0", 4, "fp32"),
    ("googlenet", 2, "fp32"),
    ("mobilenet_v2", 1, "fp32"),
    ("resnext50_32x4d", 1, "fp32"),
)
"""Models beside those of the agreement benchmark."""


class Case:
    """A step, and the least times of its parts."""

    def __init__(self, model: str, batch: int, dtype: str) -> None:
        self.name = (model, batch, dtype)
        self.run = partial(prepared(model, batch, dtype, "cpu"), lambda: None)
        self.steps: list[float] = []
        self.probes: list[float] = []
        self.parts: list[float] = []
        self.faults = 0
        seconds(self.run)

    def once(self, probe: Callable[[], object]) -> None:
        """Run the step alone, and once under the profiler."""
        self.probes.append(min(seconds(probe) for _ in range(3)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        self.steps.append(seconds(self.run))
        self.faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            self.run()
        parts = list(_parts(seen))
        assert not self.parts or len(parts) == len(self.parts), "two runs of a step launch equal operations"
        self.parts = [min(pair) for pair in zip(self.parts or parts, parts, strict=True)]

    def row(self) -> dict[str, Any]:
        model, batch, dtype = self.name
        return {
            "model": model, "batch": batch, "dtype": dtype, "mode": "inference", "seconds": sum(self.parts),
            "least": min(self.steps), "median": median(self.steps), "samples": len(self.steps), "pages": self.faults,
            "probe": min(self.probes), "probe_median": median(self.probes),
            "torch": torch.__version__, "threads": torch.get_num_threads(),
        }  # fmt: skip


def _parts(seen: Any) -> Any:
    """Seconds of each operation that no other has called, and of each gap before one."""
    end = None
    for event in sorted(seen.events(), key=lambda event: event.time_range.start):
        if event.cpu_parent is None:
            if end is not None:
                yield max(0.0, event.time_range.start - end) / 1e6
            yield event.time_range.elapsed_us() / 1e6
            end = event.time_range.end


def seconds(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    cases = [Case(*case) for case in (*ON_CPU, *OTHERS)]
    probe = partial(torch.mm, torch.randn(512, 512), torch.randn(512, 512))
    for number in range(given.rounds):
        for case in cases:
            case.once(probe)
        print(f"round {number + 1} of {given.rounds}", flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text("".join(json.dumps(case.row()) + "\n" for case in cases))


if __name__ == "__main__":
    main()
