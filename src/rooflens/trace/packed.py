"""Operands in objects of torch's C++ classes: the packed weights of quantised layers.

Such an object is no parameter of its module, and its tensors are no arguments of a call. It is unpacked once, and
tensors without memory stand for what it stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from rooflens.errors import ModelError
from rooflens.models.holders import Holders
from rooflens.trace.lifetimes import Lifetimes

_PER_CHANNEL = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
_LINEAR = ".LinearPackedParamsBase"


class _Stored(NamedTuple):
    """What an object stores of one tensor.

    Attributes:
        stand_in: a tensor of the stored bytes, without memory.
        weights: how many weights these are; 0 for scales and zero points.
    """

    stand_in: Tensor
    weights: int


class PackedOperands:
    """The objects of a step, each unpacked once. What they store is there before the step begins."""

    def __init__(self, lifetimes: Lifetimes) -> None:
        self._lifetimes = lifetimes
        # The objects are kept too: their hash is their address.
        self._known: dict[int, tuple[torch.ScriptObject, tuple[_Stored, ...]]] = {}
        self._frozen: dict[int, Tensor] = {}
        self._opaque: dict[str, None] = {}

    def label(self, module: torch.nn.Module, held: Iterable[Any] | None = None) -> None:
        """Note every object that a module holds. A script's come with its calls, but a frozen one's weights.

        Args:
            held: all that it holds, if that is known.
        """
        for value in Holders(module).values if held is None else held:
            if isinstance(value, torch.ScriptObject) and not isinstance(value, torch._C.ScriptModule):
                self.tensors(value)
        for child in module.modules():
            if isinstance(child, torch.jit.ScriptModule) and not hasattr(child, "training"):
                self._label_frozen(child.graph)

    def _label_frozen(self, graph: Any) -> None:
        """Note the weights in a graph; a single number is one of a formula."""
        if "mkldnn" in str(graph).lower():
            raise ModelError("a script optimised for this CPU tells nothing of other devices; estimate the one before")
        for node in graph.findAllNodes("prim::Constant", recurse=True):
            if node.hasAttribute("value") and node.kindOf("value") == "t":
                weight = node.t("value")
                if weight.is_floating_point() and weight.numel() > 1:
                    self._lifetimes.label(weight, "parameters", from_start=True)
                    self._frozen[weight.untyped_storage()._cdata] = weight

    def tensors(self, packed: torch.ScriptObject) -> tuple[Tensor, ...]:
        """Tensors of the size of what an object stores; none where it does not say."""
        key = hash(packed)
        if key not in self._known:
            stored = tuple(self._unpacked(packed))
            for stand_in, _ in stored:
                self._lifetimes.label(stand_in, "parameters", from_start=True)
            self._known[key] = packed, stored
        return tuple(stand_in for stand_in, _ in self._known[key][1])

    def held_by(self, module: torch.nn.Module) -> tuple[int, int]:
        """How many weights the objects in a module's own attributes hold, and in how many bytes."""
        own = {hash(value) for value in vars(module).values() if isinstance(value, torch.ScriptObject)}
        stored = [one for key in own & self._known.keys() for one in self._known[key][1]]
        nbytes = sum(one.stand_in.numel() * one.stand_in.element_size() for one in stored)
        return sum(one.weights for one in stored), nbytes

    @property
    def weights(self) -> int:
        """How many weights all objects and frozen graphs hold."""
        packed = sum(weights for _, stored in self._known.values() for _, weights in stored)
        return packed + sum(weight.numel() for weight in self._frozen.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be seen."""
        return tuple(
            f"an object of class {name} does not say what it stores: its bytes and parameters are not counted"
            for name in self._opaque
        )

    def _unpacked(self, packed: torch.ScriptObject) -> Iterator[_Stored]:
        with torch.no_grad(), _disable_current_modes():
            tensors = self._tensors_in(packed)
            if tensors is None:
                self._opaque[packed._type().qualified_name()] = None
            # An object may hold a bias that an object in it holds too.
            for tensor in {t.untyped_storage()._cdata: t for t in tensors or ()}.values():
                yield from _stored(tensor)

    def _tensors_in(self, packed: torch.ScriptObject) -> list[Tensor] | None:
        """The tensors of an object and of those inside it; None where it does not tell them."""
        state = _state(packed)
        if state is None:
            return None
        tensors: list[Tensor] = []
        for value in tree_leaves(state):
            if isinstance(value, Tensor):
                tensors.append(value)
            elif isinstance(value, torch.ScriptObject):
                inner = self._tensors_in(value)
                if inner is None:
                    return None
                tensors += inner
        if packed._type().qualified_name().endswith(_LINEAR):  # it stores floats in 16 bits and unpacks them in 32
            weight, *bias = tensors
            return [weight if weight.is_quantized else weight.half(), *bias]
        return tensors


def _state(packed: torch.ScriptObject) -> Any:
    """What an object unpacks to, or saves; None where it does neither."""
    for method in ("unpack", "__getstate__"):
        if packed._has_method(method):  # type: ignore[attr-defined]
            try:
                return packed._get_method(method)()
            except RuntimeError:  # not every engine of torch can unpack
                continue
    return None


def _stored(tensor: Tensor) -> Iterator[_Stored]:
    """A tensor as an object stores it; scales and zero points of channels take 4 bytes each (2 beside 4-bit values)."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if tensor.is_quantized:
        nbytes = tensor.untyped_storage().nbytes()
        dtype = torch.int32 if dtype == torch.qint32 else torch.int8 if dtype == torch.qint8 else torch.uint8
        shape = shape if nbytes == tensor.numel() * dtype.itemsize else (*shape[:1], nbytes // max(1, shape[0]))
    yield _Stored(torch.empty(shape, dtype=dtype, device="meta"), tensor.numel())
    if tensor.is_quantized and tensor.qscheme() in _PER_CHANNEL:
        of_channel = torch.float16 if tensor.dtype == torch.quint4x2 else torch.float32
        channels = tensor.q_per_channel_scales().numel()
        yield _Stored(torch.empty((2, channels), dtype=of_channel, device="meta"), 0)
