"""The numbers by which models are compared: what a step takes, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import Case, Phase
from rooflens.results import RecordSet
from rooflens.results.evidence import Evidence, join

Quantity = Literal["flops", "matmul_flops", "parameters", "bytes", "activations", "latency"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
"""All FLOP; those of matrix work; parameter elements; bytes to and from DRAM; bytes of the results that forward's
operations write; seconds."""
Time = Literal["measured", "bound"]
TIMES: tuple[Time, ...] = get_args(Time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One case and its numbers.

    Attributes:
        evidence: where they come from.
        phase: the phase that is meant, None for the whole step.
        time: which time is meant by latency.
    """

    evidence: Evidence
    phase: Phase | None
    time: Time

    @property
    def case(self) -> Case:
        """The case, on its device."""
        return self.evidence.case

    def value(self, quantity: Quantity) -> float | None:
        """One of its numbers in base units, None where it is not known."""
        if quantity == "latency":
            return self.seconds
        if quantity == "parameters":
            return self.evidence.parameters
        if quantity == "activations":
            return activations(self.evidence)
        total = self.evidence.total(self.phase)
        if total is None:
            return None
        return {"flops": total.flops, "matmul_flops": total.matmul_flops, "bytes": total.bytes.get("dram")}[quantity]

    @property
    def seconds(self) -> float | None:
        """The measured time, or the bound."""
        if self.time == "measured":
            measured = self.evidence.measured(self.phase)
            return None if measured is None else measured.seconds
        total = self.evidence.total(self.phase)
        return None if total is None else total.seconds

    @property
    def samples(self) -> list[tuple[float, ...]]:
        """The samples of each run behind a measured time; none behind a bound, or where it was timed in pieces."""
        return [timing.samples for timing in self.evidence.runs(self.phase)] if self.time == "measured" else []


def steps(records: RecordSet, *, time: Time | None = None, phase: Phase | None = None) -> tuple[Step, ...]:
    """Every case of a set whose time is known.

    Args:
        time: the time that counts as latency; default: the measured one if the set holds any, else the bound. The two
            are never mixed.

    Raises:
        InvalidValue: there is no such time.
        Incomparable: no case has that time.
    """
    if time is not None and time not in TIMES:
        raise InvalidValue(f"unknown time {time!r}; known: {', '.join(TIMES)}")
    evidence = join(records)
    which = time or ("measured" if any(item.measured(phase) is not None for item in evidence) else "bound")
    found = [Step(evidence=item, phase=phase, time=which) for item in evidence]
    known = tuple(step for step in found if step.seconds is not None)
    if not known:
        needed = "measurements" if which == "measured" else "measurements, or estimates on a device"
        raise Incomparable(f"no case has a {which} time{f' of {phase}' if phase else ''}: this takes {needed}")
    return known


def activations(item: Evidence) -> float | None:
    """Bytes of results that the operations of forward write, views left out: what is kept and what is not."""
    written = [record for record in item.work or () if record.phase == "forward" and record.work is not None]
    if not written or any(record.traffic is None for record in written):
        return None
    return sum(record.traffic.outputs * record.calls for record in written if record.traffic is not None)


def check_quantities(names: Iterable[str], known: Sequence[str] = QUANTITIES) -> None:
    """Raise InvalidValue for a name that is no quantity."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidValue(f"unknown quantity {unknown[0]!r}; known: {', '.join(known)}")
