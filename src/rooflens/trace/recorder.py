"""The dispatch mode that turns every ATen call into an Operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from rooflens.costs import SCANS
from rooflens.costs.registry import is_custom, runs_in
from rooflens.errors import DataDependent
from rooflens.models.dtypes import name_of
from rooflens.records import PHASES, Access, Argument, Call, HostCalls, Operation, Phase, Tensor
from rooflens.trace.lifetimes import Lifetimes
from rooflens.trace.modules import ModulePaths
from rooflens.trace.operand_types import check_types
from rooflens.trace.packed import PackedOperands
from rooflens.trace.plain_tensors import distinct_bytes, plain_tensors, wraps
from rooflens.trace.replaced_operators import taken_apart
from rooflens.trace.schemas import Schema, schema_of

FORWARD_ONLY = frozenset({"_fused_rms_norm", "attention", "recurrent", *SCANS})
"""Operations of our own that run without a recorded gradient, in forward only: in backward they are recomputed."""

Counts = tuple[tuple[tuple[str, Phase], int], ...]
"""How many there are, by path and phase."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A call that torch has run for us: its arguments and results, the module, and whether it repeats forward work."""

    schema: Schema
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[torch.Tensor]
    path: str
    recomputed: bool


class Recorder(TorchDispatchMode):
    """Records each operation with its module and phase, and the lifetime of every storage that appears.

    Attributes:
        operations: in order; `times`: how often each occurs; `held`: bytes in tensors when it has run.
        phase: what runs now; `stands_for`: how many equal passes it stands for.
    """

    def __init__(
        self,
        paths: ModulePaths,
        lifetimes: Lifetimes,
        parameter_names: dict[int, str],
        adopted: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
    ) -> None:
        """Make a recorder.

        Args:
            paths: tells which module is running.
            lifetimes: watches the tensors.
            parameter_names: names of the parameters by identity.
            adopted: what stands for a tensor that neither the module nor the inputs hold, like a global one; itself
                where the step runs on its own tensors.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._adopted = adopted
        self.operations: list[Operation] = []
        self.times: list[int] = []
        self.held: list[int] = []
        self.stands_for = 1
        self.notes: dict[str, None] = {}
        self.phase: Phase = "forward"
        self.packed = PackedOperands(lifetimes)
        self._paths = paths
        self._lifetimes = lifetimes
        self._parameter_names = parameter_names
        self._repeating = 0
        self._views: Counter[tuple[str, Phase]] = Counter()
        self._module_calls: Counter[tuple[str, Phase]] = Counter()
        paths.on_call, paths.is_ours = self._count_module_call, self.is_watching

    def is_watching(self) -> bool:
        """True in the thread that entered this mode, and in autograd's threads while they work for it.

        torch hands modes on to these threads, which Python's own thread locals do not reach.
        """
        return any(mode is self for mode in _get_current_dispatch_mode_stack())

    @property
    def host_calls(self) -> tuple[HostCalls, ...]:
        """Views and calls of modules so far, phase by phase."""
        views, calls = self._views, self._module_calls
        pieces = sorted(dict.fromkeys((*calls, *views)), key=lambda piece: PHASES.index(piece[1]))
        return tuple(
            HostCalls(path=path, phase=phase, views=views[path, phase], module_calls=calls[path, phase])
            for path, phase in pieces
        )

    @property
    def forward_calls(self) -> dict[str, int]:
        """Calls of modules in forward so far, by path."""
        return {path: n for (path, phase), n in self._module_calls.items() if phase == "forward"}

    @property
    def counts(self) -> tuple[Counter[tuple[str, Phase]], Counter[tuple[str, Phase]]]:
        """Views and calls of modules so far, by path and phase."""
        return self._views.copy(), self._module_calls.copy()

    def count_again(self, views: Counts, module_calls: Counts, path: str) -> None:
        """Count views and calls below a path."""
        for counter, more in ((self._views, views), (self._module_calls, module_calls)):
            for (below, phase), n in more:
                counter[path + below, phase] += n

    def add(self, operation: Operation, held: int) -> None:
        """Note an operation that has run."""
        self.operations.append(operation)
        self.times.append(self.stands_for)
        self.held.append(held)

    def _count_module_call(self, path: str) -> None:
        self._module_calls[path, self.phase] += self.stands_for

    @contextmanager
    def following_functions(self) -> Iterator[None]:
        """Count the calls of functions with a gradient of their own, whose forward has recording off as backward has.

        In backward, one that is called with recording on is called again, by a checkpoint.
        """
        plain = torch.autograd.Function.__dict__["apply"]

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            again = self.phase == "backward" and torch.is_grad_enabled() and self.is_watching()
            self._repeating += again
            try:
                return plain.__get__(None, cls)(*args, **kwargs)
            finally:
                self._repeating -= again

        with patch.object(torch.autograd.Function, "apply", classmethod(apply)):
            yield

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        assert isinstance(func, torch._ops.OpOverload)
        if any(map(wraps, types)):
            return NotImplemented  # the class takes it apart, and the parts come here
        kwargs = kwargs or {}
        schema = schema_of(func, func.namespace != "aten" and is_custom(func._schema.name))
        if schema.composite:  # under inference mode torch leaves it to us to take these apart, as it does elsewhere
            with self:
                return taken_apart(func, args, kwargs)
        if self.phase == "optimizer" and _on_host(_tensors((*args, *kwargs.values()))):
            return func(*args, **kwargs)
        if not schema.lifts:
            args, kwargs = self._ours(args), {name: self._ours(value) for name, value in kwargs.items()}
        path, recomputed = self._place(schema.name)
        with _uncached(args) if schema.packed else nullcontext():
            results = func(*args, **kwargs)
        self._see(Dispatched(schema, args, kwargs, _tensors(results), path, recomputed))
        return results

    def _see(self, ran: Dispatched) -> None:
        """Note what has run, and its results."""
        schema, outputs = ran.schema, ran.outputs
        if schema.note:
            self.notes[schema.note] = None
        if schema.quantises and any(isinstance(t, FakeTensor) for t in outputs):
            raise DataDependent("operations on quantised tensors ask for their values")
        with torch._C.DisableTorchFunction():  # to look at a tensor is no call of the model's
            for tensor in outputs:
                self._lifetimes.see(tensor)
            if schema.view:
                self._views[ran.path, self.phase] += self.stands_for
            elif not schema.free:
                self.add(self._operation(ran), self._lifetimes.held)

    def _ours(self, value: Any) -> Any:
        """An argument with its tensors as they are in this trace."""
        if isinstance(value, torch.Tensor):
            return value if isinstance(value, FakeTensor) or not value.dim() else self._adopted(value)
        return type(value)(map(self._ours, value)) if type(value) in (list, tuple) else value

    def _operation(self, ran: Dispatched) -> Operation:
        schema, outputs = ran.schema, ran.outputs
        given = dict(zip(schema.arguments, ran.args, strict=False)) | ran.kwargs
        check_types(schema.name, given)
        given = {name: self._unpacked(value) for name, value in given.items()}
        taken = [t for name, value in given.items() if name not in schema.unread for t in _tensors(value)]
        changed = [t for name in schema.mutated for t in _tensors(given.get(name))]
        reads, writes = self._accesses(taken), self._accesses([*changed, *outputs])
        if schema.untold:
            given["needed"] = _needed_gradients()
        call = Call(
            name=schema.name,
            arguments=tuple((name, _described(value)) for name, value in given.items()),
            outputs=tuple(map(describe, outputs)),
            reads=sum(access.nbytes for access in reads),
            writes=sum(access.nbytes for access in writes),
            weight_reads=sum(a.nbytes for a in reads if self._lifetimes.is_parameter(a.block)),
        )
        return Operation(call, ran.path, self.phase, ran.recomputed, reads, writes)

    def _unpacked(self, value: Any) -> Any:
        """An argument with what its packed objects store in their place."""
        if isinstance(value, list | tuple):
            return [self._unpacked(item) for item in value]
        if not isinstance(value, torch.ScriptObject):
            return value
        tensors = self.packed.tensors(value)
        return tensors[0] if len(tensors) == 1 else tensors or value._type().qualified_name()

    def _accesses(self, tensors: list[torch.Tensor]) -> tuple[Access, ...]:
        """The distinct pieces of memory behind some tensors: a matrix and its transpose are one."""
        accesses: dict[tuple[int, int, int], Access] = {}
        for tensor in (plain for whole in tensors for plain in plain_tensors(whole)):
            block, nbytes = self._lifetimes.number(tensor), distinct_bytes(tensor)
            access = Access(block, nbytes, nbytes // max(1, tensor.element_size()))
            accesses[block, int(tensor.storage_offset()), nbytes] = access
        return tuple(accesses.values())

    def _place(self, name: str) -> tuple[str, bool]:
        """The module path of the operation that is running now, and whether it repeats forward work."""
        node = torch._C._current_autograd_node() if self.phase == "backward" else None
        if self.phase != "backward" or (node is None and not self._paths.inside):
            return self._paths.current, False
        # Gradients are computed with recording off, and outside of calls of modules.
        recomputed = torch.is_grad_enabled() or self._paths.inside or self._repeating > 0 or name in FORWARD_ONLY
        recomputed = recomputed or not runs_in(name, "backward")
        if self._paths.inside or node is None:
            return self._paths.current, recomputed
        variable = getattr(node, "variable", None)
        if variable is not None:  # gradient accumulation: the node of a parameter
            return self._paths.owner(self._parameter_names.get(id(variable), "")), recomputed
        number = node._sequence_nr()
        return self._paths.of_repeated(number) if recomputed else self._paths.of_node(number), recomputed


@contextmanager
def _uncached(args: Any) -> Iterator[None]:
    """Without the cache of fake results, which compares arguments; objects of C++ classes cannot be compared."""
    with ExitStack() as modes:
        for tensor in _tensors(args):
            if isinstance(tensor, FakeTensor):
                modes.enter_context(patch.object(tensor.fake_mode, "cache_enabled", False))
        yield


def _needed_gradients() -> tuple[bool, ...]:
    """Whether autograd wants the gradients of query, key, value and mask: edges of the node that is running now."""
    node = torch._C._current_autograd_node()
    edges = [] if node is None else [function is not None for function, _ in node.next_functions]
    return (*edges, False)[:4] if edges else (True, True, True, False)


def _on_host(tensors: list[torch.Tensor]) -> bool:
    """True if an optimizer's operation counts its steps: torch keeps these counters in memory of the host."""
    return bool(tensors) and all(t.dim() == 0 for t in tensors)


def describe(tensor: torch.Tensor) -> Tensor:
    """Shape, element type, distinct bytes and layout of a tensor."""
    inner = plain_tensors(tensor)
    shape, dtype, nbytes = tuple(tensor.shape), name_of(tensor.dtype), sum(map(distinct_bytes, inner))
    if tensor.layout is not torch.strided:
        return Tensor(shape, dtype, nbytes, stored=inner[-1].numel())
    return Tensor(shape, dtype, nbytes, strides=tensor.stride(), offset=int(tensor.storage_offset()))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _described(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return describe(value)
    if isinstance(value, list | tuple):
        return tuple(map(_described, value))
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
