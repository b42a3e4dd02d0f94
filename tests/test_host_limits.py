"""Limits of control groups of both versions, wherever around the process they stand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rooflens import host_limits

SECOND_AT_THE_ROOT = {  # a container that sees its own group as the root
    "own": "0::/\n",
    "memory.max": "8000\n",
    "memory.current": "5000\n",
    "memory.stat": "anon 1000\ninactive_file 2500\nactive_file 500\n",
    "cpu.max": "150000 100000\n",
}
SECOND_OF_A_JOB = {  # a Slurm job: the root has no such files, a limit stands some levels below it, the task has none
    "own": "0::/system.slice/job_7/step_0/task_0\n",
    "system.slice/memory.max": "max\n",
    "system.slice/job_7/memory.max": "6000\n",
    "system.slice/job_7/memory.current": "1000\n",
    "system.slice/job_7/step_0/memory.max": "4000\n",
    "system.slice/job_7/step_0/memory.current": "500\n",
    "system.slice/job_7/step_0/task_0/memory.max": "max\n",
    "system.slice/job_7/cpu.max": "400000 100000\n",
    "system.slice/job_7/step_0/cpu.max": "max 100000\n",
}
FIRST = {
    "own": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/docker/abc/memory.limit_in_bytes": "3000\n",
    "memory/docker/abc/memory.usage_in_bytes": "2000\n",
    "memory/docker/abc/memory.stat": "inactive_file 1\ntotal_inactive_file 250\ntotal_active_file 0\n",
    "cpu/cpu.cfs_quota_us": "-1\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "cpu/docker/abc/cpu.cfs_quota_us": "50000\n",
    "cpu/docker/abc/cpu.cfs_period_us": "100000\n",
}
FREE = {"own": "0::/user.slice\n", "user.slice/memory.max": "max\n", "user.slice/cpu.max": "max 100000\n"}


@pytest.mark.parametrize(
    ("files", "limits", "left"),
    [
        # 8000 less 5000, and 3000 of these are pages of files.
        (SECOND_AT_THE_ROOT, {"container cpus": 1.5, "container memory": 8000}, 6000),
        # The step's 4000 less 500 are less than the job's 6000 less 1000.
        (SECOND_OF_A_JOB, {"container cpus": 4.0, "container memory": 4000}, 3500),
        (FIRST, {"container cpus": 0.5, "container memory": 3000}, 1250),
        (FREE, {}, None),
        ({}, {}, None),
    ],
    ids=["version 2", "version 2, a job", "version 1", "no limit", "no control groups"],
)
def test_the_tightest_limit_holds(
    files: Mapping[str, str],
    limits: Mapping[str, float],
    left: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, words in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(words)
    monkeypatch.setattr(host_limits, "GROUPS", tmp_path)
    monkeypatch.setattr(host_limits, "OWN", tmp_path / "own")
    assert host_limits.container_limits() == limits
    assert host_limits.memory_left() == left
