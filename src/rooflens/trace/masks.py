"""Which pairs of a query and a key a mask lets through, where the functions that make it tell.

The transformers library makes its masks from small functions of the places of a query and a key. A mask that is made
of those for causality, windows and chunks has a row of keys for every query, so its pairs can be counted without its
values. Of every other mask (padding, packed documents, prefixes, users' own) nothing is known here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from rooflens.records import Mask

_MODULE = "transformers.masking_utils"
_ATTENTION, _BIASED = "transformers.integrations.sdpa_attention", "create_position_bias_mask"
_KINDS = ("sdpa", "eager")
_PACKED = "find_packed_sequence_indices"
_SKIPS, _BEFORE = "_ignore_causal_mask_sdpa", "q_offset"
"""What decides whether a mask is needed, and its argument for the tokens before."""

Known = Callable[[int, int], Mask]
See = Callable[[Tensor, Known], None]
_Range = tuple[float, float]
"""The first and the last key that a query sees."""
_FIRST, _LAST = float("-inf"), float("inf")
_Rows = tuple[Callable[[int], _Range], str]
"""Which keys a query sees, by its place, and the mask in words."""


@contextmanager
def known_masks(see: See, seen: int) -> Iterator[None]:
    """Hand each mask that transformers makes to `see`, with a function that tells what is known of it.

    That is given the number of the mask's block, and how many tokens a cache has seen before.

    Args:
        seen: these tokens. A cache of a fixed length counts them in a tensor, which has no values in a trace: told
            their number, transformers makes no mask of a prompt that fills an empty one, as where it runs.
    """
    module = sys.modules.get(_MODULE)
    if module is None:
        yield
        return
    mapping, attention = module.AttentionMaskInterface._global_mapping, sys.modules.get(_ATTENTION)
    biased = getattr(attention, _BIASED, None)
    with (
        nullcontext() if biased is None else patch.object(attention, _BIASED, _masking(biased, see)),
        patch.dict(mapping, {kind: _told(mapping[kind], see) for kind in _KINDS if kind in mapping}),
        patch.object(module, _PACKED, _unless_known(getattr(module, _PACKED))),
        patch.object(module, _SKIPS, _counting(getattr(module, _SKIPS), seen)),
    ):
        yield


def _unless_known(find: Callable[[Tensor], Tensor | None]) -> Callable[[Tensor], Tensor | None]:
    """Find packed sequences: none where known places follow each other, which transformers looks for in real ones."""

    @wraps(find)
    def call(position_ids: Tensor) -> Tensor | None:
        packed = find(position_ids)
        known = getattr(packed, "constant", None)  # what a fake tensor holds
        return None if known is not None and not known.any() else packed

    return call


def _counting(skips: Callable[..., bool], seen: int) -> Callable[..., bool]:
    """`skips`, given the number of tokens that a tensor without values counts."""
    sizes = signature(skips)

    @wraps(skips)
    def call(*args: Any, **kwargs: Any) -> bool:
        given = sizes.bind(*args, **kwargs)
        if isinstance(given.arguments.get(_BEFORE), FakeTensor):
            given.arguments[_BEFORE] = seen
        return skips(*given.args, **given.kwargs)

    return call


def _masking(add: Callable[..., Tensor], see: See) -> Callable[..., Tensor]:
    """`add`, which masks a bias itself where attention is causal without a mask, given that mask."""

    @wraps(add)
    def call(
        position_bias: Tensor, attention_mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor
    ) -> Tensor:
        if attention_mask is None and is_causal:
            queries, keys = query.shape[-2], key.shape[-2]
            places = torch.arange(queries, device=key.device), torch.arange(keys, device=key.device)
            attention_mask = (places[0][:, None] >= places[1][None, :]).view(1, 1, queries, keys)
            sizes = {"q_length": queries, "kv_length": keys}
            see(attention_mask, lambda block, seen: _counted(block, seen, sizes, *_causal(0)))
        return add(position_bias, attention_mask, is_causal, query, key)

    return call


def _told(make: Callable[..., Any], see: See) -> Callable[..., Any]:
    @wraps(make)
    def call(*args: Any, **kwargs: Any) -> Any:
        mask = make(*args, **kwargs)
        rows = _rows_of(kwargs)
        if isinstance(mask, Tensor) and rows is not None:
            see(mask, lambda block, seen: _counted(block, seen, kwargs, *rows))
        return mask

    return call


def _rows_of(kwargs: dict[str, Any]) -> _Rows | None:
    """Which keys a query sees, by its place, and the mask in words; None where that depends on values."""
    function = kwargs.get("mask_function")
    if function is None or kwargs.get("attention_mask") is not None or kwargs.get("use_vmap"):
        return None
    return _known(function)


def _known(function: Callable[..., Any]) -> _Rows | None:
    """Which keys a function of transformers lets a query see, by its place, and in words."""
    if not isinstance(function, FunctionType) or function.__module__ != _MODULE:
        return None
    name, cells = function.__qualname__, function.__closure__ or ()
    inside = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in cells), strict=True))
    if name.startswith("and_masks."):
        return _both([_known(part) for part in inside["mask_functions"]])
    form = _FORMS.get(name.partition(".")[0])
    return None if form is None else form(next(iter(inside.values()), 0))


def _causal(_: int) -> _Rows:
    return lambda place: (_FIRST, place), "causal"


def _bidirectional(_: int) -> _Rows:
    return lambda place: (_FIRST, _LAST), ""


def _window(size: int) -> _Rows:
    return lambda place: (place - size + 1, _LAST), f"window of {size}"


def _window_of_both_sides(size: int) -> _Rows:
    return lambda place: (place - size, place + size), f"window of {size} to each side"


def _chunks(size: int) -> _Rows:
    """Chunks from the first token on: without a mask of padding nothing is padded on the left."""
    return lambda place: (place // size * size, place // size * size + size - 1), f"chunks of {size}"


_FORMS = {
    "causal_mask_function": _causal,
    "bidirectional_mask_function": _bidirectional,
    "sliding_window_overlay": _window,
    "sliding_window_bidirectional_overlay": _window_of_both_sides,
    "chunked_overlay": _chunks,
}
"""The functions of transformers that decide by places alone; the first value that each holds is its size."""


def _both(parts: list[_Rows | None]) -> _Rows | None:
    """What several masks let through together."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None

    def rows(place: int) -> _Range:
        ranges = [row(place) for row, _ in known]
        return max(first for first, _ in ranges), min(last for _, last in ranges)

    return rows, ", ".join(filter(None, sorted(words for _, words in known)))


def _counted(block: int, seen: int, kwargs: dict[str, Any], rows: Callable[[int], _Range], words: str) -> Mask:
    """The pairs of all queries, and the keys that some query sees."""
    queries, keys = kwargs["q_length"], kwargs["kv_length"]
    begin, origin = kwargs.get("q_offset", 0), kwargs.get("kv_offset", 0)
    if not isinstance(begin, int):  # a cache of fixed length counts its tokens in a tensor
        begin = seen
    pairs, lowest, highest = 0, keys, -1
    for place in range(begin, begin + queries):
        first, last = rows(place)
        low, high = int(max(first - origin, 0)), int(min(last - origin, keys - 1))
        if high >= low:
            pairs, lowest, highest = pairs + high - low + 1, min(lowest, low), max(highest, high)
    return Mask(block=block, queries=queries, keys=keys, pairs=pairs, reach=max(0, highest - lowest + 1), words=words)
