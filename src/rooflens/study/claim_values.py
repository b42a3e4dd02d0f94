"""What claims are about: the numbers of cases, with the facts by which cases are told apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal

from rooflens.compare import correlations
from rooflens.compare.timed_cases import Compared
from rooflens.compare.uncertainty import METHODS, Interval, Method
from rooflens.errors import Incomparable
from rooflens.records import Case, Phase, Scalar
from rooflens.results import QUANTITIES, Evidence, RecordSet, Time, join
from rooflens.results.quantities import PREDICTED, TIME

CLOCKED = tuple(name for name, quantity in QUANTITIES.items() if quantity.timed)
"""Quantities that come from a time: the measured one, or the bound."""
EXPECTED = frozenset((*CLOCKED, *METHODS, PREDICTED.name)) - {"efficiency", "mfu", "hfu"}
"""What an expected time tells: itself, and all that comes from a time but what holds a measured one against a bound."""
TIMED = ("memory", *CLOCKED)
"""Quantities that can be measured, and estimated too: all but efficiencies."""
Lack = Literal["failed", "not run", "unknown"]
"""Why there is no number: its cell failed, or is not run yet, or its records do not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimValue:
    """A number of one case, or of one setting where it is a correlation.

    Attributes:
        facts: fields of the case, options, phase and source; those that pairs share decide which belong together.
        label: the case in words.
        number: in base units; None where it is not known.
        interval: of 95 %, None where there is none: an estimate has no samples.
        lacks: why there is no number; `why` in words.
        doubts: what those who took the times say against them.
    """

    facts: Mapping[str, Scalar | None]
    label: str
    number: float | None
    interval: Interval | None = None
    lacks: Lack | None = None
    why: str = ""
    doubts: tuple[str, ...] = ()

    def interval_times(self, factor: float) -> Interval | None:
        """Where the number lies, times a factor; None where it is not known."""
        if self.number is None:
            return None
        low, high = self.interval or (self.number, self.number)
        return low * factor, high * factor

    @property
    def is_missing(self) -> bool:
        """True if there are no records of it."""
        return self.lacks in ("failed", "not run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """A case that a study asks for and of which there are no records.

    Attributes:
        source: what was to be done with it.
        why: in words that follow its name.
    """

    case: Case
    source: str
    lacks: Lack
    why: str

    def value(self, phase: Scalar | None, *, over_models: bool) -> ClaimValue:
        """What a claim has of it: a name without a number.

        Args:
            over_models: the claim is about something over the models of a setting.
        """
        label = self.case.label()
        facts = facts_of(self.case) | {"phase": phase, "source": self.source}
        if over_models:
            del facts["model"]
        return ClaimValue(facts=facts, label=label, number=None, lacks=self.lacks, why=f"{label} {self.why}")

    def tells(self, quantity: str, *, measured: bool, with_time: bool) -> bool:
        """True if it would have told a quantity, as it was observed or as it was estimated.

        What is measured is times and memory; amounts of work are counted. With `with_time`, an estimate beside a
        measurement tells them.
        """
        if (self.source != "estimate") != measured:
            return False
        return self.source != "measure" or quantity in (*TIMED, *METHODS) or with_time


def of_cases(
    quantity: str, evidence: Iterable[Evidence], *, time: Time, phase: Scalar | None, with_time: bool
) -> Iterator[ClaimValue]:
    """A quantity of each case that has such evidence.

    Args:
        time: measured ones: as it was observed; else as it was estimated, by expected times or by bounds.
        phase: of one phase; None for the whole step.
        with_time: what only an estimate can tell (a bound) also counts beside a measurement of the case.
    """
    measured = time == "measured"
    for item in evidence:
        source = _source(item, measured=measured)
        if source is None or phase not in (None, *item.phases):
            continue
        counted = item.work.sources[0] if item.work is not None else None
        if measured and counted == "estimate" and quantity not in TIMED and not with_time:
            continue
        step: Phase | None = next((each for each in item.phases if each == phase), None)
        # Beside a measured time the expected one is a number: the question is how near it came.
        expected = quantity == PREDICTED.name and not measured
        known = (TIME if expected else QUANTITIES[quantity]).read(item, step, "predicted" if expected else time)
        label = item.case.label() if step is None else f"{item.case.label()}, {step}"
        facts = facts_of(item.case) | {"phase": step, "source": source}
        lacks, why = _unknown(label, known.value)
        yield ClaimValue(
            facts=facts,
            label=label,
            number=known.value,
            interval=known.interval,
            lacks=lacks,
            why=why,
            doubts=item.doubts if measured and quantity in TIMED else (),
        )


def correlated(
    method: Method, of: Iterable[Compared], records: RecordSet, *, time: Time, phase: Scalar | None
) -> Iterator[ClaimValue]:
    """Correlations of quantities with a time, over the models of each setting: all that have a bound, or none."""
    measured = time == "measured"
    step: Phase | None = next((each for each in records.phases if each == phase), None)
    known = partial(correlations, records, quantities=tuple(of), phase=step)
    try:
        every = known(methods=[method], time=time)
        bounded = known(methods=[], time="bound") if time == "predicted" else ()
    except Incomparable:  # no such time
        return
    models = {(each.setting, each.quantity): len(each.points) for each in bounded}
    doubtful = {item.case: item.doubts for item in join(records) if measured}
    for each in every:
        doubts = [told for case, told in doubtful.items() if replace(case, model="") == each.setting]
        coefficient = each.coefficients.get(method)
        told = coefficient is not None and coefficient.p is not None
        number = coefficient.value if coefficient is not None and told else None
        label = f"{method} of {each.quantity} with time ({len(each.points)} models; {each.setting.label()})"
        facts = facts_of(each.setting) | {"phase": step, "source": "measure" if measured else "estimate"}
        lacks, why = _unknown(label, number)
        if coefficient is not None and not told:
            why = f"{label}: so few models cannot be told from chance"
        if len(each.points) < models.get((each.setting, each.quantity), 0):
            number, lacks, why = None, "unknown", f"{label}: other models have no expected time"
        yield ClaimValue(
            facts={name: fact for name, fact in facts.items() if name != "model"} | {"of": each.quantity},
            label=label,
            number=number,
            interval=None if coefficient is None else coefficient.interval,
            lacks=lacks,
            why=why,
            doubts=tuple(dict.fromkeys(chain.from_iterable(doubts))),
        )


def facts_of(case: Case) -> dict[str, Scalar | None]:
    """The fields of a case and its options."""
    own = {"model": case.model, "device": case.device, "batch": case.batch, "dtype": case.dtype, "mode": case.mode}
    return own | dict(case.options)


def _unknown(label: str, number: float | None) -> tuple[Lack | None, str]:
    """Why a case that has records has no number, and the same in words."""
    return (None, "") if number is not None else ("unknown", f"{label}: its value is not known")


def _source(item: Evidence, *, measured: bool) -> str | None:
    """Where such evidence of a case comes from; None where there is none."""
    if not measured:
        return "estimate" if item.work is not None and item.work.sources[0] == "estimate" else None
    observed = item.time if item.time is not None else item.work
    source = None if observed is None else observed.sources[0]
    return None if source == "estimate" else source


def moved(values: Interval, share: float) -> Interval:
    """An interval moved by a share of its size: down for a negative share, whatever the sign of the values."""
    ends = [value + share * abs(value) for value in values]
    if values[0] < 0 < values[1]:
        ends.append(0.0)
    return min(ends), max(ends)
