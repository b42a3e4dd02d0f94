"""Where the file of a study lies, which its paths are relative to.

The study's folder tells it relative to itself, so that both can be moved together. Where that would name the folders
above the user's home, or of the whole machine, it is kept in the user's cache instead: a study's folder is given away.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rooflens.devices.files import cache_folder
from rooflens.errors import InvalidValue
from rooflens.records import write_atomically


def noted(folder: Path, home: Path) -> str | None:
    """Return what the folder of a study may tell of where its file lies; None: this user's cache tells it from now on.

    Args:
        home: the folder of the study file.
    """
    common = Path(os.path.commonpath((home.resolve(), folder.resolve())))
    if common != Path(common.anchor) and common not in Path.home().resolve().parents:
        return os.path.relpath(home, folder)
    note = _note(folder)
    note.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(note, str(home.resolve()))
    return None


def home_of(folder: Path, told: object) -> Path:
    """Return the folder of the study file.

    Args:
        told: what the folder of the study tells of it.

    Raises:
        InvalidValue: neither it nor the user's cache tells it.
    """
    if told is not None:
        return Path(os.path.normpath(folder / str(told)))
    try:
        return Path(_note(folder).read_text())
    except OSError as error:
        raise InvalidValue(
            f"where the study file of {str(folder)!r} lies is known only to who began the study on this machine; run"
            f" 'rooflens study run STUDY.toml -d {folder}'"
        ) from error


def _note(folder: Path) -> Path:
    return cache_folder() / "studies" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
