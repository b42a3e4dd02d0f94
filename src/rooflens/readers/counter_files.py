"""What Nsight Compute counted: its reports, and what it prints of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rooflens.devices.files import slug
from rooflens.readers.reader import FoundCases, ReadContext, Reader
from rooflens.records import Device, Fact
from rooflens.results import RecordSet
from rooflens.sources import counters
from rooflens.sources.counters import Chip, CounterFile


def _read(path: Path, context: ReadContext) -> RecordSet:
    """A record per launch; the ceilings that the file holds are a device of the set."""
    cases, reading = FoundCases(context), counters.CounterReading(repr(str(path)))
    contents = counters.found_in(counters.launches(path, reading), reading, lambda chip: cases.of(chip.title))
    devices = cases.devices
    notes: list[str] = []
    for chip in contents.chips:
        counted = _as_counted(chip, contents, context, path)
        devices |= {} if counted is None else {counted.name: counted}
        notes += _notes(chip, counted, context.device_name(chip.title))
        told = replace(context, device=None).device_name(chip.title)
        if context.device is not None and told not in (None, context.device_name(chip.title)):
            notes.append(f"the ceilings are those of {context.device.name}; the file names {chip.title}")
    first, *others = contents.records
    return RecordSet((replace(first, notes=(*first.notes, *notes)), *others), devices=devices)


def _notes(chip: Chip, counted: Device | None, name: str | None) -> Iterator[str]:
    """What to know of the ceilings of a chip that cases call by `name`."""
    if counted is not None:
        which = "those of the case, for want of a device file" if counted.name == name else f"device {counted.name!r}"
        yield f"the ceilings that the file holds (peaks per cycle at the clock of the run) are {which}"
    elif name is None:
        capability = f" but its compute capability, {chip.cc}" if chip.cc else ""
        yield f"the file tells nothing of its device{capability}; name it (--device) for bounds"


def _as_counted(chip: Chip, contents: CounterFile, context: ReadContext, path: Path) -> Device | None:
    """What the hardware can do per cycle, as the file says, at the clock of the file."""
    peaks = contents.peaks.get(chip)
    if peaks is None:
        return None
    known = context.device_of(chip.title)
    title = known.title if known is not None else chip.title or f"GPU of compute capability {chip.cc}"
    clock = contents.clock
    facts = {} if clock is None else {"clock": Fact(value=clock, origin="measured", reference=path.name)}
    return Device(
        name=f"{known.name}-ncu" if known is not None else slug(title),
        title=f"{title}, peaks in {path.name}",
        vendor="NVIDIA",
        kind="gpu",
        arch=known.arch if known is not None else "",
        ceilings=tuple(peaks.ceilings(f"{path.name}: peak_sustained at the clock of the run")),
        facts=facts,
    )


def _is_text(head: bytes) -> bool:
    return b"\x00" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff"))


NCU_REPORTS = Reader(
    name="ncu report",
    reads="reports of Nsight Compute (.ncu-rep)",
    recognises=lambda head: head.startswith(counters.REPORT_SIGN),
    read=_read,
)
NCU_TEXT = Reader(name="ncu text", reads="what ncu prints (CSV or text)", recognises=_is_text, read=_read)
