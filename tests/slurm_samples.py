"""A study whose cells take no time, and programs that stand for others."""

from __future__ import annotations

import json
from pathlib import Path

from rooflens.study import StudyFolder

STUDY = """\
title = "Jobs"
models = ["resnet18"]
batches = [1, 2, 4, 8, 16, 32]
devices = ["t4", "cpu"]

[estimate]
limit = 60
"""
# What runs a cell here: it leaves the file that says that the cell is done, and notes what it sees.
DO = """
import json, os, pathlib, sys
folder, *keys = sys.argv[1:]
seen = {name: os.environ.get(name) for name in ("SAID", "PREFIXED", "SLURM_JOB_PARTITION", "SRUN_CPUS_PER_TASK")}
for key in keys:
    pathlib.Path(folder, "cells", key + ".jsonl").write_text(json.dumps(seen))
"""


def study_folder(where: Path, text: str = STUDY) -> StudyFolder:
    (where / "jobs.toml").write_text(text)
    folder, _ = StudyFolder.begin(where / "study", where / "jobs.toml")
    return folder


def seen(folder: StudyFolder) -> list[dict[str, str | None]]:
    """What each cell's process saw."""
    return [json.loads(path.read_text()) for path in sorted(folder.files.glob("*.jsonl"))]


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
