"""How the cells of a study are run: estimates in worker processes, measurements one by one, files read."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from rooflens.api.cases import request
from rooflens.api.counting import counters
from rooflens.api.estimation import estimate
from rooflens.api.ranks import check_gpus
from rooflens.api.reading import read
from rooflens.api.runners import Sender, lost, shares, workers
from rooflens.errors import InvalidValue, RooflensError
from rooflens.machine import MEASURED, PLACES, Machine, find, identity, this_machine
from rooflens.models import How
from rooflens.progress import Progress
from rooflens.records import AS_IS, Case, Device, RecordFile, read_records, write_records
from rooflens.results import RecordSet
from rooflens.sources import environment, isolation
from rooflens.study import Cell, CellRunner, StudyFolder, could_not, stated

_HOW = frozenset(f.name for f in fields(How))


class Estimates:
    """Estimates cells here; a step is traced once for all devices that it is asked for.

    Args:
        cells: those that will be asked for, the devices of a step one after another.
    """

    def __init__(self, home: Path, cells: Iterable[Cell]) -> None:
        self._home = home
        self._devices: dict[Case, list[str | None]] = {}
        for cell in cells:
            self._devices.setdefault(replace(cell.case, device=None), []).append(cell.case.device)
        self._step: Case | None = None
        self._found = RecordSet(())

    def __call__(self, cell: Cell, share: Progress) -> RecordFile:
        device = None if cell.case.device is None else device_of(cell.case.device, self._home)
        step = replace(cell.case, device=None)
        if step != self._step:
            self._found, self._step = self._estimated(step, device, share), step
        name = None if device is None else device.name
        if all(record.case.device != name for record in self._found):
            # The devices were not estimated together, since one of them cannot do what the step needs.
            return _contents(cell, self._one(step, [] if device is None else [device], share))
        return _contents(cell, self._found, name)

    def _estimated(self, step: Case, device: Device | None, share: Progress) -> RecordSet:
        if device is None:
            return self._one(step, [], share)
        others = [_device_or_none(word, self._home) for word in self._devices.get(step, ()) if word is not None]
        together = {each.name: each for each in (device, *others) if each is not None}
        try:
            return self._one(step, list(together.values()), share)
        except RooflensError:
            if len(together) == 1:
                raise
            return RecordSet(())

    def _one(self, step: Case, devices: list[Device], share: Progress) -> RecordSet:
        words = words_of(step, self._home)
        return estimate(device=devices, progress=share, **words)


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


def words_of(case: Case, home: Path) -> dict[str, Any]:
    """The arguments of :func:`rooflens.estimate` for a case, less the device."""
    dtype = None if case.dtype == AS_IS else case.dtype
    return {
        "model": _model(case.model, home),
        "batch": case.batch,
        "dtype": dtype,
        "mode": case.mode,
        **dict(case.options),
    }


def _model(name: str, home: Path) -> str:
    """The name of a model; a file is looked for beside the study first."""
    provider, colon, rest = name.partition(":") if name.startswith("hf:") else ("", "", name)
    file, builder, function = rest.partition(":")
    if (home / file).is_file():
        return f"{provider}{colon}{home / file}{builder}{function}"
    return name


def _contents(cell: Cell, found: RecordSet, device: str | None = None) -> RecordFile:
    """The records of a set, or those of one device, as those of a cell."""
    contents = RecordFile(
        records=tuple(record for record in found.records if device is None or record.case.device == device),
        failures=found.failures,
        devices={name: each for name, each in found.devices.items() if device is None or name == device},
        environment=found.environment,
    )
    return contents if cell.source == "replay" else _named(cell, contents)


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
def estimating(folder: StudyFolder) -> Iterator[CellRunner]:
    """A worker process that estimates; a step that hangs, crashes or takes all memory costs one cell."""
    setup = {"folder": str(folder.path.resolve()), "command": sys.argv}
    limit = folder.study.settings.limits["estimate"]
    pool = isolation.Workers("rooflens.api.study_worker", setup, limit=limit)
    with pool, tempfile.TemporaryDirectory(prefix="rooflens-") as scratch:
        pool.prepare()

        def run(cell: Cell, share: Progress) -> RecordFile:
            out = Path(scratch) / "cell.jsonl"
            answer = pool.run({"key": cell.key, "out": str(out)}, shares(share, cell.case.label()))
            if isinstance(answer, isolation.Lost):
                return lost(cell.case, "estimate", answer)
            found = read_records(out)
            out.unlink()
            return found

        yield run


def begin(setup: Mapping[str, Any]) -> isolation.Run:
    """The worker's side: estimates the cells of a study by their keys."""
    folder = StudyFolder.open(setup["folder"])
    known = {cell.key: cell for cell in folder.cells}
    estimates = Estimates(folder.home, [cell for cell in folder.cells if cell.source == "estimate"])

    def run(words: Mapping[str, Any], tell: Callable[[isolation.Answer], None]) -> bool:
        cell = known[words["key"]]
        try:
            found = estimates(cell, lambda share, text: tell({"share": share}))
        except RooflensError as error:
            found = failed(cell, error, folder.home)
        here = environment.capture(setup["command"])
        write_records(Path(words["out"]), replace(found, environment=here))
        return True

    return run


def failed(cell: Cell, error: RooflensError, home: Path) -> RecordFile:
    """What is kept of a cell that could not be run."""
    return RecordFile(records=(), failures=(could_not(cell, error, home),), environment=environment.capture())


@contextmanager
def measuring(folder: StudyFolder) -> Iterator[CellRunner]:
    """Measures cells on this machine one after another, in a worker process that serves them all."""
    settings = folder.study.settings
    limit = settings.limits["measure"]
    with ExitStack() as stack:
        senders: dict[str, Sender] = {}

        def run(cell: Cell, share: Progress) -> RecordFile:
            machine = _machine(cell.case.device, settings.roofs.get("measure"), folder.home)
            words = words_of(cell.case, folder.home)
            how = How(**{name: words.pop(name) for name in _HOW & words.keys()})
            case = _asked(words, how, machine)
            if machine.where not in senders:
                stack.close()  # a worker holds its device, and processor time: one at a time
                senders.clear()
                senders[machine.where] = stack.enter_context(workers(machine.where, limit=limit, fresh=settings.fresh))
            found = senders[machine.where](_SENT | words, how, case, settings.budget, share)
            devices = {} if machine.device is None else {machine.name: machine.device}
            return _named(cell, replace(found, devices=devices))

        yield run


_SENT = {"name": None, "optimizer": "sgd", "fused": False, "img_size": None, "seq_len": None, "channels_last": False}
"""What a request has to be told, where a case does not say it."""


def _asked(words: Mapping[str, Any], how: How, machine: Machine) -> Case:
    """The case as it will be run, once it is known that it can.

    Raises:
        InvalidValue, UnknownModel: it makes no sense here.
    """
    asked = request(**_SENT | dict(words), inputs=None, loss=None, how=how)
    how.check(machine.where)
    check_gpus(how, machine.where, asked.mode, named=True)
    if machine.where == "cpu" and asked.dtype == "tf32":
        raise InvalidValue("a CPU has no TF32; measure fp32 or bf16")
    return asked.cases(machine.name)[0]


@contextmanager
def counting(folder: StudyFolder) -> Iterator[CellRunner]:
    """Counts cells with Nsight Compute, which runs each in processes of its own."""
    settings = folder.study.settings

    def run(cell: Cell, share: Progress) -> RecordFile:
        place = _place(cell.case.device, folder.home)
        found = counters(
            **words_of(cell.case, folder.home),
            cache=settings.cache,
            limit=settings.limits["counters"],
            roof=place.roof or _roof(settings.roofs.get("counters"), folder.home),
            estimate=False,
            progress=share,
        )
        return _contents(cell, found)

    yield run


@contextmanager
def replaying(folder: StudyFolder) -> Iterator[CellRunner]:
    """Reads what somebody recorded."""

    def run(cell: Cell, _: Progress) -> RecordFile:
        assert cell.file is not None
        said = stated(folder.study, folder.home, cell.file)
        device = said.get("device")
        found = _contents(cell, read(folder.home / cell.file, device=None if device is None else str(device)))

        def told(case: Case) -> Case:
            return replace(case, **said)  # type: ignore[arg-type]  # its fields, as the study file was checked

        return replace(
            found,
            records=tuple(replace(record, case=told(record.case)) for record in found.records),
            failures=tuple(replace(failure, case=told(failure.case)) for failure in found.failures),
        )

    yield run


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
