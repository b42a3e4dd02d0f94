"""The columns that tables share, and the cells that totals put into them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rooflens.records import MEMORY_CAUSES, Case
from rooflens.report.table import COUNT, INTENSITY, PERCENT, Column, Entries, Entry
from rooflens.results import Total

CASE = (
    Column(key="model", header="model", align="left", title="{}"),
    Column(key="batch", header="batch", unit=COUNT, title="batch {}"),
    Column(key="dtype", header="dtype", align="left", title="{}"),
    Column(key="mode", header="mode", align="left", title="{}"),
    Column(key="options", header="options", align="left", title="{}"),
    Column(key="device", header="device", align="left", title="on {}"),
)
SOURCE = Column(key="source", header="source", align="left", title="{}")
PHASE = Column(key="phase", header="phase", align="left", title="{}")

WORK = (
    Column(key="matmul_flops", header="matmul FLOP", unit="FLOP", group="work"),
    Column(key="recomputed_flops", header="recomputed FLOP", unit="FLOP", group="work", if_any=True),
    Column(key="flops", header="FLOP", unit="FLOP", group="work"),
    Column(key="macs", header="MAC", unit="MAC", group="work", show="room"),
    Column(key="dram_bytes", header="DRAM", unit="B", group="work"),
    Column(key="intensity", header="FLOP/B", unit=INTENSITY, group="work"),
    Column(key="lower_bound", header="lower bound", group="work", show="files"),
)
PART_OF_WORK = tuple(replace(column, show="room") if column.key == "intensity" else column for column in WORK)
"""`WORK` where names are long and many: intensity gives way to totals, which can be compared down a column."""
BOUND = (
    Column(key="seconds", header="bound", unit="s", group="time"),
    Column(key="bound_by", header="bound by", align="left", group="time"),
)
CAUSES = tuple(
    Column(key=cause, header=cause.replace("_", " "), unit="B", group="memory", if_any=True) for cause in MEMORY_CAUSES
)
"""Memory by cause."""
SHARE = Column(key="share", header="share", unit=PERCENT, group="time")


def case_cells(case: Case) -> Entries:
    """The case, one column per field."""
    options = " ".join(f"{name}={value}" for name, value in case.options)
    return {
        "model": case.model,
        "batch": case.batch,
        "dtype": case.dtype,
        "mode": case.mode,
        "options": options or None,
        "device": case.device,
    }


def work_cells(total: Total | None) -> Entries:
    """FLOP, bytes and intensity; lower bounds are marked where operations are uncounted."""
    if total is None:
        return {}
    lower = bool(total.missing)
    # Where all work is recomputed there is no algorithmic work: that is known, and zero.
    none = 0 if total.work is None and total.recomputed_work is not None else None

    def count(flops: float | None) -> Entry:
        return at_least(whole(none if flops is None else flops), lower)

    return {
        "matmul_flops": count(total.matmul_flops),
        "recomputed_flops": count(total.recomputed_flops),
        "flops": count(total.flops),
        "macs": count(total.macs),
        "dram_bytes": whole(total.bytes.get("dram")),
        "intensity": at_least(total.intensity, lower),
        "lower_bound": lower,
    }


def bound_cells(total: Total | None) -> Entries:
    """The bound and what holds the largest share of it."""
    if total is None or total.bound is None:
        return {}
    return {
        "seconds": at_least(total.bound.seconds, bool(total.missing)),
        "bound_by": total.bound.bound_by or None,
    }


def at_least(value: float | None, lower: bool) -> Entry:
    """A value, marked where it is a lower bound; "at least nothing" is unknown to a person."""
    return Entry(value, ">=" if lower and value else "", label="-" if lower and not value else None)


def efficiency_cell(reached: float | None, lower: bool) -> Entry:
    """Bound over measured time; marked where it cannot be explained by the bound alone."""
    return replace(at_least(reached, lower), mark="!" if above_the_roof(reached) else "")


def above_the_roof(reached: float | None) -> bool:
    """Whether an efficiency says that something was faster than its bound."""
    return reached is not None and reached > 1


def whole(number: float | None) -> int | float | None:
    """A float without a fraction as an integer: counts stay counts in files."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def ratio(part: float | None, of: float | None) -> float | None:
    """A share; None where either is unknown or the whole is zero."""
    return part / of if part is not None and of else None


def sum_of_known(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def p_cell(value: float | None) -> Entry:
    """A p-value: three decimals are enough for a person."""
    return Entry(value, label=None if value is None else "<0.001" if value < 0.001 else f"{value:.3f}")
