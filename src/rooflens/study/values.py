"""What claims are about: the numbers of cases, with the facts by which cases are told apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rooflens.compare import Evidence, correlations
from rooflens.compare.evidence import efficiency, throughput
from rooflens.compare.quantities import activations
from rooflens.errors import Incomparable
from rooflens.records import Case, Phase, Scalar
from rooflens.results import RecordSet

TIMED = ("time", "throughput", "performance", "efficiency", "memory")
"""Quantities that can be measured, and estimated too: all but efficiency."""
Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number of one case, or of one setting where it is a correlation.

    Attributes:
        facts: fields of the case, options, phase and source; those that pairs share decide which belong together.
        label: the case in words.
        number: in base units; None where it is not known.
        interval: of 95 %, None where there is none: an estimate has no samples.
    """

    facts: Mapping[str, Scalar | None]
    label: str
    number: float | None
    interval: Range | None = None


def of_cases(
    quantity: str, evidence: Iterable[Evidence], *, measured: bool, phase: Scalar | None, with_time: bool
) -> Iterator[Value]:
    """A quantity of each case that has such evidence.

    Args:
        measured: as it was observed, else as it was estimated.
        phase: of one phase; None for the whole step.
        with_time: what only an estimate can tell (a bound) also counts beside a measurement of the case.
    """
    for item in evidence:
        source = _source(item, measured=measured)
        if source is None or phase not in (None, *item.phases):
            continue
        counted = item.work.sources[0] if item.work is not None else None
        if measured and counted == "estimate" and quantity not in TIMED and not with_time:
            continue
        step: Phase | None = next((each for each in item.phases if each == phase), None)
        number, interval = _number(item, quantity, step, measured=measured)
        label = item.case.label()
        yield Value(
            facts=facts_of(item.case) | {"phase": step, "source": source},
            label=label if step is None else f"{label}, {step}",
            number=number,
            interval=interval,
        )


def correlated(method: str, records: RecordSet, *, measured: bool, phase: Scalar | None) -> Iterator[Value]:
    """Correlations with the time, over the models of each setting."""
    step: Phase | None = next((each for each in records.phases if each == phase), None)
    try:
        found = correlations(records, time="measured" if measured else "bound", phase=step)
    except Incomparable:  # no such time
        return
    for each in found:
        coefficient = next((known for name, known in each.coefficients.items() if name == method), None)
        facts = facts_of(each.setting) | {"phase": step, "source": "measure" if measured else "estimate"}
        yield Value(
            facts={name: fact for name, fact in facts.items() if name != "model"} | {"of": each.quantity},
            label=f"{method} of {each.quantity} with time ({len(each.points)} models; {each.setting.label()})",
            number=None if coefficient is None else coefficient.value,
            interval=None if coefficient is None else coefficient.interval,
        )


def facts_of(case: Case) -> dict[str, Scalar | None]:
    """The fields of a case and its options."""
    own = {"model": case.model, "device": case.device, "batch": case.batch, "dtype": case.dtype, "mode": case.mode}
    return own | dict(case.options)


def _source(item: Evidence, *, measured: bool) -> str | None:
    """Where such evidence of a case comes from; None where there is none."""
    if not measured:
        return "estimate" if item.work is not None and item.work.sources[0] == "estimate" else None
    seen = item.time if item.time is not None else item.work
    source = None if seen is None else seen.sources[0]
    return None if source == "estimate" else source


def _number(item: Evidence, quantity: str, phase: Phase | None, *, measured: bool) -> tuple[float | None, Range | None]:
    """A quantity in base units, and its 95 % interval where it has samples."""
    if quantity in TIMED and quantity != "memory":
        return _timed(item, quantity, phase, measured=measured)
    if quantity == "memory":
        seen = item.time if measured else item.work
        memory = None if seen is None else seen.memory
        return (None if memory is None else memory.peak), None
    if quantity in ("parameters", "activations"):
        return item.parameters if quantity == "parameters" else activations(item), None
    total = item.total(phase)
    known = {} if total is None else {"bytes": total.bytes.get("dram"), "bound": total.seconds}
    return known[quantity] if quantity in known else getattr(total, quantity, None), None


def _timed(item: Evidence, quantity: str, phase: Phase | None, *, measured: bool) -> tuple[float | None, Range | None]:
    """The time of a case, measured or its bound, or something that is divided by it."""
    total = item.total(phase)
    time = item.measured(phase) if measured else None
    bound = None if total is None else total.seconds
    seconds = (None if time is None else time.seconds) if measured else bound
    low, high = (None, None) if time is None else time.interval
    if seconds is None or quantity == "time":
        return seconds, (low, high) if low is not None and high is not None else None
    if quantity == "throughput":
        value = throughput(item.case, total, time)[0]
    elif quantity == "performance":
        value = None if total is None or total.flops is None or not seconds else total.flops / seconds
    else:
        value = efficiency(total, seconds) if measured else None
    if value is None or not low or not high:
        return value, None
    return value, (value * seconds / high, value * seconds / low)
