"""Measure what operations allocate and free within their own call: the workspaces of cuDNN and of others.

    python benchmarks/workspaces.py shapes --out FILE            # without a GPU: the distinct convolutions of models
    python benchmarks/workspaces.py measure --shapes FILE --out FILE --part 0/4 --seconds 240

For each convolution, batch, element type and layout, three calls run: forward, gradient of the input, gradient of the
weights. Of each the most that is allocated meanwhile is noted, less what was there before and what it returns.
Where that is more than 1 MB, the names of the kernels are noted too: they tell the algorithm.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import rooflens as rl

MODELS = (
    "alexnet",
    "vgg16",
    "resnet18",
    "googlenet",
    "resnet50",
    "inception_v3",
    "squeezenet1_0",
    "deeplabv3_resnet50",
    "convnext_tiny",
    "regnet_y_400mf",
    "resnext50_32x4d",
    "efficientnet_b0",
    "mobilenet_v3_large",
    "shufflenet_v2_x1_0",
    "mnasnet1_0",
    "swin_t",
    "vit_b_16",
)
KEYS = ("input", "weight", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
BATCHES = (64, 4, 1, 16, 256)
SETTINGS = (
    ("fp32", False),
    ("tf32", False),
    ("bf16", False),
    ("bf16", True),
    ("fp16", False),
    ("tf32", True),
)
MASKS = {"forward": None, "input": [True, False, False], "weight": [False, True, False]}
WIDTHS, PLACES = (16, 24, 40, 48, 56, 64, 80, 112, 120, 128), ((2, 112), (4, 56), (8, 28), (12, 14), (16, 7))
"""Channels of a group; groups, and side of the image."""
WORTH_A_NAME = 1_000_000
MOST_ELEMENTS = 1 << 28


def extra_shapes() -> Iterator[dict[str, Any]]:
    """Convolutions that the models lack: a U-Net's, transposed, with large kernels, of one and three dimensions, and
    groups of any width.
    """

    def conv(size: list[int], out: int, kernel: list[int], stride: int = 1, **others: Any) -> dict[str, Any]:
        transposed, groups = others.get("transposed", False), others.get("groups", 1)
        across = [size[0], out // groups] if transposed else [out, size[0] // groups]
        n = len(kernel)
        padding = others.get("padding", [k // 2 for k in kernel])
        return {
            "input": [1, *size],
            "weight": [*across, *kernel],
            "stride": [stride] * n,
            "padding": padding,
            "dilation": [others.get("dilation", 1)] * n,
            "transposed": transposed,
            "output_padding": [0] * n,
            "groups": groups,
        }

    for channels, side in ((64, 256), (128, 128), (256, 64), (512, 32), (1024, 16)):
        yield conv([channels, side, side], channels, [3, 3])
        yield conv([channels, side, side], channels // 2, [2, 2], 2, transposed=True, padding=[0, 0])
    for channels, side, kernel in ((64, 56, 5), (128, 28, 5), (64, 56, 7), (128, 28, 7), (64, 112, 9), (32, 56, 11)):
        yield conv([channels, side, side], channels, [kernel, kernel])
    for channels, side in ((128, 32), (256, 16), (512, 8)):
        yield conv([channels, side, side], channels // 2, [4, 4], 2, transposed=True, padding=[1, 1])
    for channels, length, kernel in ((80, 3000, 3), (384, 1500, 3), (512, 16000, 10), (256, 4096, 7)):
        yield conv([channels, length], channels, [kernel])
    for channels, side in ((32, 64), (64, 32), (128, 16)):
        yield conv([channels, side, side, side], channels, [3, 3, 3])
    for width, (groups, side), stride in itertools.product(WIDTHS, PLACES, (1, 2)):
        yield conv([width * groups, side, side], width * groups, [3, 3], stride, groups=groups)


def shapes(out: Path) -> None:
    """Write the distinct convolutions of one sample."""
    seen: dict[str, dict[str, Any]] = {}
    for model in MODELS:
        for record in rl.estimate(model, batch=1).records:
            if record.call is not None and record.name == "convolution":
                arguments = dict(record.call.arguments)
                row = {key: getattr(arguments[key], "shape", arguments[key]) for key in KEYS}
                seen.setdefault(json.dumps(row), row | {"model": model})
        print(model, len(seen), file=sys.stderr, flush=True)
    rows = [*seen.values(), *extra_shapes()]
    out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def workspace(call: Any) -> tuple[int, tuple[torch.Tensor, ...]]:
    """Bytes that a call allocates beyond what it returns."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - max(torch.cuda.memory_allocated(), before), result


def kernels(call: Any) -> list[str]:
    """Names of the kernels that a call runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    events = profile.events() or ()
    return [event.name for event in events if event.device_type == torch.autograd.DeviceType.CUDA]


def measured(row: dict[str, Any], batch: int, dtype: str, last: bool) -> Iterator[dict[str, Any]]:
    """The workspaces of one convolution's three calls."""
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
    dims = len(row["input"]) - 2
    format_ = torch.contiguous_format
    if last:
        if dims == 1:
            return
        format_ = torch.channels_last if dims == 2 else torch.channels_last_3d
    x = torch.randn([batch, *row["input"][1:]], device="cuda").to(kind).contiguous(memory_format=format_)
    w = torch.randn(row["weight"], device="cuda").to(kind).contiguous(memory_format=format_)
    arguments = [row[key] for key in KEYS[2:]]
    y = torch.ops.aten.convolution(x, w, None, *arguments)
    for way, mask in MASKS.items():
        call: Callable[[], Any] = partial(torch.ops.aten.convolution, x, w, None, *arguments)
        if mask is not None:
            call = partial(torch.ops.aten.convolution_backward, y, x, w, None, *arguments, mask)
        call()
        nbytes, _ = workspace(call)
        yield {
            "input": list(x.shape),
            "weight": list(w.shape),
            "output": list(y.shape),
            **{key: row[key] for key in KEYS[2:]},
            "dtype": dtype,
            "channels_last": last,
            "way": way,
            "workspace": nbytes,
            "kernels": kernels(call) if nbytes > WORTH_A_NAME else [],
        }


def measure(options: argparse.Namespace) -> None:
    """Write a line for each call, until all are done or the time is over."""
    part, parts = map(int, options.part.split("/"))
    rows = json.loads(options.shapes.read_text())
    started, cases = time.monotonic(), []
    for (dtype, last), batch in itertools.product(SETTINGS, BATCHES):
        if batch in BATCHES[:2] or (dtype, last) in SETTINGS[:1] or ((dtype, last) in SETTINGS[1:3] and batch == 16):
            cases += [(row, batch, dtype, last) for row in rows if options.dtype in (None, dtype)]
    with options.out.open("w") as out:
        for index, (row, batch, dtype, last) in enumerate(cases[part::parts]):
            if time.monotonic() - started > options.seconds:
                print(f"time is over after {index} of {len(cases[part::parts])} cases", flush=True)
                return
            elements = batch * max(torch.Size(row["input"]).numel(), 1)
            if elements > MOST_ELEMENTS:
                continue
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
            try:
                for line in measured(row, batch, dtype, last):
                    out.write(json.dumps(line) + "\n")
            except (torch.OutOfMemoryError, RuntimeError) as error:
                out.write(
                    json.dumps({"input": row["input"], "batch": batch, "dtype": dtype, "error": str(error)[:200]})
                    + "\n"
                )
            torch.cuda.empty_cache()
    print(f"{len(cases[part::parts])} cases in {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("shapes", "measure"))
    parser.add_argument("--shapes", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--dtype", help="only the calls of this element type")
    parser.add_argument("--seconds", type=float, default=240)
    options = parser.parse_args()
    shapes(options.out) if options.what == "shapes" else measure(options)


if __name__ == "__main__":
    main()
