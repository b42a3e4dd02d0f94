"""Several runs of one case: those observed piece by piece are kept apart, since the pieces of a run add up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rooflens.records import Case, Record, Source
from rooflens.results.totals import grouped_by
from rooflens.runs.options import FIRST_RUN, RUN


@dataclass(slots=True)
class SeveralRuns:
    """The runs that were seen so far, one set after the other."""

    _seen: dict[tuple[Case, Source], list[tuple[Case, Sequence[Record]]]] = field(default_factory=dict)

    def apart(self, records: Sequence[Record]) -> Iterator[Record]:
        """Yield what the next set observed, less runs in pieces that were seen already.

        A further run of the pieces of a case takes an option: ``run=2``, ``run=3``. Wholes need none, and stay: several
        times of one whole are samples of the same thing.
        """
        runs = grouped_by(records, lambda record: (record.case, record.source))
        cases = {key: self._case_of(*key, own) for key, own in runs.items()}
        for record in records:
            case = cases[record.case, record.source]
            if case is not None:
                yield record if case == record.case else replace(record, case=case)

    def _case_of(self, case: Case, source: Source, own: Sequence[Record]) -> Case | None:
        """Return the case of a run; None where the same pieces were seen already."""
        if all(record.scope == "model" for record in own):
            return case
        plain = case.without({RUN})
        seen = self._seen.setdefault((plain, source), [])
        if any(len(run) == len(own) and alike(_of(plain, run), _of(plain, own)) for _, run in seen):
            return None
        taken = {its for its, _ in seen}
        names = (case, *(_numbered(plain, n) for n in range(FIRST_RUN + 1, FIRST_RUN + len(seen) + 2)))
        free = next(name for name in names if name not in taken)
        seen.append((free, own))
        return free


def _numbered(case: Case, n: int) -> Case:
    return replace(case, options=tuple(sorted((*case.options, (RUN, n)))))


def _of(case: Case, run: Sequence[Record]) -> list[Record]:
    return [record if record.case == case else replace(record, case=case) for record in run]


def alike(one: Sequence[Record], other: Sequence[Record]) -> bool:
    """Return True if records tell the same; notes may tell of the files that they come from."""
    return one == other or [replace(r, notes=()) for r in one] == [replace(r, notes=()) for r in other]
