"""Files of others that hold more or less than a run's kernels: exports of Nsight Systems, roofs of ERT and NERSC."""

from __future__ import annotations

from pathlib import Path

from rooflens.devices import by_title
from rooflens.devices.files import slug
from rooflens.records import AS_IS, Case, Device
from rooflens.results import RecordSet
from rooflens.sources import roofs


def read_database(path: Path, name: str, device: Device | None) -> RecordSet:
    """The kernels and copies of an export of Nsight Systems; where several GPUs did something, a case for each."""
    from rooflens.sources.profile import nsys

    export = nsys.read_export(path)
    several = len(nsys.cards_of(export)) > 1
    devices: dict[str, Device] = {}

    def case_of(card: int | None) -> Case:
        title = None if card is None else export.titles.get(card)
        known = device or (by_title(title, "gpu") if title else None)
        if known is not None:
            devices[known.name] = known
        named = known.name if known is not None else slug(title) if title else None
        options = (("gpu", -1 if card is None else card),) if several else ()
        return Case(model=name, device=named, dtype=AS_IS, options=options)

    return RecordSet(nsys.records_of(export, case_of), devices=devices)


def read_roofs(path: Path, kind: roofs.Kind, name: str, device: Device | None) -> RecordSet:
    """Roofs as devices of the set, points as its records."""
    found = roofs.read_roofs(path, kind, name, device)
    shown = [item for item in (device, found.device) if item is not None]
    return RecordSet(found.records, devices={item.name: item for item in shown})
