"""The metrics that are read, and what each chip has: data files of this package."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from rooflens.sources.counters.printed_numbers import UnitKind

TIME = "gpu__time_duration.sum"
SM_COUNT = "device__attribute_multiprocessor_count"
SHARE = "pct"
_ROLLUP = re.compile(
    r"(?P<base>\w+)\.(?P<over>sum|avg)"
    r"(?:\.(?P<per>per_second|per_cycle_(?:elapsed|active|in_region|in_frame)|pct)(?:_of_peak_sustained_(?:elapsed|active))?)?"
)
_TIMES = re.compile(r"derived__(?P<base>smsp__sass_thread_inst_executed_op_\w+_pred_on)_x(?P<times>[1-9])")
"""Rates per cycle that rooflines of Nsight Compute multiply by the FLOP of one instruction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lanes:
    """The thread instructions of one precision of the general lanes, and the FLOP of each.

    Attributes:
        packed: further instructions of the chips `packed_on`, by compute capability.
    """

    resource: str
    terms: Mapping[str, int]
    packed: Mapping[str, int] = field(default_factory=dict)
    packed_on: Collection[str] = ()

    @property
    def halves(self) -> bool:
        """True for the lanes of 16 bits, which have packed instructions and moves."""
        return "hfma" in self.terms


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteFormula:
    """One way to know the bytes of a level: counters, and the bytes that each of their units stands for."""

    level: str
    terms: Mapping[str, int]
    note: str = ""


@cache
def lanes() -> tuple[Lanes, ...]:
    """Return the general lanes by precision."""
    return tuple(Lanes(**entry) for entry in _tables()["vector"])


@cache
def traffic() -> tuple[ByteFormula, ...]:
    """Return the ways to know the bytes of each level, the best one of a level first."""
    return tuple(ByteFormula(**entry) for entry in _tables()["bytes"])


def tensor_resource(operands: str) -> str | None:
    """Return the resource of tensor operations on these operands, None where rooflens has no name for it (int1)."""
    resource: str | None = _tables()["tensor"].get(operands)
    return resource


def tensor_instruction(cc: str | None) -> tuple[str, int] | None:
    """Return resource and FLOP of a tensor warp instruction, None where it is not a fixed amount of work."""
    entry = _tables()["tensor_instruction"].get(cc)
    return None if entry is None else (entry["resource"], entry["flops"])


def has_moves(cc: str | None) -> bool:
    """True if compilers load constants by half FMAs of the tensor pipe there; unknown chips may."""
    return cc is None or cc in _tables()["moves"]["on"]


@dataclass(frozen=True, slots=True)
class Rollup:
    """A counter that is read, in another form than its sum.

    Attributes:
        name: the metric.
        total: the metric that is its sum.
        average: over the units that count it; else it is summed over them.
        per: what it was divided by, like ``per_second``, or `SHARE` of a peak; "" for nothing.
        times: what it was multiplied by.
    """

    name: str
    total: str
    average: bool
    per: str
    times: int = 1


@lru_cache(maxsize=65536)
def kind_of(metric: str) -> UnitKind | None:
    """Return what a metric counts if it is read, else None."""
    rollup = rollup_of(metric)
    if rollup is None:
        return _own_kind(metric)
    kind = _own_kind(rollup.total)
    if rollup.per == SHARE:
        return "percent"
    return "byte/s" if kind == "byte" and rollup.per == "per_second" else "count" if rollup.per else kind


@lru_cache(maxsize=65536)
def rollup_of(metric: str) -> Rollup | None:
    """Return what a metric is if its sum is read and it is another form of it; None for all others.

    >>> rollup_of("dram__bytes.avg.per_second"), rollup_of("dram__bytes.sum")
    (Rollup(name='dram__bytes.avg.per_second', total='dram__bytes.sum', average=True, per='per_second', times=1), None)
    """
    if (match := _ROLLUP.fullmatch(metric)) is not None:
        rollup = Rollup(metric, f"{match['base']}.sum", match["over"] == "avg", match["per"] or "")
    elif (match := _TIMES.fullmatch(metric)) is not None:
        rollup = Rollup(metric, f"{match['base']}.sum", False, "per_cycle_elapsed", int(match["times"]))
    else:
        return None
    own = rollup.total == metric or "__cycles_" in metric or _own_kind(metric) is not None
    return None if own or _own_kind(rollup.total) not in ("byte", "count") else rollup


def needless(names: Collection[str]) -> frozenset[str]:
    """Return the roll-ups among the metrics of a table that tell nothing more: it has all sums, and the time."""
    rollups = [rollup for name in names if (rollup := rollup_of(name)) is not None]
    have = frozenset(names)
    complete = TIME in have and all(rollup.total in have for rollup in rollups if rollup.per != SHARE)
    return frozenset(rollup.name for rollup in rollups if complete)


def _own_kind(metric: str) -> UnitKind | None:
    """What a metric counts that is read as such."""
    kind: UnitKind | None = _tables()["kinds"].get(metric)
    return kind or next((kind for pattern, kind in _patterns() if pattern.fullmatch(metric)), None)


def is_fact(metric: str) -> bool:
    """True if a column of the raw page describes device or run."""
    return metric in _tables()["facts"]["names"]


def is_share(metric: str) -> bool:
    """True if a percentage of this name was measured: more than all of something is suspect."""
    return not metric.startswith(("launch__", "device__", "derived__", "pmsampling:", "sm__maximum"))


@cache
def labelled(section: str, label: str) -> str | None:
    """Return the metric behind a label of the details page, None if it is not read."""
    named: dict[tuple[str, str], str] = {(its["section"], its["label"]): its["metric"] for its in _tables()["labels"]}
    return named.get((section, label))


def chips_of(cc: str) -> tuple[str, ...]:
    """Return the chips of a compute capability."""
    return tuple(chip for chip, its in _availability()["chips"].items() if its == cc)


def chips_with(metric: str) -> tuple[str, ...]:
    """Return the chips that have a metric, whatever its roll-up; none where the list of names lacks it."""
    chips: str = _availability()["metrics"].get(metric.partition(".")[0], "")
    return tuple(chips.split())


def near(metric: str, cc: str | None = None) -> list[str]:
    """Return names of existing metrics like this one, with its roll-up; on the chips of `cc` where that is known."""
    base, _, rollup = metric.partition(".")
    if successors := _availability()["nvprof"].get(base):
        return list(successors)
    chips = set(chips_of(cc)) if cc else set()
    metrics = _availability()["metrics"].items()
    known = [name for name, its in metrics if name != base and (not chips or chips & set(its.split()))]
    names = get_close_matches(base, known, n=3, cutoff=0.8)
    return [f"{name}.{rollup}" if rollup else name for name in names]


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], UnitKind], ...]:
    """Patterns of the metrics whose names have a gap."""
    kinds: Mapping[str, UnitKind] = _tables()["kinds"]
    gaps = ((name.split("{}"), kind) for name, kind in kinds.items() if "{}" in name)
    return tuple((re.compile(r"[^.]*".join(map(re.escape, pieces))), kind) for pieces, kind in gaps)


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("metrics.toml").read_text(encoding="utf-8"))


@cache
def _availability() -> Mapping[str, Any]:
    tables: Mapping[str, Any] = json.loads(files(__package__).joinpath("availability.json").read_text(encoding="utf-8"))
    return tables
