"""Columns of which every row is of one step: the code as written, or the floor that the bound counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import isclose

from rooflens.report.table import Column, ColumnNote
from rooflens.results import Total
from rooflens.results.quantities import RECOMPUTED_FLOPS

IN_BOUND = ColumnNote("FLOP, DRAM and FLOP/B: of what the bound counts", "bound_flops", "bound_bytes")
_BY_BOUND = {
    "matmul_flops": "bound_matmul_flops",
    "flops": "bound_flops",
    "macs": "bound_macs",
    "dram_bytes": "bound_bytes",
    "intensity": "bound_intensity",
    "flops_share": "bound_flops_share",
    "bytes_share": "bound_bytes_share",
}
"""What is shown instead of the work of the code as written, where a bound stands beside it."""


def does_more(total: Total, tolerance: float = 1e-6) -> bool:
    """True if FLOP or bytes of the code as written are others than those that the bound counts."""
    written, floor = total.as_written, total.floor
    pairs = ((written.flops, floor.flops), (written.dram, floor.dram))
    return any(not isclose(one or 0, other or 0, rel_tol=tolerance) for one, other in pairs)


def of_one_step(columns: Iterable[Column], totals: Iterable[Total | None]) -> tuple[Column, ...]:
    """Return columns whose FLOP, bytes and FLOP/B are of one step: what the bound counts, where a bound is known.

    Without one they are of the code as written, with what it computes again.
    """
    given, known = tuple(columns), [total for total in totals if total is not None]
    instead, other = {}, ""
    if any(total.bound is not None and does_more(total) for total in known):
        instead, other = _BY_BOUND, "{} as written"
    elif any(total.recomputed_work is not None for total in known):
        instead, other = {"flops": "as_written_flops"}, "{} without recomputed ones"
    named = {column.key: column for column in given}
    shown: list[Column] = []
    for column in given:
        if column.key in instead:
            shown += [
                replace(named[instead[column.key]], show=column.show, header=column.header),
                replace(column, show="files", header=other.format(column.header)),
            ]
        elif column.key == RECOMPUTED_FLOPS.name and instead is _BY_BOUND:
            shown.append(replace(column, show="files"))
        elif column.key not in instead.values():
            shown.append(column)
    return tuple(shown)
