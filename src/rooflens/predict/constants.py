"""Constants of the effects: of a GPU generation, of a device that was calibrated, or general ones."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from rooflens.errors import InvalidValue
from rooflens.records import Device

Level = Literal["datasheet", "datasheet, unknown generation", "calibrated", "replayed"]
"""How a prediction's constants are known. A later one is nearer to the device."""
RETIRED = frozenset(
    {"attention.decode_odd", "launch.join", "host.autocast", "host.normalization"}
    | {f"norm.row_{of}_{kind}" for of in ("gradients", "share") for kind in ("wide", "narrow")}
)
"""Constants of earlier versions, which device files may still have: they are passed over."""
GENERAL = "general"
"""The file with a value for every constant; that of a generation replaces some."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Numbers by name, like ``stream.start``. Times in seconds, sizes in bytes, rates per unit and cycle, else shares.

    Attributes:
        level: how they are known.
        generation: title of the generation, or of the device that was calibrated.
        values: a number for every constant.
        sources: where each of them comes from.
    """

    level: Level
    generation: str
    values: Mapping[str, float]
    sources: Mapping[str, str]

    def measured(self, values: Mapping[str, float], generation: str, source: str) -> Constants:
        """Return these constants with those that were measured on a device: the level is ``calibrated``.

        Raises:
            InvalidValue: there is no constant of a name.
        """
        unknown = values.keys() - self.values.keys()
        if unknown:
            raise InvalidValue(f"there is no constant {min(unknown)!r}; known: {', '.join(sorted(self.values))}")
        return replace(
            self,
            level="calibrated",
            generation=generation,
            values={**self.values, **values},
            sources={**self.sources, **dict.fromkeys(values, source)},
        )


def constants_of(device: Device | None) -> Constants:
    """Return the constants of a device: those that were measured on it, else of its generation, else general ones.

    The generation is known by the beginning of the device's ``arch``.

    Raises:
        InvalidValue: the device has a constant of a name that is not known.
    """
    known = generation_of(device)
    if device is None or not device.constants:
        return known
    measured = {name: value for name, value in device.constants.items() if name not in RETIRED}
    return known.measured(measured, device.name, "a suite of micro-measurements on the device")


def generation_of(device: Device | None) -> Constants:
    """Return the constants of a device's generation, or general ones; nothing that was measured on the device."""
    words = "" if device is None else device.arch.lower()
    known = (name for name in generations() if words.startswith(name.replace("-", " ")))
    return generation(max(known, key=len, default=GENERAL))


@cache
def generations() -> tuple[str, ...]:
    """Names of the generations whose constants are known."""
    names = (entry.name.removesuffix(".toml") for entry in files(__package__).joinpath("generations").iterdir())
    return tuple(sorted(name for name in names if name not in (GENERAL, "__init__.py", "__pycache__")))


@cache
def generation(name: str) -> Constants:
    """Return the constants of a generation by its name."""
    values, sources = _numbers(GENERAL)
    level: Level = "datasheet, unknown generation"
    if name != GENERAL:
        own, its_sources = _numbers(name)
        values, sources, level = values | own, sources | its_sources, "datasheet"
    return Constants(level, name, values, sources)


def _numbers(name: str) -> tuple[dict[str, float], dict[str, str]]:
    text = files(__package__).joinpath("generations", f"{name}.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    values: dict[str, float] = {}
    sources: dict[str, str] = {}
    for effect, numbers in table.items():
        its = {f"{effect}.{key}": float(number) for key, number in numbers.items() if key != "source"}
        values |= its
        sources |= dict.fromkeys(its, numbers["source"])
    return values, sources
