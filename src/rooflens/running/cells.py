"""How the cells of a study are run: estimates in worker processes, measurements one by one, files read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from rooflens.errors import InvalidValue, RooflensError
from rooflens.machine import MEASURED, PLACES, Machine, find, identity, this_machine
from rooflens.progress import Progress
from rooflens.readers import ReadContext, read_file
from rooflens.records import Case, Device, RecordFile
from rooflens.running.counting import counted
from rooflens.running.estimating import Estimator, estimated_here, estimator_in_worker
from rooflens.running.outcomes import contents
from rooflens.runs.run import Run
from rooflens.study import Cell, CellRunner, StudyFolder, could_not, stated


class Estimates:
    """Estimates cells; a step is traced once for all devices that it is asked for.

    Args:
        cells: those that will be asked for, the devices of a step one after another.
        estimate: what estimates a run.
    """

    def __init__(self, home: Path, cells: Iterable[Cell], estimate: Estimator = estimated_here) -> None:
        self._home, self._estimate = home, estimate
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
        if self._file.failures:  # the worker was lost over the step, whatever the device
            return replace(self._file, failures=tuple(replace(f, case=cell.case) for f in self._file.failures))
        name = None if device is None else device.name
        if all(record.case.device != name for record in self._file.records):
            # The devices were not estimated together, since one of them cannot do what the step needs.
            run = run_of(step, self._home)
            file = self._estimate(run, [] if device is None else [device], progress)
            return _of_cell(cell, replace(file, failures=tuple(replace(f, case=cell.case) for f in file.failures)))
        return _of_cell(cell, self._file, name)

    def _of_all_devices(self, step: Case, device: Device | None, progress: Progress) -> RecordFile:
        others = [_device_or_none(name, self._home) for name in self._devices.get(step, ())]
        together = {each.name: each for each in (device, *others) if each is not None}
        if len(together) == 1:  # alone, so that what is wrong with it is told
            return RecordFile(records=())
        try:
            return self._estimate(run_of(step, self._home), list(together.values()), progress)
        except RooflensError:
            return RecordFile(records=())


def device_of(word: str, home: Path) -> Device:
    """The device that a study means by a word, with its ceilings.

    Raises:
        UnknownDevice, DeviceFileError, InvalidValue: nobody knows its ceilings, or this machine has no such device.
    """
    if word in PLACES:
        device = this_machine(word, None).device
        if device is None:
            raise InvalidValue(
                f"the catalogue has no entry for the {word!r} of this machine; run 'rooflens calibrate' and write"
                f" {MEASURED!r}, or name a device file"
            )
        return device
    return find(_roof(word, home) or word)


def _device_or_none(word: str, home: Path) -> Device | None:
    """As :func:`device_of`, None where another cell will tell what is wrong with it."""
    try:
        return device_of(word, home)
    except RooflensError:
        return None


def run_of(case: Case, home: Path) -> Run:
    """The run of a case of a study."""
    return Run.of(replace(case, model=_model(case.model, home)))


def _model(name: str, home: Path) -> str:
    """The name of a model; a file is looked for beside the study first."""
    provider, colon, rest = name.partition(":") if name.startswith("hf:") else ("", "", name)
    file, builder, function = rest.partition(":")
    if (home / file).is_file():
        return f"{provider}{colon}{home / file}{builder}{function}"
    return name


def _of_cell(cell: Cell, file: RecordFile, device: str | None = None) -> RecordFile:
    """What came of a cell, or what of it is of one device."""
    return _named(
        cell,
        replace(
            file,
            records=tuple(record for record in file.records if device is None or record.case.device == device),
            devices={name: each for name, each in file.devices.items() if device is None or name == device},
        ),
    )


def _named(cell: Cell, found: RecordFile) -> RecordFile:
    """The same with the model called what the study calls it, wherever its file lies."""
    cases = {record.case for record in found.records} | {failure.case for failure in found.failures}
    if all(case.model == cell.case.model for case in cases):
        return found
    named = {case: replace(case, model=cell.case.model) for case in cases}
    return replace(
        found,
        records=tuple(replace(record, case=named[record.case]) for record in found.records),
        failures=tuple(replace(failure, case=named[failure.case]) for failure in found.failures),
    )


@contextmanager
def estimating(folder: StudyFolder, cells: Iterable[Cell]) -> Iterator[CellRunner]:
    """A worker process that estimates; a step that hangs, crashes or takes all memory costs one cell."""
    with estimator_in_worker(folder.study.settings.limits["estimate"]) as estimate:
        estimates = Estimates(folder.home, cells, estimate)

        def run(cell: Cell, progress: Progress) -> RecordFile:
            try:
                return estimates(cell, progress)
            except RooflensError as error:
                return contents([could_not(cell, error, folder.home)])

        yield run


@contextmanager
def measuring(folder: StudyFolder) -> Iterator[CellRunner]:
    """Measures cells on this machine one after another, in a worker process that serves them all."""
    from rooflens.models import workload_of
    from rooflens.running.measuring import Measurer, check_can_run, measurer_in_workers

    settings = folder.study.settings
    with ExitStack() as stack:
        measurers: dict[str, Measurer] = {}

        def measure(cell: Cell, progress: Progress) -> RecordFile:
            machine = _machine(cell.case.device, settings.roofs.get("measure"), folder.home)
            (run,) = workload_of(run_of(cell.case, folder.home)).runs
            check_can_run(run, machine.where, isolated=True)
            if machine.where not in measurers:
                stack.close()  # a worker holds its device, and processor time: one at a time
                measurers.clear()
                measurers[machine.where] = stack.enter_context(
                    measurer_in_workers(machine.where, limit=settings.limits["measure"], fresh=settings.fresh)
                )
            file = measurers[machine.where](run, machine.name, settings.budget, progress)
            devices = {} if machine.device is None else {machine.name: machine.device}
            return _named(cell, replace(file, devices=devices))

        yield measure


def counting(folder: StudyFolder) -> AbstractContextManager[CellRunner]:
    """Counts cells with Nsight Compute, which runs each in processes of its own."""
    from rooflens.models import workload_of

    settings = folder.study.settings

    def count(cell: Cell, progress: Progress) -> RecordFile:
        place = _place(cell.case.device, folder.home)
        roof = place.roof or _roof(settings.roofs.get("counters"), folder.home)
        asked = workload_of(run_of(cell.case, folder.home))
        machine = this_machine(None, roof, progress)
        limit = settings.limits["counters"]
        found = counted(asked, machine, cache=settings.cache, limit=limit, keep=None, progress=progress)
        return _of_cell(cell, found.contents)

    return nullcontext(count)


def replaying(folder: StudyFolder) -> AbstractContextManager[CellRunner]:
    """Reads what somebody recorded."""

    def replay(cell: Cell, _: Progress) -> RecordFile:
        assert cell.file is not None
        said = stated(folder.study, folder.home, cell.file)
        path, device = folder.home / cell.file, said.get("device")
        context = ReadContext(
            name=path.name.partition(".")[0] or path.name, device=None if device is None else find(str(device))
        )
        file = read_file(path, context).contents

        def as_said(case: Case) -> Case:
            return replace(case, **said)  # type: ignore[arg-type]  # its fields, as the study file was checked

        return replace(
            file,
            records=tuple(replace(record, case=as_said(record.case)) for record in file.records),
            failures=tuple(replace(failure, case=as_said(failure.case)) for failure in file.failures),
        )

    return nullcontext(replay)


@dataclass(frozen=True, slots=True)
class Place:
    """Where on this machine a cell runs, and whose ceilings hold for it; None leaves it to the machine."""

    where: str | None = None
    roof: str | None = None


def runs_here(needed: str | None) -> bool:
    """Whether this machine is, or has, the device that a cell needs."""
    if needed is None or needed == MEASURED or needed.lower().endswith(".toml"):
        return True
    return needed in _names_here()


@cache
def _names_here() -> Mapping[str, str]:
    """The devices of this machine by the words and names that a study may have for them, and where they are."""
    found: dict[str, str] = {}
    for where in PLACES:
        try:
            found |= dict.fromkeys((where, identity(where).name), where)
        except InvalidValue:  # no such device here
            continue
    return found


def _place(device: str | None, home: Path) -> Place:
    if device is None:
        return Place()
    if device == MEASURED:
        return Place(roof=MEASURED)
    if device.lower().endswith(".toml"):
        return Place(roof=_roof(device, home))
    where = _names_here().get(device)
    if where is None:
        raise InvalidValue(f"this machine is no {device!r}; it is {', '.join(_names_here())}")
    return Place(where=where)


def _roof(word: str | None, home: Path) -> str | None:
    """A device by its name, or the path of its file, which lies beside the study file."""
    return str(home / word) if word is not None and word.lower().endswith(".toml") else word


@cache
def _machine(device: str | None, roof: str | None, home: Path) -> Machine:
    """The machine under the name that a study has for it; ceilings are measured once."""
    place = _place(device, home)
    return this_machine(place.where, place.roof or _roof(roof, home))
