"""Compare estimated peak memory with what torch's allocator reports on a GPU.

    python benchmarks/memory.py --out benchmarks/results/memory-h200.json [--cpu]

For every case the step runs twice to settle, once for the peak that the device reports, and once inside a mode that
reads the allocated bytes after every operation. The highest of these is the peak without workspaces. It misses what an
operation allocates and frees during its own call (cuDNN's workspace for a convolution): these are listed by operation.
cuBLAS keeps its workspace between calls: it is what is left when the model is gone, and is subtracted.

`--cpu` runs the same script without a GPU, to try it out; memory is then not measured.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import rooflens as rl
from rooflens.models import eager, placed, switches, workload
from rooflens.runs.options import Options
from rooflens.runs.run import Request

IMAGES = {
    "alexnet": (16, 256),
    "convnext_tiny": (4, 64),
    "densenet121": (4, 64),
    "efficientnet_b0": (4, 64),
    "googlenet": (4, 64),
    "inception_v3": (4, 64),
    "mnasnet1_0": (4, 64),
    "mobilenet_v3_large": (4, 64),
    "regnet_y_400mf": (4, 64),
    "resnet18": (16, 256),
    "resnet50": (4, 64),
    "shufflenet_v2_x1_0": (4, 64),
    "squeezenet1_0": (4, 64),
    "swin_t": (4, 32),
    "vgg16": (4, 64),
    "vit_b_16": (4, 64),
}
FRESH = (
    "densenet169",
    "efficientnet_v2_s",
    "maxvit_t",
    "mobilenet_v2",
    "regnet_x_3_2gf",
    "resnet34",
    "resnext50_32x4d",
    "squeezenet1_1",
    "swin_v2_t",
    "vgg11_bn",
    "vit_l_16",
    "wide_resnet50_2",
)
"""Models that no rule about workspaces was made from."""
STEPS = ("inference", "train")
DECODER = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
TOKENS = 1024
SMALL = 1_000_000
"""Workspaces below this are left out."""


class Boundaries(TorchDispatchMode):
    """Most bytes allocated at the end of any operation, and what operations allocate within their own call."""

    def __init__(self, cuda: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cuda = cuda
        self.peak = self._allocated()
        self.workspaces: dict[str, int] = {}

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated() if self.cuda else 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self._allocated()
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        result = func(*args, **(kwargs or {}))
        after = self._allocated()
        self.peak = max(self.peak, after)
        within = torch.cuda.max_memory_allocated() - max(before, after) if self.cuda else 0
        if within > SMALL:
            shapes = [
                [str(leaf.dtype)[6:], *leaf.shape] for leaf in tree_leaves((args, kwargs)) if hasattr(leaf, "shape")
            ]
            key = f"{func} {json.dumps(shapes)}"
            self.workspaces[key] = max(self.workspaces.get(key, 0), within)
        return result


def measured(model: str, batch: int, dtype: str, mode: str, device: str, seq_len: int | None) -> dict[str, Any]:
    """Peak of one step on the device: as the device reports it, without what libraries keep, without any workspace."""
    asked = workload(Request(model=model, batch=batch, dtype=dtype, mode=mode, options=Options(seq_len=seq_len)))
    step = placed(asked.step(asked.runs[0], asked.build("cpu"), "cpu"), device, copy=False)
    run = eager(step, device).once
    cuda = device == "cuda"
    with switches(dtype):
        for _ in range(2):
            run(lambda: None)
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            run(lambda: None)
        reported = torch.cuda.max_memory_allocated() if cuda else 0
        with Boundaries(cuda) as seen:
            run(lambda: None)
    del step, run
    gc.collect()
    kept = torch.cuda.memory_allocated() if cuda else 0
    return {
        "reported": reported,
        "peak": reported - kept,
        "peak_without_workspace": seen.peak - kept,
        "cublas_workspace": kept,
        "workspaces": seen.workspaces,
    }


def row_of(case: tuple[str, int, str, str, int | None], device: str) -> dict[str, Any]:
    """The estimate and the measurement of one case."""
    model, batch, dtype, mode, seq_len = case
    row: dict[str, Any] = {"model": model.rpartition("/")[2], "batch": batch, "dtype": dtype, "mode": mode}
    card = torch.cuda.get_device_name() if device == "cuda" else "h100-sxm"
    memory = rl.estimate(model, batch=batch, dtype=dtype, mode=mode, seq_len=seq_len, device=card).memory
    assert memory is not None
    row |= {"estimate": memory.peak, "estimate_with_workspace": memory.with_workspace} | measured(
        model, batch, dtype, mode, device, seq_len
    )
    pairs = {"error": ("estimate", "peak_without_workspace"), "reported_error": ("estimate_with_workspace", "reported")}
    row |= {name: row[of] / row[to] - 1 if row[to] else None for name, (of, to) in pairs.items()}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time, each in a process of its own")
    parser.add_argument("--fresh", action="store_true", help="models that no rule was made from, instead of the others")
    parser.add_argument("--dtype", help="only the cases of this element type")
    options = parser.parse_args()
    device = "cpu" if options.cpu else "cuda"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    decoder = options.out.parent / "decoder-1b.json"
    decoder.write_text(json.dumps(DECODER))
    cases: list[tuple[str, int, str, str, int | None]] = [
        (model, batch, "fp32", mode, None) for model, batches in IMAGES.items() for batch in batches for mode in STEPS
    ]
    cases += [("vit_b_16", 64, "bf16", "inference", None), ("resnet50", 64, "amp-bf16", "train", None)]
    cases += [(f"hf:{decoder}", batch, "bf16", mode, TOKENS) for batch in (1, 4) for mode in ("inference", "train")]
    cases += [("hf:gpt2", batch, "fp32", mode, TOKENS) for batch in (1, 4) for mode in ("inference", "train")]
    cases += [
        (model, batch, "amp-bf16", mode, TOKENS if model.startswith("hf:") else None)
        for model, batch in (
            *((name, 64) for name in ("convnext_tiny", "swin_t", "vit_b_16", "resnet18")),
            ("hf:gpt2", 4),
        )
        for mode in ("inference", "train")
    ]
    if options.fresh:
        cases = [(*case, None) for case in itertools.product(FRESH, (2, 32), ("fp32", "default", "amp-bf16"), STEPS)]
    cases = [case for case in cases if options.dtype in (None, case[2])]
    card = torch.cuda.get_device_name() if device == "cuda" else "none"
    result: dict[str, Any] = {"card": card, "torch": torch.__version__, "cases": []}
    # A process of its own for each case: what libraries keep is then that of the case.
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for row in pool.map(partial(row_of, device=device), cases[:2] if options.cpu else cases):
            result["cases"].append(row)
            print({key: value for key, value in row.items() if key != "workspaces"}, flush=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
