"""Compare estimated peak memory with what torch's allocator reports on a GPU.

    python benchmarks/memory.py --out benchmarks/results/memory-h200.json [--cpu]

For every case the step runs twice to settle, once for the peak that the device reports, and once inside a mode that
reads the allocated bytes after every operation. The highest of these is the peak without workspaces. It misses what an
operation allocates and frees during its own call (cuDNN's workspace for a convolution): these are listed by operation.
cuBLAS keeps its workspace between calls: it is what is left when the model is gone, and is subtracted.

Each case has a process of its own, and one that ends costs that case only: `failed` in the results says how it ended.
What operations took within their calls goes to a file of its own, OUT with "workspaces" before its suffix.

`--cpu` runs the same script without a GPU, to try it out; memory is then not measured.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import itertools
import json
import signal
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.connection import Connection
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
    "resnext101_32x8d",
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
LIMIT, GRACE = 180.0, 20.0
"""Seconds for a case, and then for its process to end."""
Case = tuple[str, int, str, str, int | None]
"""Model, batch, dtype, mode and length."""


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
    step = placed(asked.step(asked.runs[0], "cpu"), device, copy=False)
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


def row_of(case: Case, device: str) -> dict[str, Any]:
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


def apart(case: Case, device: str) -> dict[str, Any]:
    """The row of a case, from a process of its own; `failed` says how that ended without one."""
    # The server of processes imports the libraries once, and never touches the device.
    context = get_context("forkserver")
    context.set_forkserver_preload(["torchvision", "rooflens.running.estimating"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(theirs, case, device))
    process.start()
    theirs.close()
    try:
        row: dict[str, Any] = ours.recv() if ours.poll(LIMIT) else {"failed": f"not done after {LIMIT:g} s"}
    except EOFError:
        row = {}
    process.join(GRACE)
    if process.is_alive():
        process.kill()
        process.join()
    return row or {"failed": f"exit code {process.exitcode}: {_signal(process.exitcode or 0)}"}


def _send(pipe: Connection, case: Case, device: str) -> None:
    faulthandler.enable()
    try:
        row = row_of(case, device)
    except Exception as error:  # noqa: BLE001 - the other cases go on, and the results say what this one raised
        traceback.print_exc()
        row = {"failed": f"{type(error).__name__}: {error}"}
    pipe.send(row)


def _signal(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else "it ended by itself"


def cases_of(fresh: bool, decoder: Path) -> list[Case]:
    """What is measured: models that rules were made from, or `fresh` ones."""
    if fresh:
        return [(*case, None) for case in itertools.product(FRESH, (2, 32), ("fp32", "default", "amp-bf16"), STEPS)]
    cases: list[Case] = [
        (model, batch, "fp32", mode, None) for model, batches in IMAGES.items() for batch in batches for mode in STEPS
    ]
    cases += [("vit_b_16", 64, "bf16", "inference", None), ("resnet50", 64, "amp-bf16", "train", None)]
    cases += [(f"hf:{decoder}", batch, "bf16", mode, TOKENS) for batch in (1, 4) for mode in STEPS]
    cases += [("hf:gpt2", batch, "fp32", mode, TOKENS) for batch in (1, 4) for mode in STEPS]
    for name in ("convnext_tiny", "swin_t", "vit_b_16", "resnet18"):
        cases += [(name, 64, "amp-bf16", mode, None) for mode in STEPS]
    return [*cases, *(("hf:gpt2", 4, "amp-bf16", mode, TOKENS) for mode in STEPS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time; all must fit on the device together")
    parser.add_argument("--fresh", action="store_true", help="models that no rule was made from, instead of the others")
    parser.add_argument("--model", action="append", help="only the cases of this model; may be repeated")
    parser.add_argument("--dtype", help="only the cases of this element type")
    options = parser.parse_args()
    device = "cpu" if options.cpu else "cuda"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    decoder = options.out.parent / "decoder-1b.json"
    decoder.write_text(json.dumps(DECODER))
    cases = [
        case
        for case in cases_of(options.fresh, decoder)
        if options.dtype in (None, case[2]) and (options.model is None or case[0] in options.model)
    ]
    if options.cpu and options.model is None:
        cases = cases[:2]
    rows: dict[Case, dict[str, Any]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(apart, case, device): case for case in cases}
        for done in as_completed(waiting):
            case = waiting[done]
            rows[case] = done.result()
            print(case, {key: value for key, value in rows[case].items() if key != "workspaces"}, flush=True)
            save(options.out, device, [(case, rows[case]) for case in cases if case in rows])


def save(out: Path, device: str, rows: list[tuple[Case, dict[str, Any]]]) -> None:
    """Write what is known so far, in the order of the cases."""
    names = ("model", "batch", "dtype", "mode", "seq_len")
    result = {
        "card": torch.cuda.get_device_name() if device == "cuda" else "none",
        "torch": torch.__version__,
        "cases": [
            {key: value for key, value in row.items() if key != "workspaces"} for _, row in rows if "failed" not in row
        ],
        "failed": [
            dict(zip(names, (case[0].rpartition("/")[2], *case[1:]), strict=True)) | row
            for case, row in rows
            if "failed" in row
        ],
    }
    out.write_text(json.dumps(result, indent=1) + "\n")
    taken = {" ".join(map(str, case)): row["workspaces"] for case, row in rows if row.get("workspaces")}
    out.with_suffix(f".workspaces{out.suffix}").write_text(json.dumps(taken, indent=1) + "\n")


if __name__ == "__main__":
    main()
