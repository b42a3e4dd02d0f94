"""Which of these files one is, and what it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from rooflens.errors import DeviceFileError, FileError
from rooflens.records import Device
from rooflens.sources.roofs.ceilings import Roofs
from rooflens.sources.roofs.ert import from_json
from rooflens.sources.roofs.ert_text import FIRST_RATE, TRIAL, from_text
from rooflens.sources.roofs.kernel_table import TELLING, from_table
from rooflens.sources.roofs.keywords import from_keywords, is_keyword

Kind = Literal["ERT JSON", "ERT text", "NERSC keywords", "NERSC table"]
ROOF_FILES = (".json", ".txt")
"""Suffixes of files whose roofs may be named wherever a device is."""
_JSON = re.compile(r'\{\s*"(?:empirical|spec)"\s*:\s*\{')
_GZIP = b"\x1f\x8b"
_LARGEST = 2**26
_READERS: Mapping[Kind, Callable[[str, Path, str, Device | None], Roofs]] = {
    "ERT JSON": from_json,
    "ERT text": from_text,
    "NERSC keywords": from_keywords,
    "NERSC table": from_table,
}


def recognised(head: bytes) -> Kind | None:
    """Which of these files begins so, None for none of them."""
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace").lstrip()
    if _JSON.match(text):
        return "ERT JSON"
    first = next((line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    if FIRST_RATE.fullmatch(first) or TRIAL.fullmatch(first):
        return "ERT text"
    if is_keyword(first.partition(" ")[0]):
        return "NERSC keywords"
    columns = {word.strip(' "') for word in first.split(",")}
    return None if columns.isdisjoint(TELLING) else "NERSC table"


def read_roofs(path: Path, kind: Kind, model: str, told: Device | None = None) -> Roofs:
    """The ceilings and points of a file.

    Args:
        model: what the case of the points is called.
        told: the device that the user named: the points stand under it, and the file's own roofs beside it.

    Raises:
        FileError: it cannot be read, or is damaged; the message names the line, or the key of a JSON file.
    """
    where = repr(str(path))
    try:
        if path.stat().st_size > _LARGEST:
            raise FileError(f"{where} has {path.stat().st_size} bytes; no {kind} file is larger than {_LARGEST}")
        raw = path.read_bytes()
        if raw.startswith(_GZIP):
            raise FileError(f"{where} is compressed; unpack it")
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise FileError(f"cannot read {where}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{where} is no text: {error}") from error
    return _READERS[kind](text, path, model, told)


def device_of_roofs(path: Path) -> Device:
    """The device that a file of roofs describes.

    Raises:
        DeviceFileError: it is no such file, or holds points only.
        FileError: it is damaged.
    """
    try:
        with path.open("rb") as file:
            kind = recognised(file.read(4096))
    except OSError as error:
        raise DeviceFileError(f"cannot read device file {str(path)!r}: {error.strerror}") from error
    found = None if kind is None else read_roofs(path, kind, path.stem).device
    if found is None:
        raise DeviceFileError(
            f"{str(path)!r} holds no roofs; a device file is TOML, ERT's roofline.json, or NERSC's text with 'memroofs'"
        )
    return found
