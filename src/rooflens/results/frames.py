"""Data frames: of records, one row each with the case spread over columns, or of the rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rooflens.errors import MissingDependency
from rooflens.on_demand import Rows, table_rows
from rooflens.records import Record

if TYPE_CHECKING:
    import pandas
    import polars


class _Held(Protocol):
    """What has records."""

    @property
    def records(self) -> tuple[Record, ...]: ...


def of_polars(held: _Held, by: str | None, depth: int | None) -> polars.DataFrame:
    """Return the frame of polars."""
    import polars

    return polars.DataFrame(_rows(held, by, depth)[0], infer_schema_length=None)


def of_pandas(held: _Held, by: str | None, depth: int | None) -> pandas.DataFrame:
    """Return the frame of pandas, with units in its `attrs`; MissingDependency if it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingDependency("a data frame of pandas", "pandas", "pandas") from error
    rows, units = _rows(held, by, depth)
    # Column by column, since a column of counts with a gap would become one of floats.
    frame = pandas.DataFrame({name: pandas.array([row[name] for row in rows]) for name in (rows or [{}])[0]})
    frame.attrs.update({"units": units} if units else {})
    return frame


def _rows(held: _Held, by: str | None, depth: int | None) -> tuple[Rows, dict[str, str]]:
    """Return a row per record, or those of a table with its units."""
    return ([_row(record) for record in held.records], {}) if by is None else table_rows(held, by, depth)


def _row(record: Record) -> dict[str, object]:
    case, work = record.case, record.work
    names = ("source", "scope", "path", "kind", "name", "phase", "calls", "recomputed")
    return {
        **{name: getattr(case, name) for name in ("model", "device", "batch", "dtype", "mode")},
        "options": " ".join(f"{name}={value}" for name, value in case.options),
        **{name: getattr(record, name) for name in names},
        "matmul_flops": None if work is None else work.matmul_flops,
        "flops": None if work is None else work.total_flops,
        "dram_bytes": None if work is None else work.bytes.get("dram"),
        "seconds": None if record.timing is None else record.timing.median,
    }
