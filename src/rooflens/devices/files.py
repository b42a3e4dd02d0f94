"""Reads device files, strictly: a misspelt key or a wrong unit is an error and not a missing ceiling."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args

from rooflens.devices.rules import SourcedValue, ceilings, torch_memory
from rooflens.errors import DeviceFileError, InvalidValue, UnitError
from rooflens.opening import parsed_toml, read_text
from rooflens.records import LEVELS, LINKS, PRECISIONS, UNITS, CeilingOrigin, Device, Fact, Silicon
from rooflens.records.device import LEAST_RATE, MOST_RATE
from rooflens.units import parse

KINDS = ("gpu", "cpu", "tpu", "soc", "accelerator")
ORIGINS: tuple[str, ...] = get_args(CeilingOrigin)
SILICON: tuple[str, ...] = get_args(Silicon)
ACCUMULATE = (*PRECISIONS, "int32")

_TEXT = ("title", "vendor", "kind", "arch", "model", "notes", "origin")
_LISTS = ("words", "aliases", "reported", "reference")
_REQUIRED = ("title", "vendor", "kind")
_FOLDER = "rooflens"
FACTS: Mapping[str, str | None] = {
    "year": None,
    "units": None,
    "clock": "Hz",
    "memory": "B",
    "torch_memory": "B",
    "l2": "B",
    "power": "W",
    # what a calibration measures besides ceilings
    **dict.fromkeys(("dram_copy", "dram_triad", "dram_read", "dram_write"), "B/s"),
    **dict.fromkeys((f"matmul_{precision}_steady" for precision in PRECISIONS), "FLOP/s"),
    **dict.fromkeys(("pcie_h2d", "pcie_d2h", "pcie_h2d_pageable", "pcie_d2h_pageable", "peer_copy"), "B/s"),
    **dict.fromkeys(("dispatch", "launch", "graph_launch"), "s"),
}
"""Every fact and its unit; None is a plain whole number."""
VALUES: Mapping[str, Mapping[str, str | None]] = {
    "facts": FACTS,
    **{unit: dict.fromkeys(PRECISIONS, "FLOP/s") for unit in UNITS},
    "bandwidth": dict.fromkeys((*LEVELS, *LINKS), "B/s"),
}
"""The tables of a device file: their keys, and the unit of each."""
CONSTANTS = "constants"
"""The table of constants of predictions: names like ``stream.start``, and plain numbers."""
_DEFAULTS = ("accumulate", "silicon")
"""Keys that a compute table may hold for all of its rates."""
_EXAMPLES = {"FLOP/s": "312 TFLOP/s", "B/s": "1555 GB/s", "B": "40 GB", "Hz": "1410 MHz", "W": "400 W", "s": "5 us"}
_FORMULAS = {
    "facts": "arithmetic on figures of the references",
    "bandwidth": "transfer rate x bus width",
    **dict.fromkeys(UNITS, "units x clock x operations per clock"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """A device, and the words of its names.

    Attributes:
        model: words that a name must contain, like ``2080 Ti``.
        words: words, besides those of title, vendor and model, that a name may contain.
        reported: names by which drivers and operating systems report the device.
    """

    device: Device
    model: str = ""
    words: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()


def load_file(path: str | Path) -> Device:
    """Read a device of your own from a TOML file; docs/devices.md describes the keys.

    Rates are dense and per torch device, written as quantities with units (``"312 TFLOP/s"``, ``"1555 GB/s"``).

    Raises:
        DeviceFileError: the file cannot be read, has an unknown key or a wrong unit, or lacks something; the message
            names file, key and what is allowed.
    """
    try:
        place = Path(path).expanduser()
    except RuntimeError as error:
        raise DeviceFileError(f"cannot read device file {str(path)!r}: {error}") from error
    return read_device(read_text(place, error=DeviceFileError, what="device file "), str(path)).device


def read_device(text: str, where: str) -> DeviceFile:
    """The device that a TOML text describes; `where` names the text in errors."""
    return _DeviceTable(where, parsed_toml(text, where, DeviceFileError)).read()


def slug(title: str) -> str:
    """The canonical name that follows from a title: lower case, everything but letters and digits becomes ``-``.

    >>> slug("A100-SXM4-40GB"), slug("TPU v3 (chip)")
    ('a100-sxm4-40gb', 'tpu-v3-chip')
    """
    return re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")


def stored_path(title: str, torch_version: str, threads: int | None, folder: Path | None = None) -> Path:
    """The file with the measured ceilings of one machine, in the user's cache; its name tells measurements apart.

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
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / _FOLDER / "Cache"
    if platform == "darwin":
        return home / "Library" / "Caches" / _FOLDER
    base = Path(environment.get("XDG_CACHE_HOME") or "")  # the standard ignores relative paths
    return (base if base.is_absolute() else home / ".cache") / _FOLDER


class _DeviceTable:
    """The content of one file, with what every value and error needs: the file's name, defaults and evidence."""

    def __init__(self, where: str, table: dict[str, Any]) -> None:
        self.where = where
        self.table = table
        self._known("", table, (*_TEXT, *_LISTS, *VALUES, CONSTANTS, "evidence"))
        self.origin = self._choice("origin", table.get("origin", "user"), ORIGINS)
        self.references = self._list("reference") or (f"device file {Path(where).name}",)
        self.evidence = self._evidence()

    def read(self) -> DeviceFile:
        missing = [key for key in _REQUIRED if key not in self.table]
        if missing:
            self._fail(missing[0], f"is missing; required: {', '.join(_REQUIRED)}")
        text = {key: self._text(key) for key in _TEXT}
        kind = self._choice("kind", text["kind"], KINDS)
        name = slug(text["title"])
        if not name:
            self._fail("title", f"{text['title']!r} holds no letter or digit")
        rates = dict(self._rates())
        if not rates:
            self._fail("[bandwidth]", "is missing and so is every other rate; write at least dram = '1555 GB/s' there")
        facts = {
            key: Fact(value=given.value, origin=given.origin, reference=given.reference, verified=given.verified)
            for key, given in self._values("facts")
        }
        by_rule = torch_memory(kind, facts)
        if by_rule is not None:
            facts.setdefault("torch_memory", by_rule)
        try:
            stated = ceilings(rates, vendor=text["vendor"], kind=kind, facts=facts)
        except InvalidValue as error:  # one that follows by a rule
            raise DeviceFileError(f"{self.where}: {error}") from error
        reported = self._list("reported")
        device = Device(
            name=name,
            title=text["title"],
            vendor=text["vendor"],
            kind=kind,
            arch=text["arch"],
            ceilings=stated,
            facts=facts,
            aliases=(*self._list("aliases"), *reported),
            notes=text["notes"].strip(),
            constants=dict(self._constants()),
        )
        return DeviceFile(device=device, model=text["model"], words=self._list("words"), reported=reported)

    def _rates(self) -> Iterator[tuple[str, SourcedValue]]:
        for unit in UNITS:
            for precision, value in self._values(unit):
                yield f"{unit}.{precision}", value
        yield from self._values("bandwidth")

    def _values(self, name: str) -> Iterator[tuple[str, SourcedValue]]:
        """The values of one table, in base units."""
        table = self._table(name)
        known = VALUES[name]
        defaults = _DEFAULTS if name in UNITS else ()
        self._known(name, table, (*known, *defaults))
        shared = {key: table[key] for key in defaults if key in table}
        for key, unit in known.items():
            if key in table:
                given = table[key] if isinstance(table[key], dict) else {"value": table[key]}
                yield key, self._value(name, key, unit, shared | given)

    def _value(self, table: str, key: str, unit: str | None, given: dict[str, Any]) -> SourcedValue:
        place = f"{table}.{key}"
        self._known(place, given, ("value", "origin", "reference", "verified", *(_DEFAULTS if table in UNITS else ())))
        if "value" not in given:
            self._fail(place, "has no 'value'")
        verified = given.get("verified", True)
        if not isinstance(verified, bool):
            self._fail(f"{place}.verified", f"is {verified!r}; allowed: true, false")
        origin = self._choice(f"{place}.origin", given.get("origin", self.origin), ORIGINS)
        references = self._list(f"{place}.reference", given.get("reference")) or self.references
        accumulate, silicon = given.get("accumulate"), given.get("silicon")
        if accumulate is not None:
            self._choice(f"{place}.accumulate", accumulate, ACCUMULATE)
        if silicon is not None:
            self._choice(f"{place}.silicon", silicon, SILICON)
        return SourcedValue(
            value=self._number(place, unit, given["value"]),
            origin=origin,
            reference="; ".join(self._with_evidence(place, origin, references)),
            verified=verified,
            accumulate=accumulate,
            silicon=silicon,
        )

    def _number(self, place: str, unit: str | None, value: object) -> float:
        if unit is None:
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                self._fail(place, f"is {value!r}; it must be a whole number above zero")
            return float(value)
        if not isinstance(value, str):
            self._fail(place, f"is {value!r}; write a number and its unit as text, like {_EXAMPLES[unit]!r}")
        try:
            number = parse(value, unit)
        except UnitError as error:
            self._fail(place, str(error))
        if number <= 0:
            self._fail(place, f"is {value!r}; it must be above zero (leave out what is not known)")
        if unit in ("FLOP/s", "B/s") and not LEAST_RATE <= number <= MOST_RATE:
            self._fail(place, f"is {value!r}; hardware has {LEAST_RATE:g} to {MOST_RATE:g} a second")
        return number

    def _with_evidence(self, place: str, origin: str, references: tuple[str, ...]) -> tuple[str, ...]:
        """The references of a value, and the evidence for it."""
        if place in self.evidence["formula"]:
            formula = _FORMULAS[place.partition(".")[0]]
            derived = origin == "derived"
            references = (formula, *references) if derived else (*references, f"agrees with {formula}")
        if place in self.evidence["database"]:
            references = (*references, "seen in databases only, in no document of the vendor")
        return references

    def _constants(self) -> Iterator[tuple[str, float]]:
        """The constants of predictions, which a suite has measured; predict/ knows their names."""
        for name, number in self._table(CONSTANTS).items():
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
                self._fail(f"{CONSTANTS}.{name}", f"is {number!r}; it must be a number, zero or above")
            yield name, float(number)

    def _evidence(self) -> dict[str, tuple[str, ...]]:
        table = self._table("evidence")
        self._known("evidence", table, ("formula", "database"))
        evidence = {key: self._list(f"evidence.{key}", table.get(key)) for key in ("formula", "database")}
        for key, places in evidence.items():
            for place in places:
                name, _, value = place.partition(".")
                if name not in VALUES or value not in self._table(name):
                    self._fail(f"evidence.{key}", f"names {place!r}, which this file does not hold")
        return evidence

    def _table(self, name: str) -> dict[str, Any]:
        table = self.table.get(name, {})
        if not isinstance(table, dict):
            self._fail(name, f"is {table!r}; it must be a table: [{name}]")
        return table

    def _text(self, key: str) -> str:
        value = self.table.get(key, "")
        if not isinstance(value, str):
            self._fail(key, f"is {value!r}; it must be text")
        return value

    def _list(self, key: str, value: object = None) -> tuple[str, ...]:
        """A list of texts; a single text is a list of one."""
        value = self.table.get(key, []) if value is None else value
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or any(not isinstance(item, str) or not item.strip() for item in items):
            self._fail(key, f"is {value!r}; it must be text or a list of texts")
        return tuple(items)

    def _choice(self, key: str, value: object, allowed: tuple[str, ...]) -> Any:
        if value not in allowed:
            self._fail(key, f"is {value!r}; allowed: {', '.join(allowed)}")
        return value

    def _known(self, place: str, table: dict[str, Any], allowed: tuple[str, ...]) -> None:
        for key in table:
            if key not in allowed:
                full = f"{place}.{key}" if place else key
                self._fail(full, f"is not known; allowed{f' in {place}' if place else ''}: {', '.join(allowed)}")

    def _fail(self, key: str, problem: str) -> NoReturn:
        raise DeviceFileError(f"{self.where}: {key} {problem}")
