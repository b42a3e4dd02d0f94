"""Do FLOP, parameters or bytes tell how long a model takes? Correlation over models, setting by setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rooflens.compare.doubts import Doubtful
from rooflens.compare.timed_cases import COMPARED, Compared, TimedCase, check_quantities, timed_cases
from rooflens.compare.uncertainty import METHODS, Coefficient, Method
from rooflens.records import Case, Phase
from rooflens.results import RecordSet, Time
from rooflens.results.totals import grouped_by

FEWEST_MODELS = 3
"""Below, every correlation is 1, -1 or undefined."""


@dataclass(frozen=True, slots=True)
class Correlation(Doubtful):
    """How closely two quantities, `quantity` and `against`, go together over the models of one setting.

    Attributes:
        setting: what the points share (device, batch, dtype, mode, options); its model is "".
        time: which time latency is.
        points: model and both quantities, one per model for which both are known.
        coefficients: Pearson's r, Spearman's rho and Kendall's tau-b; without those that a constant makes undefined.
    """

    setting: Case
    quantity: Compared
    against: Compared
    time: Time
    points: tuple[tuple[str, float, float], ...]
    coefficients: Mapping[Method, Coefficient]


def correlations(
    records: RecordSet,
    *,
    against: Compared = "latency",
    quantities: Sequence[Compared] = COMPARED,
    methods: Sequence[Method] = METHODS,
    time: Time | None = None,
    phase: Phase | None = None,
) -> tuple[Correlation, ...]:
    """Correlation of quantities with one of them, over the models of each device, batch, dtype, mode and options.

    Settings of fewer than three models have none. For a matrix, go through `against`.

    Args:
        against: what each of `quantities` is correlated with.
        methods: the coefficients; each takes a bootstrap.
        time: measured, predicted or bound; default: measured if there is any measurement, else predicted if every step
            has an expected time.
        phase: one phase instead of the whole step.

    Raises:
        InvalidValue: an unknown quantity, time or phase.
        Incomparable: no case has a time.
    """
    check_quantities((*quantities, against))
    groups = settings(timed_cases(records, time=time, phase=phase))
    pairs = [(setting, group, each) for setting, group in groups.items() for each in quantities if each != against]
    return tuple(filter(None, (_correlation(*pair, against, methods) for pair in pairs)))


def settings(items: Iterable[TimedCase]) -> Mapping[Case, list[TimedCase]]:
    """Steps that differ in nothing but the model, under their case without it."""
    return grouped_by(items, lambda step: replace(step.case, model=""))


def points(group: Iterable[TimedCase], x: Compared, y: Compared) -> tuple[tuple[str, float, float], ...]:
    """Return the models for which both quantities are known."""
    values = [(step.case.model, step.value(x), step.value(y)) for step in group]
    return tuple((model, first, second) for model, first, second in values if first is not None and second is not None)


def _correlation(
    setting: Case, group: Sequence[TimedCase], quantity: Compared, against: Compared, methods: Sequence[Method]
) -> Correlation | None:
    known = points(group, quantity, against)
    if len(known) < FEWEST_MODELS:
        return None
    from rooflens.compare.statistics import correlate  # scipy takes a second to load

    x, y = [point[1] for point in known], [point[2] for point in known]
    coefficients = {method: each for method in methods if (each := correlate(x, y, method)) is not None}
    return Correlation(setting, quantity, against, group[0].time, known, coefficients)
