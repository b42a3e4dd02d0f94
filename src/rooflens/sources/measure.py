"""Time and memory of a step that really runs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from rooflens.errors import InvalidValue, ModelError, RooflensError, first_line
from rooflens.models import Step, make_optimizer
from rooflens.records import AS_IS, Case, Failure, Memory, Phase, Record
from rooflens.timing import Clock, CudaClock, MonotonicClock, Policy, Progress, sample

Mark = Callable[[], None]


def records(
    step: Step, case: Case, device: str, policy: Policy | None = None, progress: Progress | None = None
) -> Iterator[Record]:
    """Time a step on this machine, phase by phase, and take its peak memory.

    Args:
        step: its module and inputs lie on `device`.
        case: the cell that the records name.
        device: ``cpu`` or ``cuda``.

    Raises:
        ModelError: the module raised.
    """
    clock: Clock = CudaClock() if device == "cuda" else MonotonicClock()
    with switches(case.dtype), _running(step.name):
        run, phases = _runner(step, device)
        if device == "cuda":
            gc.collect()  # an earlier model may hang in reference cycles
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        timings = sample(run, phases, clock, policy, progress)
    for phase, timing in timings.items():
        yield Record(case=case, source="measure", scope="model", phase=phase, timing=timing)
    if device == "cuda":
        memory = Memory(peak=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved())
        yield Record(case=case, source="measure", scope="model", memory=memory)


def failure(case: Case, error: RooflensError) -> Failure:
    """What to record of a cell that failed."""
    out = isinstance(error.__cause__, torch.OutOfMemoryError)
    return Failure(
        case=case, source="measure", stage="run", kind="out of memory" if out else "error", message=str(error)
    )


def placed(step: Step, device: str) -> Step:
    """The step with a copy of its module and inputs on `device`, in the types of the step.

    Raises:
        InvalidValue: the module holds no values.
        ModelError: it cannot be copied, or is too large for the device.
    """
    from copy import deepcopy
    from dataclasses import replace

    layout = torch.channels_last if step.channels_last else torch.preserve_format

    def move(tensor: torch.Tensor) -> torch.Tensor:
        dtype = step.cast if step.cast is not None and tensor.is_floating_point() else tensor.dtype
        moved = tensor.detach().to(device, dtype).requires_grad_(tensor.requires_grad)
        return moved.contiguous(memory_format=layout) if step.channels_last and tensor.dim() == 4 else moved

    if any(t.is_meta for t in (*step.module.parameters(), *step.module.buffers())):
        raise InvalidValue(f"{step.name} has tensors on the meta device: they hold no values, so it cannot be run")
    with _running(step.name):  # a model may be too large for the device before anything has run
        module = deepcopy(step.module).to(device=device, dtype=step.cast)
        if step.channels_last:
            module = module.to(memory_format=torch.channels_last)
        inputs = (step.args, step.kwargs, step.targets, step.prompt)
        args, kwargs, targets, prompt = tree_map_only(torch.Tensor, move, inputs)
    return replace(step, module=module, args=args, kwargs=kwargs, targets=targets, prompt=prompt)


def _runner(step: Step, device: str) -> tuple[Callable[[Mark], None], tuple[Phase, ...]]:
    """What is timed, and its phases."""
    if step.module.training != step.training:
        step.module.train(step.training)
    if step.prompt is not None and step.cache is not None:
        with torch.no_grad():
            cache = step.module(**step.prompt)[step.cache]
        return lambda mark: _decode(step, cache, mark), ("forward",)
    if not step.training:
        return lambda mark: _infer(step, device, mark), ("forward",)
    trainable = [p for p in step.module.parameters() if p.requires_grad]
    optimizer = make_optimizer(step.optimizer, trainable)
    scaler = torch.amp.GradScaler(device) if step.scaled else None
    phases: tuple[Phase, ...] = ("forward", "backward") if optimizer is None else ("forward", "backward", "optimizer")
    return lambda mark: _train(step, device, optimizer, scaler, mark), phases


def _infer(step: Step, device: str, mark: Mark) -> None:
    with torch.no_grad(), step.precision(device):
        step.module(*step.args, **step.kwargs)
    mark()


def _decode(step: Step, cache: Any, mark: Mark) -> None:
    """One more token; the cache is cut back afterwards, outside of what is timed."""
    assert step.cache is not None
    with torch.no_grad():
        step.module(*step.args, **step.kwargs, **{step.cache: cache})
    mark()
    cache.crop(-1)


def _train(step: Step, device: str, optimizer: Any, scaler: Any, mark: Mark) -> None:
    for leaf in (*step.module.parameters(), *tree_leaves((step.args, step.kwargs))):
        if isinstance(leaf, torch.Tensor) and leaf.is_leaf:
            leaf.grad = None
    with torch.enable_grad(), step.precision(device):
        output = step.module(*step.args, **step.kwargs)
        loss = step.loss(output, step.targets)
    mark()
    (scaler.scale(loss) if scaler is not None else loss).backward()
    mark()
    if optimizer is None:
        return
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    mark()


@contextmanager
def switches(dtype: str) -> Iterator[None]:
    """Set torch's TF32 switches for a case's dtype, and put them back; `default` and `as-is` touch nothing."""
    if dtype in ("default", AS_IS):
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@contextmanager
def _running(name: str) -> Iterator[None]:
    try:
        yield
    except RooflensError:
        raise
    except SystemExit as error:
        raise ModelError(f"{name} ends the program (exit code {error.code}) while it runs") from error
    except Exception as error:
        raise ModelError(f"{name}: {type(error).__name__}: {first_line(error)}") from error
