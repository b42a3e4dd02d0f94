"""Counters of a file with time and place from a trace of the same step."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import FileError, InvalidValue
from rooflens.running.placing import ALONE
from rooflens.sources import profile

TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
AMD = TRACES / "amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz"
COUNTERS = {"SQ_INSTS_VALU_MFMA_MOPS_F32": 4, "FETCH_SIZE": 10, "WRITE_SIZE": 5}


def rocprof3(path: Path, names: list[str]) -> Path:
    """Counters as rocprofv3 writes them: 4 x 512 FLOP and 15 x 1024 bytes in each dispatch."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL)
        rows.writerow(["Correlation_Id", "Dispatch_Id", "Agent_Id", "Process_Id", "Kernel_Name", "Counter_Name", "Counter_Value"])  # fmt: skip  # noqa: E501
        for n, name in enumerate(names):
            rows.writerows([n, n, 1, 9, name, counter, value] for counter, value in COUNTERS.items())
    return path


@pytest.mark.skipif(not AMD.exists(), reason="needs a trace of an AMD GPU that others published")
def test_counters_of_an_amd_gpu_take_the_places_of_its_trace(tmp_path: Path) -> None:
    """A training step with 14 kernels on an MI250; a kernel that ran before it has no partner."""
    kernels = [
        its for its in profile.attribute(profile.read_trace(AMD)) if its.activity and its.activity.kind == "kernel"
    ]
    names = [its.activity.name for its in kernels if its.activity is not None]
    file = rocprof3(tmp_path / "counter_collection.csv", ["init_weights(float*)", *names])
    found = rl.read(file, trace=AMD, device="instinct-mi250x")
    launches = [r for r in found if r.work is not None]
    assert len(launches) == 15
    assert ALONE in launches[0].notes
    assert {r.phase for r in launches[1:]} == {"forward", "backward", "optimizer"}
    assert sum(r.seconds or 0 for r in launches[1:]) == pytest.approx(sum(its.seconds for its in kernels))
    assert {r.kind for r in launches[1:]} >= {"matmul", "elementwise", "loss"}
    assert found.cases[0].mode == "train"
    assert any("14 launches are joined" in note for note in found.notes)
    assert sum(r.work is None for r in found) == 2  # copies, which have a time only
    forward = found.total("forward")
    assert forward.bytes["dram"] == sum(r.phase == "forward" for r in launches) * 15 * 1024
    assert {mark.label for mark in rl.roofline(found, by="family").marks} >= {"matmul", "elementwise"}


def trace(path: Path, *kernels: tuple[str, str]) -> Path:
    """A trace of one module: each kernel by the operation that launched it, 5 us each."""
    whole = {"ph": "X", "pid": 1, "tid": 1}
    events: list[dict[str, Any]] = [
        whole | {"cat": "user_annotation", "name": "rooflens:module:fc", "ts": 0, "dur": 1000},
    ]
    for n, (operation, kernel) in enumerate(kernels, start=1):
        at = whole | {"ts": 10 * n, "dur": 5}
        events.append(at | {"cat": "cpu_op", "name": operation, "args": {"External id": n}})
        events.append(at | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1, "args": {"correlation": n}})
        events.append(at | {"cat": "kernel", "name": kernel, "args": {"correlation": n, "device": 0, "stream": 7}})
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def ncu(path: Path, *names: str) -> Path:
    rows = [["ID", "Process ID", "Kernel Name", "Device", "CC", "gpu__time_duration.sum", "dram__bytes.sum"]]
    rows += [["", "", "", "", "", "ns", "byte"]]
    rows += [[str(n), "1", name, "0", "9.0", "1000", "64"] for n, name in enumerate(names)]
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n")
    return path


def test_counters_of_nsight_compute_do_too(tmp_path: Path) -> None:
    made = trace(tmp_path / "t.json", ("aten::mm", "void gemm<1>(float*)"), ("aten::relu", "void relu(float*)"))
    counted = ncu(tmp_path / "report.csv", "gemm", "relu")
    found = rl.read(counted, trace=made)
    assert [(r.path, r.operation, r.kind) for r in found] == [("fc", "mm", "matmul"), ("fc", "relu", "elementwise")]
    assert [r.seconds for r in found] == pytest.approx([5e-6, 5e-6])
    shown = CliRunner().invoke(cli, ["read", str(counted), "--trace", str(made)])
    assert shown.exit_code == 0, shown.output
    assert "2 launches are joined" in " ".join(shown.stdout.split())


def test_what_cannot_be_joined_is_refused(tmp_path: Path) -> None:
    made = trace(tmp_path / "t.json", ("aten::mm", "gemm"))
    with pytest.raises(FileError, match="no launch of the kernels"):
        rl.read(ncu(tmp_path / "other.csv", "softmax"), trace=made)
    with pytest.raises(InvalidValue, match="no launches with counters"):
        rl.read(made, trace=made)
