"""Whatever was compared, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rooflens.compare import (
    Agreement,
    Correlation,
    DeviceComparison,
    Exponent,
    KernelComparison,
    PhaseRatio,
    RunComparison,
    Sweep,
)
from rooflens.errors import InvalidValue
from rooflens.report.comparison import agreement_tables, devices_tables, kernel_tables, runs_tables
from rooflens.report.series import correlation_table, exponent_table, phases_table, sweep_table
from rooflens.report.table import Table

_SHOWN: Mapping[type, Callable[[Any], list[Table]]] = {
    RunComparison: runs_tables,
    Agreement: agreement_tables,
    KernelComparison: kernel_tables,
    DeviceComparison: devices_tables,
}
_SERIES: Mapping[type, Callable[[Any], Table]] = {
    Correlation: correlation_table,
    Exponent: exponent_table,
    PhaseRatio: phases_table,
    Sweep: sweep_table,
}


def comparison_tables(found: object) -> list[Table]:
    """The tables of what a function of :mod:`rooflens.compare` gave.

    Raises:
        InvalidValue: it is none of these.
    """
    if isinstance(found, tuple) and found and type(found[0]) in _SERIES:
        return [_SERIES[type(found[0])](found)]
    if type(found) in _SHOWN:
        return _SHOWN[type(found)](found)
    raise InvalidValue(f"cannot show {type(found).__name__}: it is no comparison and no record set")
