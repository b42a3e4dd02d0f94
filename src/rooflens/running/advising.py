"""The search for what helps a step: each change is estimated alone, then the best of them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rooflens.compare.advice import WORTH, Advice, AdvisedStep, alternatives, candidates
from rooflens.compare.changes import Change, changes_of
from rooflens.errors import Incomparable, RooflensError
from rooflens.predict import card_of
from rooflens.progress import Progress
from rooflens.records import Device
from rooflens.results import Evidence, join
from rooflens.running.estimating import estimated_requests
from rooflens.runs.run import Request, is_own_file

NOW = "as it is"
TOGETHER = "together"


TRIES = 16
"""Estimates that a search takes, more or less: what its progress is a share of."""


@dataclass(frozen=True, kw_only=True)
class _Search:
    """What every estimate of one step has in common.

    Attributes:
        known: estimates by what they depend on; a CUDA graph is no part of it.
    """

    request: Request
    device: Device
    limit: float
    progress: Progress | None
    anchor: float = 1.0
    base: AdvisedStep | None = None
    known: dict[str, Evidence] = field(default_factory=dict)

    def step(self, name: str, changes: Sequence[Change]) -> AdvisedStep:
        """Estimate the step after some changes.

        Raises:
            RooflensError: it cannot be estimated.
        """
        changed = self.request
        for change in changes:
            changed = change.of(changed)
        what = f"{name}: {', '.join(change.name for change in changes) or 'the step'}"
        step = AdvisedStep(
            name=name, changes=tuple(changes), evidence=_run(self._estimate(changed, what), changed), anchor=self.anchor
        )
        return step if self.base is None else replace(step, gain=step.beside(self.base))

    def _estimate(self, changed: Request, what: str) -> Evidence:
        """Return the estimate of a step, made once."""
        counted = replace(changed.options, cuda_graph=False)
        key = f"{changed.dtype}, {changed.batch}, {counted}"
        if key not in self.known:
            if self.progress is not None:
                self.progress(min(1.0, len(self.known) / TRIES), what)
            asked = replace(changed, options=counted)
            (self.known[key],) = join(estimated_requests([asked], lambda: [self.device], self.limit, None))
        return self.known[key]


def _run(item: Evidence, request: Request) -> Evidence:
    """Return an estimate whose case says how the step runs, which no estimate depends on."""
    if not request.options.cuda_graph:
        return item
    options = tuple(sorted({**dict(item.case.options), "cuda_graph": True}.items()))
    return replace(item, case=replace(item.case, options=options))


def check_expected(device: Device) -> None:
    """Raise Incomparable if no time can be expected on a device, whatever the step."""
    card = card_of(device)
    if card is None or card.launches_itself:  # of a processor only fp32 as it is written is known
        raise Incomparable(
            f"no time can be expected on {device.name!r}, so no change can be compared: expected times are known for"
            " single GPUs with a memory bandwidth; 'rooflens devices' lists them (--device l4)"
        )


def advised(
    request: Request,
    device: Device,
    measured: float | None = None,
    *,
    limit: float,
    progress: Progress | None = None,
) -> Advice:
    """Return what would help one step on one device.

    Args:
        measured: seconds that the step was measured to take.
        limit: as of :func:`rooflens.running.estimating.estimated_requests`.

    Raises:
        Incomparable: no time can be expected of the step on this device.
        RooflensError: the step cannot be estimated.
    """
    search = _Search(request=request, device=device, limit=limit, progress=progress)
    base = search.step(NOW, ())
    if base.seconds is None:
        raise Incomparable(
            f"no time can be expected of {base.evidence.case.label()!r}, so none can be compared: of some of its"
            " operations nothing but the name is known"
        )
    anchor = 1.0 if measured is None else measured / base.seconds
    base = replace(base, anchor=anchor, gain=1.0)
    if request.batch is None and isinstance(request.model, str) and not is_own_file(request.model):
        request = replace(request, batch=base.case.batch)  # that of the model's own, unless its file has a fixed one
    search = replace(search, request=request, anchor=anchor, base=base)
    steps, unknown = _alone(search, changes_of(request, base.evidence, device))
    return Advice(
        case=base.evidence.case,
        measured=measured,
        base=base,
        steps=tuple(sorted(steps, key=lambda step: -(step.gain or 0.0))),
        together=tuple(_together(search, base, steps)),
        unknown=tuple(unknown.items()),
    )


def _alone(search: _Search, changes: Sequence[Change]) -> tuple[list[AdvisedStep], Mapping[str, str]]:
    """Estimate each change alone; of a batch twice as large only where four times the batch does not fit."""
    steps: list[AdvisedStep] = []
    unknown: dict[str, str] = {}
    for change in changes:
        if change.part == "batch" and any(step.changes[0].part == "batch" and step.fits for step in steps):
            continue
        step = _tried(search, change.name, [change], unknown)
        if step is not None and not _is_idle(step, steps):
            steps.append(step)
    return steps, unknown


def _tried(search: _Search, name: str, changes: Sequence[Change], unknown: dict[str, str]) -> AdvisedStep | None:
    """Return a step after changes; None where its time is not known, and why."""
    try:
        step = search.step(name, changes)
    except RooflensError as error:
        unknown[name] = str(error)
        return None
    if step.seconds is None:
        unknown[name] = "no time can be expected of some of its operations"
        return None
    return step


def _is_idle(step: AdvisedStep, others: Sequence[AdvisedStep]) -> bool:
    """True if fusing attention does no more than compiling: the model has none that is written out."""
    (change,) = step.changes
    compiled = [other.on_device for other in others if other.changes[0].name == "compile"]
    return change.name == "fused attention" and any(
        busy is not None and (step.on_device or 0.0) * WORTH > busy for busy in compiled
    )


def _together(search: _Search, base: AdvisedStep, steps: Sequence[AdvisedStep]) -> Iterator[AdvisedStep]:
    """Yield the step after the best changes together, and then after a larger batch too."""
    alone = [step for step in steps if step.fits and step.changes[0].part != "batch"]
    top = max(alone, key=_gained, default=base)
    best = max(_combined(search, base, steps), top, key=_gained)
    if _gained(best) < WORTH:
        return
    yield replace(best, name=TOGETHER)
    for change in changes_of(search.request, base.evidence, search.device):
        if change.part == "batch":
            larger = _tried(search, f"{TOGETHER}, {change.name}", [*best.changes, change], {})
            if larger is not None and larger.fits:
                if _gained(larger) >= _gained(best) * WORTH:
                    yield larger
                return


def _combined(search: _Search, base: AdvisedStep, steps: Sequence[AdvisedStep]) -> AdvisedStep:
    """Return the step after the best change of each part, estimated as one.

    Changes of a part may be alike alone, and not beside others, so each has its try. One without which the step is as
    fast is left out.
    """
    best = base

    def kept(changes: Sequence[Change], worth: float) -> None:
        nonlocal best
        step = _tried(search, TOGETHER, changes, {})
        if step is not None and step.fits and _gained(step) >= _gained(best) * worth:
            best = step

    chosen = candidates(base, steps)
    if len(chosen) > 1:
        kept(chosen, WORTH)
    if not best.changes:
        return best
    for change in alternatives(chosen, steps):
        kept([*(other for other in best.changes if other.part != change.part), change], WORTH)
    for change in best.changes:
        if len(best.changes) > 1:
            kept([other for other in best.changes if other is not change], 1 / WORTH)
    return best


def _gained(step: AdvisedStep) -> float:
    return step.gain or 0.0
