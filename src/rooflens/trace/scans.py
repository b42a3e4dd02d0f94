"""Scans as one operation each: selective scans, delta rules, linear recurrences and the short convolutions before them.

Libraries run a scan as a fused kernel, and as a loop in Python where the kernel is missing, as on the CPU. During a
trace each of these functions is answered by an operation of ours: it reads its tensors once and saves only them for
backward, which computes the states again (Mamba, section 3.3.2; flash-linear-attention and mamba_ssm do so too). The
operation carries the work of the Python code beside it, so that both can be told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Signature, signature, unwrap
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_unflatten

from rooflens.costs import SCANS
from rooflens.trace import lightning
from rooflens.trace.code_work import CodeWork, Result, ScanCode, UnitAmounts, code_work
from rooflens.trace.fused import define, empty_gradients, once, saving, scattered
from rooflens.trace.kernel_results import kernel_results
from rooflens.trace.replaced_operators import tracing
from rooflens.trace.scan_functions import BLOCKS, FUNCTIONS, KERNELS, METHODS, PACKAGES, ScanFunction

NOTE = (
    "scans that the model's code writes as loops are fused kernels in bound and memory: those save their inputs alone;"
    " FLOP, bytes and as written are of the loops"
)
CHANGED = {"selective_state_update": "state", "chunk_state_update": "state", "short_convolution_update": "conv_state"}
"""The tensor that an operation changes in place."""
_LIST = "a list of tensors"
_DESCRIPTION = "str function, int[] ranks, int[] sizes, int[] strides, ScalarType[] types"
_WRITTEN = "str[] written_units, int[] written"


def _made(like: Tensor, ranks: list[int], sizes: list[int], strides: list[int], types: list[torch.dtype]) -> Any:
    """Empty results, densely laid out in the order of the given strides."""
    results, begin = [], 0
    for rank, dtype in zip(ranks, types, strict=True):
        shape, order = sizes[begin : begin + rank], strides[begin : begin + rank]
        begin += rank
        dims = sorted(range(rank), key=lambda d: (order[d], -d))
        dense, step = [0] * rank, 1
        for dim in dims:
            dense[dim], step = step, step * max(1, shape[dim])
        results.append(like.new_empty_strided(shape, dense, dtype=dtype))
    return results


def _define(name: str, tensors: tuple[str, ...]) -> None:
    changed = CHANGED.get(name)
    taken = ", ".join(f"Tensor{'(a!)' if tensor == changed else ''}? {tensor}" for tensor in tensors)
    count = len(tensors)

    def results(*arguments: Any) -> Any:
        like = next(tensor for tensor in arguments[:count] if tensor is not None)
        return _made(like, *arguments[count + 1 : count + 5])

    define(f"{name}({taken}, {_DESCRIPTION}, {_WRITTEN}) -> Tensor[]", results)
    if changed is None:
        define(
            f"{name}_backward(Tensor[] grads, {taken}, str function, {_WRITTEN}, bool[] needed) -> Tensor[]",
            lambda _, *arguments: empty_gradients(arguments[:count], arguments[-1]),
        )


for _name, _tensors in SCANS.items():
    _define(_name, _tensors)


@dataclass(frozen=True, slots=True)
class _Scan:
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
            [r.dtype for r in made],
        )
        operation = getattr(torch.ops.rooflens, self.operation)
        outputs: list[Tensor] = operation(*tensors, self.function, *description, *_pairs(self.work.forward))
        if self.values is not None:
            with torch.no_grad(), _disable_current_modes():  # a kernel would have computed them
                for output, value in zip(outputs, self.values, strict=True):
                    output.copy_(value)
        return outputs

    def gradients(self, grads: list[Tensor], tensors: tuple[Tensor | None, ...], needed: list[bool]) -> list[Tensor]:
        operation = getattr(torch.ops.rooflens, f"{self.operation}_backward")
        found: list[Tensor] = operation(grads, *tensors, self.function, *_pairs(self.work.backward), needed)
        return found

    def returned(self, outputs: list[Tensor]) -> Any:
        """What the function returns, with these tensors in it."""
        remaining = iter(outputs)
        leaves = [next(remaining) if isinstance(leaf, Result) else leaf for leaf in self.work.results]
        return tree_unflatten(leaves, self.work.structure)


def _pairs(amounts: UnitAmounts) -> tuple[list[str], list[int]]:
    return list(amounts), list(amounts.values())


class _Differentiated(torch.autograd.Function):
    """A scan with a backward. Saved: the tensors that it reads."""

    @staticmethod
    def forward(ctx: Any, scan: _Scan, *tensors: Tensor | None) -> Any:
        ctx.save_for_backward(*tensors)
        ctx.scan = scan
        ctx.set_materialize_grads(False)
        return tuple(scan.run(tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        needed = list(ctx.needs_input_grad[1:])
        given = [grad for grad in grads if grad is not None]
        found = ctx.scan.gradients(given, ctx.saved_tensors, needed)
        sources = [t for t in ctx.saved_tensors if t is not None]
        found = once(found, "write the scan as a loop of your own", *given, *sources)
        return None, *scattered(found, needed)


class _Replacement:
    """Answers one function while a step is traced.

    Args:
        function: the operation that stands for it.
        original: the function, as the module holds it.
        known: the work of its Python code, by call; shared by all functions of a trace.
    """

    def __init__(self, function: ScanFunction, original: Callable[..., Any], known: dict[str, CodeWork]) -> None:
        self.function = function
        self.original = original
        self.name = f"{original.__module__}.{original.__qualname__}"
        # A library may have put a kernel that it found in the place of its Python code.
        self.code = unwrap(original)
        self.signature = signature(self.code)
        self.kernel = _package(original) in PACKAGES
        self._known = known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors, others = _arguments(self.signature, args, kwargs)
        named = {self.function.names.get(name, name): tensor for name, tensor in tensors.items()}
        operation = self._operation(named)
        wanted = saving(*named.values())
        if self._left_alone(operation, named, others, wanted):
            return self.original(*args, **kwargs)
        code = partial(_run, self.code, self.signature, others)
        work = kernel_results(operation, named, others) if self.kernel else self._work(code, tensors, others)
        fake = any(isinstance(tensor, FakeTensor) for tensor in tensors.values())
        scan = _Scan(operation, self.name, work, None if fake else _computed(code, tensors))
        given = tuple(map(named.get, SCANS[operation]))
        return scan.returned(_Differentiated.apply(scan, *given) if wanted else scan.run(given))

    def _operation(self, named: Mapping[str, Tensor]) -> str:
        """The operation's name: mamba_ssm updates the states of both Mambas by one function."""
        matrices = self.function.operation == "selective_state_update" and named["state"].dim() > 3
        return "chunk_state_update" if matrices else self.function.operation

    def _left_alone(self, operation: str, named: Mapping[str, Tensor], others: Mapping[str, Any], wanted: bool) -> bool:
        """True if the function itself has to answer: outside of a trace, and for what an operation does not tell."""
        if not tracing() or torch._C._functorch.peek_interpreter_stack() is not None:
            return True
        packed = [others.get(name, others.get("kwargs", {}).get(name)) for name in ("cu_seqlens", "seq_idx")]
        real = self.kernel and not any(isinstance(tensor, FakeTensor) for tensor in named.values())
        changed = wanted and operation in CHANGED  # a gradient through a state that is overwritten
        return real or changed or any(p is not None for p in packed) or bool(named.keys() - set(SCANS[operation]))

    def _work(self, code: ScanCode, tensors: Mapping[str, Tensor], others: Mapping[str, Any]) -> CodeWork:
        """The work of the Python code, which is the same for every call with equal shapes."""
        autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
        shapes = [(n, t.shape, t.stride(), t.dtype, t.requires_grad) for n, t in tensors.items()]
        key = repr((self.name, shapes, others, torch.is_grad_enabled(), autocast))
        if key not in self._known:
            self._known[key] = code_work(code, tensors, self.function.tokens, self._chunk(others))
        return self._known[key]

    def _chunk(self, others: Mapping[str, Any]) -> int:
        first, _, rest = self.function.chunk.partition(".")
        if not first:
            return 1
        return int(attrgetter(self.function.chunk)(others["self"]) if rest else others[first])


def _arguments(
    parameters: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a call by name, those in a list with their number, and its other arguments."""
    bound = parameters.bind(*args, **kwargs)
    bound.apply_defaults()
    tensors: dict[str, Tensor] = {}
    others: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, list | tuple) and value and all(isinstance(item, Tensor) for item in value):
            tensors |= {f"{name}_{number}": item for number, item in enumerate(value)}
            others[name] = _LIST
        else:
            others[name] = value
    return tensors, others


def _run(
    code: Callable[..., Any], parameters: Signature, others: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> Any:
    """Call the code with other tensors than it was called with."""
    given: dict[str, Any] = dict(tensors)
    for name, value in others.items():
        listed = [tensor for n, tensor in tensors.items() if n.rpartition("_")[0] == name]
        given[name] = listed if value is _LIST else value
    bound = parameters.bind_partial()
    bound.arguments.update({name: given[name] for name in parameters.parameters if name in given})
    return code(*bound.args, **bound.kwargs)


def _computed(code: Callable[..., Any], tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """What the code makes of values; a state is changed as the code changes it."""
    with torch.no_grad(), _disable_current_modes():
        returned = torch.utils._pytree.tree_leaves(code(tensors))
    return tuple(leaf for leaf in returned if isinstance(leaf, Tensor))


class Scans:
    """The functions that a trace answers."""

    def __init__(self) -> None:
        self._known: dict[str, CodeWork] = {}

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Answer the functions of the tables by operations, in the modules that have them."""
        with ExitStack() as patches:
            for holder, name, replacement in self._replacements():
                patches.enter_context(patch.object(holder, name, replacement))
            yield

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of a trace in which Python code was answered."""
        return (NOTE,) if self._known else ()

    def _replacements(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            for table, packages in ((FUNCTIONS, ("transformers",)), (KERNELS, PACKAGES)):
                for name, function in table.items():
                    original = names.get(name)
                    if callable(original) and _package(original) in packages:
                        yield module, name, self._replacement(function, original)
        for (module_name, class_name, name), function in METHODS.items():
            owner = getattr(sys.modules.get(module_name), class_name, None)
            original = None if owner is None else vars(owner).get(name)
            if callable(original):
                yield owner, name, self._replacement(function, original)
        layer = getattr(sys.modules.get(lightning.MODULE), lightning.LAYER, None)
        if layer is not None:
            yield layer, "forward", self._lightning(layer.forward)

    def _replacement(self, function: ScanFunction, original: Callable[..., Any]) -> Callable[..., Any]:
        answer = _Replacement(function, original, self._known)

        @wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:  # a function, which a class binds to its objects
            return answer(*args, **kwargs)

        return replacement

    def _lightning(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        attend, parameters = self._replacement(BLOCKS, lightning.in_blocks), signature(plain)

        @wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if not tracing():
                return plain(*args, **kwargs)
            bound = parameters.bind(*args, **kwargs)
            bound.apply_defaults()
            layer, hidden_states, mask, cache = (
                bound.arguments[name] for name in ("self", "hidden_states", "attention_mask", "cache")
            )
            return lightning.forward(layer, attend, hidden_states, mask, cache)

        return forward


def _package(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__module__", "")).partition(".")[0]
