"""Records of a whole answer: a step that reads the prompt, and steps of decode that stand for all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rooflens.devices.reserves import needed, reserves
from rooflens.devices.rules import memory_seen
from rooflens.records import Case, Device, HostCalls, Memory, Phase, Record, Trace
from rooflens.sources.estimate import Repeated, records
from rooflens.units import show


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStep:
    """A step of a whole answer.

    Attributes:
        tokens: those in the cache when it begins; None in prefill, which begins with none.
        times: how many steps it stands for.
        operations: of its trace, from :func:`rooflens.sources.estimate.repeated`.
    """

    phase: Phase
    tokens: int | None = None
    times: int = 1
    trace: Trace
    operations: tuple[Repeated, ...]


def answer_records(
    steps: Sequence[AnswerStep], case: Case, device: Device | None, *, causal: bool = False, notes: Iterable[str] = ()
) -> Iterator[Record]:
    """Yield the records of a whole answer: the operations of each step, and one for the whole.

    Its memory is that of the step that needs most, its cache that of the last step.

    Raises:
        MissingCeiling: as :func:`rooflens.sources.estimate.records`.
    """
    wholes = []
    for step in steps:
        *pieces, whole = records(step.trace, step.operations, case, device, causal=causal)
        wholes.append(whole)
        for piece in pieces:
            layouts = tuple((call, n * step.times) for call, n in piece.layouts)
            yield replace(piece, phase=step.phase, tokens=step.tokens, calls=piece.calls * step.times, layouts=layouts)
    told = dict.fromkeys(note for whole in wholes for note in whole.notes)
    yield replace(
        wholes[-1],
        memory=_largest([whole.memory for whole in wholes]),
        host_calls=_host_calls(steps),
        modules=steps[0].trace.modules,
        notes=(*told, *notes, *_only_decode_fits(wholes, device)),
    )


def _only_decode_fits(wholes: Sequence[Record], device: Device | None) -> Iterator[str]:
    """Say that reading the prompt takes more memory than the device has, and no step of decode does."""
    held = [whole.memory for whole in wholes if whole.memory is not None and whole.memory.peak is not None]
    seen = None if device is None or device.count > 1 else memory_seen(device)
    if device is None or seen is None or len(held) < max(2, len(wholes)):
        return
    reading, *writing = (needed(memory, seen[0], reserves(device, "generate")) for memory in held)
    if reading > seen[1] and max(writing) <= seen[0]:
        yield (
            f"prefill does not fit, and decode does: they need {show(reading, 'B')} and {show(max(writing), 'B')} of"
            f" {show(seen[0], 'B')}; engines read the prompts in smaller batches, or in chunks"
        )


def _largest(held: Sequence[Memory | None]) -> Memory | None:
    """Return the memory of the step that needs most; None where that of one is unknown."""
    known = [memory for memory in held if memory is not None]
    return max(known, key=lambda memory: memory.with_workspace or 0) if len(known) == len(held) else None


def _host_calls(steps: Sequence[AnswerStep]) -> tuple[HostCalls, ...] | None:
    """Return what the host does in all steps; None where that of one is unknown."""
    views: dict[tuple[str, Phase], list[int]] = {}
    for step in steps:
        if step.trace.host_calls is None:
            return None
        for one in step.trace.host_calls:
            both = views.setdefault((one.path, step.phase), [0, 0])
            both[0] += one.views * step.times
            both[1] += (one.module_calls or 0) * step.times
    return tuple(
        HostCalls(path=path, phase=phase, views=n, module_calls=calls) for (path, phase), (n, calls) in views.items()
    )
