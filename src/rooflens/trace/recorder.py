"""The dispatch mode that turns every ATen call into an Operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
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
from rooflens.trace.plain_tensors import plain_tensors, wraps
from rooflens.trace.replaced_operators import taken_apart

VIEWS = frozenset(
    {
        *("_reshape_alias", "_unsafe_view", "as_strided_", "detach_", "squeeze_", "swapaxes_", "swapdims_", "t_"),
        *("transpose_", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze_"),
    }
)
"""Views whose schema does not say so. The others give results that alias an argument which is not written."""
FREE = frozenset(
    {
        *("_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_efficientzerotensor"),
        *("_functional_assert_async", "_functional_assert_scalar", "_functional_sym_constrain_range"),
        *("_functional_sym_constrain_range_for_size", "_has_same_storage_numel", "_linalg_check_errors"),
        *("_nested_tensor_from_mask_left_aligned", "_record_function_enter_new", "_record_function_exit"),
        *("_sparse_compressed_tensor_unsafe", "_sparse_coo_tensor_unsafe", "_sparse_coo_tensor_with_dims"),
        *("_sparse_coo_tensor_with_dims_and_tensors", "empty", "empty_like", "empty_permuted", "empty_strided"),
        *("is_coalesced", "is_same_size", "lift_fresh_copy", "new_empty", "new_empty_strided", "resize_", "set_"),
        *("sym_constrain_range", "sym_constrain_range_for_size", "sym_numel", "sym_size", "sym_storage_offset"),
        "sym_stride",
    }
)
"""Operations that move and compute nothing and are no views."""
LIFTS = frozenset({"lift", "lift_fresh", "lift_fresh_copy"})
"""Operations that bring in a tensor which the step itself has just made from numbers."""
FORWARD_ONLY = frozenset({"_fused_rms_norm", "attention", "recurrent", *SCANS})
"""Operations of our own that run without a recorded gradient, in forward only: in backward they are recomputed."""

UNMASKED = frozenset(
    f"_scaled_dot_product_{kernel}_attention{device}_backward"
    for kernel, device in (("flash", ""), ("flash", "_for_cpu"), ("cudnn", ""))
)
"""Operations of torch that are not told which gradients are needed."""

NOTES = {
    "_nested_tensor_from_mask_left_aligned": "nn.TransformerEncoder may leave out padding in inference; here all rows"
    " of the input are counted (enable_nested_tensor=False runs them all)"
}
"""What to know of a step with such an operation."""

Counts = tuple[tuple[tuple[str, Phase], int], ...]
"""How many there are, by path and phase."""
QUANTISING = frozenset({"quantize_per_channel", "quantize_per_tensor", "quantize_per_tensor_dynamic"})
"""Operations that make torch's quantised tensors, of which there are no fake ones."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What the recorder needs of an operator's schema."""

    name: str
    view: bool
    free: bool
    composite: bool
    packed: bool
    arguments: tuple[str, ...]
    mutated: tuple[str, ...]
    unread: frozenset[str]


@cache
def schema_of(operator: torch._ops.OpOverload, custom: bool) -> Schema:
    """What the recorder needs of an operator. A `custom` one has a registered formula and keeps its namespace."""
    schema = operator._schema
    name = schema.name if custom else schema.name.split("::")[-1]
    if operator.namespace == "quantized" and not custom:  # layers on packed weights have the names of plain ones
        name = f"quantized_{name}"
    returns = [r.alias_info for r in schema.returns]
    aliases = bool(returns) and all(alias is not None and not alias.is_write for alias in returns)
    view = aliases or name in VIEWS
    return Schema(
        name=name,
        view=view,
        free=view or name in FREE or operator.namespace == "prim",
        composite=operator.namespace == "aten"
        and torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd"),
        packed=any("__torch__" in str(a.type) for a in schema.arguments),
        arguments=tuple(a.name for a in schema.arguments),
        mutated=tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write),
        unread=frozenset(a.name for a in schema.arguments if a.is_out),
    )


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
        if schema.name not in LIFTS:
            args, kwargs = self._ours(args), {name: self._ours(value) for name, value in kwargs.items()}
        path, recomputed = self._place(schema.name)
        with _uncached(args) if schema.packed else nullcontext():
            results = func(*args, **kwargs)
        outputs = _tensors(results)
        if schema.name in NOTES:
            self.notes[NOTES[schema.name]] = None
        if schema.name in QUANTISING and any(isinstance(t, FakeTensor) for t in outputs):
            raise DataDependent("operations on quantised tensors ask for their values")
        with torch._C.DisableTorchFunction():  # to look at a tensor is no call of the model's
            for tensor in outputs:
                self._lifetimes.see(tensor)
            if schema.view:
                self._views[path, self.phase] += self.stands_for
            elif not schema.free:
                operation = self._operation(schema, args, kwargs, outputs, path, recomputed)
                self.add(operation, self._lifetimes.held)
        return results

    def _ours(self, value: Any) -> Any:
        """An argument with its tensors as they are in this trace."""
        if isinstance(value, torch.Tensor):
            return value if isinstance(value, FakeTensor) or not value.dim() else self._adopted(value)
        return type(value)(map(self._ours, value)) if type(value) in (list, tuple) else value

    def _operation(
        self,
        schema: Schema,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: list[torch.Tensor],
        path: str,
        recomputed: bool,
    ) -> Operation:
        given = dict(zip(schema.arguments, args, strict=False)) | kwargs
        check_types(schema.name, given)
        given = {name: self._unpacked(value) for name, value in given.items()}
        taken = [t for name, value in given.items() if name not in schema.unread for t in _tensors(value)]
        changed = [t for name in schema.mutated for t in _tensors(given.get(name))]
        reads, writes = self._accesses(taken), self._accesses([*changed, *outputs])
        if schema.name in UNMASKED:
            given["needed"] = _needed_gradients()
        call = Call(
            name=schema.name,
            arguments=tuple((name, _described(value)) for name, value in given.items()),
            outputs=tuple(map(describe, outputs)),
            reads=sum(access.nbytes for access in reads),
            writes=sum(access.nbytes for access in writes),
            weight_reads=sum(a.nbytes for a in reads if self._lifetimes.is_parameter(a.block)),
        )
        return Operation(call, path, self.phase, recomputed, reads, writes)

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


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Bytes of memory behind the elements of a plain tensor: a dimension expanded with stride 0 is stored once."""
    n = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride or not size:
            n *= size
    return n


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
