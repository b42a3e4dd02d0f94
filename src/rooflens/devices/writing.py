"""Writes device files, which :func:`rooflens.devices.load_file` reads back as the same device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from rooflens.devices.files import CONSTANTS, VALUES, slug
from rooflens.errors import InvalidValue
from rooflens.records import UNITS, Ceiling, Device, Fact
from rooflens.units import parse, show

HEADER = "# Keys, units and conventions of device files: docs/devices.md"
_DIGITS = range(4, 18)


def device_text(device: Device) -> str:
    """A device as the text of a TOML file, each value with origin and reference.

    Raises:
        InvalidValue: several devices, or a name that does not follow from the title: a file holds one device.
    """
    if device.count != 1 or device.name != slug(device.title):
        raise InvalidValue(f"{device.name!r} cannot be written: a file holds one device, whose name follows its title")
    blocks = [list(_head(device))]
    for unit in UNITS:
        rates = {c.resource.partition(".")[2]: c for c in device.ceilings if c.resource.startswith(f"{unit}.")}
        blocks.append(_table(unit, rates))
    blocks.append(_table("bandwidth", {c.resource: c for c in device.ceilings if not c.computes}))
    blocks.append(_table("facts", device.facts))
    constants = [f"{_quoted(name)} = {value!r}" for name, value in sorted(device.constants.items())]
    blocks.append([f"[{CONSTANTS}]", *constants] if constants else [])
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks if block)


def _head(device: Device) -> Iterator[str]:
    yield HEADER
    for key in ("title", "vendor", "kind", "arch", "notes"):
        if text := getattr(device, key):
            yield f"{key} = {_quoted(text)}"
    if device.aliases:
        yield f"aliases = [{', '.join(map(_quoted, device.aliases))}]"


def _table(name: str, values: Mapping[str, Ceiling | Fact]) -> list[str]:
    """The lines of one table, keys in the order of the vocabulary; none for an empty table."""
    known = VALUES[name]
    lines = [f"{key} = {{ {', '.join(_fields(values[key], unit))} }}" for key, unit in known.items() if key in values]
    return [f"[{name}]", *lines] if lines else []


def _fields(value: Ceiling | Fact, unit: str | None) -> Iterable[str]:
    yield f"value = {_amount(value.rate if isinstance(value, Ceiling) else value.value, unit)}"
    yield f"origin = {_quoted(value.origin)}"
    if value.reference:
        yield f"reference = {_quoted(value.reference)}"
    if not value.verified:
        yield "verified = false"
    if isinstance(value, Ceiling) and value.computes:
        yield f"silicon = {_quoted(value.silicon)}"
        if value.accumulate is not None:
            yield f"accumulate = {_quoted(value.accumulate)}"


def _amount(number: float, unit: str | None) -> str:
    """The number with the fewest digits that read back exactly."""
    if unit is None:
        return str(int(number))
    written = (show(number, unit, digits) for digits in _DIGITS)
    return _quoted(next((text for text in written if parse(text, unit) == number), f"{number!r} {unit}"))


def _quoted(text: str) -> str:
    """A basic string of TOML: as in JSON, but without a bare delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
