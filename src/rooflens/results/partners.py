"""Which estimate belongs to what was observed: cases of the same step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from rooflens.records import Case, Scalar
from rooflens.results.totals import grouped_by
from rooflens.runs.options import COUNTING, PRICED, RUNNING


class EstimatedCases:
    """The cases that were estimated, to find the partner of an observed one among thousands.

    Attributes:
        cases: all of them.
    """

    def __init__(self, cases: Iterable[Case]) -> None:
        self.cases = tuple(cases)

    @cached_property
    def _by_step(self) -> Mapping[Case, list[Case]]:
        return grouped_by(self.cases, _step)

    def partner(self, case: Case) -> Case | None:
        """Return the estimate of the same case: of the same device, else the only one that does not contradict it."""
        alike = self._by_step.get(_step(case), [])
        if case in alike:
            return case
        fitting = [estimate for estimate in alike if same_step(estimate, case)]
        return fitting[0] if len(fitting) == 1 else None

    def contradiction(self, case: Case) -> str:
        """Return what keeps apart an observed case, which has no partner, and the estimate that is most like it."""
        told = dict(_facts(case))
        nearest = min(self.cases, key=lambda estimate: sum(told.get(n) != value for n, value in _facts(estimate)))
        theirs = dict(_facts(nearest))
        others = [name for name in {**theirs, **told} if theirs.get(name) != told.get(name)]
        if not others:
            alike = self._by_step[_step(case)]
            if sum(same_step(estimate, case) for estimate in alike) > 1 and case.device is not None:
                return f"{len(alike)} are of this step, and count it differently: {', '.join(e.label() for e in alike)}"
            devices = " and ".join(dict.fromkeys(str(each.device) for each in alike))
            return f"{replace(nearest, device=None).label()} is estimated on {devices}, this is of " + (
                case.device or "a device that it does not name; give --device"
            )
        flags = " ".join(_flag(name, theirs[name]) for name in others if name in theirs)
        advice = f"; give {flags} if it ran so" if flags else ""
        verb = "is" if len(others) == 1 else "are"
        return (
            f"the nearest is of {nearest.label()}, and {' and '.join(others)} of this {verb} another or not known"
            f"{advice}"
        )


def _flag(name: str, value: object) -> str:
    """How the command line says it."""
    return f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}"


def _facts(case: Case) -> Iterator[tuple[str, Scalar | None]]:
    """What tells the steps of cases apart, by name; what is not known of a device tells nothing."""
    yield from (("model", case.model), ("batch", case.batch), ("dtype", case.dtype), ("mode", case.mode))
    yield from case.without(COUNTING | RUNNING | PRICED).options


def same_step(estimate: Case, case: Case) -> bool:
    """True if an estimate is of the step that a case ran, whatever either says of counting, of timing and of prices."""
    counted = replace(estimate.without(COUNTING | RUNNING | PRICED), device=case.device)
    same_device = estimate.device == case.device or None in (estimate.device, case.device)
    return same_device and counted == case.without(RUNNING | PRICED)


def _step(case: Case) -> Case:
    """Return what cases of the same step share, and some others too."""
    return replace(case.without(COUNTING | RUNNING | PRICED), device=None)
