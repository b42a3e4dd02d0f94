"""The table that NERSC's ``postprocess.py`` writes: counters of Nsight Compute, summed over launches by kernel name."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from rooflens.errors import FileError
from rooflens.records import AS_IS, Case, Device, Record, Timing, Work
from rooflens.records.record import MOST_CALLS
from rooflens.sources.roofs.ceilings import GIGA, Roofs, number

TELLING = ("CC FLOPs", "TC FLOPs", "all FLOPs", "AI HBM")
"""Columns that only these tables have."""
_NAME, _COUNT, _TIME = "Kernel Name", "Count", "Time"
_LANES, _TENSOR, _ALL = "CC FLOPs", "TC FLOPs", "all FLOPs"
_PRECISIONS = {"d": "fp64", "f": "fp32", "h": "fp16"}
_OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
_COUNTER = "sm__sass_thread_inst_executed_op_{}{}_pred_on.sum"
_INSTRUCTIONS = "sm__inst_executed_pipe_tensor.sum"
_CYCLES, _CLOCK = "sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second"
_BYTES = {
    "dram": ("dram__bytes.sum", "AI HBM"),
    "l2": ("lts__t_bytes.sum", "AI L2"),
    "l1": ("l1tex__t_bytes.sum", "AI L1"),
}
_RATES = {"GFLOP/s": _ALL, "TC GFLOP/s": _TENSOR}
_FLOP_PER_INSTRUCTION = 512
"""Of a tensor instruction: right for compute capability 7.0 only, two multiply-adds of 16 x 16."""
_OTHERS = (_FLOP_PER_INSTRUCTION, 1024, 2048, 4096, 8192)
"""What other versions of the script take it for."""
_VOLTA = "Volta"
_TOLERANCE = 1e-6
_TENSOR_UNKNOWN = (
    "tensor instructions are 512 FLOP each on compute capability 7.0 only: name such a device (--device) to have them"
    " counted"
)
_SUMS = "a launch is the mean of all launches of its kernel; its time is cycles over the clock"
_L2 = "l2 bytes are lts__t_bytes: all that passes the tags of L2"


def from_table(text: str, path: Path, model: str, told: Device | None) -> Roofs:
    """Return a record for each kernel name, of its mean launch.

    Raises:
        FileError: a cell is no number, or columns contradict each other; the message names row and column.
    """
    where = repr(str(path))
    rows = csv.reader(StringIO(text, newline=""), strict=True)
    case = Case(model=model, device=None if told is None else told.name, dtype=AS_IS)
    try:
        header = next(rows)
        if _NAME not in header or len(set(header)) != len(header):
            raise FileError(f"{where}, line 1: the columns must have names of their own, and one be {_NAME!r}")
        records = tuple(_record(header, row, f"{where}, line {rows.line_num}", case, told) for row in rows if row)
    except csv.Error as error:
        raise FileError(f"{where}, line {rows.line_num}: {error}") from error
    if not records:
        raise FileError(f"{where} holds no kernel")
    return Roofs(records=records)


def _record(header: Sequence[str], row: Sequence[str], place: str, case: Case, told: Device | None) -> Record:
    if len(row) != len(header):
        raise FileError(f"{place} has {len(row)} cells, the header has {len(header)}: it was cut")
    cells = dict(zip(header, row, strict=True))
    values = _values(cells, place)
    _consistent(values, place)
    count = values.get(_COUNT, 1.0)
    if not 1 <= count <= MOST_CALLS or count != int(count):
        raise FileError(f"{place}: {_COUNT!r} is {cells[_COUNT]}, which is no number of launches")
    flops, missing, notes = _flops(values, told)
    seconds = _seconds(values)
    return Record(
        case=case,
        source="counters",
        scope="kernel",
        kind="other",
        name=cells[_NAME],
        work=Work(
            flops={unit: n / count for unit, n in flops.items()},
            bytes={level: values[total] / count for level, (total, _) in _BYTES.items() if total in values},
            origin="executed",
            missing=missing,
        ),
        timing=None if seconds is None else Timing(samples=(seconds / count,), origin="ncu"),
        calls=int(count),
        notes=(_SUMS, *((_L2,) if _BYTES["l2"][0] in values else ()), *notes),
    )


def _values(cells: Mapping[str, str], place: str) -> dict[str, float]:
    """The numbers of the known columns; an empty cell is no value, and neither is a quotient by zero."""
    known = {_COUNT, _TIME, _LANES, _TENSOR, _ALL, _INSTRUCTIONS, _CYCLES, _CLOCK, *_RATES}
    known |= {name for pair in _BYTES.values() for name in pair}
    known |= {_COUNTER.format(kind, operation) for kind in _PRECISIONS for operation in _OPERATIONS}
    values = {}
    for name, text in cells.items():
        plain = text.strip().lower()
        if name not in known or not plain or (plain in ("inf", "nan") and (name.startswith("AI") or name in _RATES)):
            continue
        values[name] = number(plain, f"{place}, column {name!r}")
        if values[name] < 0:
            raise FileError(f"{place}, column {name!r} holds {text}, and cannot be negative")
    return values


def _consistent(values: Mapping[str, float], place: str) -> None:
    """Raise FileError if numbers disagree that the table holds twice: as counters, and as results computed of them."""
    lanes, _ = _on_lanes(values)
    complete = len(lanes) == len(_PRECISIONS)
    claims: list[tuple[str, float | None]] = [
        (_LANES, sum(lanes.values()) if complete else None),
        (_ALL, _total(values.get(_LANES), values.get(_TENSOR))),
        (_TIME, _from_cycles(values)),
    ]
    if _TENSOR in values and _INSTRUCTIONS in values:
        claims.append((_TENSOR, _nearest([factor * values[_INSTRUCTIONS] for factor in _OTHERS], values[_TENSOR])))
    every = values.get(_ALL)
    claims += [
        (quotient, _quotient(every, values[total]))
        for total, quotient in _BYTES.values()
        if every is not None and total in values
    ]
    seconds = values.get(_TIME)
    for name, total in _RATES.items():
        if seconds is not None and total in values and name in values:
            # NERSC's own script divides by 1024^3, others by 10^9.
            speeds = [_quotient(values[total], seconds) / giga for giga in (1024**3, GIGA)]
            claims.append((name, _nearest(speeds, values[name])))
    for name, told in claims:
        if told is not None and name in values and not math.isclose(values[name], told, rel_tol=_TOLERANCE):
            raise FileError(
                f"{place}, column {name!r} holds {values[name]}, and the other columns give {told}: it is damaged"
            )


def _quotient(one: float, other: float) -> float:
    return one / other if other else math.inf


def _nearest(candidates: Sequence[float], value: float) -> float:
    return min(candidates, key=lambda candidate: abs(candidate - value))


def _total(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _on_lanes(values: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """FLOP by precision where all three of its counters are there, and the precisions that lack some."""
    flops, partial = {}, []
    for kind, precision in _PRECISIONS.items():
        names = {operation: _COUNTER.format(kind, operation) for operation in _OPERATIONS}
        has = [name in values for name in names.values()]
        if all(has):
            flops[precision] = sum(_OPERATIONS[operation] * values[name] for operation, name in names.items())
        elif any(has):
            partial.append(precision)
    return flops, partial


def _flops(
    values: Mapping[str, float], told: Device | None
) -> tuple[dict[str, float], frozenset[str], tuple[str, ...]]:
    """FLOP by resource, what is missing of them, and notes."""
    lanes, partial = _on_lanes(values)
    flops = {f"vector.{precision}": n for precision, n in lanes.items() if n}
    missing = {f"{precision} on the lanes" for precision in partial}
    notes: list[str] = []
    if not lanes and not partial:
        if values.get(_LANES):
            flops["vector.fp64"] = values[_LANES]
            notes.append(f"the table does not tell the precision of {_LANES!r}: taken as vector.fp64")
        elif _LANES not in values:
            missing.add("FLOP on the lanes")
    instructions = values.get(_INSTRUCTIONS)
    if instructions is None and values.get(_TENSOR):
        instructions = values[_TENSOR] / _FLOP_PER_INSTRUCTION
    if instructions and told is not None and told.arch.startswith(_VOLTA):
        flops["matmul.fp16"] = _FLOP_PER_INSTRUCTION * instructions
    elif instructions:
        missing.add("tensor instructions")
        notes.append(_TENSOR_UNKNOWN)
    return flops, frozenset(missing), tuple(notes)


def _from_cycles(values: Mapping[str, float]) -> float | None:
    """Seconds of all launches: both counters are summed over them, so that the clock is a mean of `Count` clocks."""
    cycles, clock, count = values.get(_CYCLES), values.get(_CLOCK), values.get(_COUNT)
    return _quotient(cycles, clock / count) if cycles is not None and clock is not None and count else None


def _seconds(values: Mapping[str, float]) -> float | None:
    seconds = values.get(_TIME, _from_cycles(values))
    return None if seconds == math.inf else seconds
