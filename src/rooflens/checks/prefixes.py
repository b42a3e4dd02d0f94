"""Stated numbers that are the right ones but for a prefix."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from rooflens import units
from rooflens.checks.context import MOST_BESIDE, Context, Stated, close
from rooflens.checks.prefix_factors import binary_factor, decimal_factor, own_power, prefix_factor
from rooflens.checks.registry import Doubt, check, needs
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
class _PrefixError:
    """A stated number, the right one, the factor between them, and what the right one is (`of`)."""

    figure: ReportedFigure
    value: float
    right: float
    factor: str
    of: str = ""


@check("unit-prefix", "error", "use decimal prefixes everywhere: G is 10^9, a binary one is written Gi")
@needs("intensity", "performance", *TWICE)
def unit_prefix(context: Context) -> Iterator[Doubt]:
    """A stated number is the right one but for 1024 against 1000, or for powers of ten."""
    doubted: dict[ReportedFigure, _PrefixError] = {}
    for rule in (_single, _amounts, _quotients):
        for error in rule(context):
            doubted.setdefault(error.figure, error)
    # A figure that differs from one that is wrong may be right.
    for error in _repeated(context, doubted):
        doubted.setdefault(error.figure, error)
    for error in doubted.values():
        unit, ratio = QUANTITIES[error.figure.quantity], error.value / error.right
        yield Doubt(
            error.figure.subject,
            f"{units.show(error.value, unit)} is {error.factor} times {units.show(error.right, unit)}{error.of}: a"
            " prefix was read or written wrongly, and everything computed from it is off by the same factor",
            {f"stated {unit}".strip(): error.value, f"right {unit}".strip(): error.right, "ratio": ratio},
        )


def _single(context: Context) -> Iterator[_PrefixError]:
    """Figures whose right number is known."""
    for quantity in ("flops", "peak", "bandwidth", "memory", "parameters"):
        for figure, value in context.stated(quantity):
            for right, of in _right_numbers(context, figure, value):
                if factor := prefix_factor(figure, value, right):
                    yield _PrefixError(figure, value, right, factor, of)
                    break


def _right_numbers(context: Context, figure: ReportedFigure, value: float) -> Iterator[tuple[float, str]]:
    """What a figure may have to be, and what that is; nothing where it may be right as it stands."""
    device, expected = context.device(figure), context.expected(figure)
    if figure.quantity == "flops":
        right, most = (None, None) if expected is None else (expected.matmul, expected.flops)
        if right and most is not None and not right <= value <= most:
            yield right, ""
    elif figure.quantity == "parameters":
        if (parameters := context.right.parameters(figure)) is not None:
            yield parameters, ""
    elif device is not None and figure.quantity == "memory":
        # Of a device without a model. Chips of 16 GiB are sold as 16 GB: that is no wrong prefix.
        fact = device.facts.get("memory")
        whole = fact is not None and not figure.model and figure.batch is None
        if fact is not None and whole and not close(value, fact.value * 1.024**3, 0.01):
            yield fact.value, f", the memory of {device.name}"
    elif device is not None and not (figure.quantity == "bandwidth" and link_of(device, value)):
        yield from ((rate, f", the {figure.quantity} of {device.name}") for rate in own_rates(figure, device))


def _amounts(context: Context) -> Iterator[_PrefixError]:
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
        far = value > right * 100 and decimal_factor(value, right, THOUSANDS)
        if own and by_formula and figure.precision <= 2e-5:
            yield _PrefixError(figure, value, right, binary_factor(figure, value, right))
        elif far and figure.quantity == "bytes":
            yield _PrefixError(figure, value, right, f"about {far}", ", what the operations read and write one by one")


def _power(ratio: float) -> float:
    """The power of 1.024 that is nearest to a ratio."""
    return min((1.024**power for power in range(-4, 5)), key=lambda each: abs(each - ratio))


def _quotients(context: Context) -> Iterator[_PrefixError]:
    """Intensities and performance that are quotients of what stands beside them, but for a prefix."""
    for figure, value in context.stated("intensity", "performance"):
        right_ones = quotients(context, figure)
        if any(close(value, right, 5e-3 + figure.precision + error) for right, error in right_ones):
            continue
        for right, error in right_ones:
            if factor := prefix_factor(figure, value, right, error):
                yield _PrefixError(figure, value, right, factor, ", which follows from the figures beside it")
                break


def _repeated(context: Context, doubted: Container[ReportedFigure]) -> Iterator[_PrefixError]:
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
                yield from islice(_errors_of(figure, value, before), 1)


def _errors_of(figure: ReportedFigure, value: float, others: Iterable[Stated]) -> Iterator[_PrefixError]:
    for other, right in others:
        factor, error = binary_factor(figure, value, right, other.precision), figure.precision + other.precision
        if factor and close(value / right, _power(value / right), EXACTLY + error):
            where = f"{other.place} states" if other.place else f"{other.origin} records have"
            yield _PrefixError(figure, value, right, factor, f", which {where} for the same")
