"""Where measured ceilings are kept: one device file per machine, in the user's cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rooflens.devices.files import slug

FOLDER = "rooflens"


def stored_path(title: str, torch_version: str, threads: int | None, folder: Path | None = None) -> Path:
    """The file of one machine; its name has what distinguishes one measurement from another.

    >>> stored_path("NVIDIA T4", "2.11.0+cu128", None, Path("cache")).as_posix()
    'cache/measured-nvidia-t4-torch-2.toml'

    Args:
        title: the card or processor, as the system names it.
        torch_version: only the major version counts.
        threads: of a CPU; None for a card, where their number does not matter.
        folder: default: :func:`cache_folder`.
    """
    parts = ["measured", slug(title), "torch", torch_version.partition(".")[0]]
    parts += [] if threads is None else [str(threads), "threads"]
    return (cache_folder() if folder is None else folder) / f"{'-'.join(filter(None, parts))}.toml"


def cache_folder(platform: str = sys.platform, environment: Mapping[str, str] = os.environ) -> Path:
    """The platform's folder for files that a program can make again."""
    home = Path.home()
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / FOLDER / "Cache"
    if platform == "darwin":
        return home / "Library" / "Caches" / FOLDER
    base = Path(environment.get("XDG_CACHE_HOME") or "")  # the standard ignores relative paths
    return (base if base.is_absolute() else home / ".cache") / FOLDER
