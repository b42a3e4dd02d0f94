"""Read the constants of the host off models by which nothing is judged: how long it took to launch their steps.

    python -m benchmarks.prediction.host_constants [--traces FOLDER]

Uses benchmarks/results/prediction-h200/launching.jsonl (quiet_on_gpu.py's parts `fitted`): a step's phases, launched
while the device was idle and no other program slowed the host. Times are taken over that of a small layer beside them.
Prints the error of each kind of phase, of models that were left out of the fit, before and after it, and the constants
for a host whose layer takes as long as general.toml says.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from benchmarks.prediction.own_models import H200
from benchmarks.prediction.traces import Traces
from numpy.typing import NDArray

from rooflens.devices.files import cache_folder
from rooflens.predict import generation
from rooflens.predict.constants import GENERAL
from rooflens.predict.host import around, beginning, dispatching, recording
from rooflens.records import HostCalls, Phase, Record

ADDITIVE = (
    *("start", "start_backward", "start_optimizer", "operation", "in_place", "other", "gather", "convolution"),
    *("grouped", "depthwise", "last", "channels", "rows", "matmul", "attention", "backward", "view", "node"),
    *("module", "list", "tensor"),
)
FACTORS = ("recording", "share_backward")
"""By which times of others are multiplied."""
Vector = NDArray[np.float64]
"""A number for each additive constant."""
STEPS, ROUNDS, FOLDS = (1.2, 1.1, 1.04), 2, 6
PRIOR = 0.003
"""Error that a constant has to save to move by a factor of e."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A phase that the host launched.

    Attributes:
        kind: mode, element type and phase.
        layers: its seconds over those of a small layer.
        plain: how often the phase takes each additive constant.
        scaled: and how often times a factor, by the factor's name.
    """

    model: str
    kind: str
    layers: float
    plain: Vector
    scaled: Mapping[str, Vector]

    def error(self, values: Mapping[str, float]) -> float:
        """The logarithm of expected over measured time, with some constants."""
        each = np.array([values[name] for name in ADDITIVE])
        expected = self.plain @ each + sum(values[name] * (count @ each) for name, count in self.scaled.items())
        return log(expected / self.layers)


class Unit(dict[str, Any]):
    """Constants of a host as a card has them: of each additive one a vector that has 1 in its place."""

    def __init__(self, **factors: float) -> None:
        ones = np.eye(len(ADDITIVE))
        super().__init__({f"host.{name}": ones[place] for place, name in enumerate(ADDITIVE)})
        self.update({f"host.{name}": factors.get(name, 0.0) for name in FACTORS} | {"host.thread": 1.0})


def launches(traces: Traces) -> Iterator[Launch]:
    """The phases of the models, whose traces are made the first time."""
    for line in (H200 / "launching.jsonl").read_text().splitlines():
        row = json.loads(line)
        step = traces.step(row)
        training = row["mode"] == "train"
        phases: tuple[Phase, ...] = ("forward", "backward", "optimizer") if training else ("forward",)
        for phase in phases:
            records = [r for r in step.records if r.phase == phase and r.work is not None]
            calls = step.conduct("eager", {}, phase).of_phase(phase)
            plain = _launching(records, calls, phase, Unit())
            yield Launch(
                model=row["model"],
                kind=f"{row['mode']}, {row['dtype']}, {phase}",
                layers=row[f"{phase}_s" if training else "eager"] / row["layer"],
                plain=plain,
                scaled={name: _launching(records, calls, phase, Unit(**{name: 1.0})) - plain for name in FACTORS},
            )


def _launching(records: Sequence[Record], calls: Sequence[HostCalls], phase: Phase, card: Any) -> Vector:
    """What the host does for a phase, as the product adds it up."""
    factor = recording(records[0], card)
    each = sum(record.calls * dispatching(record, card) for record in records)
    return np.asarray(beginning(phase, card, compiled=False) + each + around(calls, card, factor))


def fitted(some: Sequence[Launch], start: Mapping[str, float]) -> dict[str, float]:
    """Constants, in layers, moved by ever smaller factors until the mean error of the logarithm is least."""
    values = dict(start)

    def costs(tried: Mapping[str, float]) -> float:
        moved = sum(abs(log(tried[name] / start[name])) for name in tried)
        return mean(abs(one.error(tried)) for one in some) + PRIOR * moved

    least = costs(values)
    for step in STEPS:
        for name, factor in ((name, factor) for _ in range(ROUNDS) for name in values for factor in (step, 1 / step)):
            while (seen := costs(tried := values | {name: values[name] * factor})) < least - 1e-6:
                values, least = tried, seen
    return values


def left_out(some: Sequence[Launch], start: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Kind and error of each phase, with constants that models of other folds tell."""
    models = sorted({one.model for one in some})
    fold = {model: number % FOLDS for number, model in enumerate(models)}
    for number in range(FOLDS):
        values = fitted([one for one in some if fold[one.model] != number], start)
        yield from ((one.kind, one.error(values)) for one in some if fold[one.model] == number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=cache_folder() / "prediction-traces")
    some = list(launches(Traces(parser.parse_args().traces)))
    known = {name: generation(GENERAL).values[f"host.{name}"] for name in (*ADDITIVE, *FACTORS, "layer")}
    layer = known.pop("layer")
    start = {name: value if name in FACTORS else value / layer for name, value in known.items()}
    errors: dict[str, tuple[list[float], list[float]]] = {}
    for one in some:
        errors.setdefault(one.kind, ([], []))[0].append(abs(one.error(start)))
    for kind, error in left_out(some, start):
        errors[kind][1].append(abs(error))
    for kind, (now, then) in errors.items():
        print(f"{kind}: {len(now)} rows, {100 * mean(now):.1f} % now, {100 * mean(then):.1f} % of models left out")
    for name, value in fitted(some, start).items():
        print(f"{name} = {value:.3g}" if name in FACTORS else f"{name} = {value * layer * 1e6:.3g}e-6")


if __name__ == "__main__":
    main()
