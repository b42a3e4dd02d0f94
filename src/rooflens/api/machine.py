"""Which device this machine is, and whose ceilings hold for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rooflens.api.cases import Progress
from rooflens.devices import by_title, find
from rooflens.errors import InvalidValue
from rooflens.records import Device

MEASURED = "measured"
PLACES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where to run.

    Attributes:
        where: torch's device type, ``cpu`` or ``cuda``.
        name: the device's name in cases: the catalogue's, or a slug of what the system says.
        device: its ceilings, None where nobody knows them.
    """

    where: str
    name: str
    device: Device | None


def this_machine(where: str | None, roof: str | Device | None, progress: Progress | None = None) -> Machine:
    """The machine that will run, and its ceilings.

    Raises:
        InvalidValue: torch cannot run there.
        UnknownDevice: `roof` names no device.
    """
    import torch

    from rooflens.sources import calibrate, environment

    where = where or ("cuda" if torch.cuda.is_available() else "cpu")
    if where not in PLACES:
        raise InvalidValue(f"cannot measure on {where!r}; this version measures on {' and '.join(PLACES)}")
    if where == "cuda" and not torch.cuda.is_available():
        raise InvalidValue("torch finds no CUDA device here; measure with device 'cpu', or install a driver")
    title = torch.cuda.get_device_name() if where == "cuda" else environment.cpu_name()
    known = by_title(title, "gpu" if where == "cuda" else "cpu")
    name = known.name if known is not None else re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if roof == MEASURED:
        tell = None if progress is None else lambda share: progress(share, "measuring ceilings")
        device = calibrate.calibrate(where, name, title, known, tell)
        return Machine(where=where, name=device.name, device=device)
    if roof is not None:
        device = find(roof) if isinstance(roof, str) else roof
        return Machine(where=where, name=device.name, device=device)
    return Machine(where=where, name=name, device=known)
