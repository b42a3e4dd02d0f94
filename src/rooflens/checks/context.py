"""Context: everything that a check may look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from rooflens.devices import catalogued_or_none
from rooflens.records import Device, Phase
from rooflens.reported.figures import CORRELATION, OF_A_DEVICE, QUANTITIES, ReportedFigure
from rooflens.reported.right_values import Expected, RightValues, precision_of
from rooflens.results import RecordSet
from rooflens.results.totals import grouped_by

NARROW = ("fp16", "bf16", "default")
"""What a run may have been that does not tell its dtype: where rates are the same it moved the fewest bytes."""
MOST_BESIDE = 50
_LEAST, _MOST = 1e-60, 1e60
"""In base units; quotients of numbers within are numbers too."""

Stated = tuple[ReportedFigure, float]
"""A figure whose value is known, and the value."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything that a rule may look at: figures, reported and recorded, of which the value may be unknown.

    `devices` are those that the records bring along, by name; others are looked up in the catalogue.
    """

    figures: tuple[ReportedFigure, ...]
    records: RecordSet = field(default_factory=lambda: RecordSet(()))
    devices: Mapping[str, Device] = field(default_factory=dict)
    right: RightValues = field(default_factory=lambda: RightValues(RecordSet(())))
    _bounds: dict[tuple[object, ...], float | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def known(self) -> tuple[Stated, ...]:
        """The figures whose value is known, with the value."""
        return tuple((figure, figure.value) for figure in self.figures if figure.value is not None)

    def stated(self, *quantities: str) -> Iterator[Stated]:
        """The known figures of some quantities, in the order of the figures.

        Impossible values are left out: :func:`impossible_value` says all there is to say of them.
        """
        return ((figure, value) for figure, value in self._possible if figure.quantity in quantities)

    @cached_property
    def inputs(self) -> frozenset[str]:
        """What there is to check: quantities of possible figures, sources of records, ``figures`` and ``records``."""
        there = [name for name in ("figures", "records") if len(getattr(self, name))]
        return frozenset((*there, *self.records.sources, *(figure.quantity for figure, _ in self._possible)))

    @cached_property
    def _possible(self) -> tuple[Stated, ...]:
        return tuple((figure, value) for figure, value in self.known if is_possible(figure, value))

    def beside(self, figure: ReportedFigure, *quantities: str) -> Iterator[Stated]:
        """The known figures of some quantities about the same run as a figure, or about the same step on any device.

        Of a quantity that is stated very often about one run the first `MOST_BESIDE` are compared.
        """
        for quantity in quantities:
            same = self._by_step.get((quantity, *figure.step), ())
            fitting = ((other, v) for other, v in same if not other.device or other.machine == figure.machine)
            yield from islice(fitting, MOST_BESIDE)

    def of_device(self, figure: ReportedFigure, quantity: str) -> list[Stated]:
        """The known figures of a quantity about the same device as a figure, in the same group; the first of many."""
        return self._by_device.get((quantity, figure.group, figure.machine), [])[:MOST_BESIDE]

    @cached_property
    def _by_device(self) -> Mapping[tuple[object, ...], list[Stated]]:
        return grouped_by(
            self.stated(*OF_A_DEVICE), lambda stated: (stated[0].quantity, stated[0].group, stated[0].machine)
        )

    @cached_property
    def _by_step(self) -> Mapping[tuple[object, ...], list[Stated]]:
        return grouped_by(self._possible, lambda stated: (stated[0].quantity, *stated[0].step))

    def device(self, figure: ReportedFigure) -> Device | None:
        """The device of a figure; None where it names none, or one that nobody knows."""
        return self.devices.get(figure.device) or catalogued_or_none(figure.device)

    def expected(self, figure: ReportedFigure, phases: tuple[Phase, ...] | None = None) -> Expected | None:
        """The right values of a figure's step, in its own phases or in others; None where they are not known."""
        return self.right.of(figure, phases)

    def least(self, figure: ReportedFigure) -> Expected | None:
        """The least that a figure's step does: its right values, or those of the shortest where no length is told."""
        return self.expected(figure) or self.right.shortest(figure)

    def bound(self, figure: ReportedFigure) -> float | None:
        """Seconds of the bound of a figure's step on its device, computed once.

        Others write fp32 for fp32 tensors, whatever torch's switches were, so products of a reported figure may have
        run in TF32 where the device has it.
        """
        key = (figure.recorded, figure.device, *figure.step)
        if key not in self._bounds:
            self._bounds[key] = self._bound(self.quickest(figure))
        return self._bounds[key]

    def _bound(self, figure: ReportedFigure) -> float | None:
        expected, device = self.least(figure), self.device(figure)
        precision = None if device is None else precision_of(figure.loose_dtype, device)
        if expected is None or device is None or precision is None:
            return None
        return expected.bound(device, precision, self.records.bound)

    def quickest(self, figure: ReportedFigure) -> ReportedFigure:
        """A figure whose dtype is not told, in the one in which its device is quickest; others as they are."""
        device = self.device(figure)
        if figure.recorded is not None or figure.dtype or device is None:
            return figure
        precisions = {dtype: precision_of(dtype, device) for dtype in NARROW}
        rates = {dtype: device.ceiling(f"matmul.{p}") for dtype, p in precisions.items() if p is not None}
        known = {dtype: ceiling.rate for dtype, ceiling in rates.items() if ceiling is not None}
        return replace(figure, dtype=max(known, key=lambda dtype: known[dtype])) if known else figure


def is_possible(figure: ReportedFigure, value: float) -> bool:
    """True if a quantity can have a value: a correlation lies between -1 and 1, and all else is above zero."""
    if figure.quantity.startswith(CORRELATION):
        return -1 <= value <= 1
    return figure.quantity not in QUANTITIES or figure.quantity == "failure" or _LEAST < value < _MOST


def close(one: float, other: float, tolerance: float) -> bool:
    """True if two numbers agree but for a relative error."""
    return abs(one - other) <= tolerance * abs(other)


def fold(ratio: float) -> str:
    """A ratio in three digits, without an exponent: 0.0975, 1290."""
    rounded = float(f"{ratio:.3g}")
    return f"{rounded:.0f}" if abs(rounded) >= 100 else f"{rounded:.6g}"


def grouped(figures: Iterable[Stated], *names: str) -> list[list[Stated]]:
    """Figures that agree in some attributes, in order of appearance."""
    return list(grouped_by(figures, lambda stated: tuple(getattr(stated[0], name) for name in names)).values())
