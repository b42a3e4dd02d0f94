"""Data frames: of records, one row each with the case spread over columns, or of the rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rooflens.errors import MissingDependency
from rooflens.on_demand import Rows, table_rows
from rooflens.records import Case, Record, Source
from rooflens.results.totals import Total

if TYPE_CHECKING:
    import pandas
    import polars

    from rooflens.results.recordset import RecordSet


class _Held(Protocol):
    """What has records."""

    @property
    def records(self) -> tuple[Record, ...]: ...
    def split(self) -> tuple[tuple[Case, Source, RecordSet], ...]: ...


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
    if by is not None:
        return table_rows(held, by, depth)
    own = {(case, source): records for case, source, records in held.split()}
    return [_row(record, _total(record, own[record.case, record.source])) for record in held.records], {}


def _total(record: Record, own: RecordSet) -> Total:
    """Return what is derived of a record: of a model's, that of the whole step."""
    whole = record.scope == "model" and record.source == "estimate"
    return own.total() if whole else own.sum([record], own.device())


def _row(record: Record, total: Total) -> dict[str, object]:
    """Return the row of a record; times are those of one call, as its work is."""
    case, work = record.case, record.work
    derived = {
        "bound_seconds": total.seconds,
        **{name: getattr(total, name) for name in ("predicted_seconds", "predicted_low", "predicted_high")},
    }
    names = ("source", "scope", "path", "kind", "name", "phase", "calls", "recomputed")
    return {
        **{name: getattr(case, name) for name in ("model", "device", "batch", "dtype", "mode")},
        "options": " ".join(f"{name}={value}" for name, value in case.options),
        **{name: getattr(record, name) for name in names},
        "matmul_flops": None if work is None else work.matmul_flops,
        "flops": None if work is None else work.total_flops,
        "dram_bytes": None if work is None else work.bytes.get("dram"),
        "seconds": None if record.timing is None else record.timing.median,
        **{name: None if seconds is None else seconds / record.calls for name, seconds in derived.items()},
    }
