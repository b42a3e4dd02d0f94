"""Records as a set keeps them: those of equal layers are sums until somebody asks for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rooflens.records import Case, Record
from rooflens.results.totals import grouped_by

LayerMaker = Callable[[], Iterable[Record]]
"""Makes all records of the estimate of a case of which those kept are sums over equal layers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptRecords:
    """The records of a set.

    Attributes:
        summed: those that are kept; their totals are those of all.
        makers: by case, where those kept are sums.
    """

    summed: tuple[Record, ...]
    makers: Mapping[Case, LayerMaker] = field(default_factory=dict)

    @cached_property
    def every(self) -> tuple[Record, ...]:
        """All records; each layer of a model has its own."""
        held = grouped_by(self.summed, lambda record: record.case)
        return tuple(record for case, own in held.items() for record in self._every_of(case, own))

    def estimate(self, case: Case) -> Sequence[Record]:
        """Return all records of the estimate of a case."""
        own = [record for record in self.summed if record.source == "estimate" and record.case == case]
        return self._every_of(case, own)

    def _every_of(self, case: Case, own: Sequence[Record]) -> Sequence[Record]:
        if case not in self.makers or all(record.source != "estimate" for record in own):
            return own
        return (*self.makers[case](), *(record for record in own if record.source != "estimate"))
