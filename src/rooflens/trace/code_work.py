"""The work of a piece of code as it is written: what a scan in Python computes and moves, without running all of it.

A loop over tokens repeats the same operations, so its work is a polynomial of the number of its turns: of degree one
forward, and of degree two where backward makes a whole gradient for each slice, or where chunks meet each other. Three
short runs on fake tensors give the polynomial, whose value at the real length is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import TreeSpec, tree_flatten

from rooflens.costs import cost
from rooflens.records import Operation
from rooflens.trace.lifetimes import Lifetimes
from rooflens.trace.modules import ModulePaths
from rooflens.trace.recorder import Recorder

FEWEST = 8
"""Turns of the shortest run. One alone has dimensions of size one, where torch saves copies; and what a turn takes for
itself may be more than what a few add up to."""
RUNS = 3
"""A polynomial of degree two has three coefficients."""
LONGER = 8
"""Further turns of a run in which memory is looked at again."""

UnitAmounts = Mapping[str, int]
"""FLOP per unit, and bytes under "dram"; "missing/NAME" says that operation NAME has no formula. What a host launches
is under "host/operations" and "host/views"."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Amounts that grow with the turns of a loop: those `ahead` turns after the first of three runs.

    Newton's forward differences: first + ahead step + ahead (ahead - 1) / 2 bend.

    Attributes:
        units: names as in `UnitAmounts`.
        first: the amounts of the shortest run.
        step: what the next turn adds; bend: by how much more the one after it adds.
        ahead: turns beyond the shortest run.
    """

    units: tuple[str, ...] = ()
    first: tuple[int, ...] = ()
    step: tuple[int, ...] = ()
    bend: tuple[int, ...] = ()
    ahead: int = 0

    @classmethod
    def of(cls, runs: Sequence[UnitAmounts], ahead: int) -> Growth:
        """The growth that three runs show, each of one turn more, or one run alone."""
        units = tuple(sorted(set[str]().union(*runs)))
        each = list(runs) if len(runs) == RUNS else list(runs) * RUNS
        first, second, third = (tuple(run.get(unit, 0) for unit in units) for run in each)
        step = tuple(b - a for a, b in zip(first, second, strict=True))
        bend = tuple(c - 2 * b + a for a, b, c in zip(first, second, third, strict=True))
        return cls(units, first, step, bend, ahead)


@dataclass(frozen=True, slots=True)
class Result:
    """Shape, strides and type of a tensor that the code returns."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class CodeWork:
    """What a piece of code does and returns.

    Attributes:
        forward: its work.
        backward: the work of the gradients of its inputs, from that of its first result.
        results: a `Result` for each tensor that it returns, and anything else as it is.
        structure: how the results lie in what it returns.
        scratch: bytes of the most that it has beside inputs and results; 0 where backward needs some of it.
    """

    forward: Growth
    backward: Growth
    results: tuple[Any, ...]
    structure: TreeSpec
    scratch: int = 0


ScanCode = Callable[[Mapping[str, Tensor]], Any]
"""Runs the code on tensors by name."""


def code_work(code: ScanCode, tensors: Mapping[str, Tensor], tokens: Mapping[str, int], chunk: int) -> CodeWork:
    """The work of `code` on tensors like these.

    Args:
        tokens: the dimension of tokens in each tensor that has one; empty where the code does not loop over them.
        chunk: tokens that one turn of the loop takes.
    """
    lengths = {tensors[name].shape[dim] for name, dim in tokens.items() if name in tensors}
    length = max(lengths, default=0)
    turns, rest = divmod(length, chunk)
    short = [rest + (FEWEST + n) * chunk for n in range(RUNS)] if turns >= FEWEST + RUNS else []
    try:
        runs, ahead = [_run(code, tensors, tokens, length, tokens_of_run) for tokens_of_run in short], turns - FEWEST
    except ValueError:  # the code refuses such lengths, so it is asked with the length that it was given
        runs = []
    if not runs:
        runs, ahead = [_run(code, tensors, {}, length, length)], 0
    looked_at = [run.scratch for run in runs]
    if chunk == 1 and len(runs) == RUNS and max(runs[0].scratch, default=0):
        looked_at.append(_run(code, tensors, tokens, length, short[0] + LONGER).scratch)
    grown = zip(runs[0].results, runs[min(1, len(runs) - 1)].results, strict=True)
    return CodeWork(
        forward=Growth.of([run.forward for run in runs], ahead),
        backward=Growth.of([run.backward for run in runs], ahead),
        results=tuple(_result_at(one, longer, ahead) for one, longer in grown),
        structure=runs[0].structure,
        scratch=_scratch_at(looked_at, ahead, chunk),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the code: as `CodeWork`, with amounts that are counted."""

    forward: UnitAmounts
    backward: UnitAmounts
    results: tuple[Any, ...]
    structure: TreeSpec
    scratch: Sequence[int]


def _scratch_at(runs: Sequence[Sequence[int]], ahead: int, chunk: int) -> int:
    """Scratch some turns after the first of three runs; only chunks, which may meet each other, give it a bend.

    Which moment needs most may be another one there: what follows a long loop may take more than a turn of it. So those
    behind the loop are followed too, counted from the end, where each turn has left one or two tensors that are let go
    at last, or none; as far as they grow evenly, from nothing less, and a fourth, longer run holds no less.
    """
    peaks = [max(held, default=0) for held in runs]
    if len(runs) < RUNS:
        return peaks[0]
    first, second, third, *longer = peaks
    bend = third - 2 * second + first if chunk > 1 else 0
    found = third + (ahead - 2) * (third - second + bend) + (ahead - 2) * (ahead - 3) // 2 * bend
    for most in longer:
        ends = ([held[: len(held) - n * left] for n, held in enumerate(runs[:RUNS])] for left in range(3))
        for one, two, three in (held for each in ends for held in zip(*map(reversed, each), strict=False)):
            rise = two - one
            if three - two == rise and FEWEST * rise <= one and one + LONGER * rise <= most:
                found = max(found, one + ahead * rise)
    return max(0, found)


def _run(code: ScanCode, tensors: Mapping[str, Tensor], tokens: Mapping[str, int], length: int, short: int) -> _Run:
    """What the code does with `short` tokens in the place of `length`."""
    # What the code saves is its own: a checkpoint around it would take note of it.
    own = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with _disable_current_modes(), FakeTensorMode(allow_non_fake_inputs=True), own:
        given = {name: _alike(tensor, tokens.get(name), length, short) for name, tensor in tensors.items()}
        lifetimes = Lifetimes()
        recorder = Recorder(ModulePaths(nn.Module()), lifetimes, {})
        with recorder:
            returned = code(given)
        scratch = _scratch(lifetimes)
        leaves, structure = tree_flatten(returned)
        differentiated = [tensor for tensor in given.values() if tensor.requires_grad]
        first = next(leaf for leaf in leaves if isinstance(leaf, Tensor))
        forward = len(recorder.operations)
        if first.requires_grad and differentiated:
            scratch = []
            gradient = torch.empty_like(first)
            recorder.phase = "backward"
            with recorder, torch.autocast("cpu", enabled=False):  # as where a step calls backward
                torch.autograd.grad(first, differentiated, gradient, allow_unused=True)
        results = tuple(_described(leaf) for leaf in leaves)
    views = Counter(dict.fromkeys(("forward", "backward"), 0))
    for calls in recorder.host_calls:
        views[calls.phase] += calls.views
    before, after = recorder.operations[:forward], recorder.operations[forward:]
    return _Run(_summed(before, views["forward"]), _summed(after, views["backward"]), results, structure, scratch)


def _scratch(lifetimes: Lifetimes) -> list[int]:
    """Bytes at each moment beyond those that are left, unrounded: they grow evenly."""
    moments = [(block.birth, block.size) for block in lifetimes.blocks if block.birth is not None]
    moments += [(block.death, -block.size) for block in lifetimes.blocks if block.death is not None]
    left = sum(block.size for block in lifetimes.blocks if block.death is None)
    return [held - left for held in accumulate(size for _, size in sorted(moments))]


def _alike(tensor: Tensor, dim: int | None, length: int, short: int) -> Tensor:
    """An empty tensor like another, with fewer tokens where it has a dimension of tokens."""
    shape, strides = list(tensor.shape), list(tensor.stride())
    if dim is not None:
        shape[dim] = short
        span = strides[dim] * length  # of the tokens: what strides are beyond this grows with them
        strides = [s // length * short + s % length if s >= span > 0 else s for s in strides]
    made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(tensor.requires_grad)


def _described(leaf: Any) -> Any:
    return Result(tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _summed(operations: list[Operation], views: int) -> UnitAmounts:
    """The work of operations; fp32 products are called so, whatever precision the switches give them."""
    total: dict[str, int] = {"dram": 0, "host/operations": len(operations), "host/views": views}
    for operation in operations:
        work = cost(operation.call).work
        for resource, amount in (*work.flops.items(), *work.bytes.items()):
            total[resource] = total.get(resource, 0) + round(amount)
        total |= {f"missing/{name}": 0 for name in work.missing}
    return total


def _result_at(first: Any, second: Any, ahead: int) -> Any:
    """A result some turns after the first of two runs: its sizes grow evenly."""
    if not isinstance(first, Result):
        return first

    def grown(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(x + ahead * (y - x) for x, y in zip(a, b, strict=True))

    return Result(grown(first.shape, second.shape), grown(first.strides, second.strides), first.dtype)
