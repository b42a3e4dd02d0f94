"""The cases of a set whose time is known, and their quantities: what a step takes, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import Case, Phase
from rooflens.results import QUANTITIES, TIMES, Evidence, Quantity, RecordSet, Time, join
from rooflens.results.quantities import TIME

Compared = Literal["flops", "matmul_flops", "parameters", "bytes", "activations", "latency"]
COMPARED: tuple[Compared, ...] = get_args(Compared)
"""Quantities by which models are compared; latency is the time: measured, expected or the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCase:
    """One case whose time is known, of a phase or of the whole step; `time` is which time is meant by latency."""

    evidence: Evidence
    phase: Phase | None
    time: Time

    @property
    def case(self) -> Case:
        """The case, on its device."""
        return self.evidence.case

    def value(self, name: Compared) -> float | None:
        """Return one of its quantities in base units, None where it is not known."""
        return quantity_of(name).read(self.evidence, self.phase, self.time).value

    @property
    def seconds(self) -> float | None:
        """The time: measured, expected or the bound."""
        return self.value("latency")

    @property
    def samples(self) -> list[tuple[float, ...]]:
        """The samples of each run behind a measured time; none behind a bound, or where it was timed in pieces."""
        return [timing.samples for timing in self.evidence.runs(self.phase)] if self.time == "measured" else []


def timed_cases(records: RecordSet, *, time: Time | None = None, phase: Phase | None = None) -> tuple[TimedCase, ...]:
    """Return every case of a set whose time is known.

    Args:
        time: the time that counts as latency; default: the measured one if the set holds any, else the expected one if
            every step with a bound has one, since a bound is no time of a step, else the bound. They are never mixed.

    Raises:
        InvalidValue: there is no such time.
        Incomparable: no case has that time.
    """
    if time is not None and time not in TIMES:
        raise InvalidValue(f"unknown time {time!r}; known: {', '.join(TIMES)}")
    evidence = join(records)
    observed = any(item.measured(phase) is not None for item in evidence)
    known = _known(evidence, phase, time or ("measured" if observed else "bound"))
    if time is None and not observed and len(expected := _known(evidence, phase, "predicted")) == len(known):
        known = expected
    if not known:
        needed = "measurements" if time == "measured" else "measurements, or estimates on a device"
        of_phase = f" of {phase}" if phase else ""
        raise Incomparable(f"no case has a {time or 'known'} time{of_phase}: this takes {needed}")
    return known


def _known(evidence: Iterable[Evidence], phase: Phase | None, time: Time) -> tuple[TimedCase, ...]:
    cases = (TimedCase(evidence=item, phase=phase, time=time) for item in evidence)
    return tuple(case for case in cases if case.seconds is not None)


def quantity_of(name: Compared) -> Quantity:
    """Return the quantity of a name by which models are compared."""
    return TIME if name == "latency" else QUANTITIES[name]


def check_quantities(names: Iterable[str], known: Sequence[str] = COMPARED) -> None:
    """Raise InvalidValue for a name that is no quantity."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidValue(f"unknown quantity {unknown[0]!r}; known: {', '.join(known)}")
