"""Records of a whole answer: a step that reads the prompt, and steps of decode that stand for all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rooflens.records import Case, Device, HostCalls, Memory, Phase, Record, Trace
from rooflens.sources.estimate import Repeated, records


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
        notes=(*told, *notes),
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
