"""Notes on a sweep over batches: where throughput stops rising, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rooflens.compare.throughput import KNEE, sweeps
from rooflens.records import Failure
from rooflens.report.case_names import differing, name_of
from rooflens.results.evidence import Evidence


def batch_notes(evidence: Iterable[Evidence], failures: Iterable[Failure]) -> Iterator[str]:
    """The knee and the largest batch of every measured sweep: cases that differ in nothing but the batch."""
    measured = sweeps(evidence, failures, origins=("measured",))
    fields = differing([sweep.case for sweep in measured])
    for sweep in measured:
        whose = f"{name_of(sweep.case, fields)}: " if len(measured) > 1 else ""
        if sweep.largest is not None:
            yield f"{whose}the largest batch that fits is {sweep.largest}: {sweep.largest + 1} runs out of memory"
        if sweep.knee is not None:
            yield f"{whose}throughput reaches {100 * KNEE:.0f} % of its highest at batch {sweep.knee}"
