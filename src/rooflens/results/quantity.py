"""Quantity: a number of a case, with its name and unit, and how it is read from joined evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from rooflens.records import Phase
from rooflens.results.evidence import Evidence
from rooflens.results.factors import FactorRatio, Read, Time
from rooflens.results.totals import Total


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number of a case.

    Attributes:
        value: in the base unit of its quantity; None is unknown.
        at_least: it is a lower bound, since the FLOP of some operation are unknown.
        interval: 95 % interval of a measured number, 10th to 90th percentile of an expected one; None without one.
    """

    value: float | None
    at_least: bool = False
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that is known of a case.

    Attributes:
        name: what claims and comparisons call it.
        title: what a sentence or an axis calls it.
        header: what the header of a table calls it.
        unit: base unit; ``""`` for a bare number.
        better: whether more of it is better, or less; ``""`` where neither is.
        total: how it is read from the total of some records, where that tells it.
        number: else how it is read from evidence, of a phase or the whole step, by a time.
        timed: it is a time, or something over a time, and as uncertain as that time.
        of_bound: a bound tells the least or the most of it; else it is of the measured time, or of the expected one.
        of_model: it is of the work by formulas, never of what kernels executed.
        grows: it counts FLOP, so that it is a lower bound where those of some operation are unknown.
    """

    name: str
    title: str
    header: str = ""
    _: KW_ONLY
    unit: str = ""
    better: Literal["more", "less", ""] = ""
    total: Callable[[Total], float | None] = lambda _: None
    number: Read | None = None
    timed: bool = False
    of_bound: bool = True
    grows: bool = False
    of_model: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", self.header or self.title)

    def of(self, total: Total | None) -> Reading:
        """Return its number in the total of some records."""
        if total is None:
            return Reading(value=None)
        return Reading(value=self.total(total), at_least=self.grows and bool(total.missing))

    def read(self, evidence: Evidence, phase: Phase | None = None, time: Time | None = None) -> Reading:
        """Return its number of a phase of a case, or of the whole step.

        Args:
            time: the time that counts; default: the measured one where there is one, else the bound or, of what a bound
                does not tell, the expected one.
        """
        total = evidence.model_total(phase) if self.of_model else evidence.total(phase)
        if not self.of_bound and time == "bound":
            return Reading(value=None)
        if not self.of_bound and time is None and evidence.measured(phase) is None:
            time = "predicted"
        if self.number is None:
            return self.of(total)
        value = self.number(evidence, phase, time)
        interval = None
        if value is not None and self.timed and time != "bound":
            interval = self._interval(value, evidence, phase, expected=time == "predicted")
        return Reading(
            value=value, at_least=self.grows and total is not None and bool(total.missing), interval=interval
        )

    def _interval(
        self, value: float, evidence: Evidence, phase: Phase | None, *, expected: bool
    ) -> tuple[float, float] | None:
        """Return its interval from that of the time that it is made of."""
        of = self.number.timed_phase(evidence, phase) if isinstance(self.number, FactorRatio) else phase
        total, measured = evidence.total(of), evidence.measured(of)
        seconds, low, high = None, None, None
        if expected and total is not None and total.prediction is not None:
            seconds, low, high = total.prediction.seconds, total.prediction.low, total.prediction.high
        elif not expected and measured is not None:
            seconds, (low, high) = measured.seconds, measured.interval
        if seconds is None or low is None or high is None:
            return None
        if value == seconds:
            return (low, high)
        if self.better == "less":  # an energy grows with the time
            return (value * low / seconds, value * high / seconds)
        return (value * seconds / high, value * seconds / low) if low and high else None
