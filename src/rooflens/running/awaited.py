"""Files for which a process waits, while its caller runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

PATIENCE = 3600.0
"""Seconds for a step to be profiled, with the longest compilation; then whoever asked is gone."""
LOOKS = 0.02
"""Seconds between two looks."""


def written(path: Path, what: object) -> None:
    """Write a file that somebody waits for, whole or not at all."""
    made = path.with_name(f"{path.name}.part")
    made.write_bytes(msgspec.json.encode(what))
    made.replace(path)


def awaited(path: Path, caller: int) -> bytes:
    """Return what stands in a file, once it is there; this process ends if its caller does before that."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > until or not _runs(caller):
            raise SystemExit(f"{str(path)!r} did not come within {PATIENCE:g} s, or while its caller ran")
        time.sleep(LOOKS)
    return path.read_bytes()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as somebody else
        return True
    return True
