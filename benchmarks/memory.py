"""Compare estimated peak memory with what torch's allocator reports on a GPU.

    python benchmarks/memory.py --out benchmarks/results/memory-h200.json [--cpu]

For every case the step runs twice to settle, then once inside a mode that reads the allocated bytes after every
operation. The highest of these is the peak without workspaces. It misses what an operation allocates and frees during
its own call (cuDNN's workspace for a convolution); the difference to the plain peak is reported too.
cuBLAS keeps its workspace between calls: it is allocated before the model, and subtracted.

`--cpu` runs the same script without a GPU, to try it out; memory is then not measured.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


class Boundaries(TorchDispatchMode):
    """Most bytes allocated at the end of any operation."""

    def __init__(self, allocated: Callable[[], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocated = allocated
        self.peak = allocated()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.peak = max(self.peak, self.allocated())
        return result


def cublas_workspace(device: str) -> int:
    """Bytes that cuBLAS keeps after its first product."""
    if device == "cpu":
        return 0
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.randn(256, 256, device=device, dtype=dtype)
        torch.nn.functional.linear(a, a, a[0])
        torch.mm(a, a)
    del a
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def measured(model: str, batch: int, dtype: str, mode: str, device: str, seq_len: int | None) -> dict[str, Any]:
    """Peak of one step on the device, with and without workspaces, less what cuBLAS keeps."""
    asked = workload(Request(model=model, batch=batch, dtype=dtype, mode=mode, options=Options(seq_len=seq_len)))
    kept = cublas_workspace(device)
    step = placed(asked.step(asked.runs[0], asked.build("cpu"), "cpu"), device)
    run = eager(step, device).once
    cuda = device == "cuda"
    with switches(dtype):
        for _ in range(2):
            run(lambda: None)
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            run(lambda: None)
        plain = torch.cuda.max_memory_allocated() if cuda else 0
        with Boundaries(torch.cuda.memory_allocated if cuda else lambda: 0) as seen:
            run(lambda: None)
    return {"peak": plain - kept, "peak_without_workspace": seen.peak - kept, "cublas_workspace": kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--dtype", help="only the cases of this element type")
    options = parser.parse_args()
    device = "cpu" if options.cpu else "cuda"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    decoder = options.out.parent / "decoder-1b.json"
    decoder.write_text(json.dumps(DECODER))
    cases: list[tuple[str, int, str, str, int | None]] = [
        (model, batch, "fp32", mode, None)
        for model, batches in IMAGES.items()
        for batch in batches
        for mode in ("inference", "train")
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
    cases = [case for case in cases if options.dtype in (None, case[2])]
    rows = []
    for model, batch, dtype, mode, seq_len in cases[:1] if options.cpu else cases:
        found = rl.estimate(model, batch=batch, dtype=dtype, mode=mode, seq_len=seq_len)
        assert found.memory is not None
        row: dict[str, Any] = {"model": model.rpartition("/")[2], "batch": batch, "dtype": dtype, "mode": mode}
        row |= {"estimate": found.memory.peak} | measured(model, batch, dtype, mode, device, seq_len)
        row["error"] = row["estimate"] / row["peak_without_workspace"] - 1 if row["peak_without_workspace"] else None
        rows.append(row)
        print(json.dumps(row), flush=True)
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    card = torch.cuda.get_device_name() if device == "cuda" else "none"
    result = {"card": card, "torch": torch.__version__, "cases": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
