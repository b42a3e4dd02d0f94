"""Measured sets with noise from a seed, whose medians are known beforehand."""

from __future__ import annotations

import numpy as np

from rooflens.records import Case, Conditions, Environment, Phase, Record, Scalar, Timing
from rooflens.records.timing import TimingOrigin
from rooflens.results import RecordSet

STEP = Case(model="toynet", device="toy", batch=2)


def noisy(seed: int, seconds: float = 1e-3, samples: int = 50, noise: float = 0.02) -> tuple[float, ...]:
    """Independent samples around a median, log-normal."""
    drawn = np.exp(noise * np.random.default_rng(seed).normal(size=samples))
    return tuple(float(value) for value in seconds * drawn)


def timed(
    samples: tuple[float, ...], case: Case = STEP, phase: Phase | None = "forward", origin: TimingOrigin = "cuda-events"
) -> Record:
    """One run of a phase."""
    timing = Timing(samples=samples, origin=origin)
    return Record(case=case, source="measure", scope="model", phase=phase, timing=timing)


def environment(
    machine: dict[str, Scalar] | None = None,
    flags: dict[str, Scalar] | None = None,
    versions: dict[str, str] | None = None,
) -> Environment:
    """Where a run took place: a card, torch 2.11 and its own TF32 switches unless something else is said."""
    usual: dict[str, Scalar] = {"card": "Toy 1", "driver": "580", "cpu": "Toy CPU", "threads": 8}
    return Environment(
        rooflens="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        versions={"torch": "2.11.0"} | (versions or {}),
        machine=usual | (machine or {}),
        flags={"products may use TF32": False} | (flags or {}),
    )


def at_clock(clock: float, case: Case = STEP) -> Record:
    """What the machine was like around a run."""
    look: dict[str, Scalar] = {"clock": clock, "throttled by": ""}
    return Record(case=case, source="measure", scope="model", conditions=Conditions(before=look, after=look))


def side(*records: Record, where: Environment | None = None) -> RecordSet:
    """One side of a comparison, in the usual environment."""
    return RecordSet(records, environment=where or environment())
