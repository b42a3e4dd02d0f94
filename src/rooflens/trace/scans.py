"""Scans as one operation each: selective scans, delta rules, linear recurrences and the short convolutions before them.

Libraries run a scan as a fused kernel, and as a loop in Python where the kernel is missing, as on the CPU. During a
trace each of these functions is answered by an operation of ours: it reads its tensors once and saves only them for
backward, which computes the states again (Mamba, section 3.3.2; flash-linear-attention and mamba_ssm do so too). The
operation carries the work of the Python code beside it, so that both can be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_unflatten

from rooflens.costs import SCANS
from rooflens.models.dtypes import torch_name
from rooflens.trace.code_work import CodeWork, Growth, Result
from rooflens.trace.fused import define, empty_gradients, once, scattered

CHANGED = {"selective_state_update": "state", "chunk_state_update": "state", "short_convolution_update": "conv_state"}
"""The tensor that an operation changes in place."""
_DESCRIPTION = "str function, int[] ranks, int[] sizes, int[] strides, str[] types"
_CODE = "str[] units, int[] first, int[] step, int[] bend, int ahead"


def _made(like: Tensor, ranks: list[int], sizes: list[int], strides: list[int], types: list[str]) -> Any:
    """Empty results, densely laid out in the order of the given strides. Types by name: torch 2.11 hands on numbers."""
    results, begin = [], 0
    for rank, name in zip(ranks, types, strict=True):
        shape, order = sizes[begin : begin + rank], strides[begin : begin + rank]
        begin += rank
        dims = sorted(range(rank), key=lambda d: (order[d], -d))
        dense, step = [0] * rank, 1
        for dim in dims:
            dense[dim], step = step, step * max(1, shape[dim])
        results.append(like.new_empty_strided(shape, dense, dtype=getattr(torch, name)))
    return results


def _define(name: str, tensors: tuple[str, ...]) -> None:
    changed = CHANGED.get(name)
    taken = ", ".join(f"Tensor{'(a!)' if tensor == changed else ''}? {tensor}" for tensor in tensors)
    count = len(tensors)

    def results(*arguments: Any) -> Any:
        like = next(tensor for tensor in arguments[:count] if tensor is not None)
        return _made(like, *arguments[count + 1 : count + 5])

    define(f"{name}({taken}, {_DESCRIPTION}, {_CODE}) -> Tensor[]", results)
    if changed is None:
        define(
            f"{name}_backward(Tensor[] grads, {taken}, str function, {_CODE}, bool[] needed) -> Tensor[]",
            lambda _, *arguments: empty_gradients(arguments[:count], arguments[-1]),
        )


for _name, _tensors in SCANS.items():
    _define(_name, _tensors)


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan that is being called: its operation, what its Python code does, and what the code returned for values."""

    operation: str
    function: str
    work: CodeWork
    values: tuple[Tensor, ...] | None

    @property
    def results(self) -> list[Result]:
        return [result for result in self.work.results if isinstance(result, Result)]

    def run(self, tensors: tuple[Tensor | None, ...]) -> list[Tensor]:
        made = self.results
        description = (
            [len(r.shape) for r in made],
            [size for r in made for size in r.shape],
            [stride for r in made for stride in r.strides],
            [torch_name(r.dtype) for r in made],
        )
        operation = getattr(torch.ops.rooflens, self.operation)
        # What the code has beside its results while it runs.
        like = next(tensor for tensor in tensors if tensor is not None)
        scratch = like.new_empty(self.work.scratch if self.values is None else 0, dtype=torch.uint8)
        outputs: list[Tensor] = operation(*tensors, self.function, *description, *_growth(self.work.forward))
        if self.values is not None:
            with torch.no_grad(), _disable_current_modes():  # a kernel would have computed them
                for output, value in zip(outputs, self.values, strict=True):
                    output.copy_(value)
        del scratch
        return outputs

    def gradients(self, grads: list[Tensor], tensors: tuple[Tensor | None, ...], needed: list[bool]) -> list[Tensor]:
        operation = getattr(torch.ops.rooflens, f"{self.operation}_backward")
        found: list[Tensor] = operation(grads, *tensors, self.function, *_growth(self.work.backward), needed)
        return found

    def returned(self, outputs: list[Tensor]) -> Any:
        """What the function returns, with these tensors in it."""
        remaining = iter(outputs)
        leaves = [next(remaining) if isinstance(leaf, Result) else leaf for leaf in self.work.results]
        return tree_unflatten(leaves, self.work.structure)


def _growth(growth: Growth) -> tuple[list[str], list[int], list[int], list[int], int]:
    return list(growth.units), list(growth.first), list(growth.step), list(growth.bend), growth.ahead


class DifferentiatedScan(torch.autograd.Function):
    """A scan with a backward. Saved: the tensors that it reads."""

    @staticmethod
    def forward(ctx: Any, scan: Scan, *tensors: Tensor | None) -> Any:
        ctx.save_for_backward(*tensors)
        ctx.scan = scan
        ctx.set_materialize_grads(False)
        return tuple(scan.run(tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        needed = list(ctx.needs_input_grad[1:])
        given = [grad for grad in grads if grad is not None]
        tensors = ctx.saved_tensors  # a checkpoint gives them once
        found = ctx.scan.gradients(given, tensors, needed)
        sources = [tensor for tensor in tensors if tensor is not None]
        found = once(found, "write the scan as a loop of your own", *given, *sources)
        return None, *scattered(found, needed)
