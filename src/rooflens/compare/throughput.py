"""Throughput against batch: the most samples per second, where it stops rising, and where memory ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rooflens.compare.doubts import Doubtful
from rooflens.records import Case, Failure
from rooflens.results.evidence import Evidence
from rooflens.results.factors import Time
from rooflens.results.quantities import THROUGHPUT, throughput
from rooflens.results.quantity import Reading

KNEE = 0.95
"""The knee is the smallest batch that reaches this share of the highest throughput."""
ORIGINS: tuple[Time, ...] = ("measured", "predicted", "bound")
"""Where throughput comes from, by what it tells: where none was measured, the expected one stands before its bound."""
FEWEST = 4
"""Batches from which on a sweep has a knee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Doubtful):
    """One step over several batches.

    Attributes:
        case: what the batches share; its own batch is None.
        rates: batch and samples per second, by rising batch; `ran_out`: batches for which memory was too small.
        bands: of batches with an expected time, the ends of the band of their rate.
        too_large: batches that do not fit into its memory, by their estimates.
    """

    case: Case
    origin: Time
    rates: tuple[tuple[int, float], ...]
    bands: tuple[tuple[int, tuple[float, float]], ...] = ()
    ran_out: tuple[int, ...] = ()
    too_large: tuple[int, ...] = ()

    @property
    def fitting(self) -> tuple[tuple[int, float], ...]:
        """The rates of batches that are not known to be too large for the memory."""
        return tuple(rate for rate in self.rates if rate[0] not in self.too_large)

    @property
    def best(self) -> tuple[int, float] | None:
        """The batch of the highest throughput, and that throughput; None where no batch fits."""
        return max(self.fitting, key=lambda rate: rate[1], default=None)

    @property
    def knee(self) -> int | None:
        """The smallest batch that reaches `KNEE` of the highest throughput; None for fewer than `FEWEST` that fit."""
        fitting, best = self.fitting, self.best
        return None if best is None or len(fitting) < FEWEST else knee(fitting, best[1])

    @property
    def largest(self) -> int | None:
        """The largest batch that fits, where one more was tried and did not."""
        fitting = self.fitting
        return fitting[-1][0] if fitting and fitting[-1][0] + 1 in {*self.ran_out, *self.too_large} else None


def sweeps(
    evidence: Iterable[Evidence],
    failures: Iterable[Failure] = (),
    origins: Sequence[Time] = ORIGINS,
) -> tuple[Sweep, ...]:
    """One sweep per case and origin: cases that differ in nothing but the batch."""
    rates: dict[tuple[Case, Time], dict[int, Reading]] = {}
    too_large: dict[tuple[Case, Time], list[int]] = defaultdict(list)
    for item in evidence:
        if item.case.batch is None:
            continue
        for origin, rate in _rates(item, origins):
            rates.setdefault((replace(item.case, batch=None), origin), {})[item.case.batch] = rate
            if item.room is not None and item.room.fits is False:
                too_large[replace(item.case, batch=None), origin].append(item.case.batch)
    ran_out: dict[Case, list[int]] = {}
    for failure in failures:
        if failure.kind == "out of memory" and failure.case.batch is not None:
            ran_out.setdefault(replace(failure.case, batch=None), []).append(failure.case.batch)
    return tuple(
        Sweep(
            case=case,
            origin=origin,
            rates=tuple((batch, rate.value) for batch, rate in sorted(known.items()) if rate.value is not None),
            bands=tuple((batch, rate.interval) for batch, rate in sorted(known.items()) if rate.interval is not None),
            ran_out=tuple(sorted(ran_out.get(case, ()))),
            too_large=tuple(sorted(too_large[case, origin])),
        )
        for (case, origin), known in rates.items()
    )


def _rates(item: Evidence, origins: Sequence[Time]) -> Iterator[tuple[Time, Reading]]:
    """The measured throughput of a step, else what is expected and what the bound allows."""
    rate, origin = throughput(item.case, item.total(), item.measured())
    if origin is None:
        return
    if origin in origins:
        yield origin, Reading(value=rate)
    expected = THROUGHPUT.read(item, None, "predicted")
    if origin == "bound" and "predicted" in origins and expected.value is not None:
        yield "predicted", expected


def knee(rates: Sequence[tuple[int, float]], best: float) -> int:
    """The smallest batch whose rate is `KNEE` of the best; `rates` by rising batch."""
    return next(batch for batch, rate in rates if rate >= KNEE * best)
