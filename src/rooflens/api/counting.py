"""Hardware counters of a model or a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rooflens.api.arguments import given_to, named_options
from rooflens.errors import InvalidValue, check_torch, checked
from rooflens.machine import machine_of, this_machine
from rooflens.progress import Progress
from rooflens.records import Device, Record
from rooflens.regions import COUNTERS, EVERY
from rooflens.results import RecordSet
from rooflens.running.beside import Beside, disturbs
from rooflens.running.counting import check_settings, counted_program, counter
from rooflens.runs.run import Request, is_own_file
from rooflens.runs.time_limits import LIMIT


@named_options()
def counters(
    model: str,
    *,
    batch: int | Sequence[int] | None = None,
    dtype: str | Sequence[str] | None = None,
    mode: str = "inference",
    optimizer: str = "sgd",
    fused: bool = False,
    optimizer_dtype: str | None = None,
    master_weights: bool = False,
    checkpoint: bool = False,
    accumulation_steps: int = 1,
    img_size: int | Sequence[int] | None = None,
    seq_len: int | Sequence[int] | None = None,
    cached_tokens: int | Sequence[int] | None = None,
    prompt_len: int | Sequence[int] | None = None,
    output_len: int | Sequence[int] | None = None,
    kv_cache: str = "dynamic",
    kv_cache_len: int | None = None,
    kv_dtype: str | None = None,
    kv_group_size: int | None = None,
    channels_last: bool = False,
    compile: bool = False,
    cache: str = "all",
    limit: float = LIMIT,
    every: bool = False,
    roof: str | Device | None = None,
    estimate: bool = True,
    keep: str | Path | None = None,
    progress: Progress | None = None,
) -> RecordSet:
    """Count FLOP and bytes of every kernel of one warm step with Nsight Compute; twin of ``rooflens counters MODEL``.

    The step runs under torch's profiler, for times, operations, modules and phases, and under ncu, in a process of its
    own for each group of counters. Where counters cannot be read, the first run and the estimate stand alone, and a
    note says so and what to change.

    Args:
        cache: ``all`` empties the caches before each kernel, so that bytes repeat; ``none`` keeps what earlier kernels
            left there.
        limit: seconds of counting per batch; then ncu is stopped, and what it has is kept.
        every: count each launch. By default one of each kernel, grid, block and operands is counted, and the others
            take its counts; where values decide the work, each launch stands for itself.
        roof: the device whose ceilings hold: a name, a device file, or ``measured``. Default: the catalogue's entry.
        estimate: also estimate the same cases: algorithmic FLOP and compulsory bytes beside what was executed.
        keep: a folder for ncu's reports and the profiler's traces; by default they are thrown away.
        prompt_len, output_len: of a whole answer, two steps are counted, each a case of its own: prefill, and the
            middle one of its steps of decode.
        (others): as in :func:`estimate`.

    Returns:
        A record per launch: executed work (FLOP by precision and unit, bytes at l1, l2 and dram), time, operation,
        module and phase.

    Raises:
        ModelError: every batch failed.
        InvalidValue: an argument cannot be used.
    """
    asked = Request.each_of(given_to(counters, locals()))
    requests = _steps(asked)
    if not isinstance(model, str):
        raise InvalidValue(
            "ncu runs a model in a process of its own; name it: resnet18, hf:gpt2, path/file.py:function"
        )
    check_settings(cache, limit)
    check_torch()
    checked(*(request.check_words for request in requests))
    # Each process imports what it needs while the others do.
    with ExitStack() as stack:
        counts_of = stack.enter_context(counter(cache=cache, limit=limit, every=every, keep=keep))
        if not is_own_file(model):
            counts_of.start(requests[0].dtype or "fp32")
        estimates = stack.enter_context(Beside(limit, start=estimate))
        machine = machine_of(counts_of.found(), roof, progress)
        runs = [run for request in requests for run in counts_of.runs(request)]
        checked(*(run.check_runs for run in runs))
        estimated = estimates.begin(runs, machine.device) if estimate else None
        if estimated is not None and disturbs(machine.where):
            estimated.result()
        counts = counts_of.counted(runs, machine, progress)
        beside = RecordSet(()) if estimated is None else estimated.result()
    return RecordSet(
        (*beside.records, *_told(counts.records, asked)),
        devices=counts.devices,
        failures=(*beside.failures, *counts.failures),
        environment=counts.environment,
    )


def _steps(asked: Iterable[Request]) -> list[Request]:
    """Return the steps that are counted, each once: answers of several lengths have some in common."""
    steps: list[Request] = []
    for request in asked:
        for step in request.counted_steps():
            if step not in steps:
                steps.append(step)
    return steps


def _told(counts: Iterable[Record], asked: Iterable[Request]) -> Iterator[Record]:
    """Say of a step that was counted of whole answers for how many of each it stands."""
    notes: dict[object, list[str]] = {}
    for request in asked:
        steps = (request.options.output_len or 1) - 1
        told = f"the middle one of {steps} steps of an answer: {steps} times its counts, and those of prefill, are all"
        for step in request.counted_steps():
            if step.mode != request.mode and step.mode == "decode":
                notes.setdefault(step.options.in_case(step.mode), []).append(told)
    for record in counts:
        stands = record.scope == "model" and record.case.mode == "decode"
        told_of_it = notes.get(record.case.options, []) if stands else []
        yield replace(record, notes=(*record.notes, *told_of_it)) if told_of_it else record


@named_options()
def count_program(
    program: Sequence[str],
    *,
    cache: str = "all",
    limit: float = LIMIT,
    every: bool = False,
    roof: str | Device | None = None,
    keep: str | Path | None = None,
    progress: Progress | None = None,
    echo: Callable[[str], None] | None = None,
) -> RecordSet:
    """Count FLOP and bytes of every kernel of one step of a program; twin of ``rooflens counters -- PROGRAM``.

    The step is what lies between ``torch.cuda.profiler.start()`` and ``stop()``, or the first iteration of a
    :func:`rooflens.region` after those that it skips. No switch of the program is set. Times are ncu's own, of replayed
    kernels.

    Args:
        program: the command line.
        every: count each launch of a region, also of a call that repeats an earlier one.
        echo: given each line that the program prints.
        (others): as in :func:`counters`.

    Returns:
        A record per launch; with ranges of operations and modules (a region makes them) also its operation, module and
        phase.

    Raises:
        CountersUnavailable: ncu is missing or locked, or the program marked no step.
    """
    check_settings(cache, limit)
    machine = this_machine(None, roof, progress)
    return counted_program(
        program,
        machine,
        environment=lambda told: {COUNTERS: f"{EVERY if every else ''}{told}"},
        cache=cache,
        limit=limit,
        keep=keep,
        progress=progress,
        echo=echo,
    )
