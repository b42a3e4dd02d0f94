"""A step on its device: eager, compiled, or replayed from CUDA graphs.

Every source runs a model in this one way, so that the same is timed, profiled and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from rooflens.errors import InvalidValue, ModelError, RooflensError, class_of, exit_code, first_line
from rooflens.models.answering import AnswerRun
from rooflens.models.holders import Holders
from rooflens.models.kv_caches import Restored, begun_cache, cache_tensors
from rooflens.models.precisions import precisions
from rooflens.models.step import Step, as_result, check_whole, with_results
from rooflens.records import AS_IS, Phase
from rooflens.runs.options import ANSWERING

PhaseEnd = Callable[[], None]
"""Called where a phase ends."""
GRAPH_WARMUP = 3
"""Runs before a capture, as PyTorch's notes on CUDA graphs ask for: what is chosen on first use is chosen by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """A step that is ready to run again and again.

    Attributes:
        once: runs the step once and calls its argument at the end of each phase.
        phases: the phases, in order; of micro-batches, forward and backward of each.
        state: the tensors that one run hands to the next (the cache of a decoding step).
        put_back: makes them what they were before the run; `once` does so by itself, a replay of it does not.
    """

    once: Callable[[PhaseEnd], None]
    phases: tuple[Phase, ...]
    state: Callable[[], list[torch.Tensor]] = list
    put_back: Callable[[], None] = lambda: None


def placed(step: Step, device: str, *, copy: bool = True) -> Step:
    """Return the step with module and inputs on `device`, in the types of the step.

    Args:
        copy: module and inputs were handed in, and must stay as they are.

    Raises:
        InvalidValue: the module holds no values, or this process only a part of it.
        ModelError: it cannot be copied, or is too large for the device.
    """
    if copy:
        check_whole(step.module, step.name)
    layout = torch.channels_last if step.channels_last else torch.preserve_format

    def move(tensor: torch.Tensor) -> torch.Tensor:
        dtype = step.cast if step.cast is not None and tensor.is_floating_point() else tensor.dtype
        # A copy: the module may change its inputs in place, and whoever handed them in keeps them.
        moved = tensor.detach().to(device, dtype, copy=copy)
        if step.channels_last and tensor.dim() == 4:
            moved = moved.contiguous(memory_format=layout)
        return moved.requires_grad_(tensor.requires_grad) if tensor.is_leaf else as_result(moved)

    if any(t.is_meta for t in (*step.module.parameters(), *step.module.buffers())):
        raise InvalidValue(f"{step.name} has tensors on the meta device: they hold no values, so it cannot be run")
    with running(step.name):  # a model may be too large for the device before anything has run
        module = (deepcopy(step.module) if copy else step.module).to(device=device, dtype=step.cast)
        if step.channels_last:
            module = module.to(memory_format=torch.channels_last)
        inputs = (step.args, step.kwargs, step.targets, step.prompt, step.following)
        args, kwargs, targets, prompt, following = _moved(inputs, move)
    given = {"args": args, "kwargs": kwargs, "targets": targets, "prompt": prompt, "following": following}
    return replace(step, module=module, **given)


def _moved(inputs: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The inputs with their tensors moved; an object that holds some is copied, so that its owner keeps it."""
    plain = {id(leaf) for leaf in tree_leaves(inputs)}
    held = [value for value in Holders(inputs).values if isinstance(value, torch.Tensor)]
    if all(id(tensor) in plain for tensor in held):
        return tree_map_only(torch.Tensor, move, inputs)
    return deepcopy(inputs, {id(tensor): move(tensor) for tensor in held})


def compiled(step: Step) -> Step:
    """Return the step with its module in torch.compile, which compiles it when it first runs."""
    module: Any = torch.compile(step.module)
    return replace(step, module=module)


def eager(step: Step, device: str, *, capturable: bool = False, dense: bool = False) -> Executable:
    """Return the eager step; its module and inputs are on `device`.

    Args:
        capturable: the optimizer keeps its step counts on the device, as a CUDA graph needs.
        dense: a cache that grows lies dense before each step, as in an answer; that takes copies after a step.
    """
    if step.module.training != step.training:
        step.module.train(step.training)
    if step.mode in ANSWERING:
        return _answering(step, AnswerRun(step, device))
    if step.generates:
        with step.precision(device):
            cache = begun_cache(step)
        restored = Restored(cache, dense=dense)
        return Executable(
            once=lambda mark: _generate(step, device, cache, restored, mark),
            phases=("forward",),
            state=lambda: cache_tensors(cache),
            put_back=restored,
        )
    inputs = Holders(step.args, step.kwargs)
    if not step.training:
        return Executable(once=lambda mark: _leaving(inputs, lambda: _infer(step, device, mark)), phases=("forward",))
    optimizer = step.optimizer_of([p for p in step.module.parameters() if p.requires_grad])
    for group in optimizer.param_groups if optimizer is not None else ():
        if "capturable" in group:
            group["capturable"] = capturable
    scaler = torch.amp.GradScaler(device) if step.scaled else None
    passes: tuple[Phase, ...] = ("forward", "backward") * step.accumulation_steps
    phases: tuple[Phase, ...] = passes if optimizer is None else (*passes, "optimizer")
    return Executable(
        once=lambda mark: _leaving(inputs, lambda: _train(step, device, optimizer, scaler, mark)), phases=phases
    )


def replayed(step: Step, *, begun: Callable[[], None] = lambda: None) -> Executable:
    """Return the step captured in CUDA graphs, one for each phase: the host launches no kernels.

    Of a whole answer the graph is that of one step of decode, for all; prefill, which runs once, is launched as ever.

    Args:
        begun: called after the first of the runs before the capture.

    Raises:
        InvalidValue: the step scales its loss, which the host reads.
    """
    if step.scaled:
        raise InvalidValue("the gradient scaler of amp-fp16 looks at values on the host: no CUDA graph; use amp-bf16")
    if step.mode in ANSWERING:
        return _replayed_answer(step, begun)
    run, stream = eager(step, "cuda", capturable=True, dense=True), torch.cuda.Stream()
    torch.cuda.synchronize()  # the stream waits for none: a cache may still be filled on another
    with torch.cuda.stream(stream):
        run.once(lambda: None)
        begun()
        for _ in range(1, GRAPH_WARMUP):
            run.once(lambda: None)
    torch.cuda.synchronize()
    # A cache grows by new tensors: those that the graph reads must outlive the capture.
    read = run.state()
    if isinstance(run.put_back, Restored):
        run.put_back.dense = False  # replays read what there was before the capture; what it made is not read again
    graphs: list[torch.cuda.CUDAGraph] = []
    pool = torch.cuda.graph_pool_handle()

    def begin() -> None:
        graphs.append(torch.cuda.CUDAGraph())
        graphs[-1].capture_begin(pool=pool)

    def cut() -> None:
        graphs[-1].capture_end()
        if len(graphs) < len(run.phases):
            begin()

    with torch.cuda.stream(stream):
        begin()
        run.once(cut)
    torch.cuda.synchronize()

    def replay(mark: PhaseEnd) -> None:
        for graph in graphs:
            graph.replay()
            mark()
        run.put_back()

    return Executable(once=replay, phases=run.phases, state=lambda: read)


def _answering(step: Step, answer: AnswerRun, write: Callable[[int], None] | None = None) -> Executable:
    """Return a whole answer; `write` runs a step of decode, by its number."""
    phases: tuple[Phase, ...] = ("prefill", "decode") if step.following else ("prefill",)
    write = write or answer.write

    def once(mark: PhaseEnd) -> None:
        answer.read()
        mark()
        for n in range(len(step.following)):
            write(n)
        if step.following:
            mark()
        answer.put_back()

    return Executable(once=once, phases=phases)


def _replayed_answer(step: Step, begun: Callable[[], None]) -> Executable:
    """Return a whole answer whose steps of decode are replayed from the graph of one: its cache has a fixed length."""
    answer = AnswerRun(step, "cuda")
    if not step.following:
        return _answering(step, answer)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for n in range(GRAPH_WARMUP):
            answer.read()
            answer.write(0)
            answer.put_back()
            if n == 0:
                begun()
        answer.read()
        torch.cuda.synchronize()
        graph.capture_begin()
        answer.write(0)
        graph.capture_end()
        answer.put_back()
    torch.cuda.synchronize()
    return _answering(step, answer, lambda _: graph.replay())


@contextmanager
def switches(dtype: str) -> Iterator[None]:
    """Set torch's TF32 switches for a dtype, and put them back; `default` and `as-is` change nothing."""
    with nullcontext() if dtype in ("default", AS_IS) else precisions(dtype == "tf32"):
        yield


@contextmanager
def running(name: str, where: Callable[[], str] = str, hint: str = "") -> Iterator[None]:
    """Turn what a model raises while it runs into a sentence, which says `where` it happened, and what to try.

    Raises:
        ModelError: the model raised, or ended the program.
    """
    try:
        yield
    except RooflensError:
        raise
    except SystemExit as error:
        raise ModelError(f"{name} ends the program (exit code {exit_code(error)}) while it runs") from error
    except Exception as error:
        raise ModelError(f"{name}: {class_of(error)}{where()}: {first_line(error)}{hint}") from error


def _leaving(inputs: Holders, run: Callable[[], None]) -> None:
    """Run a step; what it stores in its inputs, like a longer cache, is no part of the next one. That is not timed."""
    run()
    inputs.restore()


def _infer(step: Step, device: str, mark: PhaseEnd) -> None:
    with torch.no_grad(), step.precision(device):
        step.module(*step.args, **step.kwargs)
    mark()


def _generate(step: Step, device: str, cache: Any, put_back: Callable[[], None], mark: PhaseEnd) -> None:
    """Run a step that goes on with a cache; the cache is put back afterwards, which is not timed."""
    assert step.cache is not None
    with torch.no_grad(), step.precision(device):
        step.module(*step.args, **step.kwargs, **{step.cache: cache})
    mark()
    put_back()


def _train(step: Step, device: str, optimizer: Any, scaler: Any, mark: PhaseEnd) -> None:
    for parameter in step.module.parameters():
        parameter.grad = None
    for n in range(step.accumulation_steps):
        made = None  # what an earlier micro-batch made is gone
        with _own_gradients(step, last=n == step.accumulation_steps - 1):
            made = _forward_and_backward(step, device, scaler, mark)
    if optimizer is None:
        return
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    mark()
    del made  # alive until here, as in any training loop


def _own_gradients(step: Step, *, last: bool) -> AbstractContextManager[None]:
    """A context in which devices that train together keep their gradients apart, but for the last micro-batch."""
    apart: Any = getattr(step.module, "no_sync", None)
    return nullcontext() if last or apart is None else apart()


def _forward_and_backward(step: Step, device: str, scaler: Any, mark: PhaseEnd) -> tuple[Any, torch.Tensor]:
    """Run both for one micro-batch, and return output and loss."""
    for leaf in tree_leaves((step.args, step.kwargs)):
        if isinstance(leaf, torch.Tensor) and leaf.is_leaf:
            leaf.grad = None
    args, kwargs = with_results((step.args, step.kwargs))
    with torch.enable_grad(), step.precision(device):
        output = step.module(*args, **kwargs)
        loss = step.loss_of(output, step.targets)
    mark()
    (scaler.scale(loss) if scaler is not None else loss).backward()
    mark()
    return output, loss
