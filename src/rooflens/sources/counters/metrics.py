"""The metrics that are read, and what each chip has: data files of this package."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from rooflens.sources.counters.printed_numbers import UnitKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The thread instructions of one precision of the general lanes, and the FLOP of each.

    Attributes:
        packed: further instructions of the chips `packed_on`, by compute capability.
        halves: whether these are the lanes for 16 bits, which have packed instructions and moves.
    """

    resource: str
    terms: Mapping[str, int]
    packed: Mapping[str, int]
    packed_on: frozenset[str]

    @property
    def halves(self) -> bool:
        return "hfma" in self.terms


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteFormula:
    """One way to know the bytes of a level: counters, and the bytes that each of their units stands for."""

    level: str
    terms: Mapping[str, int]
    note: str = ""


@cache
def lanes() -> tuple[Lanes, ...]:
    """The general lanes by precision."""
    return tuple(
        Lanes(
            resource=entry["resource"],
            terms=entry["terms"],
            packed=entry.get("packed", {}),
            packed_on=frozenset(entry.get("packed_on", ())),
        )
        for entry in _tables()["vector"]
    )


@cache
def traffic() -> tuple[ByteFormula, ...]:
    """Ways to know the bytes of each level, the best one of a level first."""
    return tuple(ByteFormula(**entry) for entry in _tables()["bytes"])


def tensor_resource(operands: str) -> str | None:
    """The resource of tensor operations on these operands, None for one that rooflens has no name for (int1)."""
    found: str | None = _tables()["tensor"].get(operands)
    return found


def tensor_instruction(cc: str | None) -> tuple[str, int] | None:
    """Resource and FLOP of a tensor warp instruction, None where it is not a fixed amount of work."""
    entry = _tables()["tensor_instruction"].get(cc)
    return None if entry is None else (entry["resource"], entry["flops"])


def has_moves(cc: str | None) -> bool:
    """Whether compilers load constants by half FMAs of the tensor pipe there; unknown chips may."""
    return cc is None or cc in _tables()["moves"]["on"]


def threads_per_move() -> int:
    """Thread instructions that one such warp instruction counts as."""
    threads: int = _tables()["moves"]["threads"]
    return threads


@lru_cache(maxsize=65536)
def kind_of(metric: str) -> UnitKind | None:
    """What a metric counts if it is read, else None."""
    found: UnitKind | None = _tables()["kinds"].get(metric)
    if found is not None:
        return found
    return next((kind for pattern, kind in _patterns() if pattern.fullmatch(metric)), None)


def is_fact(metric: str) -> bool:
    """Whether a column of the raw page tells about device or run."""
    return metric in _tables()["facts"]["names"]


@cache
def labelled(section: str, label: str) -> str | None:
    """The metric behind a label of the details page, None if it is not read."""
    for entry in _tables()["labels"]:
        if entry["section"] == section and entry["label"] == label:
            name: str = entry["metric"]
            return name
    return None


def chips_of(cc: str) -> tuple[str, ...]:
    """The chips of a compute capability."""
    return tuple(chip for chip, its in _availability()["chips"].items() if its == cc)


def chips_with(metric: str) -> tuple[str, ...]:
    """The chips that have a metric, whatever its roll-up; none where the selection of names does not hold it."""
    chips: str = _availability()["metrics"].get(metric.partition(".")[0], "")
    return tuple(chips.split())


def near(metric: str, cc: str | None = None) -> list[str]:
    """Names of existing metrics like this one, with its roll-up; on the chips of `cc` where that is known."""
    base, _, rollup = metric.partition(".")
    if successors := _availability()["nvprof"].get(base):
        return list(successors)
    chips = set(chips_of(cc)) if cc else set()
    known = [
        name
        for name, its in _availability()["metrics"].items()
        if name != base and (not chips or chips & set(its.split()))
    ]
    found = get_close_matches(base, known, n=3, cutoff=0.8)
    return [f"{name}.{rollup}" if rollup else name for name in found]


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], UnitKind], ...]:
    kinds: Mapping[str, UnitKind] = _tables()["kinds"]
    return tuple(
        (re.compile(r"[^.]*".join(map(re.escape, name.split("{}")))), kind)
        for name, kind in kinds.items()
        if "{}" in name
    )


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("metrics.toml").read_text(encoding="utf-8"))


@cache
def _availability() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(files(__package__).joinpath("availability.json").read_text(encoding="utf-8"))
    return found
