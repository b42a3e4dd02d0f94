"""Kernels of a profile beside the expected seconds of an estimate's operations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.prediction.explained import measured


def event(category: str, name: str, begin: float, seconds: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "tid": 7, "ts": begin, "dur": seconds, "args": args}


def test_a_kernel_belongs_to_the_outermost_operation_that_the_estimate_has(tmp_path: Path) -> None:
    joined = {"Input Dims": [[[2, 3], [2, 1]], []]}
    events = [
        event("cpu_op", "aten::linear", 0, 50, **{"Input Dims": [[8, 4], [2, 4]]}),
        event("cpu_op", "aten::addmm", 10, 20, **{"Input Dims": [[2], [8, 4], [4, 2]]}),
        event("cuda_runtime", "cudaLaunchKernel", 12, 2, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 18, 2, correlation=2),
        event("cpu_op", "autograd::engine::evaluate_function: CatBackward0", 60, 30),
        event("cpu_op", "aten::cat", 65, 20, **joined),
        event("cuda_runtime", "cudaLaunchKernel", 70, 2, correlation=3),
        event("kernel", "gemm", 100, 5, correlation=1),
        event("kernel", "splitk", 106, 3, correlation=2),
        event("kernel", "cat", 120, 4, correlation=3),
        event("kernel", "of nobody", 130, 4, correlation=9),
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    found = list(measured(path, frozenset({"addmm", "cat"})))
    keys = [key for key, *_ in found]
    assert keys == [("forward", "addmm", ((2,), (8, 4), (4, 2)))] * 2 + [("backward", "cat", ((2, 3), (2, 1)))]
    assert [seconds for _, _, seconds, _ in found] == pytest.approx([5e-6, 3e-6, 4e-6])
    assert found[0][1] == found[1][1] != found[2][1]  # two kernels of one call
