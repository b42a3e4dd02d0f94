"""In what two sets of runs differ besides what is to be compared, and which of it forbids the comparison.

Forbidden is what makes the two sides different experiments: another card (or processor, or number of threads, where the
processor does the work), another clock behind the times, other TF32 switches where the dtype leaves them to torch. The
rest is told and left to the reader: a new driver or torch is often the very thing that is compared, and a lower clock
may be its effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from rooflens.records import AS_IS, Environment, Scalar
from rooflens.results import RecordSet
from rooflens.results.evidence import Evidence

CLOCK = 0.05
"""Relative difference of a card's clock from which on it is told: `measure` calls a clock unsettled there too."""
_CARD = frozenset({"card"})
_PROCESSOR = frozenset({"cpu", "threads"})
_TF32 = frozenset({"products may use TF32", "cudnn may use TF32"})
_HARMLESS = frozenset({"container memory", "card memory"})
_TORCHS_OWN = ("default", AS_IS)
"""Element types that leave the TF32 switches as torch or the user has them; the others set them for the run."""

Pairs = Sequence[tuple[Evidence, Evidence]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A circumstance (card, driver, torch, clock ...) that is not the same on both sides.

    Attributes:
        before: its value on the first side, None where it is not known; `after`: on the second.
        forbids: whether the comparison would be one of different experiments.
        cases: how many cases it is seen in, None where it holds for all.
    """

    what: str
    before: Scalar | None
    after: Scalar | None
    forbids: bool = False
    cases: int | None = None

    def __str__(self) -> str:
        values = " -> ".join("unknown" if value is None else str(value) for value in (self.before, self.after))
        return f"{self.what}: {values}" + ("" if self.cases is None else f" (in {self.cases} cases, the most here)")


def differences(before: RecordSet, after: RecordSet, pairs: Pairs) -> tuple[Difference, ...]:
    """What differs between two sets, the forbidding first.

    Args:
        pairs: the cases that are compared.
    """
    unlike = [*_surroundings(before.environment, after.environment, pairs), *_clocks(pairs), *_conditions(pairs)]
    return tuple(sorted(unlike, key=lambda difference: not difference.forbids))


def _surroundings(before: Environment | None, after: Environment | None, pairs: Pairs) -> Iterator[Difference]:
    """What the headers of the files say."""
    if before is None or after is None:
        return
    forbidding = _forbidding(pairs)
    one, other = _facts(before), _facts(after)
    for what in dict.fromkeys((*one, *other)):
        if one.get(what) != other.get(what) and what not in _HARMLESS | (_TF32 - forbidding):
            known = what in one and what in other
            yield Difference(
                what=what, before=one.get(what), after=other.get(what), forbids=known and what in forbidding
            )


def _facts(environment: Environment) -> dict[str, Scalar]:
    return {"rooflens": environment.rooflens, **environment.machine, **environment.flags, **environment.versions}


def _forbidding(pairs: Pairs) -> frozenset[str]:
    """The facts that decide the times of these pairs."""
    origins = {origin for pair in pairs for item in pair for origin in _origins(item)}
    own = any(item.case.dtype in _TORCHS_OWN for pair in pairs for item in pair)
    return (
        (_PROCESSOR if "monotonic" in origins else frozenset())
        | (_CARD if origins - {"monotonic"} else frozenset())
        | (_TF32 if own else frozenset())
    )


def _origins(item: Evidence) -> set[str]:
    return {record.timing.origin for record in item.time or () if record.timing is not None}


def _clocks(pairs: Pairs) -> Iterator[Difference]:
    """Times taken by different clocks: a host's wait, a card's events and a profiler's sums are different things."""
    unlike = [(_origins(one), _origins(other)) for one, other in pairs if _origins(one) != _origins(other)]
    if unlike:
        one, other = (", ".join(sorted(origins)) for origins in unlike[0])
        yield Difference(what="timed by", before=one, after=other, forbids=True, cases=len(unlike))


def _conditions(pairs: Pairs) -> Iterator[Difference]:
    """What the machine was like around the runs, where both sides tell."""
    clocks = [(_clock(one), _clock(other)) for one, other in pairs]
    known = [(one, other) for one, other in clocks if one and other and abs(other / one - 1) > CLOCK]
    if known:
        one, other = max(known, key=lambda pair: abs(pair[1] / pair[0] - 1))
        yield Difference(what="clock, Hz", before=round(one), after=round(other), cases=len(known))
    for what in ("throttled by", "governor"):
        states = [(_state(one, what), _state(other, what)) for one, other in pairs]
        unlike = [(one, other) for one, other in states if one is not None and other is not None and one != other]
        if unlike:
            first, second = (state or "nothing" for state in unlike[0])
            yield Difference(what=what, before=first, after=second, cases=len(unlike))


def _looks(item: Evidence) -> Iterator[dict[str, Scalar]]:
    for record in item.time or ():
        if record.conditions is not None:
            yield from (record.conditions.before, record.conditions.after)


def _clock(item: Evidence) -> float | None:
    """Mean clock of the card; that of a processor is read from one idle moment of one core and says nothing."""
    if "monotonic" in _origins(item):
        return None
    clocks = [float(look["clock"]) for look in _looks(item) if isinstance(look.get("clock"), int | float)]
    return fmean(clocks) if clocks else None


def _state(item: Evidence, what: str) -> str | None:
    states = [str(look[what]) for look in _looks(item) if what in look]
    return ", ".join(sorted(set(filter(None, states)))) if states else None
