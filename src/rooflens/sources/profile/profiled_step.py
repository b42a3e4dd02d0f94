"""One profiled run of a step, with its modules and phases written into the profile."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from rooflens.errors import ModelError
from rooflens.models import Executable, Step, eager, is_compiled, running, switches, unwrapped
from rooflens.records import Case, Record
from rooflens.sources.profile.attribution import attribute
from rooflens.sources.profile.calls import CallWindows, FirstCalls, NumberedCalls
from rooflens.sources.profile.chrome import read_trace
from rooflens.sources.profile.events import Events
from rooflens.sources.profile.launches import CalledLaunch, PlacedCall, Round, called_launches
from rooflens.sources.profile.marking import ModuleRanges, nvtx_range, phases_as_ranges
from rooflens.sources.profile.operation_records import records_of
from rooflens.sources.profile.own_threads import lacking, of_the_step
from rooflens.sources.profile.places import outside
from rooflens.sources.range_names import LOOP_PATH

WARMUP = 3
"""Runs before the profiled one: memory is allocated and algorithms are chosen by then."""
PROFILES = 3
"""At most so many. Where another thread trains meanwhile, one was seen without anything of autograd's thread."""
COMPILED = "compiled code runs across modules: all of it belongs to the whole model"
_LOG_LEVEL = "KINETO_LOG_LEVEL"


def records(
    step: Step,
    case: Case,
    where: str,
    *,
    warmup: int = WARMUP,
    keep: str | Path | None = None,
    warm: Callable[[], None] = lambda: None,
    timed: Callable[[], None] = lambda: None,
    found: Callable[[tuple[CalledLaunch, ...]], None] | None = None,
) -> Iterator[Record]:
    """Profile one run of a step: the time of each operation, by module and phase.

    Device time where `where` is ``cuda``; on ``cpu``, the host time of operations.

    Args:
        step: its module and inputs lie on `where`.
        case: the cell that the records name.
        warmup: runs before the profiled one.
        keep: where to leave the Chrome trace of the run.
        warm: called after those runs.
        timed: called after the run whose times count.
        found: given the kernels of one more run by the calls that launched them; those of compiled code are not known.

    Raises:
        ModelError: the module raised, or the profiler saw nothing of the device.
    """
    with switches(case.dtype), running(step.name):
        run = eager(step, where)
        warm_up(run, where, warmup)
        warm()
        events = profiled(step, run, where, keep=keep)
        timed()
        if found is not None and not is_compiled(step.module):
            calls = NumberedCalls()
            found(tuple(called_launches(_profile(step, run, where, None, calls), calls.groups)))
    if where != "cpu" and not events.activities:
        raise ModelError(
            f"the profiler saw no kernel of {step.name}: another profiler may hold the device, or this user may not"
            " read it; measure without a profile"
        )
    notes = (COMPILED, *events.notes) if is_compiled(step.module) else events.notes
    yield from records_of(attribute(events, outside(step.training)), case, notes=notes)


def warm_up(run: Executable, where: str, times: int) -> None:
    """Run a step so many times."""
    for _ in range(times):
        run.once(lambda: None)
    _wait(where)


def profiled(step: Step, run: Executable, where: str, *, keep: str | Path | None = None) -> Events:
    """Return the events of one run of a warm step, in which every module and phase is a named range.

    A profile that lacks a part is taken again; the last one says what it lacks.
    """
    for _ in range(PROFILES):
        events = _profile(step, run, where, keep)
        lacks = lacking(events, training=step.training)
        if not lacks:
            return of_the_step(events)
    note = f"the profile is partial, and so were {PROFILES - 1} before: it has no {lacks}"
    return of_the_step(replace(events, notes=(*events.notes, note)))


def _profile(
    step: Step,
    run: Executable,
    where: str,
    keep: str | Path | None,
    around: AbstractContextManager[object] | None = None,
) -> Events:
    """The events of one run, through torch's own trace file: its form is promised, and the same in every version.

    Args:
        around: entered around the run.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if where == "cuda" else [])]
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "trace.json"
        with profile(
            activities=activities,
            # The profiler's own start-up is no part of the step.
            schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
            on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
            acc_events=True,
        ) as profiler:
            # Hooks would be compiled too.
            with nullcontext() if is_compiled(step.module) else ModuleRanges(unwrapped(step.module)).followed():
                run.once(lambda: None)
                _wait(where)
                profiler.step()
                with around or nullcontext(), phases_as_ranges(run) as mark:
                    run.once(mark)
                _wait(where)
            profiler.step()
        if keep is not None:
            shutil.copyfile(path, keep)
        return read_trace(path)


def counted(step: Step, run: Executable, rounds: Callable[[], Sequence[Round]]) -> None:
    """Run a warm step between the marks by which Nsight Compute starts and stops, for a process under ncu.

    It runs what :func:`profiled` runs, as often, so that both see the same kernels in the same order. Modules, phases
    and operations are NVTX ranges.

    Args:
        rounds: asked once the step is warm: what is counted of it in each run; one whole step without any.
    """
    warm_up(run, "cuda", WARMUP + 1)
    for of in rounds() or (None,):
        with marked(step.module, of), phases_as_ranges(run, nvtx_range) as mark:
            run.once(mark)


@contextmanager
def marked(module: torch.nn.Module | None, of: Round | None = None) -> Iterator[None]:
    """Between the marks by which ncu starts and stops; operations, and calls in `module`, are NVTX ranges.

    Args:
        of: what is counted; everything by default.
    """
    with _followed(module):
        torch.cuda.synchronize()
        if of is None:
            _mark(True)
        windows = None if of is None else CallWindows(of.during, of.after, _mark)
        with torch.autograd.profiler.emit_nvtx(), nullcontext() if windows is None else windows.over_step():
            yield
        torch.cuda.synchronize()
        if of is None:
            _mark(False)


@contextmanager
def marked_once(
    module: torch.nn.Module | None, told: Callable[[tuple[PlacedCall, ...]], None], *, every: bool = False
) -> Iterator[None]:
    """As :func:`marked`, without the calls that repeat an earlier one; `told` is given all calls at the end.

    Args:
        every: no call is left out.
    """
    with _followed(module) as ranges:
        if ranges is not None:
            ranges.enter(LOOP_PATH)
        calls = FirstCalls(_mark, lambda: (None, None) if ranges is None else ranges.place(), every)
        torch.cuda.synchronize()
        _mark(True)
        with torch.autograd.profiler.emit_nvtx(), calls:
            yield
        torch.cuda.synchronize()
        _mark(False)
    told(tuple(calls.placed))


@contextmanager
def _followed(module: torch.nn.Module | None) -> Iterator[ModuleRanges | None]:
    """Make calls in a module ranges; not in a compiled one, where hooks would be compiled too."""
    ranges = None if module is None or is_compiled(module) else ModuleRanges(unwrapped(module), nvtx_range)
    with nullcontext() if ranges is None else ranges.followed():
        yield ranges


def _mark(start: bool) -> None:
    """Tell ncu to start or to stop: what is launched between is counted.

    Kernels before a start have ended by then, so that the first one counted does not see them write.
    """
    if start:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
    else:
        torch.cuda.profiler.stop()


def _wait(where: str) -> None:
    if where == "cuda":
        torch.cuda.synchronize()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the profiler's own log, which also reports that there is no GPU, unless the user set its level."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "99"
    try:
        yield
    finally:
        del os.environ[_LOG_LEVEL]
