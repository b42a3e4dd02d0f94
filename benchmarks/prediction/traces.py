"""Estimates of steps, kept in a folder: each is made once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rooflens as rl
from rooflens.results import RecordSet

OPTIONS = ("seq_len", "kv_cache", "optimizer", "img_size", "channels_last", "compile")


class Traces:
    """A folder of estimates."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def step(self, case: Mapping[str, Any]) -> RecordSet:
        """The estimate of a step: of a model, mode, element type and batch, with options."""
        options = {name: case[name] for name in OPTIONS if case.get(name)}
        parts = [case["model"], case["dtype"], case["mode"], case["batch"]]
        parts += [f"{name}={value}" for name, value in sorted(options.items())]
        path = self.folder / f"{'-'.join(map(str, parts)).replace(':', '_').replace('/', '_')}.jsonl"
        if not path.exists():
            made = rl.estimate(case["model"], batch=case["batch"], dtype=case["dtype"], mode=case["mode"], **options)
            made.save(path)
        records = rl.read(path)
        assert isinstance(records, RecordSet)
        return records
