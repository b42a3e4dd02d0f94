"""Measure how much of a GPU's memory the tensors of a step can take: the basis of rooflens' largest batches.

    python -m benchmarks.largest_batch find --out found.json
    python -m benchmarks.largest_batch run --found found.json --out benchmarks/results/largest-batch-h200.json

Three things are measured:

- **context**: memory of the GPU that is in use after the first products, convolutions and attention, less what torch's
  allocator holds;
- **workspaces**: for convolutional networks at growing batch, what an operation allocates and frees during its own call
  (see benchmarks/memory.py);
- **limits**: torch's allocator is limited to a smaller GPU's memory less the context. `find` computes, without a GPU,
  the batch whose tensors alone would fill that; `run` looks for the largest share of it that runs. The rest goes to
  workspaces, fragmentation, and errors of the estimate. Run it again with `--limits-only` under
  PYTORCH_ALLOC_CONF=expandable_segments:True to add rows. Decode is not tried: filling the cache takes more
  than the step, and leaves torch's allocator fragmented before it begins.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.memory import DECODER, TOKENS, Boundaries

import rooflens as rl
from rooflens.models import Workload, build, eager, placed, switches, workload
from rooflens.runs.options import Options
from rooflens.runs.run import Request

CONTEXT = 737_000_000
"""Bytes of the context, as measured on the H200, by which `find` makes a smaller card's memory smaller."""
SHARES = (0.5, 1.0)
"""Between which the share that runs is looked for, and in how many halvings."""
HALVINGS = 4
MORE = 1.06
"""Tried where the whole share runs: the estimate was too high."""
WORKSPACES: tuple[tuple[str, str, str, tuple[int, ...]], ...] = (
    ("vgg16", "fp32", "inference", (64, 256, 1024)),
    ("vgg16", "fp32", "train", (64, 256, 512)),
    ("vgg16", "tf32", "train", (256,)),
    ("vgg16", "amp-bf16", "train", (256,)),
    ("alexnet", "fp32", "inference", (256, 1024, 4096)),
    ("alexnet", "fp32", "train", (256, 1024, 4096)),
    ("resnet18", "fp32", "inference", (1024, 4096)),
    ("resnet18", "fp32", "train", (256, 1024, 2048)),
    ("resnet18", "amp-bf16", "train", (1024,)),
    ("resnet50", "fp32", "train", (64, 256, 512)),
    ("inception_v3", "fp32", "train", (64, 256, 512)),
    ("googlenet", "fp32", "inference", (64, 256, 1024)),
    ("googlenet", "fp32", "train", (64, 256, 1024)),
    ("squeezenet1_0", "fp32", "train", (256, 1024)),
    ("densenet121", "fp32", "train", (256,)),
    ("mobilenet_v3_large", "fp32", "train", (1024,)),
)
LIMITS: tuple[tuple[str, str, str, int | None, int], ...] = (
    ("resnet18", "fp32", "inference", None, 16),
    ("resnet18", "fp32", "train", None, 16),
    ("vgg16", "fp32", "inference", None, 16),
    ("vgg16", "fp32", "train", None, 16),
    ("alexnet", "fp32", "inference", None, 16),
    ("alexnet", "fp32", "train", None, 16),
    ("resnet50", "amp-bf16", "train", None, 16),
    ("resnet50", "fp32", "train", None, 16),
    ("densenet121", "fp32", "train", None, 16),
    ("mobilenet_v3_large", "fp32", "train", None, 16),
    ("convnext_tiny", "fp32", "inference", None, 16),
    ("vit_b_16", "fp32", "inference", None, 16),
    ("vit_b_16", "bf16", "train", None, 16),
    ("swin_t", "fp32", "train", None, 16),
    ("hf:gpt2", "fp32", "train", TOKENS, 24),
    ("decoder", "bf16", "train", TOKENS, 24),
    ("decoder", "bf16", "prefill", TOKENS, 16),
)


def asked(model: str, dtype: str, mode: str, seq_len: int | None) -> Workload:
    """The workload of one sample."""
    return workload(Request(model=model, batch=1, dtype=dtype, mode=mode, options=Options(seq_len=seq_len)))


def built(wanted: Workload) -> Workload:
    """The same with its module, so that all batches share it."""
    return replace(wanted, blueprint=replace(wanted.blueprint, module=build(wanted.blueprint, "cpu")))


def prepared(wanted: Workload, batch: int) -> Callable[[], None]:
    """The step on the GPU, with its cache filled."""
    step = placed(wanted.step(replace(wanted.runs[0], batch=batch), "cuda"), "cuda")
    run = eager(step, "cuda").once
    return lambda: run(lambda: None)


def cleared() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def context() -> dict[str, int]:
    """Bytes of the GPU in use besides torch's tensors."""
    kept = cublas_workspace()
    x = torch.randn(8, 64, 64, 64, device="cuda", requires_grad=True)
    torch.nn.functional.conv2d(x, torch.randn(64, 64, 3, 3, device="cuda", requires_grad=True)).sum().backward()
    q = torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    del x, q
    cleared()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {
        "total": total,
        "free": free,
        "reserved": torch.cuda.memory_reserved(),
        "context": total - free - torch.cuda.memory_reserved(),
        "cublas_workspace": kept,
    }


def workspaces() -> Iterator[dict[str, Any]]:
    """Peaks of growing batches, with and without the workspaces of operations."""
    kept = torch.cuda.memory_allocated()
    for model, dtype, mode, batches in WORKSPACES:
        wanted = asked(model, dtype, mode, None)
        wanted = built(wanted)
        for batch in batches:
            with switches(dtype):
                run = prepared(wanted, batch)
                run()
                run()
                torch.cuda.reset_peak_memory_stats()
                run()
                plain = torch.cuda.max_memory_allocated() - kept
                with Boundaries(cuda=True) as seen:
                    run()
            del run
            cleared()
            yield {
                "model": model,
                "batch": batch,
                "dtype": dtype,
                "mode": mode,
                "peak": plain,
                "peak_without_workspace": seen.peak - kept,
            }


def cublas_workspace() -> int:
    """Bytes that torch keeps for cuBLAS after its first products."""
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.randn(256, 256, device="cuda", dtype=dtype)
        torch.nn.functional.linear(a, a, a[0])
        torch.mm(a, a)
    del a
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def found(decoder: str) -> Iterator[dict[str, Any]]:
    """Batches whose tensors alone would fill what the context leaves of a GPU with so many GB."""
    card = rl.device("h200")
    for model, dtype, mode, seq_len, gigabytes in LIMITS:
        name = decoder if model == "decoder" else model
        memory = replace(card.facts["memory"], value=gigabytes * 1e9)
        smaller = replace(card, name=f"{gigabytes} GB", facts={**card.facts, "memory": memory})
        step: dict[str, Any] = {"device": smaller, "dtype": dtype, "mode": mode, "seq_len": seq_len}
        (fit,) = rl.largest_batch(name, reserve=CONTEXT, **step)
        yield {
            "model": model,
            "dtype": dtype,
            "mode": mode,
            "seq_len": seq_len,
            "memory": int(gigabytes * 1e9),
            "batch": fit.batch,
            "answer": rl.largest_batch(name, **step).batch,
        }


def limits(decoder: str, cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The largest share of these batches that runs."""
    for case in cases:
        name = decoder if case["model"] == "decoder" else case["model"]
        wanted = asked(name, case["dtype"], case["mode"], case["seq_len"])
        allocator = os.environ.get("PYTORCH_ALLOC_CONF", "default")
        yield (case | {"allocator": allocator} | tried(built(wanted), case["batch"], case["memory"] - CONTEXT))


def tried(wanted: Workload, batch: int, limit: int) -> dict[str, Any]:
    """The largest batch that ran within so many bytes, and the smallest that did not."""
    low, high = SHARES
    seen: dict[int, dict[str, int] | None] = {}

    def runs(share: float) -> bool:
        size = int(share * batch)
        seen[size] = within(wanted, size, limit)
        return seen[size] is not None

    if runs(high):
        runs(MORE)
    elif runs(low):
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if runs(middle) else (low, middle)
    ran = max((size for size, bytes_ in seen.items() if bytes_), default=None)
    failed = min((size for size, bytes_ in seen.items() if not bytes_), default=None)
    return {"runs": ran, "fails": failed, **(seen[ran] or {} if ran else {})}


def within(wanted: Workload, batch: int, limit: int) -> dict[str, int] | None:
    """Most bytes that two steps allocated and reserved under a limit of the allocator; None where it was too small."""
    total = torch.cuda.get_device_properties(0).total_memory
    run = prepared(wanted, batch)
    cleared()
    torch.cuda.set_per_process_memory_fraction(limit / total)
    torch.cuda.reset_peak_memory_stats()
    try:
        with switches(wanted.runs[0].dtype):
            run()
            run()
        return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    except torch.OutOfMemoryError:
        return None
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        del run
        cleared()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("find", "run"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--found", type=Path)
    parser.add_argument("--limits-only", action="store_true")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    decoder = options.out.parent / "decoder-1b.json"
    decoder.write_text(json.dumps(DECODER))
    name = f"hf:{decoder}"
    if options.what == "find":
        options.out.write_text(json.dumps(list(found(name)), indent=1) + "\n")
        return
    before = json.loads(options.out.read_text()) if options.limits_only and options.out.exists() else {"limits": []}
    result: dict[str, Any] = before | {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
    }
    parts = {"limits": limits(name, json.loads(options.found.read_text()))}
    if not options.limits_only:
        result |= {"context": context(), "workspaces": []}
        parts["workspaces"] = workspaces()
    for what, rows in parts.items():
        for row in rows:
            result[what].append(row)
            print(json.dumps(row), flush=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
