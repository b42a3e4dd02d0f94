"""Run kernels whose work is known, each in a range of its own, to compare with counters:

    rooflens counters --limit 300 -o products.jsonl -- python benchmarks/counted_products.py
    rooflens counters --cache none -o products-warm.jsonl -- python benchmarks/counted_products.py

Products of 4096 x 4096 matrices in five precisions are 2 x 4096^3 FLOP each. A kernel of packed half and one of
packed bfloat16 multiply-adds do `THREADS` x `STEPS` instructions, 4 FLOP each. A product of 16 Mi numbers by a scalar
reads and writes 64 MiB.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial

import torch
from torch.cuda import nvtx

SIDE = 4096
COPIED = 1 << 24
THREADS, BLOCK, STEPS = 1 << 16, 256, 64
PACKED = """
extern "C" __global__ void packed_{kind}(unsigned* out) {{
    unsigned x = threadIdx.x, a = 0x3c003c00u, b = 0x00010001u;
    #pragma unroll
    for (int i = 0; i < {steps}; ++i) asm volatile("fma.rn.{kind} %0, %0, %1, %2;" : "+r"(x) : "r"(a), "r"(b));
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}}
"""


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    calls = {**products(), **packed(), "copy 64 MiB": copy()}
    for call in calls.values():  # warm
        call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for name, call in calls.items():
        nvtx.range_push(name)
        switch(name == "tf32")
        call()
        nvtx.range_pop()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def switch(on: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = on


def products() -> dict[str, Callable[[], object]]:
    """Square products by precision."""
    found: dict[str, Callable[[], object]] = {}
    for name, dtype in {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "tf32": torch.float32,
        "fp32": torch.float32,
    }.items():
        a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=dtype) for _ in range(2))
        found[name] = partial(torch.mm, a, b)
    a8, b8 = (torch.randn(SIDE, SIDE, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    found["fp8"] = lambda: torch._scaled_mm(a8, b8.t(), one, one, out_dtype=torch.bfloat16)
    return found


def packed() -> dict[str, Callable[[], object]]:
    """Packed multiply-adds on the general lanes."""
    from torch.utils import cpp_extension

    cpp_extension.CUDA_HOME = cpp_extension.CUDA_HOME or tempfile.gettempdir()  # for headers, of which none is used
    out = torch.empty(THREADS, dtype=torch.int32, device="cuda")
    found: dict[str, Callable[[], object]] = {}
    for kind in ("f16x2", "bf16x2"):
        kernel = torch.cuda._compile_kernel(PACKED.format(kind=kind, steps=STEPS), f"packed_{kind}")
        found[kind] = partial(kernel, grid=(THREADS // BLOCK, 1, 1), block=(BLOCK, 1, 1), args=[out])
    return found


def copy() -> Callable[[], object]:
    """Read and write 64 MiB each by a kernel; `copy_` would be a copy by the driver, which ncu does not see."""
    x = torch.randn(COPIED, device="cuda")
    y = torch.empty_like(x)
    return lambda: torch.mul(x, 1.5, out=y)


if __name__ == "__main__":
    main()
