"""What a file seems to be that no reader reads, and what to do with it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping

_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "an archive (ZIP, as checkpoints of torch are): unpack it"),
    (b"\x89HDF", "an HDF5 file"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x7fELF", "a program"),
    (b"PAR1", "a Parquet table"),
    (b"\xfd7zXZ", "compressed with xz: unpack it, or compress it with gzip"),
    (b"BZh", "compressed with bzip2: unpack it, or compress it with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it, or compress it with gzip"),
    (b"\x1f\x8b", "packed twice: unpack it"),
    (b"\x80\x02", "a pickle, which is never opened"),
    (b"\x80\x04", "a pickle, which is never opened"),
)
_SUFFIXES: Mapping[str, str] = {
    ".nsys-rep": "a report of Nsight Systems: 'nsys export --type sqlite FILE' makes one that is read",
    ".qdrep": "a report of Nsight Systems: 'nsys export --type sqlite FILE' makes one that is read",
    ".onnx": "a model: 'rooflens estimate FILE' counts its work",
    ".pftrace": "a Perfetto trace: write CSV (rocprofv3 --output-format csv)",
}
_KEYS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"schema", "nodes"}),
        "an execution trace of PyTorch, with operators and no times: use torch.profiler",
    ),
    (frozenset({"rocprofiler-sdk-tool"}), "results of rocprofv3 as JSON: write CSV (--output-format csv)"),
    (frozenset({"model_type"}), "a model's configuration: 'rooflens estimate hf:FILE' counts its work"),
    (frozenset({"Total Time (ns)"}), "a report of nsys stats as JSON: write CSV (--format csv)"),
    (frozenset({"benchmarks"}), "results of a benchmark"),
)
_COLUMNS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"quantity", "value"}), "reported figures: 'rooflens check FILE' takes them"),
)
_MOST_LISTED, _LONGEST = 8, 40
EMPTY = "is empty: whatever was to write it wrote nothing"
_KEY = re.compile(r'"([^"\\]{1,40})"\s*:')
_TOML = re.compile(r"\s*(?:\[[\w.\-]+\]|[\w\-]+\s*=\s*\S)", re.ASCII)


def verdict(start: bytes, suffix: str) -> str:
    """Return what a file is that begins like this and whose name ends in `suffix`: "seems to be a PDF"."""
    by_sign = next((what for sign, what in _SIGNS if start.startswith(sign)), None) or _SUFFIXES.get(suffix)
    wide = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    if by_sign is None and not start.removeprefix(b"\xef\xbb\xbf").strip():
        return EMPTY
    if by_sign is None and b"\x00" in start and not wide:
        return f"is no text (its first bytes are {start[:8].hex(' ')})"
    text = start.decode("utf-16" if wide else "utf-8-sig", errors="replace").lstrip()
    return f"seems to be {by_sign or _text(text, suffix)}"


def _text(text: str, suffix: str) -> str:
    if text.startswith(("{", "[")):
        return _json(text)
    first = text.splitlines()[0] if text else ""
    cells = next(csv.reader([first]), [])
    if len(cells) > 1:
        return _told(_COLUMNS, {cell.strip() for cell in cells}, f"a table with the columns {_listed(cells)}")
    other = next((sign for sign in ";\t|" if first.count(sign) > 1), None)
    if other is not None:
        return f"a table that is separated by {other!r}: save it with commas"
    if "Total Time (ns)" in text:
        return "a report of nsys stats for people: write CSV (--format csv)"
    if suffix == ".toml" or _TOML.match(first):
        return "a TOML file: name a device with --device FILE, run a study with 'rooflens study run FILE'"
    return f"a text that begins {first[:_LONGEST]!r}"


def _json(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        keys = list(dict.fromkeys(_KEY.findall(text)))
    else:
        first = value[0] if isinstance(value, list) and value else value
        keys = list(first) if isinstance(first, dict) else []
    what = f"JSON with the keys {_listed(keys)}" if keys else "JSON without a key"
    return _told(_KEYS, set(keys), what)


def _told(known: tuple[tuple[frozenset[str], str], ...], names: set[str], else_: str) -> str:
    return next((f"{what}; {else_}" for some, what in known if some <= names), else_)


def _listed(names: list[str]) -> str:
    shown = ", ".join(name.strip()[:_LONGEST] for name in names[:_MOST_LISTED])
    return f"{shown}, ..." if len(names) > _MOST_LISTED else shown
