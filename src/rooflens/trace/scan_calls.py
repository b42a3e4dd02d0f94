"""Calls of scans, answered by our operations while a step is traced.

Libraries hold a scan as a function: a kernel that runs on a GPU only, or a loop in Python. The functions are found by
name in all modules that hold them, and replaced there. Each knows its thread: in others it answers itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from inspect import Signature, signature, unwrap
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from rooflens.costs import SCANS
from rooflens.trace import lightning, mamba_layers
from rooflens.trace.code_work import CodeWork, ScanCode, code_work
from rooflens.trace.fused import saving
from rooflens.trace.kernel_results import kernel_results
from rooflens.trace.mamba_layers import LAYERS
from rooflens.trace.replaced_operators import tracing
from rooflens.trace.scan_functions import BLOCKS, FUNCTIONS, KERNELS, METHODS, PACKAGES, ScanFunction
from rooflens.trace.scans import CHANGED, DifferentiatedScan, Scan

NOTE = (
    "scans that the model's code writes as loops are fused kernels in the bound, and in what training keeps (their"
    " inputs); FLOP, bytes, as written and the memory of other modes are of the loops"
)
_LIST = "a list of tensors"
_NAMES = FUNCTIONS.keys() | KERNELS.keys() | LAYERS.keys()


class _Replacement:
    """Answers one function while a step is traced.

    Args:
        function: the operation that stands for it.
        original: the function, as the module holds it.
        known: the work of its Python code, by call; shared by all functions of a trace.
        kernel: it is the kernel itself, which runs on a GPU only.
    """

    def __init__(
        self, function: ScanFunction, original: Callable[..., Any], known: dict[str, CodeWork], kernel: bool
    ) -> None:
        self.function = function
        self.original = original
        self.name = f"{original.__module__}.{original.__qualname__}"
        # A library may have put a kernel that it found in the place of its Python code.
        self.code = unwrap(original)
        self.signature = signature(self.code)
        self.kernel = kernel
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
        scan = Scan(operation, self.name, work, None if fake else _computed(code, tensors))
        given = tuple(map(named.get, SCANS[operation]))
        return scan.returned(DifferentiatedScan.apply(scan, *given) if wanted else scan.run(given))

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
            if names.keys().isdisjoint(_NAMES):  # as in nearly all
                continue
            for name in names.keys() & _NAMES:
                replacement = self._of_function(name, names[name])
                if replacement is not None:
                    yield module, name, replacement
        for (module_name, class_name, name), function in METHODS.items():
            owner = getattr(sys.modules.get(module_name), class_name, None)
            original = None if owner is None else vars(owner).get(name)
            if callable(original):
                yield owner, name, self._replacement(function, original)
        layer = getattr(sys.modules.get(lightning.MODULE), lightning.LAYER, None)
        if layer is not None:
            yield layer, "forward", self._lightning(layer.forward)

    def _of_function(self, name: str, original: object) -> Callable[..., Any] | None:
        """What answers a function that a module holds under a name of the tables; None where it is another one."""
        if not callable(original):
            return None
        package = _package(original)
        if package == "transformers" and name in FUNCTIONS:
            return self._replacement(FUNCTIONS[name], original)
        if package in PACKAGES and name in KERNELS:
            return self._replacement(KERNELS[name], original, kernel=True)
        return self._layer(name, original) if package in PACKAGES and name in LAYERS else None

    def _replacement(
        self, function: ScanFunction, original: Callable[..., Any], kernel: bool = False
    ) -> Callable[..., Any]:
        answer = _Replacement(function, original, self._known, kernel)

        @wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:  # a function, which a class binds to its objects
            return answer(*args, **kwargs)

        return replacement

    def _layer(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """A whole layer of mamba_ssm: its kernels, and the products around these."""
        kernel, layer = LAYERS[name]
        convolve = self._replacement(KERNELS["causal_conv1d_fn"], mamba_layers.short_convolution, kernel=True)
        scan = self._replacement(KERNELS[kernel.__name__], kernel, kernel=True)
        parameters = signature(original)

        @wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            bound = parameters.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            packed = given.get("seq_idx") is not None or given.get("cu_seqlens") is not None
            if not tracing() or packed or not any(isinstance(value, FakeTensor) for value in given.values()):
                return original(*args, **kwargs)
            return layer(convolve, scan, given)

        return replacement

    def _lightning(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        attend, parameters = self._replacement(BLOCKS, lightning.in_blocks), signature(plain)

        @wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if not tracing():
                return plain(*args, **kwargs)
            bound = parameters.bind(*args, **kwargs)
            bound.apply_defaults()
            of_cache = "cache" if "cache" in parameters.parameters else "past_key_values"  # in transformers 5.17
            layer, hidden_states, mask, cache = (
                bound.arguments[name] for name in ("self", "hidden_states", "attention_mask", of_cache)
            )
            return lightning.forward(layer, attend, hidden_states, mask, cache)

        return forward


def _package(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__module__", "")).partition(".")[0]
