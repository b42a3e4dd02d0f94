"""Which of these files one is, and what it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from rooflens.errors import DeviceFileError, UnknownFormat
from rooflens.opening import head, read_text, text_of
from rooflens.records import Device
from rooflens.sources.roofs.ceilings import Roofs
from rooflens.sources.roofs.ert import from_json
from rooflens.sources.roofs.ert_text import FIRST_RATE, TRIAL, from_text
from rooflens.sources.roofs.kernel_table import TELLING, from_table
from rooflens.sources.roofs.keywords import from_keywords, is_keyword
from rooflens.sources.roofs.rocprof_roofs import MEMORY, from_rocprof

RoofFormat = Literal["ERT JSON", "ERT text", "NERSC keywords", "NERSC table", "rocprof-compute"]
ROOF_FILES = (".json", ".txt", ".csv")
"""Suffixes of files whose roofs may be named wherever a device is."""
_JSON = re.compile(r'\{\s*"(?:empirical|spec)"\s*:\s*\{')
_READERS: Mapping[RoofFormat, Callable[[str, Path, str, Device | None], Roofs]] = {
    "ERT JSON": from_json,
    "ERT text": from_text,
    "NERSC keywords": from_keywords,
    "NERSC table": from_table,
    "rocprof-compute": from_rocprof,
}


def format_of(head: bytes) -> RoofFormat | None:
    """Return the format of a file that begins like this, None if it is none of these."""
    text = text_of(head).lstrip()
    if _JSON.match(text):
        return "ERT JSON"
    first = next((line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    if FIRST_RATE.fullmatch(first) or TRIAL.fullmatch(first):
        return "ERT text"
    if is_keyword(first.partition(" ")[0]):
        return "NERSC keywords"
    columns = {word.strip(' "') for word in first.split(",")}
    if MEMORY in columns:
        return "rocprof-compute"
    return None if columns.isdisjoint(TELLING) else "NERSC table"


def read_roofs(path: Path, model: str, told: Device | None = None) -> Roofs:
    """Return the ceilings and points of a file.

    Args:
        model: what the case of the points is called.
        told: the device that the user named: the points stand under it, and the file's own roofs beside it.

    Raises:
        UnknownFormat: it is none of these files.
        FileError: it cannot be read, or is damaged; the message names the line, or the key of a JSON file.
    """
    kind = format_of(head(path))
    if kind is None:
        raise UnknownFormat(f"{str(path)!r} holds no roofs")
    return _READERS[kind](read_text(path), path, model, told)


def device_of_roofs(path: Path) -> Device:
    """Return the device that a file of roofs describes.

    Raises:
        FileError: it cannot be read, holds no roofs, or is damaged.
    """
    try:
        device = read_roofs(path, path.stem).device
    except UnknownFormat:
        device = None
    if device is None:
        raise DeviceFileError(
            f"{str(path)!r} holds no roofs; a device file is TOML, ERT's roofline.json, NERSC's text with 'memroofs',"
            " or rocprof-compute's roofline.csv"
        )
    return device
