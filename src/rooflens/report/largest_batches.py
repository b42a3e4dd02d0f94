"""Tables of the largest batch or the longest context on each device: what fits, what stays free, what uses memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rooflens.costs import most_kept
from rooflens.devices.reserves import Reserve
from rooflens.report.columns import BOUNDS, CASE, CAUSE_WORDS, cause_columns
from rooflens.report.table import COUNT, Column, Entry, Table, build, percent
from rooflens.results import Fit, Fits, Quantity
from rooflens.results.answers import TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN
from rooflens.results.fits import CAP
from rooflens.units import show

_STEP = tuple(column for column in CASE if column.key not in ("batch", "device"))
_CAUSES = cause_columns("held")
_PEAK = Column("peak", "peak", "B", "held.peak", group="fit")
_WORKSPACE = Column("workspace", "workspace", "B", "held.workspace", group="fit")
_CONTEXT = Column(
    "context",
    "longest context",
    COUNT,
    lambda fit: Entry(fit.context, ">=" if _untried(fit) else "", mark="!" if fit.fits is False else ""),
    group="fit",
)
_CONTEXT_TOKENS = Column("tokens", "context", COUNT, lambda fit: dict(fit.case.options).get("seq_len"))
_PEAK_BATCH = Column("peak_batch", "batch", COUNT, lambda fit: None if fit.held is None else fit.case.batch)
_CAUSE = Column(
    "cause", "largest part", read=lambda fit: fit.cause and CAUSE_WORDS[fit.cause], align="left", group="fit"
)


def _if_timed(column: Column) -> Callable[[Fit], Entry]:
    """What a column reads of answers that keep a limit of time."""
    return lambda fit: column.entry(fit) if fit.time_limits else Entry(None)


def _time(quantity: Quantity) -> Column:
    """The column of a time that has a limit, as it is kept."""

    def read(fit: Fit) -> Entry:
        known = [limit.found for limit in fit.time_limits if limit.quantity == quantity]
        return Entry(known[0] if known else None, ">=" if known and fit.timed_by == "bound" else "")

    return Column(quantity.name, quantity.header, "s", read, group="fit")


_TIMES = (_time(TIME_TO_FIRST_TOKEN), _time(TIME_PER_OUTPUT_TOKEN))
_LIMITED = (
    Column(
        "limited_by",
        "limited by",
        read=lambda fit: Entry(fit.limited_by, label=None if fit.late is None else fit.late.quantity.title),
        align="left",
        group="fit",
    ),
    Column("by_bound", "by the bound", COUNT, group="fit"),
    Column(
        "in_memory",
        "memory holds",
        COUNT,
        lambda fit: Entry(fit.in_memory, ">=" if fit.in_memory == CAP else ""),
        group="fit",
    ),
)
_ANSWER = (
    Column("device", "device", read="name", align="left", title="on {}"),
    Column(
        "memory", "memory", "B", lambda fit: Entry(fit.memory, mark="?" if _memory_unverified(fit) else ""), group="fit"
    ),
    Column(
        "reserve",
        "to stay free",
        "B",
        lambda fit: Entry(fit.reserved, mark="?" if fit.reserved is not None and _assumed(fit) else ""),
        group="fit",
    ),
    _PEAK,
    Column(
        "batch",
        "largest batch",
        COUNT,
        lambda fit: Entry(fit.batch, ">=" if fit.capped else "", mark="!" if fit.fits is False else ""),
        group="fit",
    ),
    Column(
        "throughput", "samples /s", read=lambda fit: Entry(fit.throughput, "<=" if fit.throughput else ""), group="fit"
    ),
    *_TIMES,
    *(replace(column, read=_if_timed(column)) for column in _LIMITED),
    Column("devices", "devices", COUNT, "count", group="fit", show="files"),
    Column(
        "total_batch",
        "batch of all devices",
        COUNT,
        lambda fit: None if fit.batch is None else fit.count * fit.batch,
        group="fit",
        show="files",
    ),
    Column("fits", "fits", group="fit", show="files"),
    Column("lower_bound", "lower bound", read="capped", group="fit", show="files"),
    replace(_WORKSPACE, show="files"),
    Column("needed", "needed", "B", group="fit", show="files"),
    replace(_PEAK_BATCH, header="batch of the peak", group="fit", show="files"),
    replace(_CAUSE, show="files"),
    Column("reason", "why not", read=lambda fit: fit.reason or None, align="left", group="fit", show="files"),
    *(replace(column, show="files") for column in _CAUSES),
    *(replace(column, show="room", group="fit") for column in BOUNDS),
)
_ROUND = 10_000_000
"""A proposed reserve is a multiple of so many bytes."""
_HELD = (*_STEP, _PEAK_BATCH, _PEAK, _CAUSE, *_CAUSES, _WORKSPACE)


def _of_contexts(column: Column) -> Column:
    """A column of the step, whose length is what was searched for."""
    if column.key != "options":
        return column
    return replace(
        column,
        read=lambda fit: " ".join(f"{k}={v}" for k, v in fit.case.options if k != "seq_len") or None,
    )


_ELSEWHERE = frozenset(("device", "memory", "reserve", "peak", *(column.key for column in _LIMITED)))
_OF_BATCHES = frozenset(("batch", "peak_batch", "total_batch", "throughput"))
_CONTEXT_STEP = tuple(_of_contexts(column) for column in CASE if column.key != "device")
_CONTEXT_ANSWER = (
    *(column for column in _ANSWER if column.key in ("device", "memory", "reserve", "peak")),
    _CONTEXT,
    *_LIMITED,
    Column("positions", "positions", COUNT, group="fit", show="files"),
    *(column for column in _ANSWER if column.key not in _ELSEWHERE | _OF_BATCHES),
)


def _untried(fit: Fit) -> bool:
    return fit.capped and fit.positions is None


def largest_sizes(fits: Fits) -> tuple[Table, Table]:
    """Return the tables of the largest batches, or of the longest contexts."""
    return longest_contexts(fits) if any(fit.of == "seq_len" for fit in fits) else largest_batches(fits)


def longest_contexts(fits: Fits) -> tuple[Table, Table]:
    """Return one row per device, in the order asked; and what the memory goes to, one row per context."""
    columns = (*_CONTEXT_STEP, _CONTEXT_TOKENS, *_HELD[len(_STEP) + 1 :])
    held = build("Memory at the peak of these contexts", columns, (fit for fit in fits if fit.held is not None))
    return (
        build("Longest context", (*_CONTEXT_STEP, *_CONTEXT_ANSWER), fits, notes=_notes(fits.answers)),
        replace(held, rows=tuple(dict.fromkeys(held.rows))),
    )


def largest_batches(fits: Fits) -> tuple[Table, Table]:
    """Return one row per device, in the order asked; and what the memory goes to, one row per batch.

    Throughput is what the bound of that batch allows, an upper limit marked ``<=``. Where not one sample fits, the
    batch is 0, and peak, causes and what is needed are those of one sample. The first table has everything in its
    columns for files.
    """
    held = build("Memory at the peak of these batches", _HELD, (fit for fit in fits if fit.held is not None))
    return (
        build("Largest batch", (*_STEP, *_ANSWER), fits, notes=_notes(fits.answers)),
        replace(held, rows=tuple(dict.fromkeys(held.rows))),
    )


def _memory_unverified(fit: Fit) -> bool:
    fact = fit.device.facts.get("torch_memory", fit.device.facts.get("memory"))
    return fact is not None and not fact.verified


def _assumed(fit: Fit) -> bool:
    return not all(reserve.verified for reserve in fit.reserves)


def _notes(fits: Sequence[Fit]) -> Iterator[str]:
    what, one = ("batch", "sample") if all(fit.of == "batch" for fit in fits) else ("context", "token")
    in_memory = [fit for fit in fits if fit.fits is not False and fit.late is None]
    if any(what == "batch" or fit.limited_by == "memory" for fit in in_memory):
        yield f"the peak of this {what} fits beside what has to stay free, that of one {one} more does not"
    if any(fit.limited_by == "positions" for fit in fits):
        yield "limited by positions: the configuration of the model names no more"
    if any(fit.in_memory is not None for fit in fits):
        yield f"memory holds: the {what} that would fit if nothing else limited it"
    answered = [fit for fit in fits if fit.held is not None]
    yield from _reserve_notes(answered)
    if any(fit.fits is False and fit.late is None for fit in fits):
        yield f"! not even one {one} fits: the peak is that of one"
    if any(fit.fits is False and fit.late is not None for fit in fits):
        yield f"! one {one} breaks a limit of time: its peak and time are those of one"
    if any(_untried(fit) for fit in fits):
        yield f">= {'larger batches' if what == 'batch' else 'longer contexts'} were not tried"
    if what == "batch" and any(fit.throughput is not None for fit in fits):
        yield "<= samples per second that the bound of this batch allows"
    several = [fit for fit in answered if fit.count > 1]
    if several:
        yield (
            f"{_names(several)}: each device has the whole model and this batch of its own (data"
            " parallel); memory is that of one, samples per second are of all, what they exchange is not counted"
        )
    for reason in dict.fromkeys(fit.reason for fit in fits if fit.size is None):
        yield f"{reason}: {_names(fit for fit in fits if fit.reason == reason)}"
    yield from _time_notes(fits)
    if any(fit.case.mode == "decode" for fit in answered):
        yield "decode begins with a full cache; what filling it takes tells --mode prefill"
    yield from _memory_notes(answered)


def _time_notes(fits: Sequence[Fit]) -> Iterator[str]:
    """What times of a token are kept to, and by which time."""
    for limit in dict.fromkeys(limit for fit in fits for limit in fit.time_limits):
        yield f"{limit.quantity.title}: at most {show(limit.seconds, 's')}"
    if any(fit.timed_by == "predicted" for fit in fits):
        yield "limits of time are kept by the expected time"
    if any(fit.timed_by == "bound" for fit in fits):
        names = _names(fit for fit in fits if fit.timed_by == "bound")
        yield f"limits of time are kept by the bound alone, since no time is expected: {names}"
    if any(fit.by_bound is not None for fit in fits):
        yield "by the bound: the most that keeps the limits where every operation takes the time of its bound"


def _names(fits: Iterable[Fit]) -> str:
    """Their devices, each once."""
    return ", ".join(dict.fromkeys(fit.name for fit in fits))


def _memory_notes(fits: Sequence[Fit]) -> Iterator[str]:
    """Of what the memory of the devices is a figure."""
    if any(_memory_unverified(fit) or _assumed(fit) for fit in fits):
        yield "? not verified on such a device, or an assumption"
    facts = [fit.device.facts for fit in fits]
    if any("torch_memory" in known for known in facts):
        yield "memory: what torch sees of it at least"
    if any("torch_memory" not in known and "memory" in known for known in facts):
        yield "memory of a device of which nobody told what torch sees: the maker's figure"


def _reserve_notes(fits: Sequence[Fit]) -> Iterator[str]:
    """A note per reserve, with the source of its figure."""
    kept_free = dict.fromkeys(replace(reserve, verified=True) for fit in fits for reserve in fit.reserves)
    for reserve in kept_free:
        yield f"to stay free: {_amount(reserve)} for {reserve.what} ({reserve.reference})"
    if any("fragmentation" in reserve.what for reserve in kept_free):
        fixed = sum(reserve.nbytes for reserve in kept_free) + max(most_kept(fit.device) or 0 for fit in fits)
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
