"""Records as data frames: one row per record, with the case spread over columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rooflens.errors import MissingDependency
from rooflens.records import Record

if TYPE_CHECKING:
    import pandas
    import polars


def of_polars(records: Iterable[Record]) -> polars.DataFrame:
    """Return the frame of polars."""
    import polars

    return polars.DataFrame([_row(record) for record in records], infer_schema_length=None)


def of_pandas(records: Iterable[Record]) -> pandas.DataFrame:
    """Return the frame of pandas; MissingDependency if it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingDependency("a data frame of pandas", "pandas", "pandas") from error
    rows = [_row(record) for record in records]
    # Column by column, since a column of counts with a gap would become one of floats.
    return pandas.DataFrame({name: pandas.array([row[name] for row in rows]) for name in (rows or [{}])[0]})


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
