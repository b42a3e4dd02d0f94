"""Checks of figures against each other: sums, quotients, capacities, and values that cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from rooflens import units
from rooflens.checks.context import Context, close, is_possible
from rooflens.checks.prefix_factors import prefix_factor
from rooflens.checks.registry import Doubt, check, needs, of_each, of_every
from rooflens.records import PHASES, Phase
from rooflens.reported.figures import CORRELATION, FOOTPRINTS, QUANTITIES, ReportedFigure
from rooflens.reported.right_values import item_bytes
from rooflens.results import Total
from rooflens.results.totals import grouped_by

SUM, QUOTIENT, MEAN, APART = 0.01, 0.05, 2e-3, 0.1
PARTS = ("forward", "backward")
BOTH: tuple[Phase, ...] = ("forward", "backward")
SPLITS: Mapping[tuple[Phase, ...], tuple[tuple[str, ...], ...]] = {
    BOTH: (PARTS,),
    PHASES: ((*PARTS, "optimizer"), ("forward+backward", "optimizer")),
}
"""The phases of which a total is made."""
OVER = {"intensity": ("bytes",), "performance": ("time", "estimated_time")}
"""What FLOP are divided by."""
ADDITIVE = ("flops", "counted_flops", "bytes", "read_bytes", "estimated_time")
"""Quantities of which those of forward and backward add up. Measured times need not: something may lie between."""


@check("row-twice", "warning", "delete one of the rows, or say in `how` in what they differ")
@needs("figures")
def row_twice(context: Context) -> Iterator[Doubt]:
    """A figure stands in several rows that agree in every column."""
    typed = [figure for figure in context.figures if figure.origin == "typed"]
    for alike in grouped_by(typed, lambda figure: replace(figure, place="")).values():
        if len(alike) > 1:
            others = ", ".join(figure.place for figure in alike[1:5]) + (", ..." if len(alike) > 5 else "")
            message = f"the same row stands in {others} too: one may have been meant for another run"
            yield Doubt(alike[0].subject, message, {"rows": len(alike)})


@check("total-off", "error", "add the parts again; everything computed from the total changes with it")
@needs(*ADDITIVE, "time", "records")
def total_off(context: Context) -> Iterator[Doubt]:
    """A total is not the sum of its parts, or less than one of them."""
    for figure, value in context.stated(*ADDITIVE, "time"):
        parted = (_parted(context, figure, names) for names in SPLITS.get(figure.phases, ()))
        doubts = (_off(figure, value, parts, complete) for parts, complete in parted if parts)
        yield from islice((doubt for doubt in doubts if doubt is not None), 1)
    for figure, value in context.stated("read_bytes"):
        for whole, total in context.beside(figure, "bytes"):
            if whole.origin == figure.origin and value > total * (1 + SUM + whole.precision + figure.precision):
                yield _doubt(whole, total, "less than what of it was read", value, "part")
    yield from _memory(context)
    yield from _kernels(context)
    yield from _busy(context)


Parts = Mapping[str, Sequence[tuple[float, float]]]
"""What is stated of each phase, with the error of its rounding."""


def _parted(context: Context, figure: ReportedFigure, names: Sequence[str]) -> tuple[Parts, bool]:
    """What is stated of some phases of a figure's run, and whether something is of each of them."""
    parts: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        for part, value in context.beside(replace(figure, phase=name), figure.quantity):
            # What was computed without a device is no part of what was measured on one.
            if (part.origin, part.machine) == (figure.origin, figure.machine):
                parts.setdefault(name, []).append((value, value * part.precision))
    return parts, len(parts) == len(names)


def _off(figure: ReportedFigure, value: float, parts: Parts, complete: bool) -> Doubt | None:
    """Why a total cannot be that of its parts; measured times need not add up, something may lie between."""
    error = value * figure.precision
    if figure.quantity != "time" and complete:
        sums = [(sum(v for v, _ in each), sum(e for _, e in each)) for each in product(*parts.values())]
        if any(abs(value - total) <= SUM * total + error + more for total, more in sums):
            return None
        total = min((total for total, _ in sums), key=lambda each: abs(each - value))
        # What is called training may have an optimizer that is not among the parts.
        if figure.phase != "train" or value < total:
            return _doubt(figure, value, f"not {' and '.join(parts)} together", total, "sum")
    noise = APART if figure.quantity == "time" else SUM
    for name, values in parts.items():
        least, more = min(values)
        if least - more > value * (1 + noise) + error:
            return _doubt(figure, value, f"less than {name} alone", least, "part")
    return None


def _doubt(figure: ReportedFigure, value: float, relation: str, other: float, what: str) -> Doubt:
    """A stated amount is not what another amount, its `sum` or a `part` of it, allows."""
    unit = QUANTITIES[figure.quantity]
    return Doubt(
        figure.subject,
        f"{units.show(value, unit)} is {relation}, {units.show(other, unit)}",
        {f"stated {unit}": value, f"{what} {unit}": other, "ratio": value / other},
    )


def _memory(context: Context) -> Iterator[Doubt]:
    """Causes of a peak that do not add up to it."""
    for record in context.records:
        if record.memory is None or record.memory.peak is None:
            continue
        causes = record.memory.causes.values()
        known = [amount for amount in causes if amount is not None]
        if len(known) == len(causes) and not close(sum(known), record.memory.peak, SUM):
            yield Doubt(
                f"{record.case.label()} memory",
                f"a peak of {units.show(record.memory.peak, 'B')} is not the sum of its causes,"
                f" {units.show(sum(known), 'B')}",
                {"stated B": record.memory.peak, "sum B": sum(known)},
            )


def _kernels(context: Context) -> Iterator[Doubt]:
    """Work that was stated for a whole model and is not that of its pieces."""
    for case, source, part in context.records.split():
        whole = [r.work for r in part if r.scope == "model" and r.work is not None and r.phase is None]
        pieces = Total([r for r in part if r.scope != "model"], None).work
        if len(whole) != 1 or pieces is None or pieces.missing:
            continue
        stated, total = whole[0].total_flops, pieces.total_flops
        if stated and not close(stated, total, SUM):
            yield Doubt(
                f"{case.label()} ({source})",
                f"{units.show(stated, 'FLOP')} of the whole model is not the sum of its pieces,"
                f" {units.show(total, 'FLOP')}",
                {"stated FLOP": stated, "sum FLOP": total},
            )


def _busy(context: Context) -> Iterator[Doubt]:
    """A device that was busy for less time than one of its kernels took."""
    for case, source, part in context.records.split():
        spans = [max(r.busy.samples) for r in part if r.busy is not None and r.phase is None]
        launches = [(r.timing.median, r.name) for r in part if r.scope == "kernel" and r.timing is not None]
        longest, name = max(launches, default=(0.0, ""))
        if len(spans) == 1 and longest > spans[0] * (1 + SUM):
            yield Doubt(
                f"{case.label()} ({source})",
                f"a busy time of {units.show(spans[0], 's')} is less than that of {name!r} alone,"
                f" {units.show(longest, 's')}",
                {"busy s": spans[0], "part s": longest},
            )


@check("quotient-off", "error", "divide again: intensity is FLOP over bytes, performance FLOP over time, of one run")
@of_each(*OVER)
def quotient_off(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """A stated intensity or performance does not follow from the figures beside it."""
    right = quotients(context, figure)
    if not right or any(close(value, each, QUOTIENT + figure.precision + error) for each, error in right):
        return
    if any(prefix_factor(figure, value, each, error) for each, error in right):
        return
    if _right_of_mean(context, figure, value) is not None:
        return
    unit = QUANTITIES[figure.quantity]
    nearest, _ = min(right, key=lambda each: abs(each[0] - value))
    yield Doubt(
        figure.subject,
        f"{value:.4g} {unit} does not follow from the FLOP and"
        f" {'bytes' if figure.quantity == 'intensity' else 'times'} beside it, which give {nearest:.4g}",
        {f"stated {unit}": value, f"nearest quotient {unit}": nearest, "ratio": value / nearest},
    )


def quotients(context: Context, figure: ReportedFigure) -> list[tuple[float, float]]:
    """What an intensity or a performance may be by the figures beside it, each with its relative error."""
    tops = _amounts(context, figure, "flops", "counted_flops")
    bottoms = _amounts(context, figure, *OVER[figure.quantity])
    return [(top / bottom, one + other) for top, one in tops for bottom, other in bottoms]


def _amounts(context: Context, figure: ReportedFigure, *quantities: str) -> list[tuple[float, float]]:
    """The amounts beside a figure; for forward and backward together also the sums of those of each."""
    amounts = [(value, other.precision) for other, value in context.beside(figure, *quantities)]
    if figure.phases == BOTH:
        for quantity in quantities:
            parts = _of_both_phases(context, figure, quantity)
            if len(parts) == len(PARTS):
                amounts.append((sum(value for value, _ in parts), max(error for _, error in parts)))
    return amounts


def _of_both_phases(context: Context, figure: ReportedFigure, quantity: str) -> list[tuple[float, float]]:
    """A quantity of forward and of backward with its error, where each is stated once for the figure's case."""
    stated = (list(context.beside(replace(figure, phase=phase), quantity)) for phase in PARTS)
    return [(value, part.precision) for each in stated if len(each) == 1 for part, value in each]


@check("mean-of-intensities", "error", "add FLOP and bytes first, then divide: a mean weighs all parts alike")
@of_each("intensity")
def mean_of_intensities(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """The intensity of a whole is the mean of its parts' intensities."""
    right = _right_of_mean(context, figure, value)
    if right is not None:
        yield Doubt(
            figure.subject,
            f"{value:.4g} FLOP/B is the mean of the parts' intensities; all FLOP over all bytes give {right:.4g}",
            {"stated FLOP/B": value, "right FLOP/B": right, "ratio": value / right},
        )


def _right_of_mean(context: Context, figure: ReportedFigure, value: float) -> float | None:
    """The right intensity of forward and backward together where the stated one is the mean of both, far from it."""
    flops, nbytes = ([v for v, _ in _of_both_phases(context, figure, name)] for name in ("flops", "bytes"))
    if figure.phases != BOTH or not len(flops) == len(nbytes) == len(PARTS):
        return None
    mean = sum(top / bottom for top, bottom in zip(flops, nbytes, strict=True)) / len(PARTS)
    right = sum(flops) / sum(nbytes)
    return right if close(value, mean, MEAN + figure.precision) and not close(value, right, APART) else None


@check("memory-above-capacity", "error", "ask torch what is allocated; a monitor shows pools and other programs")
@of_each(*FOOTPRINTS)
def memory_above_capacity(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """More memory than the device has."""
    device = context.device(figure)
    fact = None if device is None else device.facts.get("memory")
    # Datasheets count in GB or in GiB, and say GB.
    if device is not None and fact is not None and device.kind != "cpu" and value > fact.value * 1.074:
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'B')} is more than the {units.show(fact.value, 'B')} of {device.name}: several"
            " devices or several runs were added, or a unit was misread",
            {"stated B": value, "memory B": fact.value, "ratio": value / fact.value},
        )


@check("memory-below-weights", "error", "count weights, gradients, optimizer, activations: `rooflens estimate`")
@of_each(*FOOTPRINTS)
def memory_below_weights(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """Less memory than the weights alone take."""
    parameters = context.right.parameters(figure)
    # Without a dtype the weights may be of 16 bits.
    weights = None if parameters is None else parameters * item_bytes(figure.dtype or "fp16")
    if weights is not None and value * (1 + figure.precision + SUM) < weights:
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'B')} is less than the weights alone, {units.show(weights, 'B')}: a unit was"
            " misread, or the weights were on another device",
            {"stated B": value, "weights B": weights},
        )


@check("impossible-value", "error", "leave unknown cells empty: a missing number is not zero")
@of_every(lambda context: context.known, "figures")
def impossible_value(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """A value that the quantity cannot have: nothing, less than nothing, or a correlation above one."""
    if is_possible(figure, value):
        return
    what = "zero is no measurement: a counter or a cell was missing" if not value else "it cannot be negative"
    what = what if value <= 0 else "nothing that is computed or measured is of that size"
    message = f"{figure.quantity} is {value:g}: {what}"
    if figure.quantity.startswith(CORRELATION):
        message = f"a correlation lies between -1 and 1, {value:g} does not"
    yield Doubt(figure.subject, message, {"value": value})


@check("unknown-quantity", "info", "use a name from docs/check.md, so that the figure can be checked")
@needs("figures")
def unknown_quantity(context: Context) -> Iterator[Doubt]:
    """A quantity that is not understood, listed once."""
    unknown = (f for f in context.figures if f.quantity not in QUANTITIES and not f.quantity.startswith(CORRELATION))
    for quantity, figures in grouped_by(unknown, lambda figure: figure.quantity).items():
        yield Doubt(
            figures[0].subject,
            f"figures called {quantity!r} are not understood and were not checked: {len(figures)}",
            {"quantity": quantity, "figures": len(figures)},
        )
