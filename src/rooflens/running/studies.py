"""Which cells of a study are run, here or in jobs of a cluster, and in which order."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from rooflens.errors import InvalidValue, RooflensError, StudyFileError, UnknownModel, checked, told_together
from rooflens.machine import PLACES
from rooflens.opening import parsed_toml, read_text
from rooflens.running.cells import Estimates, counting, estimating, has_runs, measuring, replaying, runs_here
from rooflens.running.process import ahead
from rooflens.runs.run import is_own_file
from rooflens.study import STATES, Cell, CellRunner, SourceName, StudyChange, StudyFolder, Tell, canonical, run_each

FEW = 12
"""Steps to estimate up to which the worker that measures afterwards starts beside the first: it holds memory."""


def open_study(study: str | Path, folder: str | Path | None = None) -> tuple[StudyFolder, StudyChange | None]:
    """Return the folder of a study, begun if it is new, and how the study changed since; None if it did not.

    Names of models are not looked up: see :func:`check_models`.

    Args:
        study: a study file, or the folder of a study that was begun, whose own copy of the file is used.
        folder: as in :func:`run_study`.

    Raises:
        StudyFileError: the study cannot be read.
        InvalidValue: the folder holds no study.
    """
    path = Path(study)
    if os.path.isdir(path) or not (path.suffix or os.path.exists(path)):
        if folder is not None and Path(folder) != path:
            raise InvalidValue(f"{str(study)!r} is the folder of a study; leave folder={str(folder)!r} out")
        return StudyFolder.open(path), None
    try:
        return StudyFolder.begin(Path("out") / path.stem if folder is None else folder, path)
    except StudyFileError as error:  # all wrong names at once, those of models too
        raise told_together([error, *_unknown_models(path)]) from error


def check_models(study: str | Path, folder: StudyFolder, change: StudyChange | None) -> None:
    """Refuse unknown models before anything runs, in a study that is new or has changed.

    Raises:
        StudyFileError: names are wrong; the message has the line of each.
    """
    path = Path(study)
    if os.path.isfile(path) and (change is not None or not folder.has_any()):
        models = dict.fromkeys(cell.case.model for cell in folder.cells if cell.source != "replay")
        checked(*(partial(_check_model, model, path) for model in models))


def workers_ahead(
    folder: StudyFolder, cells: Iterable[Cell], *, jobs: int, retry: bool
) -> AbstractContextManager[None]:
    """Let workers that cells will need import what they need while this process does."""
    left = [cell for cell in cells if folder.wants(cell, retry=retry)]
    steps = {replace(cell.case, device=None) for cell in left if cell.source == "estimate"}
    places = [cell.case.device for cell in left if cell.source == "measure" and cell.case.device in PLACES]
    kinds = [*(["estimate cpu"] if steps and jobs else []), *(f"measure {place}" for place in places[:1])]
    return ahead(*kinds[: None if len(steps) <= FEW else 1])


def run_cells(
    folder: str | Path,
    keys: Iterable[str] | None = None,
    *,
    jobs: int = 1,
    retry: bool = False,
    progress: Tell | None = None,
) -> dict[str, int]:
    """Run some cells of a study that was begun; arguments and result are plain data.

    Cells that are done, run elsewhere or need another machine are left alone. So several nodes may get the same keys,
    and get them again after a job was preempted.

    Args:
        folder: of the study, on a disk that all nodes share.
        keys: of the cells; default is all.
        jobs, retry, progress: as in :func:`run_study`.

    Returns:
        How many of these cells are now ``done``, ``skipped``, ``failed``, ``running`` (elsewhere) and ``left``.

    Raises:
        InvalidValue: there is no study in this folder, or it has no such cell.
    """
    opened = StudyFolder.open(folder)
    cells = opened.cells if keys is None else opened.named(keys)
    run_left(opened, cells, jobs=jobs, retry=retry, tell=progress)
    states = opened.status().states
    counts = Counter(states[cell] for cell in cells)
    return {state: counts[state] for state in STATES}


def chosen(folder: StudyFolder, sources: Sequence[str] = (), devices: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Return the cells of these sources and devices; of all if none are named.

    Raises:
        InvalidValue: the study has no cell of one of them.
    """
    devices = [str(canonical(device)) for device in devices]
    for what, wanted, known in (
        ("source", sources, {cell.source for cell in folder.cells}),
        ("device", devices, {cell.case.device for cell in folder.cells if cell.case.device is not None}),
    ):
        if unknown := ", ".join(repr(name) for name in wanted if name not in known):
            raise InvalidValue(f"the study has no {what} {unknown}; it has: {', '.join(sorted(known)) or 'none'}")
    return tuple(
        cell
        for cell in folder.cells
        if (not sources or cell.source in sources) and (not devices or cell.case.device in devices)
    )


def run_left(folder: StudyFolder, cells: Sequence[Cell], *, jobs: int, retry: bool, tell: Tell | None) -> None:
    """Run the cells that are left and that this machine can run, source after source."""
    if jobs < 0:
        raise InvalidValue(f"{jobs} jobs cannot be; give 0 to estimate in this process, or how many worker processes")
    until = None if folder.study.budget is None else time.monotonic() + folder.study.budget
    wanted = [cell for cell in cells if folder.wants(cell, retry=retry) and runs_here(cell.needs)]
    sides: dict[SourceName, list[Cell]] = {}
    for cell in wanted:
        sides.setdefault(cell.source, []).append(cell)

    def one_by_one(cells: Iterable[Cell], run: CellRunner) -> None:
        run_each(folder, cells, run, tell=tell or (lambda _: None), retry=retry, until=until)

    if jobs == 0:
        estimates = sides.pop("estimate", [])
        own = [cell for cell in estimates if is_own_file(cell.case.model)]
        here = [cell for cell in estimates if cell not in own]
        one_by_one(here, Estimates(folder.home, here, beside=has_runs(folder)))
        jobs, sides = 1, {**({"estimate": own} if own else {}), **sides}  # a user's file is read by a worker only
    for source, some in sides.items():
        if source == "estimate":
            _side_by_side(folder, some, jobs, one_by_one)
            continue
        with _RUNNERS[source](folder) as run:
            one_by_one(some, run)


_RUNNERS: dict[SourceName, Callable[[StudyFolder], AbstractContextManager[CellRunner]]] = {
    "measure": measuring,
    "counters": counting,
    "replay": replaying,
}


def _side_by_side(
    folder: StudyFolder, cells: Sequence[Cell], jobs: int, one_by_one: Callable[[Iterable[Cell], CellRunner], None]
) -> None:
    """Let several workers each take the next step, with all of its devices, when it is free.

    An interrupt does not wait for running cells. If the process ends with it, the next one runs them again.
    """
    groups = [list(group) for _, group in groupby(cells, key=lambda cell: replace(cell.case, device=None))]
    steps, workers = iter(groups), min(jobs, len(groups))
    lock, over = threading.Lock(), threading.Event()
    errors: list[Exception] = []

    def next_cells() -> Iterator[Cell]:
        while not over.is_set():
            with lock:
                step = next(steps, None)
            if step is None:
                return
            yield from step

    def serve() -> None:
        try:
            with estimating(folder, cells, workers) as run:
                one_by_one(next_cells(), run)
        except (RooflensError, OSError) as error:
            errors.append(error)
            over.set()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(workers)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        over.set()
    if errors:
        raise errors[0]


def _unknown_models(path: Path) -> Iterator[StudyFileError]:
    """Yield what is wrong with the names of models in a study file that cannot be used."""
    try:
        file = parsed_toml(read_text(path, error=StudyFileError), str(path), StudyFileError)
    except RooflensError:  # which whoever read it has told
        return
    grids = file.get("grid", [])
    tables = [file, *(grid for grid in (grids if isinstance(grids, list) else ()) if isinstance(grid, dict))]
    named = [names if isinstance(names, list) else [names] for table in tables if (names := table.get("models"))]
    for model in dict.fromkeys(name for names in named for name in names if isinstance(name, str)):
        try:
            _check_model(model, path)
        except StudyFileError as error:
            yield error


def _check_model(model: str, path: Path) -> None:
    if model.endswith(".onnx") or ".py:" in model or model.startswith("hf:"):
        return  # a file: its cells fail if something is wrong
    if find_spec("torch") is None:
        return  # a login node cannot check
    from rooflens.models import find

    try:
        find(model)
    except UnknownModel as error:
        lines = path.read_text(encoding="utf-8").splitlines()
        line = next((n for n, text in enumerate(lines, 1) if f'"{model}"' in text or f"'{model}'" in text), None)
        place = f"{path}, line {line}" if line is not None else str(path)
        raise StudyFileError(f"{place}: models: {error}") from error
    except RooflensError:  # a known model that cannot be built here: its cells fail
        return
