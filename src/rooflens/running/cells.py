"""What runs the cells of a study: one runner for each source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from rooflens.errors import InvalidValue, RooflensError
from rooflens.machine import MEASURED, PLACES, Machine, find, machine_of, this_machine
from rooflens.progress import Progress
from rooflens.readers import ReadContext, read_file
from rooflens.records import Case, Device, RecordFile
from rooflens.running.counting import counter
from rooflens.running.estimating import Estimator, estimated_here, estimator_in_worker
from rooflens.running.outcomes import contents
from rooflens.runs.run import Request, Run, is_own_file, recorded_name
from rooflens.study import Cell, CellRunner, StudyFolder, could_not, stated


class Estimates:
    """Estimates cells. A step is traced once for all of its devices.

    Args:
        cells: all that will follow; the devices of a step follow each other.
        estimate: estimates a run.
        beside: something runs models in the study too, whose weights are then in the dtype.
    """

    def __init__(
        self, home: Path, cells: Iterable[Cell], estimate: Estimator = estimated_here, *, beside: bool = False
    ) -> None:
        self._home, self._estimate, self._beside = home, estimate, beside
        self._devices: dict[Case, list[str]] = {}
        for cell in cells:
            devices = self._devices.setdefault(replace(cell.case, device=None), [])
            devices += [] if cell.case.device is None else [cell.case.device]
        self._step: Case | None = None
        self._file = RecordFile(records=())

    def __call__(self, cell: Cell, progress: Progress) -> RecordFile:
        device = None if cell.case.device is None else device_of(cell.case.device, self._home)
        step = replace(cell.case, device=None)
        if step != self._step:
            self._file, self._step = self._of_all_devices(step, device, progress), step
        name, file = None if device is None else device.name, self._file
        own = tuple(failure for failure in file.failures if failure.case.device == name)
        if all(record.case.device != name for record in file.records) and not own:
            # The worker was lost, whatever the device; or the devices were not estimated together.
            own = file.failures
            if not own:
                file = self._estimate(self._run(step), [] if device is None else [device], progress)
                own = file.failures
        its = file if name is None else _on(name, file)
        return _named(cell, replace(its, failures=tuple(replace(f, case=cell.case) for f in own)))

    def _of_all_devices(self, step: Case, device: Device | None, progress: Progress) -> RecordFile:
        others = [_device_or_none(name, self._home) for name in self._devices.get(step, ())]
        together = {each.name: each for each in (device, *others) if each is not None}
        if len(together) == 1:  # whose own error counts
            return RecordFile(records=())
        try:
            return self._estimate(self._run(step), list(together.values()), progress)
        except RooflensError:
            return RecordFile(records=())

    def _run(self, step: Case) -> Run:
        run = run_of(step, self._home)
        return run.in_dtype() if self._beside else run


def has_runs(folder: StudyFolder) -> bool:
    """True if a study has more than estimates."""
    return any(cell.source != "estimate" for cell in folder.cells)


def device_of(name: str, home: Path) -> Device | None:
    """Return the device that a study names, with its ceilings; ``cpu`` and ``cuda`` are those of this machine.

    Returns:
        None where the catalogue does not know this machine: a step has its work there, and no bound, as in `measure`.

    Raises:
        UnknownDevice, DeviceFileError, InvalidValue: its ceilings are unknown, or this machine has no such device.
    """
    return this_machine(name).device if name in PLACES else find(_roof(name, home) or name)


def _device_or_none(name: str, home: Path) -> Device | None:
    """Return the device, or None if it is unknown: its own cell fails then."""
    try:
        return device_of(name, home)
    except RooflensError:
        return None


def run_of(case: Case, home: Path) -> Run:
    """Return the run of a case of a study."""
    return Run.of(replace(case, model=_model(case.model, home)))


def _checked(case: Case, home: Path) -> Run:
    """Return the run of a case, checked; only a worker reads a file of the user's own, and checks it there."""
    from rooflens.models import workload_of

    run = run_of(case, home)
    return run if is_own_file(run.model) else workload_of(run).runs[0]


def _model(name: str, home: Path) -> str:
    """Return the name of a model; paths are relative to the study file, or else to the working folder."""
    provider, colon, rest = name.partition(":") if name.startswith("hf:") else ("", "", name)
    file, builder, function = rest.partition(":")
    if (home / file).is_file():
        return f"{provider}{colon}{home / file}{builder}{function}"
    return name


def _on(device: str, file: RecordFile) -> RecordFile:
    """Return the records of one device, and all failures."""
    return replace(
        file,
        records=tuple(record for record in file.records if record.case.device == device),
        devices={name: each for name, each in file.devices.items() if name == device},
    )


def _named(cell: Cell, file: RecordFile) -> RecordFile:
    """Return the same with the study's name of the model."""
    model = recorded_name(cell.case.model, below_here=False)
    return file.with_cases(lambda case: replace(case, model=model))


@contextmanager
def estimating(folder: StudyFolder, cells: Iterable[Cell], beside: int = 1) -> Iterator[CellRunner]:
    """Estimate in a worker process, so that a step that hangs, crashes or takes all memory fails alone.

    Args:
        beside: workers that share the memory of this machine, with this one.
    """
    with estimator_in_worker(folder.study.settings.limits["estimate"], beside) as estimate:
        estimates = Estimates(folder.home, cells, estimate, beside=has_runs(folder))

        def run(cell: Cell, progress: Progress) -> RecordFile:
            try:
                return estimates(cell, progress)
            except RooflensError as error:
                return contents([could_not(cell, error, folder.home)])

        yield run


@contextmanager
def measuring(folder: StudyFolder) -> Iterator[CellRunner]:
    """Measure cells on this machine one after another, in one worker process."""
    from rooflens.running.measuring import WorkerMeasurer, check_can_run, measurer_in_workers

    settings = folder.study.settings
    with ExitStack() as stack:
        measurers: dict[str, WorkerMeasurer] = {}

        def measure(cell: Cell, progress: Progress) -> RecordFile:
            machine = _machine(cell.case.device, settings.roofs.get("measure"), folder.home)
            if machine.where not in measurers:
                stack.close()  # a worker holds its device, and processor time: one at a time
                measurers.clear()
                measurers[machine.where] = stack.enter_context(
                    measurer_in_workers(machine.where, limit=settings.limits["measure"], fresh=settings.fresh)
                )
            run = run_of(cell.case, folder.home)
            if not is_own_file(run.model):
                (run,) = measurers[machine.where].runs(Request.of_run(run))
            check_can_run(run, machine, isolated=True)
            file = measurers[machine.where](run, machine, settings.budget, progress)
            return _named(cell, replace(file, devices=machine.devices))

        yield measure


def counting(folder: StudyFolder) -> AbstractContextManager[CellRunner]:
    """Count cells with Nsight Compute, each in processes of its own."""
    settings = folder.study.settings

    def count(cell: Cell, progress: Progress) -> RecordFile:
        place = _place(cell.case.device, folder.home)
        roof = place.roof or _roof(settings.roofs.get("counters"), folder.home)
        run = _checked(cell.case, folder.home)
        limit = settings.limits["counters"]
        with counter(cache=settings.cache, limit=limit, every=False, keep=None) as counts:
            counts.start(run.dtype)
            machine = machine_of(counts.found(), roof, progress)
            return _named(cell, counts.counted([run], machine, progress).contents)

    return nullcontext(count)


def replaying(folder: StudyFolder) -> AbstractContextManager[CellRunner]:
    """Read recorded files; what the study says of them replaces fields of their cases."""

    def replay(cell: Cell, _: Progress) -> RecordFile:
        assert cell.file is not None
        fields: Mapping[str, Any] = stated(folder.study, folder.home, cell.file)  # which were checked
        path, device = folder.home / cell.file, fields.get("device")
        context = ReadContext(
            name=path.name.partition(".")[0] or path.name, device=None if device is None else find(str(device))
        )
        return read_file(path, context).contents.with_cases(lambda case: replace(case, **fields))

    return nullcontext(replay)


@dataclass(frozen=True, slots=True)
class CellPlace:
    """Where on this machine a cell runs, and whose ceilings apply; None is the machine's own."""

    where: str | None = None
    roof: str | None = None


def runs_here(needed: str | None) -> bool:
    """True if this machine is, or has, the device that a cell needs."""
    if needed is None or needed == MEASURED or needed.lower().endswith(".toml"):
        return True
    return needed in _names_here()


@cache
def _names_here() -> Mapping[str, str]:
    """Return torch's type of each device of this machine, by that type and by name."""
    types: dict[str, str] = {}
    for where in PLACES:
        try:
            types |= dict.fromkeys((where, this_machine(where).name), where)
        except InvalidValue:  # no such device here
            continue
    return types


def _place(device: str | None, home: Path) -> CellPlace:
    if device is None:
        return CellPlace()
    if device == MEASURED:
        return CellPlace(roof=MEASURED)
    if device.lower().endswith(".toml"):
        return CellPlace(roof=_roof(device, home))
    where = _names_here().get(device)
    if where is None:
        raise InvalidValue(f"this machine has no {device!r}; it has {', '.join(_names_here())}")
    return CellPlace(where=where)


def _roof(name: str | None, home: Path) -> str | None:
    """Return the name of a device; the path of a file is relative to the study file."""
    return str(home / name) if name is not None and name.lower().endswith(".toml") else name


@cache
def _machine(device: str | None, roof: str | None, home: Path) -> Machine:
    """Return this machine as a study names it; its ceilings are measured once."""
    place = _place(device, home)
    return this_machine(place.where, place.roof or _roof(roof, home))
