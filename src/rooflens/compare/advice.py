"""Advice: what would make a step faster on its device, by how much, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rooflens.compare.changes import Change
from rooflens.compare.doubts import Doubtful
from rooflens.records import Case
from rooflens.results import Evidence, Measured, Room
from rooflens.results.quantities import ratio

WORTH = 1.02
"""The least gain that counts: smaller ones are below what a prediction can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedStep:
    """A step as it is, or after some changes.

    Attributes:
        name: of the change; of several what they are together.
        changes: none of the step as it is.
        evidence: its estimate.
        anchor: measured over expected time of the step as it is; 1 where nothing was measured.
        gain: samples per second over those of the step as it is.
    """

    name: str
    changes: tuple[Change, ...]
    evidence: Evidence
    anchor: float = 1.0
    gain: float | None = None

    @property
    def case(self) -> Case:
        """The step with its changes."""
        return self.evidence.case

    @property
    def seconds(self) -> float | None:
        """The expected time; where the step as it is was measured, in its proportion."""
        total = self.evidence.total()
        expected = None if total is None else total.predicted_seconds
        return None if expected is None else expected * self.anchor

    @property
    def band(self) -> tuple[float, float] | None:
        """The band of :attr:`seconds`; None of a measured time."""
        if not self.changes and self.anchor != 1:
            return None
        total = self.evidence.total()
        prediction = None if total is None else total.prediction
        return None if prediction is None else (prediction.low * self.anchor, prediction.high * self.anchor)

    @property
    def on_device(self) -> float | None:
        """Expected seconds in which the device is busy: what counts once no host slows it."""
        total = self.evidence.total()
        return None if total is None or total.prediction is None else total.prediction.device

    @property
    def room(self) -> Room | None:
        """What it needs of the device's memory."""
        return self.evidence.room

    @property
    def fits(self) -> bool:
        """False if it is known not to fit."""
        return self.room is None or self.room.fits is not False

    def beside(self, base: AdvisedStep) -> float | None:
        """Return its samples per second over those of another step."""
        faster = ratio(base.seconds, self.seconds)
        more = ratio(self.evidence.case.samples, base.evidence.case.samples) or 1.0
        return None if faster is None else faster * more


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Doubtful):
    """What would help one step on one device.

    Attributes:
        case: the step.
        measured: seconds that it was measured to take; None of an estimate.
        base: the step as it is.
        steps: after each change alone, the largest gain first.
        together: after the best changes together, with the batch as it is, and then with a larger one.
        unknown: changes whose time nobody knows, with the reason.
        profile: what was timed piece by piece; its busy time is `measured` where the device hardly ever waited.
    """

    case: Case
    measured: float | None
    base: AdvisedStep
    steps: tuple[AdvisedStep, ...]
    together: tuple[AdvisedStep, ...]
    unknown: tuple[tuple[str, str], ...]
    profile: Measured | None = None


def candidates(base: AdvisedStep, steps: Sequence[AdvisedStep]) -> tuple[Change, ...]:
    """Return the best change of each part but the batch, of those that fit and slow nothing; the least gain first.

    Where the host decides, all that helps the device has no gain of its own: the busy time of the device decides then.
    """
    best: dict[str, AdvisedStep] = {}
    for step in steps:
        (change,) = step.changes
        if change.part == "batch" or not step.fits or step.gain is None or step.gain * WORTH < 1:
            continue
        if change.part not in best or _rank(step) < _rank(best[change.part]):
            best[change.part] = step
    helping = [step for step in best.values() if (step.gain or 0) >= WORTH or _relieves(base, step)]
    return tuple(change for step in sorted(helping, key=lambda step: step.gain or 0.0) for change in step.changes)


def alternatives(chosen: Sequence[Change], steps: Sequence[AdvisedStep]) -> tuple[Change, ...]:
    """Return the changes of the same parts as those that were chosen, where others fit and slow nothing."""
    parts = {change.part for change in chosen}
    return tuple(
        change
        for step in steps
        for change in step.changes
        if change.part in parts and change not in chosen and step.fits and (step.gain or 0.0) * WORTH >= 1
    )


def _rank(step: AdvisedStep) -> tuple[float, float]:
    return (step.seconds or 0.0, step.on_device or 0.0)


def _relieves(base: AdvisedStep, step: AdvisedStep) -> bool:
    """True if the device is busy for less time."""
    return (ratio(base.on_device, step.on_device) or 0.0) >= WORTH
