"""Memory levels on a figure: which it shows, how their bytes were counted, and where an intensity means nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rooflens.errors import InvalidValue, MissingCeiling
from rooflens.records import LEVELS, LINKS, Bound, Device, Record, Work
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES
from rooflens.report.figures.roofline_data import Mark
from rooflens.results import RecordSet

NEAREST_FIRST = (*reversed(LEVELS), *LINKS)
"""The order of levels on a figure, which is that of their roofs from left to right."""

NO_WORK = "a time without known work has no place; estimate the same case too"
"""Why an observed case has no mark."""

# A note on the bytes of a level begins with the level; it says what they are, or what they miss.
_ARE, _MISS = "{} bytes are", "{} bytes miss"
# What Nsight Compute's counters mean where no note says otherwise: see docs/counter-metrics.md.
_NCU: Mapping[str, str] = {
    "l1": "l1 bytes are l1tex__t_bytes: what passes the tags of L1TEX",
    "l2": "l2 bytes are 32 x lts__t_sectors_srcunit_tex: what passes between SMs and L2",
    "dram": "dram bytes are dram__bytes: all that is read and written",
}
_OTHERS = "Nsight Compute's own charts define l1 and l2 in another way"


def shown_levels(
    level: str | Sequence[str] | None, records: Iterable[Record], devices: Sequence[Device]
) -> tuple[str, ...]:
    """Return the levels of a figure, nearest first.

    Args:
        level: what was asked for; None is every level that a record knows, or a ceiling where there are no records. Of
            many devices only one diagonal each is drawn, that of the farthest level.

    Raises:
        InvalidValue: there is no such level.
    """
    if level is not None:
        wanted = {level} if isinstance(level, str) else set(level)
        unknown = sorted(wanted.difference(NEAREST_FIRST))
        if unknown or not wanted:
            named = repr(unknown[0]) if unknown else "''"
            raise InvalidValue(f"unknown level {named}; known: {', '.join(LEVELS + LINKS)}")
        return tuple(name for name in NEAREST_FIRST if name in wanted)
    works = [r.work for r in records if r.work is not None]
    roofs = {ceiling.resource for device in devices for ceiling in device.ceilings}
    known = {name for work in works for name in work.bytes} if works else roofs
    levels = tuple(name for name in NEAREST_FIRST if name in known and name in LEVELS) or ("dram",)
    return levels[-1:] if len(devices) > FEW_DEVICES else levels


def intensity_label(levels: Sequence[str]) -> str:
    """Return what the axis of intensities is called."""
    if len(levels) > 1:
        return "arithmetic intensity (FLOP per byte of the named level)"
    return f"arithmetic intensity (FLOP per {'DRAM' if levels[0] == 'dram' else levels[0]} byte)"


def no_intensity(work: Work | None, records: Iterable[Record], level: str) -> str:
    """Return why a piece of work has no intensity at a level, "" if it has one."""
    nbytes = None if work is None else work.bytes.get(level)
    if nbytes is None:
        return f"its {level} bytes are not known"
    if not nbytes:
        return f"no byte passed {level}: the intensity has no end"
    start = _MISS.format(level)
    return next((note for r in records for note in r.notes if note.startswith(start)), "")


def roof_at(level: str, records: RecordSet, work: Work, device: Device) -> Bound | None:
    """Return the bound of some work of a set by the units and one level of a device; None where a rate is missing.

    Each mark is held against its own level: the others have marks of their own.
    """
    try:
        return records.bound(replace(work, bytes={level: work.bytes[level]}), device)
    except MissingCeiling:
        return None


def remarks(records: Iterable[Record], level: str) -> tuple[str, ...]:
    """Return the notes that concern the bytes of `level`, each once."""
    start = f"{level} bytes"
    return tuple(dict.fromkeys(n for r in records for n in r.notes if n.startswith(start) or f": {start}" in n))


def definitions(records: Iterable[Record], levels: tuple[str, ...]) -> Iterator[str]:
    """Yield what the bytes of each level are, where they were counted: tools count different things under one name."""
    if levels == ("dram",):
        return  # everybody means the same there
    known: dict[str, None] = {}
    for record in records:
        of_ncu = record.timing is not None and record.timing.origin == "ncu"
        if record.work is not None and record.work.origin == "executed" and of_ncu:
            for level in levels:
                if level in record.work.bytes:
                    own = [note for note in record.notes if note.startswith(_ARE.format(level))]
                    known.update(dict.fromkeys(own or filter(None, [_NCU.get(level)])))
    if known:
        ordered = sorted(known, key=lambda text: NEAREST_FIRST.index(text.partition(" ")[0]))
        yield f"{'. '.join([*ordered, _OTHERS])}."


def without_roof(devices: Sequence[Device], marks: Sequence[Mark]) -> Iterator[str]:
    """Yield which of the devices drawn have marks at levels at which they have no roof."""
    for number, device in enumerate(devices):
        used = {mark.level for mark in marks if mark.device == number}
        bare = [level for level in NEAREST_FIRST if level in used and device.ceiling(level) is None]
        if bare:
            yield (
                f"No roof of {device.title} is known at {' and '.join(bare)}: its marks there are held against flat"
                " roofs only ('rooflens calibrate' measures l1, l2 and dram)."
            )
