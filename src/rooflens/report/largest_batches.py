"""The largest batch on each device: what fits, what stays free, what the memory goes to, and how fast it could be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rooflens.devices.reserves import Reserve
from rooflens.records import MEMORY_CAUSES
from rooflens.report.columns import BOUND, CASE, CAUSES, bound_cells, case_cells
from rooflens.report.table import COUNT, Column, Entries, Entry, Table, build, percent
from rooflens.results import Fit, Fits
from rooflens.units import show

_STEP = tuple(column for column in CASE if column.key not in ("batch", "device"))
_BATCH = Column(key="batch", header="largest batch", unit=COUNT, group="fit")
_PEAK = Column(key="peak", header="peak", unit="B", group="fit")
_ANSWER = (
    Column(key="device", header="device", align="left", title="on {}"),
    Column(key="memory", header="memory", unit="B", group="fit"),
    Column(key="reserve", header="to stay free", unit="B", group="fit"),
    _PEAK,
    _BATCH,
    Column(key="throughput", header="samples /s", group="fit"),
    Column(key="devices", header="devices", unit=COUNT, group="fit", show="files"),
    Column(key="total_batch", header="batch of all devices", unit=COUNT, group="fit", show="files"),
    Column(key="fits", header="fits", group="fit", show="files"),
    Column(key="lower_bound", header="lower bound", group="fit", show="files"),
    Column(key="needed", header="needed", unit="B", group="fit", show="files"),
    Column(key="peak_batch", header="batch of the peak", unit=COUNT, group="fit", show="files"),
    Column(key="cause", header="most of it", align="left", group="fit", show="files"),
    Column(key="reason", header="why not", align="left", group="fit", show="files"),
    *(replace(column, show="files") for column in CAUSES),
    *(replace(column, show="room", group="fit") for column in BOUND),
)
_ROUND = 10_000_000
"""Bytes: a reserve is proposed in whole multiples of it."""
_HELD = (
    Column(key="peak_batch", header="batch", unit=COUNT),
    _PEAK,
    Column(key="cause", header="most of it", align="left", group="fit"),
    *CAUSES,
)


def largest_batches(fits: Fits) -> tuple[Table, Table]:
    """One row per device, in the order asked; and what the memory goes to, one row per batch.

    Throughput is what the bound of that batch allows, an upper limit marked ``<=``. Where not one sample fits, the
    batch is 0, and peak, causes and what is needed are those of one sample. The first table has everything in its
    columns for files.
    """
    rows = [_row(fit) for fit in fits]
    held = [row for row in rows if "peak" in row]
    keys = [column.key for column in (*_STEP, *_HELD)]
    distinct = dict.fromkeys(tuple(row[key] for key in keys) for row in held)
    return (
        build("Largest batch", (*_STEP, *_ANSWER), rows, notes=_notes(fits.answers)),
        build(
            "Memory at the peak of these batches",
            (*_STEP, *_HELD),
            (dict(zip(keys, row, strict=True)) for row in distinct),
        ),
    )


def _row(fit: Fit) -> Entries:
    row = {column.key: case_cells(fit.case)[column.key] for column in _STEP}
    row |= {
        "device": fit.name,
        "memory": Entry(fit.memory, mark="?" if _memory_unverified(fit) else ""),
        "reserve": Entry(fit.reserved, mark="?" if fit.reserved is not None and _assumed(fit) else ""),
        "batch": Entry(fit.batch, ">=" if fit.capped else "", mark="!" if fit.fits is False else ""),
        "throughput": Entry(fit.throughput, "<=" if fit.throughput else ""),
        "devices": fit.count,
        "total_batch": None if fit.batch is None else fit.count * fit.batch,
        "fits": fit.fits,
        "lower_bound": fit.capped,
        "needed": fit.needed,
        "cause": None if fit.cause is None else fit.cause.replace("_", " "),
        "reason": fit.reason or None,
    }
    if fit.held is not None:
        row |= {cause: getattr(fit.held, cause) for cause in MEMORY_CAUSES}
        row |= {"peak": fit.held.peak, "peak_batch": fit.case.batch}
    return row | bound_cells(fit.total)


def _memory_unverified(fit: Fit) -> bool:
    fact = fit.device.facts.get("memory")
    return fact is not None and not fact.verified


def _assumed(fit: Fit) -> bool:
    return not all(reserve.verified for reserve in fit.reserves)


def _notes(fits: Sequence[Fit]) -> Iterator[str]:
    yield "the peak of this batch fits beside what has to stay free, that of one sample more does not"
    answered = [fit for fit in fits if fit.held is not None]
    yield from _reserve_notes(answered)
    if any(_memory_unverified(fit) or _assumed(fit) for fit in answered):
        yield "? not verified on such a device, or an assumption"
    if any(fit.fits is False for fit in fits):
        yield "! not even one sample fits: the peak is that of one"
    if any(fit.capped for fit in fits):
        yield ">= larger batches were not tried"
    if any(fit.throughput is not None for fit in fits):
        yield "<= samples per second that the bound of this batch allows"
    several = [fit for fit in answered if fit.count > 1]
    if several:
        yield (
            f"{', '.join(fit.name for fit in several)}: each device has the whole model and this batch of its own (data"
            " parallel); memory is that of one, samples per second are of all, what they exchange is not counted"
        )
    for reason in dict.fromkeys(fit.reason for fit in fits if fit.batch is None):
        yield f"{reason}: {', '.join(fit.name for fit in fits if fit.reason == reason)}"
    if any(fit.case.mode == "decode" for fit in answered):
        yield "decode begins with a full cache; what filling it takes tells --mode prefill"
    if answered:
        yield "memory is the maker's figure; what torch sees may be a few percent more or less"


def _reserve_notes(fits: Sequence[Fit]) -> Iterator[str]:
    """Each reserve once, with where its figure comes from."""
    found = dict.fromkeys(replace(reserve, verified=True) for fit in fits for reserve in fit.reserves)
    for reserve in found:
        yield f"to stay free: {_amount(reserve)} for {reserve.what} ({reserve.reference})"
    if any("fragmentation" in reserve.what for reserve in found):
        fixed = sum(reserve.nbytes for reserve in found)
        enough = show(fixed + -fixed % _ROUND, "B", 3)
        yield (
            "with PYTORCH_ALLOC_CONF=expandable_segments:True hardly anything is lost to fragmentation, and cuDNN makes"
            f" do with less: --reserve '{enough}' leaves room for the rest"
        )


def _amount(reserve: Reserve) -> str:
    parts = (
        show(reserve.nbytes, "B") if reserve.nbytes else "",
        f"{percent(reserve.of_transient)} of activations and temporaries" if reserve.of_transient else "",
        f"{percent(reserve.of_memory)} of the memory" if reserve.of_memory else "",
    )
    return " and ".join(filter(None, parts)) or "0 B"
