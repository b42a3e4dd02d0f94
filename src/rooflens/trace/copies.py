"""Copies of tensors, with which a model is run so that its own tensors are never touched.

A fake copy has shape, strides and element type and no memory behind it. It lies on meta storage and says that it is on
the CPU: on the meta device torch decomposes attention and turns autocast off, and on a fake "cuda" without a driver
backward raises. A real copy has values, for models whose shapes depend on them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

from rooflens.errors import DataDependent
from rooflens.models import as_result
from rooflens.models.known_values import KnownValues, keep
from rooflens.trace.plain_tensors import inner_tensors, without_values
from rooflens.trace.threads import of_owner, saw
from rooflens.trace.varlen import jagged_of

CPU = torch.device("cpu")


class Copies(ABC):
    """Copies tensors, each of them once.

    Args:
        cast: type that floating copies get; None keeps each tensor's own.
        channels_last: lay four-dimensional copies out with channels last.
    """

    mode: AbstractContextManager[Any]
    """The context in which the copies are used."""

    def __init__(self, cast: torch.dtype | None = None, channels_last: bool = False) -> None:
        self._cast = cast
        self._channels_last = channels_last
        self._made: dict[int, tuple[Tensor, Tensor]] = {}
        self._offsets: dict[tuple[int, ...], Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """The copy of `tensor`, with the same shape and need of a gradient; a leaf if it is one."""
        known = self._made.get(id(tensor))
        if known is not None:
            return known[1]
        if tensor.is_nested and tensor.layout is torch.strided:
            jagged = jagged_of(tensor.unbind(), self._offsets).detach().requires_grad_(tensor.requires_grad)
            made = self.of(jagged)
            self._made[id(tensor)] = (tensor, made)
            return made
        dtype = self._cast if self._cast is not None and tensor.is_floating_point() else tensor.dtype
        plain = inner_tensors(tensor) is None
        with torch.no_grad():
            made = self._make(tensor, dtype) if plain else self._wrapped(tensor)
        made = as_result(made) if plain and not tensor.is_leaf else made.requires_grad_(tensor.requires_grad)
        # The original is kept too, so that its id cannot be used again. The copy of a copy is that copy.
        self._made[id(tensor)] = (tensor, made)
        self._made[id(made)] = (made, made)
        return made

    def tree(self, structure: Any) -> Any:
        """`structure` with every tensor in it replaced by its copy; what objects hold stays."""
        return tree_map_only(Tensor, self.of, structure)

    @property
    def made(self) -> list[Tensor]:
        """All copies."""
        return [copy for original, copy in self._made.values() if copy is not original]

    def _wrapped(self, tensor: Tensor) -> Tensor:
        """The copy of a tensor whose class is made of other tensors."""
        kind: Any = type(tensor)
        if not hasattr(kind, "__tensor_flatten__"):
            like: dict[str, Any] = {"strides": tensor.stride(), "storage_offset": tensor.storage_offset()}
            wrapper: Tensor = Tensor._make_wrapper_subclass(kind, tensor.shape, dtype=tensor.dtype, device=CPU, **like)
            vars(wrapper).update(self.tree(vars(tensor)))
            return wrapper
        names, context = kind.__tensor_flatten__(tensor)
        inner = {name: self.of(getattr(tensor, name)) for name in names}
        made: Tensor = kind.__tensor_unflatten__(inner, context, tensor.shape, tensor.stride())
        return made

    def state(self, module: torch.nn.Module) -> dict[str, Tensor]:
        """Copies of all parameters and buffers by name; tied ones share a copy."""
        return {name: self.of(tensor) for name, tensor in own_state(module).items()}

    @abstractmethod
    def are_inputs(self, copies: Iterable[Tensor]) -> None:
        """Take down which copies are of inputs."""

    @abstractmethod
    def standing_for(self, tensor: Tensor) -> Tensor:
        """What the step uses instead of a tensor that it reaches in a way of its own, like a global one."""

    @abstractmethod
    def _make(self, tensor: Tensor, dtype: torch.dtype) -> Tensor: ...

    def _laid_out(self, tensor: Tensor) -> Tensor:
        if not self._channels_last or tensor.dim() != 4:
            return tensor
        return tensor.contiguous(memory_format=torch.channels_last)


def own_state(module: torch.nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, tied ones once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


class _OfOneThread:
    """Fake tensors of one thread: what others do with them would not be counted."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._thread = threading.get_ident()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if threading.get_ident() != self._thread:
            saw(of_owner(self._thread), str(func))
        return super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[misc]


class _OwnFakes(_OfOneThread, FakeTensorMode):
    pass


class _OwnKnown(_OfOneThread, KnownValues):
    pass


class FakeCopies(Copies):
    """Copies without memory.

    Args:
        known: small integers keep their values, and so do those that follow from them.
    """

    def __init__(self, cast: torch.dtype | None = None, channels_last: bool = False, known: bool = False) -> None:
        super().__init__(cast, channels_last)
        self._fake = _OwnKnown() if known else _OwnFakes(allow_non_fake_inputs=True)
        self.mode = self._fake

    def standing_for(self, tensor: Tensor) -> Tensor:
        known = self._made.get(id(tensor))
        if known is None:
            with torch.no_grad():
                known = self._made[id(tensor)] = (tensor, self._make(tensor, tensor.dtype))
        return known[1]

    def _make(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if tensor.layout is not torch.strided:
            raise without_values(tensor)
        if tensor.is_quantized:
            raise DataDependent("the scale of a quantised tensor is among its values")
        with torch._C.DisableTorchFunction():  # devices that a model names are the CPU
            meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="meta")
        fake = FakeTensor(self._fake, self._laid_out(meta), CPU)
        return keep(self._fake, fake, tensor) if isinstance(self._fake, KnownValues) else fake

    def are_inputs(self, copies: Iterable[Tensor]) -> None:
        if isinstance(self._fake, KnownValues):  # rooflens makes them of random numbers
            for copy in copies:
                self._fake.is_random(copy)


class RealCopies(Copies):
    """Copies on the CPU. A meta tensor gets random values whose size layers keep."""

    def __init__(self, cast: torch.dtype | None = None, channels_last: bool = False) -> None:
        super().__init__(cast, channels_last)
        self.mode = nullcontext()

    def are_inputs(self, copies: Iterable[Tensor]) -> None:
        pass  # they have values

    def standing_for(self, tensor: Tensor) -> Tensor:
        return tensor

    def _make(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return tensor.detach().to(CPU, dtype).clone()
        copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=CPU)
        once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
        stored = copy[once]  # of an expanded tensor each element is written once
        if not tensor.is_meta:
            stored.copy_(tensor[once])
        elif dtype.is_floating_point:
            stored.normal_(std=max(1, tensor.shape[-1] if tensor.dim() else 1) ** -0.5)
        else:
            stored.zero_()
        return self._laid_out(copy)
