"""Calls of operations in a step: numbered in the order in which they begin, and grouped by what they are called with.

Calls of one group launch the same kernels on operands of the same shapes, types and layouts. A call whose work values
decide has no group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from rooflens.costs.profiler_names import is_known, short
from rooflens.costs.registry import family_of
from rooflens.records import Phase
from rooflens.sources.profile.launches import PlacedCall
from rooflens.sources.range_names import call_range

Around = Callable[[int], AbstractContextManager[object]]
"""What is entered around the call of a number."""
_BY_INDEX = "gather"
"""The family of operations that look up, add or write at indices."""
_BY_VALUE = frozenset(
    {
        *("_ctc_loss", "_ctc_loss_backward", "_grouped_mm", "_pack_padded_sequence", "_pad_packed_sequence"),
        *("_scaled_grouped_mm", "_segment_reduce_backward", "_sparse_addmm", "_sparse_mm", "_standard_gamma"),
        *("argsort", "bincount", "bucketize", "deform_conv2d", "_deform_conv2d_backward", "grid_sampler_2d"),
        *("grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward", "grouped_mm_fallback"),
        *("grouped_mm_fallback_backward", "histc", "histogram", "isin", "kthvalue", "masked_select", "max_unpool2d"),
        *("max_unpool3d", "median", "mode", "multinomial", "nanmedian", "nonzero", "nonzero_static", "poisson"),
        *("repeat_interleave", "searchsorted", "segment_reduce", "sort", "topk", "unique_consecutive", "unique_dim"),
        *("unique_dim_consecutive", "varlen_attention", "varlen_attention_backward", "_unique", "_unique2"),
    }
)
"""Other operations whose work depends on values, or on sizes that are values."""


class Calls(TorchDispatchMode):
    """Numbers the calls of operations of this thread, and of the backward passes that it starts."""

    supports_higher_order_operators = True

    def __init__(self, around: Around) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._around = around
        self.begun = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "namespace", "") == "profiler":  # a range, which computes nothing
            return func(*args, **kwargs or {})
        number, self.begun = self.begun, self.begun + 1
        self.see(func, args, kwargs or {})
        with self._around(number):
            return func(*args, **kwargs or {})

    def see(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look at a call before it runs."""


class NumberedCalls(Calls):
    """Names each call in a profile by its number.

    Attributes:
        groups: the group of each call, None for one that stands for itself.
    """

    def __init__(self) -> None:
        super().__init__(lambda number: record_function(call_range(number)))
        self.groups: list[int | None] = []
        self._known: dict[Hashable, int] = {}

    def see(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find the group of a call."""
        called_with = operands(operation, args, kwargs)
        self.groups.append(None if called_with is None else self._known.setdefault(called_with, len(self._known)))


class FirstCalls(Calls):
    """Leaves calls that repeat an earlier one out of what is recorded; names each of the others by its number.

    Attributes:
        placed: all calls, and where they ran.

    Args:
        every: none is left out.
    """

    def __init__(
        self, opens: Callable[[bool], None], place: Callable[[], tuple[str | None, Phase | None]], every: bool = False
    ) -> None:
        super().__init__(self._around_call)
        self._opens, self._place, self._every = opens, place, every
        self._known: dict[Hashable, int] = {}
        self._is_first = True
        self.placed: list[PlacedCall] = []

    def see(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find the first call that does the same."""
        called_with, number = None if self._every else operands(operation, args, kwargs), self.begun - 1
        first = number if called_with is None else self._known.setdefault(called_with, number)
        self._is_first = first == number
        path, phase = self._place()
        self.placed.append(PlacedCall(call=number, first=first, path=path, phase=phase))

    @contextmanager
    def _around_call(self, number: int) -> Iterator[None]:
        if self._is_first:
            with record_function(call_range(number)):
                yield
            return
        self._opens(False)
        try:
            yield
        finally:
            self._opens(True)


class CallWindows:
    """Opens and closes windows in which something is recorded: during some calls of a step, and after some.

    What is launched after a call and before the next belongs to no operation, as kernels of other compilers do.

    Args:
        during: numbers of calls.
        after: numbers of calls; -1 is what comes before the first.
    """

    def __init__(self, during: frozenset[int], after: frozenset[int], opens: Callable[[bool], None]) -> None:
        self._during, self._after, self._opens = during, after, opens
        self._is_open = False

    @contextmanager
    def over_step(self) -> Iterator[None]:
        """Follow the calls of a step."""
        self._set(-1 in self._after)
        try:
            with Calls(self._around):
                yield
        finally:
            self._set(False)

    @contextmanager
    def _around(self, number: int) -> Iterator[None]:
        self._set(number in self._during)
        try:
            yield
        finally:
            self._set(number in self._after)

    def _set(self, open_: bool) -> None:
        if open_ != self._is_open:
            self._opens(open_)
            self._is_open = open_


def operands(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
    """Return what calls must have in common to be one observation; None where a call stands for itself.

    It does if values decide its work, or if nobody knows whether they do.
    """
    name = str(getattr(operation, "_schema", operation)).partition("(")[0].partition(".")[0]
    plain = short(name).removesuffix("_") if "::" in name else name
    if not is_known(name) or family_of(plain) == _BY_INDEX or plain in _BY_VALUE:
        return None
    try:
        return str(operation), _form(args), _form(kwargs)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):  # an unusual tensor
        return None


def _form(value: Any) -> Hashable:
    """Return a value without the data of its tensors."""
    if isinstance(value, torch.Tensor):
        kind = "" if type(value) in (torch.Tensor, torch.nn.Parameter) else type(value).__qualname__
        # A sparse or nested tensor has no strides: its work depends on values.
        return kind, value.dtype, value.device, tuple(value.shape), value.stride()
    if isinstance(value, list | tuple):
        return tuple(_form(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _form(item)) for key, item in sorted(value.items()))
    hash(value)
    return type(value), None if isinstance(value, torch.Generator) else value  # 1 is not 1.0, which makes it a float
