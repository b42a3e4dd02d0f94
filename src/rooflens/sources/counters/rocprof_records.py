"""Dispatches on AMD GPUs as records: work by what their counters count, and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from rooflens.errors import FileError
from rooflens.records import Case, Record, Timing, Work
from rooflens.sources.counters.rocprof import Dispatch, DispatchFile, rocprof_tables
from rooflens.sources.counters.work import short

_MOST_NAMES = 5
_LANES = "FLOP of vector instructions count all 64 lanes of a wave, those that were masked off too"
_NO_MATRIX = "matrix FLOP are unknown: no SQ_INSTS_VALU_MFMA_MOPS_* was collected"
_NO_VECTOR = "vector FLOP are unknown: no SQ_INSTS_VALU_ADD_*, MUL_* and FMA_* of one type were collected"
_COLLECT = "rocprofv3 --kernel-trace --pmc SQ_INSTS_VALU_MFMA_MOPS_F16 FETCH_SIZE WRITE_SIZE -f csv -- PROGRAM"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Formula:
    """FLOP of a unit, or bytes of a level: counters and what one count of each stands for."""

    terms: Mapping[str, int]
    resource: str = ""
    level: str = ""
    beside: str = ""

    def of(self, counters: Mapping[str, float]) -> float | None:
        """Return the amount; None where a counter lacks."""
        if not self.terms.keys() <= counters.keys():
            return None
        return sum(counters[name] * factor for name, factor in self.terms.items())


@dataclass(slots=True)
class _Counted:
    """What is known of a dispatch, whether FLOP of it are unknown, and notes."""

    flops: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    unknown: bool = False
    notes: list[str] = field(default_factory=list)


def records_of(file: DispatchFile, case_of: Callable[[str], Case]) -> Iterator[Record]:
    """Give a record per dispatch, in the order of the file; notes on the file are on the first.

    Args:
        case_of: the case of what ran on a GPU, by the number of the file.

    Raises:
        FileError: no counter tells work, and there is no time.
    """
    counted = [_counted(dispatch) for dispatch in file.dispatches]
    if not any(
        its.flops or its.bytes or d.seconds is not None for its, d in zip(counted, file.dispatches, strict=True)
    ):
        raise _nothing_useful(file)
    any_work = any(its.flops or its.bytes for its in counted)
    notes = (*file.notes, *_left_out(file.columns))
    for dispatch, its in zip(file.dispatches, counted, strict=True):
        record = Record(
            case=case_of(dispatch.gpu),
            source="counters",
            scope="kernel",
            path="",
            kind="other",
            name=dispatch.name,
            work=_work(dispatch, its) if any_work else None,
            timing=None if dispatch.seconds is None else Timing(samples=(dispatch.seconds,), origin="profiler"),
            notes=tuple(its.notes),
        )
        yield replace(record, notes=(*record.notes, *notes)) if notes else record
        notes = ()


def _work(dispatch: Dispatch, its: _Counted) -> Work:
    """What a dispatch did; its FLOP are missing where some, or all, are unknown."""
    unknown = its.unknown or not its.flops
    return Work(
        flops={resource: n for resource, n in its.flops.items() if n},
        bytes=its.bytes,
        origin="executed",
        missing=frozenset({short(dispatch.name)}) if unknown else frozenset(),
    )


def _counted(dispatch: Dispatch) -> _Counted:
    its, counters = _Counted(), dispatch.counters
    for formula in _formulas("flops"):
        amount = formula.of(counters)
        if amount is not None:
            its.flops[formula.resource] = amount
        elif not formula.terms.keys().isdisjoint(counters):
            lacking = ", ".join(name for name in formula.terms if name not in counters)
            its.unknown = True
            its.notes.append(f"{formula.resource} is unknown: it needs {lacking}, which the file lacks")
    for formula in _formulas("bytes"):
        amount = formula.of(counters) if not formula.beside or formula.beside in counters else None
        if amount is not None and formula.level not in its.bytes:
            its.bytes[formula.level] = max(amount, 0)
    is_idle = any(counters.get(name) == 0 for name in rocprof_tables()["matrix"]["busy"])
    if its.flops and not is_idle and not any(name.startswith("matmul.") for name in its.flops):
        its.unknown = True
        its.notes.append(_NO_MATRIX)
    if its.flops and not any(name.startswith("vector.") for name in its.flops):
        its.unknown = True
        its.notes.append(_NO_VECTOR)
    if not its.flops and not its.unknown:
        its.notes.append("no counter of FLOP was collected: FLOP are unknown")
    if any(its.flops.get(name) for name in its.flops if not name.startswith("matmul.")):
        its.notes.append(_LANES)
    return its


def _left_out(columns: Iterable[str]) -> list[str]:
    """A note on what the FLOP of a file lack, because it was collected for no dispatch."""
    have = frozenset(columns)
    counted = [formula.resource for formula in _formulas("flops") if formula.terms.keys() <= have]
    every = dict.fromkeys(formula.resource for formula in _formulas("flops") if not formula.terms.keys() & have)
    return (
        [f"the file has no counters of {', '.join(every)}: such work is not in its FLOP"] if counted and every else []
    )


def _nothing_useful(file: DispatchFile) -> FileError:
    names = file.columns[:_MOST_NAMES]
    has = f"it has {', '.join(names)}{', ...' if len(file.columns) > len(names) else ''}" if names else "it has none"
    return FileError(
        f"{file.where} holds {len(file.dispatches)} dispatches and no counter from which FLOP, bytes or time follow:"
        f" {has}. Collect what is needed like this: {_COLLECT}"
    )


@cache
def _formulas(what: str) -> tuple[_Formula, ...]:
    return tuple(_Formula(**entry) for entry in rocprof_tables()[what])
