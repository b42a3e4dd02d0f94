"""With which power does time grow with batch, sequence length, FLOP or bytes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rooflens.compare.correlation import points, settings
from rooflens.compare.doubts import Doubtful
from rooflens.compare.timed_cases import COMPARED, Compared, TimedCase, check_quantities, timed_cases
from rooflens.compare.uncertainty import PowerLaw
from rooflens.errors import InvalidValue
from rooflens.records import Case, Phase
from rooflens.results import RecordSet, Time

BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponent(Doubtful):
    """``of = factor * over ** exponent``.

    Attributes:
        case: what the points share; model is "" where they are models, batch None where they are batches, and an
            option is left out where they are its values.
        of: the quantity that grows; `over`: what it grows with: a quantity, ``batch``, or an option like ``seq_len``.
        time: which time latency is.
        points: the values of `over` and of `of`, by rising `over`.
    """

    case: Case
    of: Compared
    over: str
    time: Time
    points: tuple[tuple[float, float], ...]
    fit: PowerLaw


def exponents(
    records: RecordSet,
    over: str = BATCH,
    *,
    of: Compared = "latency",
    time: Time | None = None,
    phase: Phase | None = None,
) -> tuple[Exponent, ...]:
    """The exponent of each series: 1 is proportional, below 1 there is something to gain from more, 0 is a fixed cost.

    Over a quantity the points of a series are the models of a setting; over ``batch`` or an option they are the values
    of it for one model. A series of fewer than `FEWEST_FITTED` different values has none.

    Args:
        over: ``flops``, ``bytes`` ..., ``batch``, or the name of an option.
        of: what grows.
        time: measured, predicted or bound; default: measured if there is any measurement, else predicted if every step
            has an expected time.

    Raises:
        InvalidValue: an unknown quantity, or no case with such an option.
        Incomparable: no case has a time.
    """
    from rooflens.compare.statistics import power_law  # scipy takes a second to load

    check_quantities([of])
    items = timed_cases(records, time=time, phase=phase)
    if over in COMPARED:
        series = {case: [point[1:] for point in points(group, over, of)] for case, group in settings(items).items()}
    else:
        series = _series(items, over, of)
    fits = [
        (case, sorted(values), power_law([x for x, _ in values], [y for _, y in values]))
        for case, values in series.items()
    ]
    return tuple(
        Exponent(case=case, of=of, over=over, time=items[0].time, points=tuple(values), fit=fit)
        for case, values, fit in fits
        if fit is not None
    )


def _series(items: Sequence[TimedCase], over: str, of: Compared) -> dict[Case, list[tuple[float, float]]]:
    """Return the values of a batch or an option, under the case without it."""
    groups: dict[Case, list[tuple[float, float]]] = {}
    options = (option for step in items for option in step.case.options)
    known = {name for name, value in options if isinstance(value, int | float) and not isinstance(value, bool)}
    if over != BATCH and over not in known:
        listed = ", ".join((*COMPARED, BATCH, *sorted(known)))
        raise InvalidValue(f"no case has a number {over!r} to grow over; known here: {listed}")
    for step in items:
        x = step.case.batch if over == BATCH else dict(step.case.options).get(over)
        y = step.value(of)
        if y is not None and isinstance(x, int | float):
            groups.setdefault(_rest(step.case, over), []).append((float(x), y))
    return groups


def _rest(case: Case, over: str) -> Case:
    return replace(case, batch=None) if over == BATCH else case.without({over})
