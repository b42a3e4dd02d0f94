"""Which device this machine is, and whose ceilings hold for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rooflens.devices import as_meant, by_title, catalogue, load_file, stored_path
from rooflens.devices import find as find_named
from rooflens.devices.files import slug
from rooflens.errors import InvalidValue, MissingCeiling, UnknownDevice, check_torch, checked
from rooflens.progress import Progress, within
from rooflens.records import AS_IS, Device
from rooflens.sources.roofs import ROOF_FILES, device_of_roofs

MEASURED = "measured"
"""The name of this machine with the ceilings that a calibration measured."""
PLACES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDevice:
    """The device that torch runs on here.

    Attributes:
        where: torch's device type, ``cpu`` or ``cuda``.
        title: the system's name of the card or processor.
        torch: its version.
        threads: on a processor.
        cards: what tells those apart that torch finds; empty where a processor runs.
    """

    where: str
    title: str
    torch: str
    threads: int | None
    cards: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The device that runs.

    Attributes:
        where, title, cards: as of a :class:`FoundDevice`.
        known: its entry in the catalogue.
        stored: the file for its measured ceilings, which may not exist yet.
        device: the ceilings that hold for it; None if unknown.
    """

    where: str
    title: str
    cards: tuple[str, ...]
    known: Device | None
    stored: Path
    device: Device | None

    @property
    def name(self) -> str:
        """Its name in cases: that of its ceilings, or a slug of the title."""
        return slug(self.title) if self.device is None else self.device.name

    @property
    def devices(self) -> dict[str, Device]:
        """Its ceilings by their name; empty if unknown."""
        return {} if self.device is None else {self.name: self.device}


def this_machine(
    where: str | None = None, roof: str | Device | None = None, progress: Progress | None = None
) -> Machine:
    """Return the machine that runs: its card if torch finds one, else its processor, unless `where` says which.

    Args:
        roof: whose ceilings hold; by default those of the catalogue. ``measured``: the stored ones, or measured now if
            there are none.

    Raises:
        InvalidValue: torch cannot run there.
        UnknownDevice: `roof` names no device.
    """
    return machine_of(found_device(where), roof, progress)


def found_device(where: str | None = None) -> FoundDevice:
    """Return torch's card if it finds one, else the processor, unless `where` says which.

    Raises:
        InvalidValue: torch cannot run there.
    """
    check_where(where)
    check_torch()
    import torch

    from rooflens.sources import environment
    from rooflens.sources.device_lock import card_names

    where = where or ("cuda" if torch.cuda.is_available() else "cpu")
    if where == "cuda" and not torch.cuda.is_available():
        raise InvalidValue("torch finds no CUDA device here; measure with device 'cpu', or install a driver")
    title = torch.cuda.get_device_name() if where == "cuda" else environment.cpu_name()
    return FoundDevice(
        where=where,
        title=title,
        torch=str(torch.__version__),
        threads=torch.get_num_threads() if where == "cpu" else None,
        cards=card_names() if where == "cuda" else (),
    )


def check_where(where: str | None) -> None:
    """Raise InvalidValue for what is no place of this version; None lets torch choose."""
    if where is not None and where not in PLACES:
        raise InvalidValue(f"cannot measure on {where!r}; this version measures on {' and '.join(PLACES)}")


def machine_of(found: FoundDevice, roof: str | Device | None = None, progress: Progress | None = None) -> Machine:
    """Return a device of this machine with its ceilings; `roof` and errors as in :func:`this_machine`."""
    known = by_title(found.title, "gpu" if found.where == "cuda" else "cpu")
    here = Machine(
        where=found.where,
        title=found.title,
        cards=found.cards,
        known=known,
        stored=stored_path(found.title, found.torch, found.threads),
        device=known,
    )
    if roof is None:
        return here
    if roof != MEASURED:
        return replace(here, device=roof_of(roof))
    return replace(here, device=load_file(here.stored) if here.stored.exists() else _measured_now(here, progress))


def roof_of(roof: object) -> Device:
    """The device whose ceilings hold: a Device, or a name as :func:`find` takes it.

    Raises:
        UnknownDevice, DeviceFileError: it is not known, or its file is damaged.
        InvalidValue: it is neither a name nor a device.
    """
    device = find(roof) if isinstance(roof, str) else roof
    if not isinstance(device, Device):
        raise InvalidValue(f"roof is {roof!r}; give a name, a device file, or a Device")
    return device


def lacks(device: Device, dtype: str = "fp32") -> str:
    """Return what a measured device lacks for the bound of a step with such products, "" if nothing."""
    product = f"matmul.{'fp32' if dtype == 'default' else dtype.removeprefix('amp-')}"
    return " and ".join(resource for resource in ("dram", product) if device.ceiling(resource) is None)


def check_measured(device: Device | None, dtypes: Iterable[str]) -> None:
    """Raise MissingCeiling for a measured device on which steps of these dtypes have no bound."""
    if device is None or not device.name.endswith(f"-{MEASURED}"):
        return
    for dtype in dtypes:
        if dtype != AS_IS and (lacking := lacks(device, dtype)):
            raise MissingCeiling(
                f"no {lacking} was measured on {device.name}: the calibration had no time for it; run 'rooflens"
                " calibrate' again when nothing else runs, or leave the roof out"
            )


def _measured_now(here: Machine, progress: Progress | None) -> Device:
    from rooflens.sources import calibrate

    tell = within(progress, 0, 1, "measuring ceilings: ")
    return calibrate.calibrate(here.where, here.name, here.title, here.known, tell, quick=True)


def find(name: str) -> Device:
    """The device of a name, as :func:`rooflens.devices.find` takes it; of several, with a warning, the one that people
    mostly mean. Or:

    - ``measured``: this machine, as ``rooflens calibrate`` measured it;
    - a file of roofs of ERT, NERSC's scripts or rocprof-compute: a path that ends in ``.json``, ``.txt`` or ``.csv``.
    """
    if name.strip().lower().endswith(ROOF_FILES):
        return device_of_roofs(Path(name.strip()))
    meant, note = as_meant(name)
    if note:
        warnings.warn(note, stacklevel=2)
    return find_named(meant, {MEASURED: _stored})


def find_all(device: str | Device | Sequence[str | Device] | None) -> tuple[Device, ...]:
    """The devices of an argument, each once.

    Raises:
        UnknownDevice, DeviceFileError: some are not known; all of them are told.
        InvalidValue: it is not a device or several, or two different devices have one name.
    """
    devices: dict[str, Device] = {}
    for one in found_each(device):
        if devices.setdefault(one.name, one) != one:
            raise InvalidValue(f"two different devices are called {one.name!r}; give yours another title")
    return tuple(devices.values())


def found_each(device: object) -> list[Device]:
    """The devices of an argument, in its order; all names that are not known are told at once."""
    return checked(*(partial(_found, one) for one in listed(device)))


def _found(device: str | Device) -> Device:
    return find(device) if isinstance(device, str) else device


def listed(device: object) -> list[str | Device]:
    """An argument as a list: empty for None, of one for a device or name, else its items.

    Raises:
        InvalidValue: something in it is neither a name nor a device.
    """
    one = () if device is None else (device,)
    items = device if isinstance(device, Sequence) and not isinstance(device, str) else one
    if not all(isinstance(item, str | Device) for item in items):
        raise InvalidValue(f"device is {device!r}; give a name, a device file, a Device, or several of them")
    return list(items)


def _stored() -> Device:
    here = this_machine()
    if not here.stored.exists():
        raise UnknownDevice(
            "device",
            MEASURED,
            (),
            f": the ceilings of this machine ({here.title}, with this torch and number of threads) were not measured"
            " yet; run 'rooflens calibrate' first, or name its file",
        )
    return load_file(here.stored)


def datasheet_of(device: Device) -> Device | None:
    """The catalogue's entry of a measured device; None for other devices, or without an entry."""
    name = device.name.removesuffix(f"-{MEASURED}")
    if name == device.name:
        return None
    return next((entry for entry in catalogue() if entry.name == name), None)
