"""Where the measured ceilings of a machine are kept: a device file per machine in the user's cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rooflens.devices.files import slug

FOLDER = "rooflens"


def stored_path(title: str, torch_version: str, threads: int | None, folder: Path | None = None) -> Path:
    """The file of one machine. What makes a measurement another one is in its name.

    >>> stored_path("NVIDIA T4", "2.11.0+cu128", None, Path("cache")).as_posix()
    'cache/measured-nvidia-t4-torch-2.toml'

    Args:
        title: the card or processor, as the system names it.
        torch_version: of which the major version counts.
        threads: of a CPU; None on a card, which they do not slow down.
        folder: default: :func:`cache_folder`.
    """
    words = ["measured", slug(title), "torch", torch_version.partition(".")[0]]
    words += [] if threads is None else [str(threads), "threads"]
    return (cache_folder() if folder is None else folder) / f"{'-'.join(filter(None, words))}.toml"


def cache_folder(platform: str = sys.platform, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the platform keeps what a program can make again."""
    home = Path.home()
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / FOLDER / "Cache"
    if platform == "darwin":
        return home / "Library" / "Caches" / FOLDER
    base = Path(environment.get("XDG_CACHE_HOME") or "")  # the standard: what is no absolute path does not count
    return (base if base.is_absolute() else home / ".cache") / FOLDER
