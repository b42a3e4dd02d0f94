"""What a sweep over batches says: where throughput stops to rise, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rooflens.records import Case, Failure
from rooflens.report.captions import differing, name_of
from rooflens.report.evidence import Evidence, throughput

KNEE = 0.95
"""The knee is the smallest batch that reaches this share of the highest throughput."""
FEWEST = 4
"""Batches from which on a sweep has a knee."""


def batch_notes(evidence: Iterable[Evidence], failures: Iterable[Failure]) -> Iterator[str]:
    """The knee and the largest batch of every measured sweep: cases that differ in nothing but the batch."""
    rates: dict[Case, dict[int, float]] = {}
    for item in evidence:
        rate, origin = throughput(item.case, item.total(), item.measured())
        if item.case.batch is not None and rate is not None and origin == "measured":
            rates.setdefault(replace(item.case, batch=None), {})[item.case.batch] = rate
    ran_out: dict[Case, list[int]] = {}
    for failure in failures:
        if failure.kind == "out of memory" and failure.case.batch is not None:
            ran_out.setdefault(replace(failure.case, batch=None), []).append(failure.case.batch)
    fields = differing(list(rates))
    for case, by_batch in rates.items():
        whose = f"{name_of(case, fields)}: " if len(rates) > 1 else ""
        if (largest := max(by_batch)) + 1 in ran_out.get(case, ()):
            yield f"{whose}the largest batch that fits is {largest}: {largest + 1} runs out of memory"
        if len(by_batch) >= FEWEST:
            best = max(by_batch.values())
            reached = knee(sorted(by_batch.items()), best)
            yield f"{whose}throughput reaches {100 * KNEE:.0f} % of its highest at batch {reached}"


def knee(rates: Sequence[tuple[int, float]], best: float) -> int:
    """The smallest batch whose rate is `KNEE` of the best; `rates` by rising batch."""
    return next(batch for batch, rate in rates if rate >= KNEE * best)
