"""Roofs and points that others measured: ERT, rocprof-compute, and the scripts of NERSC."""

from __future__ import annotations

from pathlib import Path

from rooflens.readers.reader import ReadContext, Reader
from rooflens.results import RecordSet
from rooflens.sources.roofs import format_of, read_roofs


def _read(path: Path, context: ReadContext) -> RecordSet:
    """Roofs are devices of the set, points its records."""
    roofs = read_roofs(path, context.name, context.device)
    devices = [device for device in (context.device, roofs.device) if device is not None]
    return RecordSet(roofs.records, devices={device.name: device for device in devices})


ERT = Reader(
    name="ERT",
    reads="what the Empirical Roofline Tool measured (roofline.json, .txt)",
    recognises=lambda head: format_of(head) in ("ERT JSON", "ERT text"),
    read=_read,
)
NERSC = Reader(
    name="NERSC",
    reads="roofs and kernels of NERSC's scripts (.txt, .csv)",
    recognises=lambda head: format_of(head) in ("NERSC keywords", "NERSC table"),
    read=_read,
)
ROCPROF_ROOFS = Reader(
    name="rocprof-compute roofs",
    reads="roofs of rocprof-compute (roofline.csv)",
    recognises=lambda head: format_of(head) == "rocprof-compute",
    read=_read,
)
