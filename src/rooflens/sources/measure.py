"""Measures the time and memory of a step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter

import torch

from rooflens.errors import RooflensError
from rooflens.models import (
    Executable,
    Step,
    changed_while_running,
    compiled,
    eager,
    replayed,
    running,
    settings,
    switches,
)
from rooflens.records import Case, Failure, FailureKind, Memory, Phase, Record, Timing, in_sequence
from rooflens.runs.options import Options
from rooflens.sources import conditions
from rooflens.timing import Clock, CudaClock, MonotonicClock, Policy, sample
from rooflens.timing.sampling import WARM_UP
from rooflens.units import show

FIRST_CALL = "first call"
"""Libraries load their kernels, a compiler compiles, a cache is filled."""
WORTH_TELLING = 1 << 20
"""Bytes of earlier models, or of the caller's."""
FLUSH_BYTES = 256 << 20
"""Written before each sample to empty caches: several times a card's last level (as Triton's do_bench does)."""


def records(
    step: Step,
    case: Case,
    observer: conditions.Observer,
    *,
    options: Options | None = None,
    policy: Policy | None = None,
    held: Held | None = None,
    progress: Callable[[float], None] | None = None,
    stage: Callable[[str], None] = lambda _: None,
    part: Callable[[str], None] = lambda _: None,
    disturbed: Sequence[str] = (),
) -> Iterator[Record]:
    """Time a step on this machine, phase by phase, with its peak memory and the conditions of the run.

    Args:
        step: its module and inputs lie on the observer's device.
        case: of the records.
        observer: its `where` is the device type that runs the step.
        stage: takes the name of what is done next: place, first call, forward, backward, optimizer.
        part: takes the name of the part that the wall time goes to from then on.
        disturbed: notes on what other threads do, which come as it happens.
        held: made before the step was built; by default, what the step already holds counts as held before.

    Raises:
        ModelError: the module raised, or does not fit.
        InvalidValue: the module holds no values, or cannot run in this way.
    """
    options, policy, where = options or Options(), policy or Policy(), observer.where
    held = held or Held(observer)
    with (
        switches(case.dtype),
        running(step.name, hint=step.hint),
        _Compiling() if options.compile else nullcontext() as compiling,
    ):
        stage(FIRST_CALL)
        part(FIRST_CALL)
        switched = settings()
        run = _prepared(step, where, options, held)
        told = _steady(step, options, held, part)
        with observer.around() as observation:
            clock = clock_of(where, flush=options.flush)
            timings = sample(_naming_phases(run, stage), run.phases, clock, policy, progress, told)
        set_meanwhile = changed_while_running(step.name, switched, settings())
    for phase, timing in timings.items():
        spent = compiling.seconds if compiling is not None and phase == run.phases[0] else None
        yield Record(case=case, source="measure", scope="model", phase=phase, timing=replace(timing, compiling=spent))
    doubts = _doubts(timings, policy, where)
    yield Record(
        case=case,
        source="measure",
        scope="model",
        memory=held.memory(),
        conditions=observation.conditions,
        notes=(*step.notes, *set_meanwhile, *disturbed, *observation.notes, *held.notes(), *doubts),
    )


def failure(case: Case, error: RooflensError, stage: str) -> Failure:
    """The failure of a case at `stage`."""
    return Failure(case=case, source="measure", stage=stage, kind=_kind(error), message=str(error))


_SIGNS: tuple[tuple[FailureKind, tuple[str, ...]], ...] = (
    ("unsupported", ("create a primitive descriptor",)),
    ("out of memory", ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")),
    # oneDNN, which had found what to run, and got no memory for it.
    ("out of memory", ("could not create a primitive", "could not execute a primitive")),
    ("unsupported", ("not implemented for", "not supported", "is not implemented", "when stream is capturing")),
    ("device lost", ("CUDA error", "device-side assert", "illegal memory access", "GPU is lost")),
)
"""Texts of torch, CUDA and their libraries for each kind: many of their errors share one type, RuntimeError."""


def _kind(error: BaseException) -> FailureKind:
    cause = error.__cause__
    if isinstance(cause, torch.OutOfMemoryError | MemoryError):
        return "out of memory"
    if isinstance(cause, NotImplementedError):
        return "unsupported"
    if isinstance(cause, RuntimeError):
        return next((kind for kind, signs in _SIGNS if any(sign in str(cause) for sign in signs)), "error")
    return "error"


class Held:
    """The memory that a case holds, without what was held before; resets peaks when made."""

    def __init__(self, observer: conditions.Observer) -> None:
        self._observer = observer
        self._left = 0
        if observer.where == "cuda":
            _forget_peaks()
            self._left = torch.cuda.memory_allocated()
            self._before = None
        else:
            gc.collect()  # reference cycles may keep an earlier model
            self._before = conditions.resident() if conditions.reset_resident_peak() else None

    def is_prepared(self) -> None:
        """Leave out what it took to make the step: it lies on the card in its types now, with its cache filled."""
        if self._observer.where == "cuda":
            _forget_peaks()

    def memory(self) -> Memory:
        if self._observer.where == "cuda":
            peaks = peak_memory("cuda")
            own = max(0, (peaks.peak or 0) - self._left)
            return replace(peaks, peak=own, before=self._observer.held_by_others)
        return Memory() if self._before is None else replace(peak_memory("cpu"), before=self._before[0])

    def notes(self) -> Iterator[str]:
        """Yield what has to be said of the peak."""
        if self._left >= WORTH_TELLING:
            yield f"{show(self._left, 'B')} were on the card for this process before, and are no part of the peak"


def _forget_peaks() -> None:
    """Free what nothing uses on the card, and begin its peaks anew."""
    gc.collect()  # reference cycles may keep an earlier model
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # they stay in a process after its first product, 67 MB on an H200
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def peak_memory(where: str) -> Memory:
    """Peaks of this process: the allocator's and the monitor's on a card, the resident memory on a processor."""
    if where == "cuda":
        return Memory(
            peak=torch.cuda.max_memory_allocated(),
            reserved=torch.cuda.max_memory_reserved(),
            monitor=conditions.card_memory_used(),
        )
    resident = conditions.resident()
    return Memory(monitor=None if resident is None else resident[1])


class _Compiling:
    """A context that counts the seconds spent in torch.compile."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> _Compiling:
        from torch._dynamo.callback import callback_handler  # takes a second to import

        self._begun, self._handler = 0.0, callback_handler
        self._handler.register_start_callback(self._start)
        self._handler.register_end_callback(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        self._handler.remove_start_callback(self._start)
        self._handler.remove_end_callback(self._end)

    def _start(self, _: object) -> None:
        self._begun = perf_counter()

    def _end(self, _: object) -> None:
        self.seconds += perf_counter() - self._begun


def _prepared(step: Step, where: str, options: Options, held: Held) -> Executable:
    step = compiled(step) if options.compile else step
    if options.cuda_graph:
        return replayed(step, begun=held.is_prepared)
    return eager(step, where, dense=True)


def _steady(step: Step, options: Options, held: Held, part: Callable[[str], None]) -> Callable[[str], None]:
    """`part`, which leaves out what the first call took beyond a step: to fill a cache, or to try kernels."""

    def entered(name: str) -> None:
        if name == WARM_UP and (step.generates or options.compile) and not options.cuda_graph:
            held.is_prepared()  # a graph is captured by then, and what it holds must stay
        part(name)

    return entered


def _naming_phases(run: Executable, stage: Callable[[str], None]) -> Callable[[Callable[[], None]], None]:
    """The run, which calls `stage` with each phase that it enters, so that a failure knows its phase."""

    def once(mark: Callable[[], None]) -> None:
        following = iter((*run.phases[1:], run.phases[0]))
        stage(run.phases[0])

        def cut() -> None:
            mark()
            stage(next(following))

        run.once(cut)

    return once


def clock_of(where: str, *, flush: bool = False) -> Clock:
    empty = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=where).zero_ if flush else None
    return CudaClock(empty) if where == "cuda" else MonotonicClock(empty)


def _doubts(timings: Mapping[Phase, Timing], policy: Policy, where: str) -> Iterator[str]:
    """Reasons to doubt the median of the whole step."""
    whole = in_sequence(list(timings.values()))
    if whole.interval is None or whole.median == 0:
        return
    low, high = whole.interval
    if high - low > policy.precision * whole.median:
        cure = "; on a busy one no more threads than free cores (OMP_NUM_THREADS=1)" if where == "cpu" else ""
        yield (
            f"noisy: the 95 % interval of the median is wider than {100 * policy.precision:g} % of it; a larger budget"
            f" helps where the machine is quiet{cure}"
        )
    if whole.drift and abs(whole.drift) > policy.precision:
        yield f"not steady: the time went {'up' if whole.drift > 0 else 'down'} while it was sampled"


def load_libraries(where: str) -> None:
    """Run a small training step, so that torch loads its libraries before memory is measured."""
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 4)).to(where)
    layers(torch.ones(1, 1, 8, 8, device=where)).sum().backward()
