"""Stated numbers that are the right ones but for a prefix."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from rooflens import units
from rooflens.checks.context import MOST_BESIDE, Context, Stated, close
from rooflens.checks.prefix_factors import binary_slip, decimal_slip, own_power, prefix_slip
from rooflens.checks.registry import Doubt, check
from rooflens.checks.roofs import link_of, own_rates
from rooflens.checks.sums import quotients
from rooflens.reported.figures import FOOTPRINTS, QUANTITIES, ReportedFigure

EXACTLY = 1e-4
"""A count by formulas agrees with another but for rounding."""
THOUSANDS = 0.4
"""Traffic that was counted is between half and twice the compulsory one; a thousand times as much is another unit."""
TWICE = (*FOOTPRINTS, "flops", "bytes", "read_bytes", "counted_flops", "parameters", "peak", "bandwidth")
"""Quantities that may be stated twice about the same run or device."""


@dataclass(frozen=True, slots=True)
class _Slip:
    """A stated number, the right one, and what lies between them."""

    figure: ReportedFigure
    value: float
    right: float
    slip: str
    of: str = ""


@check("unit-prefix", "error", "use decimal prefixes everywhere: G is 10^9, a binary one is written Gi")
def unit_prefix(context: Context) -> Iterator[Doubt]:
    """A stated number is the right one but for 1024 against 1000, or for powers of ten."""
    doubted: dict[ReportedFigure, _Slip] = {}
    for find in (_flops, _rates, _capacities, _parameters, _amounts, _quotients):
        for found in find(context):
            doubted.setdefault(found.figure, found)
    # A figure that differs from one that is wrong may be right.
    for found in _repeated(context, doubted):
        doubted.setdefault(found.figure, found)
    for found in doubted.values():
        unit = QUANTITIES[found.figure.quantity]
        yield Doubt(
            found.figure.subject,
            f"{units.show(found.value, unit)} is {found.slip} times {units.show(found.right, unit)}{found.of}: a prefix"
            " was read or written wrongly, and everything computed from it is off by the same factor",
            {f"stated {unit}".strip(): found.value, f"right {unit}".strip(): found.right}
            | {"ratio": found.value / found.right},
        )


def _flops(context: Context) -> Iterator[_Slip]:
    for figure, value in context.stated("flops"):
        expected = context.expected(figure)
        if expected is None or not expected.matmul or expected.flops is None:
            continue
        slip = prefix_slip(figure, value, expected.matmul)
        if slip and not expected.matmul <= value <= expected.flops:
            yield _Slip(figure, value, expected.matmul, slip)


def _rates(context: Context) -> Iterator[_Slip]:
    for figure, value in context.stated("peak", "bandwidth"):
        device = context.device(figure)
        if device is None or (figure.quantity == "bandwidth" and link_of(device, value)):
            continue
        for right in own_rates(figure, device):
            if slip := prefix_slip(figure, value, right):
                yield _Slip(figure, value, right, slip, f", the {figure.quantity} of {device.name}")
                break


def _capacities(context: Context) -> Iterator[_Slip]:
    """Memory that is stated of a device without a model. Chips of 16 GiB are sold as 16 GB: that is no slip."""
    for figure, value in context.stated("memory"):
        device = context.device(figure)
        fact = None if device is None else device.facts.get("memory")
        if device is None or fact is None or figure.model or figure.batch is not None:
            continue
        slip = prefix_slip(figure, value, fact.value)
        if slip and not close(value, fact.value * 1.024**3, 0.01):
            yield _Slip(figure, value, fact.value, slip, f", the memory of {device.name}")


def _parameters(context: Context) -> Iterator[_Slip]:
    for figure, value in context.stated("parameters"):
        right = context.right.parameters(figure)
        if right is not None and (slip := prefix_slip(figure, value, right)):
            yield _Slip(figure, value, right, slip)


def _amounts(context: Context) -> Iterator[_Slip]:
    """Counted FLOP and traffic, which are not those of the formulas but by accident, or because formulas gave them."""
    for figure, value in context.stated("counted_flops", "bytes"):
        expected = context.expected(figure)
        if expected is None:
            continue
        right = expected.matmul if figure.quantity == "counted_flops" else expected.nbytes
        if not right:
            continue
        own = abs(own_power(figure, value))
        by_formula = any(close(value / right, 1.024**power, 1e-5 + figure.precision) for power in (own, -own))
        far = value > right * 100 and decimal_slip(value, right, THOUSANDS)
        if own and by_formula and figure.precision <= 2e-5:
            yield _Slip(figure, value, right, binary_slip(figure, value, right))
        elif far and figure.quantity == "bytes":
            yield _Slip(figure, value, right, f"about {far}", ", what the operations read and write one by one")


def _power(ratio: float) -> float:
    """The power of 1.024 that is nearest to a ratio."""
    return min((1.024**power for power in range(-4, 5)), key=lambda each: abs(each - ratio))


def _quotients(context: Context) -> Iterator[_Slip]:
    """Intensities and performance that are quotients of what stands beside them, but for a prefix."""
    for figure, value in context.stated("intensity", "performance"):
        beside = quotients(context, figure)
        if any(close(value, right, 5e-3 + figure.precision + error) for right, error in beside):
            continue
        for right, error in beside:
            if slip := prefix_slip(figure, value, right, error):
                yield _Slip(figure, value, right, slip, ", which follows from the figures beside it")
                break


def _repeated(context: Context, doubted: Container[ReportedFigure]) -> Iterator[_Slip]:
    """The same quantity of the same run, stated or recorded twice, but for a power of 1.024."""
    by_run: dict[tuple[object, ...], list[Stated]] = {}
    for figure, value in context.stated(*TWICE):
        if figure not in doubted and (figure.model or figure.device):
            kind = "memory" if figure.quantity in FOOTPRINTS else figure.quantity
            by_run.setdefault((kind, *figure.step[1:], figure.machine), []).append((figure, value))
    for same in by_run.values():
        for n, (figure, value) in enumerate(same[:MOST_BESIDE]):
            before = [(f, v) for m, (f, v) in enumerate(same[:MOST_BESIDE]) if m < n or f.origin != "typed"]
            if figure.origin == "typed":
                yield from islice(_slips_of(figure, value, before), 1)


def _slips_of(figure: ReportedFigure, value: float, others: Iterable[Stated]) -> Iterator[_Slip]:
    for other, right in others:
        slip, error = binary_slip(figure, value, right, other.precision), figure.precision + other.precision
        if slip and close(value / right, _power(value / right), EXACTLY + error):
            where = f"{other.place} states" if other.place else f"{other.origin} records have"
            yield _Slip(figure, value, right, slip, f", which {where} for the same")
