"""From a study to its cells: the product of the axes, less what is excluded, and the files that were recorded."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from rooflens.errors import FileError
from rooflens.records import AS_IS, Case, Scalar
from rooflens.runs.options import ANSWERING
from rooflens.runs.options import OPTIONS as TABLE
from rooflens.study.study import OPTIONS, SOURCES, Cell, Exclusion, Grid, Recorded, SourceName, Study

COMPARISON = re.compile(r"\s*(<=|>=|<|>)\s*([0-9]+)\s*")
"""A condition on a number."""
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def cells(study: Study, home: Path) -> tuple[Cell, ...]:
    """Every cell of a study once: estimates first, then what is measured, each in the order of the axes.

    The devices of a case follow each other, since estimates of one step share their trace.

    Args:
        home: the folder of the study file.

    Raises:
        FileError: a recorded file is not there.
    """
    left_out = excluded(study)
    own = [cell for cell in _product(study.grids) if cell not in left_out]
    names = {cell.key for cell in own}
    every = (
        *own,
        *(cell for cell in _replays(study.recorded, home) if _stands_for(Path(cell.file or "")) not in names),
    )
    return tuple(sorted(dict.fromkeys(every), key=lambda cell: SOURCES.index(cell.source)))


def standing(study: Study, home: Path, own: Iterable[Cell]) -> dict[str, Path]:
    """The recorded files that are named for cells of the study, by the key of the cell."""
    names = {cell.key for cell in own}
    files = {_stands_for(path): path for entry in study.recorded for path in _files(entry, home)}
    return {key: path for key, path in files.items() if key in names}


def excluding_nothing(study: Study) -> list[Exclusion]:
    """Exclusions that no cell meets: a name in them is wrong, or the grid has changed."""
    every = list(_product(study.grids))
    return [exclusion for exclusion in study.excluded if not any(_meets(cell, exclusion) for cell in every)]


def excluded(study: Study) -> dict[Cell, str]:
    """The cells that are left out, and why."""
    reasons: dict[Cell, str] = {}
    for cell in _product(study.grids):
        for exclusion in study.excluded:
            if _meets(cell, exclusion):
                reasons.setdefault(cell, exclusion.why)
    return reasons


def _product(grids: Iterable[Grid]) -> Iterator[Cell]:
    for grid in grids:
        sizes: Mapping[str, tuple[Scalar, ...]] = {"seq_len": grid.seq_lens, "img_size": grid.img_sizes}
        named = {name: values for name, values in {**grid.options, **sizes}.items() if values}
        options = [tuple(zip(named, values, strict=True)) for values in product(*named.values())]
        for source in grid.sources:
            devices = grid.devices_of.get(source, grid.devices) or (None,)
            axes = (grid.models, grid.modes, grid.dtypes, options, grid.batches or (None,), devices)
            for model, mode, dtype, chosen, batch, device in product(*axes):
                if mode in ANSWERING and source not in ("estimate", "measure"):  # its steps are cases of their own
                    continue
                case = Case(
                    model=model,
                    device=device,
                    batch=batch,
                    dtype=dtype,
                    mode=mode,
                    options=tuple(sorted((n, v) for n, v in chosen if _is_named(n, v, source, mode))),
                )
                yield Cell(case=case, source=source)


def _is_named(name: str, value: Scalar, source: SourceName, mode: str) -> bool:
    """True if a case names an option: it means something there, and is not the default."""
    return means_something(name, source, mode) and (name not in OPTIONS or value != default_of(name))


def means_something(name: str, source: SourceName, mode: str) -> bool:
    """True if an option changes anything for a source and a mode. Recorded files may be of any source."""
    line = TABLE.get(name)
    return line is None or line.means_something(line.sources[0] if source == "replay" else source, mode)


def default_of(name: str) -> Scalar | None:
    """The default of an option that a case does not name; None is unknown."""
    return OPTIONS[name].default if name in OPTIONS else None


def _meets(cell: Cell, exclusion: Exclusion) -> bool:
    return all(
        any(agrees(value_of(cell, name), wanted) for wanted in values) for name, values in exclusion.conditions.items()
    )


def value_of(cell: Cell, name: str) -> Scalar | None:
    """A field of a cell or of its case, or an option: its default where the case does not name it."""
    if name == "source":
        return cell.source
    if name in ("model", "device", "batch", "dtype", "mode"):
        value: Scalar | None = getattr(cell.case, name)
        return value
    default = default_of(name)
    if default is not False and not means_something(name, cell.source, cell.case.mode):
        default = None  # an estimate runs on no number of GPUs, inference has no optimizer
    return dict(cell.case.options).get(name, default)


def agrees(value: Scalar | None, wanted: Scalar) -> bool:
    """True if a value equals what is wanted, matches its pattern or meets its comparison."""
    if value is None:
        return False
    if not isinstance(wanted, str):
        return value == wanted and type(value) is type(wanted)
    comparison = COMPARISON.fullmatch(wanted)
    if comparison is not None and isinstance(value, int | float):
        return _COMPARE[comparison[1]](value, int(comparison[2]))
    return isinstance(value, str) and fnmatchcase(value, wanted)


def _replays(recorded: Iterable[Recorded], home: Path) -> Iterator[Cell]:
    for entry in recorded:
        for path in _files(entry, home):
            stated = dict(entry.case)
            name = path.relative_to(home).as_posix() if path.is_relative_to(home) else path.as_posix()
            case = Case(
                model=str(stated.get("model", path.name.partition(".")[0])),
                device=None if "device" not in stated else str(stated["device"]),
                batch=None if "batch" not in stated else int(stated["batch"]),
                dtype=str(stated.get("dtype", AS_IS)),
                mode=str(stated.get("mode", "inference")),
            )
            yield Cell(case=case, source="replay", file=name)


def stated(study: Study, home: Path, file: str) -> Mapping[str, Scalar]:
    """What a study says of the cases of a recorded file: fields of a case."""
    entries = (entry for entry in study.recorded if home / file in _files(entry, home))
    return next((entry.case for entry in entries), {})


def _files(entry: Recorded, home: Path) -> list[Path]:
    """The files that the patterns of an entry name.

    Raises:
        FileError: a pattern names none.
    """
    paths: list[Path] = []
    for pattern in entry.files:
        fitting = sorted(path for path in home.glob(pattern) if path.is_file())
        if not fitting:
            raise FileError(f"no recorded file {pattern!r} in {str(home)!r}")
        paths += fitting
    return list(dict.fromkeys(paths))


def _stands_for(path: Path) -> str:
    """The key of the cell that a file is named for, if it is named for one."""
    return path.name.removesuffix(".jsonl").removesuffix(".failed").removesuffix(".skipped")
