"""What kernels reach of each ceiling, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rooflens.compare.kernel_pairs import spelling
from rooflens.compare.speed_of_light import LANES, PLACES, TENSOR, Reached
from rooflens.records import Case
from rooflens.report.columns import CASE, at_least
from rooflens.report.table import COUNT, PERCENT, Column, Entry, Table, build

SHOWN = 20
"""Kernels in the table, those that take most time."""
_LONGEST = 36
_HEADERS = {TENSOR: "tensor cores", LANES: "general lanes", "l1": "L1", "l2": "L2", "dram": "DRAM"}
NOTE = (
    "share of each ceiling: the least time that the counted work needs there, over the time that the kernel took; the"
    " highest is what limits it, unless all are low"
)


@dataclass(frozen=True, slots=True)
class _Row:
    """A kernel of a counted case."""

    case: Case
    reached: Reached


def _name(row: _Row) -> Entry:
    plain = spelling(row.reached.key).removeprefix("void ")
    return Entry(row.reached.key, label=plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 3]}...")


def _share(place: str) -> Column:
    def read(row: _Row) -> Entry:
        return at_least(row.reached.ceilings[place], row.reached.missing and place in (TENSOR, LANES), 1)

    return Column(f"{place.replace(' ', '_')}_share", _HEADERS[place], PERCENT, read, group="ceilings")


_COLUMNS = (
    *CASE,
    Column("kernel", "kernel", read=_name, align="left"),
    Column("launches", "launches", COUNT, "reached.launches", group="time"),
    Column("seconds", "time", "s", "reached.seconds", group="time"),
    Column("time_share", "share of time", PERCENT, "reached.share", group="time"),
    *map(_share, PLACES),
    Column("highest", "highest", read="reached.highest", align="left", group="ceilings"),
)


def kernels_table(reached: Sequence[Reached], case: Case) -> Table:
    """Return one row per kernel, the longest first, with its share of each ceiling."""
    left = reached[SHOWN:]
    notes = [NOTE]
    if left:
        notes.append(f"{len(left)} more kernels take {sum(row.share for row in left):.1%} of the time")
    return build("Kernels under each ceiling", _COLUMNS, [_Row(case, row) for row in reached[:SHOWN]], notes=notes)
