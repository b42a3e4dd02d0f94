"""Which estimate belongs to what was observed: cases of the same step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def same_step(estimate: Case, case: Case) -> bool:
    """True if an estimate is of the step that a case ran, whatever either says of counting, of timing and of prices."""
    counted = replace(estimate, device=case.device, options=_without(estimate.options, COUNTING | PRICED))
    same_device = estimate.device == case.device or None in (estimate.device, case.device)
    return same_device and counted == replace(case, options=_without(case.options, RUNNING | PRICED))


def _step(case: Case) -> Case:
    """Return what cases of the same step share, and some others too."""
    return replace(case, device=None, options=_without(case.options, COUNTING | RUNNING | PRICED))


def _without(options: Iterable[tuple[str, Scalar]], left_out: frozenset[str]) -> tuple[tuple[str, Scalar], ...]:
    return tuple(option for option in options if option[0] not in left_out)
