"""``roofline.csv`` of rocprof-compute: what its micro-benchmarks reached on each AMD GPU of a node."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rooflens.errors import FileError
from rooflens.opening import check_columns
from rooflens.records import Device
from rooflens.sources.roofs.ceilings import NamedRoof, Roofs, device_of, rate

MEMORY = "HBMBw"
"""A column that every such file has, and no other one."""
_LEVELS = {"HBM": "dram", "L2": "l2", "L1": "l1"}
_PRECISIONS = {
    **{f"{kind}{bits}": f"fp{bits}" for kind in ("FP", "F") for bits in (4, 8, 16, 32, 64)},
    "BF16": "bf16",
    "I8": "int8",
}
_COLUMN = re.compile(r"(\w+)Bw|(MFMA)?(\w+?)(?:Flops|Ops)", re.ASCII)
_UNKNOWN = frozenset({"", "n/a", "nan", "inf", "0", "0.0"})


def from_rocprof(text: str, path: Path, _: str, told: Device | None) -> Roofs:
    """Return the roofs of the first GPU as a device; the mean of its runs, and not the least or the highest.

    Raises:
        FileError: it has no row, a row was cut, or a cell is no rate.
    """
    where = repr(str(path))
    header, *rows = [row for row in csv.reader(text.splitlines()) if row] or [[]]
    if not rows:
        raise FileError(f"{where} holds no GPU below its header; run 'rocprof-compute profile --roof-only' again")
    if any(len(row) != len(header) for row in rows):
        raise FileError(f"{where}: a row has another number of cells than the header; it was cut")
    check_columns(header, header, where)
    notes = [f"Roofs of the first of {len(rows)} GPUs"] if len(rows) > 1 else []
    cells = dict(zip(header, rows[0], strict=True))
    if len(rows) == 1 and not text.endswith(("\n", "\r")):
        cells.pop(header[-1])
        notes.append(f"The file may have been cut in its last cell: {header[-1]} is left out")
    device = device_of(
        list(_roofs(cells, where)),
        title=path.stem,
        told=told,
        suffix="rocprof-compute",
        kind="gpu",
        origin="measured",
        notes=["Measured by the micro-benchmarks of rocprof-compute", *notes],
    )
    if device is None:
        raise FileError(f"{where} holds no roof that rooflens has; run 'rocprof-compute profile --roof-only' again")
    return Roofs(device=device)


def _roofs(cells: Mapping[str, str], where: str) -> Iterator[NamedRoof]:
    for column, text in cells.items():
        match = _COLUMN.fullmatch(column.strip())
        if match is None or text.strip().lower() in _UNKNOWN:
            continue
        precision = _PRECISIONS.get(match[3] or "")
        unit = f"{'matmul' if match[2] else 'vector'}.{precision}" if precision else None
        resource = _LEVELS.get(match[1]) if match[1] else unit
        speed = rate(text.strip(), f"{where}, column {column}")
        if match[1] or unit:  # else a precision without a name here (6 bits)
            yield NamedRoof(name=column, place="row 1", rate=speed, resource=resource)
