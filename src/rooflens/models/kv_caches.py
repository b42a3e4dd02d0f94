"""Caches of transformers: how one is filled and put back, and what it holds.

A cache is known by what its objects hold, and not by a list of its classes: keys and values of attention, states of
linear attention and convolutions, keys of indexers, compressed entries, those of an encoder, or a plain list of states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from rooflens.errors import ModelError
from rooflens.models.dtypes import name_of
from rooflens.records import CachePart, KvCache

if TYPE_CHECKING:
    from rooflens.models.step import Step

_OWNERS = ("transformers.", "rooflens.")
"""Packages whose objects are part of a cache; a configuration is none."""
_GROWING = ("keys", "values", "indexer_keys", "idx_keys", "indexer_position_ids")
_ENCODED = "encoder "
"""Before the names of what a decoder keeps of its encoder's output, which never grows."""
_WINDOWS = ("sliding_window", "attention_chunk_size", "attention_window_size")
_ALONG_TOKENS = ("input_ids", "position_ids")
_COMPRESSED = "compressed_kv"


def begun_cache(step: Step, copied: Callable[[Any], Any] = lambda inputs: inputs) -> Any:
    """Return the cache with which a step begins, in the state in which it is after many steps; None without one.

    That of a decoding step has taken in the prompt, at once where that leaves the same behind as its last token by a
    step of its own; so that of a chunk of a prompt. That of other prefill is empty; one of a fixed length is allocated.

    Args:
        copied: from the step's inputs to those that the module is called with.

    Raises:
        ModelError: the model fills no cache.
    """
    if not step.prompt:
        if step.empty_cache is None:
            return None
        cache = _filled_cache(step, [step.kwargs], copied)
        cache.reset()
        return cache
    if len(step.prompt) == 2 and not _has_windows(step.module):
        cache = _filled_cache(step, [_joined(*step.prompt)], copied)
        if all(held.untyped_storage().nbytes() == held.numel() * held.element_size() for held in cache_tensors(cache)):
            return cache
    return _filled_cache(step, step.prompt, copied)


def _filled_cache(step: Step, prompts: Sequence[dict[str, Any]], copied: Callable[[Any], Any]) -> Any:
    cache, name = None if step.empty_cache is None else step.empty_cache(), str(step.cache)
    before = [(module, dict(vars(module))) for module in step.module.modules()]
    for prompt in prompts:
        with torch.no_grad():
            filled = step.module(**copied(prompt), **({} if cache is None else {name: cache})).get(name)
            if filled is None and cache is None:  # perhaps it fills one that is handed to it
                cache = usual_cache(step.module)
                step.module(**copied(prompt), **{name: cache})
        if filled is None and not cache_tensors(cache):
            raise ModelError(f"{step.name} fills no cache, so it has no mode {step.mode!r}")
        if filled is None and cache is not None:
            cache.of_modules = list(_states(before))
        cache = cache if filled is None else filled
    return cache


class _State:
    """A state that a module keeps in an attribute, beside the cache that it is given."""

    __slots__ = ("module", "name")

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self.module, self.name = module, name

    @property
    def tensor(self) -> torch.Tensor:
        held: torch.Tensor = getattr(self.module, self.name)
        return held


def _states(before: Sequence[tuple[torch.nn.Module, Mapping[str, Any]]]) -> Iterator[_State]:
    """Yield the tensors that modules have got since then."""
    for module, attributes in before:
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and attributes.get(name) is not value:
                yield _State(module, name)


def usual_cache(module: torch.nn.Module) -> Any:
    """Return an empty cache of transformers' usual kind, for a model that fills the one it is given."""
    from transformers import DynamicCache

    config: Any = module.config
    return DynamicCache(config=config.get_text_config(decoder=True))


def _has_windows(module: torch.nn.Module) -> bool:
    """True if layers see a part of the tokens, which the cache then cuts out of all: tried at once in vain."""
    config = getattr(module, "config", None)
    text = None if config is None else config.get_text_config(decoder=True)
    return any(getattr(text, name, None) for name in _WINDOWS)


def _joined(first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """The inputs of two runs as those of one."""
    longer = [name for name in first if name.endswith(_ALONG_TOKENS) and name in last]
    abreast = {name: first[name].dim() > 2 and name.endswith("input_ids") for name in longer}  # several at a position
    return first | {name: torch.cat([first[name], last[name]], dim=1 if abreast[name] else -1) for name in longer}


@dataclass(frozen=True, slots=True)
class _Cut:
    """The shape of a tensor that is cut to it after each step, instead of the tensor."""

    shape: torch.Size


class Restored:
    """A cache that is put back after each step to what it was when this was made.

    Tensors that grew by new tokens, or were replaced by others of their shape, are cut to their old length: to keep the
    old ones beside them would take the memory of a second cache. Others that a step replaces are put back. Values that
    change do not matter, for no kernel takes longer for them; counters of tokens, which are small tensors of integers,
    get their old ones.

    Args:
        dense: what is cut is copied, tensor after tensor, so that it lies as in a cache that has just grown: torch
            joins tensors that do not lie dense by another kernel, which took four times as long (H200).
    """

    def __init__(self, cache: Any, *, dense: bool = False) -> None:
        self.dense = dense
        self._objects = [(one, {k: _shallow(v) for k, v in vars(one).items()}) for one in _objects(cache)]
        self._list = (cache, list(cache)) if isinstance(cache, list) else None
        counters = [tensor for _, tensor, _ in _named(cache) if _is_counter(tensor)]
        self._counters = [(tensor, tensor.clone()) for tensor in counters]

    def __call__(self) -> None:
        for one, attributes in self._objects:
            after = dict(vars(one))
            vars(one).clear()
            for name, value in attributes.items():
                cut = _cut(after.get(name), value)
                if cut is not None:
                    cut = cut.contiguous() if self.dense else cut
                    attributes[name] = _Cut(cut.shape)
                elif isinstance(value, _Cut):
                    raise ModelError(f"the cache changes {name!r} in another way than in its first step")
                vars(one)[name] = _shallow(value) if cut is None else cut
            del after
        if self._list is not None:
            self._list[0][:] = self._list[1]
        for tensor, value in self._counters:
            tensor.copy_(value)


def _cut(after: Any, before: Any) -> torch.Tensor | None:
    """Return a tensor in a former shape, out of which it may have grown in one dimension; None for anything else."""
    if not isinstance(after, torch.Tensor) or not isinstance(before, torch.Tensor | _Cut) or _is_counter(after):
        return None
    shape = before.shape
    if len(after.shape) != len(shape):
        return None
    longer = [dim for dim, (new, old) in enumerate(zip(after.shape, shape, strict=True)) if new != old]
    if len(longer) > 1 or any(after.shape[dim] < shape[dim] for dim in longer):
        return None
    return after.narrow(longer[0], 0, shape[longer[0]]) if longer else after


def is_fixed(cache: Any) -> bool:
    """True if a cache has its length from the beginning: each step finds it in the same memory."""
    return any(_longest(part) is not None for part in _objects(cache))


def _longest(owner: Any) -> int | None:
    """The fixed length of a part of a cache. Versions of transformers give each cache a property of this name too."""
    longest: int | None = getattr(owner, "__dict__", {}).get("max_cache_len")
    return longest


def cache_tensors(cache: Any) -> list[torch.Tensor]:
    """Return the tensors that a cache keeps of the tokens it has seen; what it counts is not among them."""
    return [tensor for _, tensor, _ in _named(cache) if not _is_counter(tensor)]


def valid_parts(cache: Any, tokens: int) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield the tensors of a cache that has seen `tokens` tokens, and how many elements of each are valid."""
    for _, tensor, owner in _named(cache):
        if not _is_counter(tensor):
            yield tensor, round(tensor.numel() * _filled(owner, tokens))


def kv_cache(cache: Any, batch: int, tokens: int, times: Callable[[torch.Tensor], int] = lambda _: 1) -> KvCache:
    """Return what a cache holds that has seen `tokens` tokens of each of `batch` sequences.

    Args:
        times: for how many tensors that are alike one stands.
    """
    storages: set[int] = set()
    alike: Counter[CachePart] = Counter()
    for name, tensor, owner in _named(cache):
        storage = tensor.untyped_storage()
        if _is_counter(tensor) or not storage.nbytes():
            continue
        known = storage._cdata in storages  # keys that are values too
        storages.add(storage._cdata)
        share, nbytes = _filled(owner, tokens), 0 if known else tensor.numel() * tensor.element_size()
        part = CachePart(
            name=f"{name} scales" if getattr(owner, "holds_scales", False) else name,
            shape=tuple(tensor.shape),
            dtype=name_of(tensor.dtype),
            tensors=1,
            held=0 if known else storage.nbytes(),
            used=round(nbytes * share),
            per_token=_per_token(name, owner, tensor, tokens) * nbytes,
            compression=owner.compress_rate if name == _COMPRESSED else 1,
        )
        alike[part] += times(tensor)
    parts = tuple(replace(part, tensors=count) for part, count in alike.items())
    return KvCache(batch=batch, tokens=tokens, parts=parts)


def _filled(owner: Any, tokens: int) -> float:
    """The share of a layer's tensors that is filled: all of it but for a static one."""
    longest = _longest(owner)
    return 1 if longest is None else min(1, tokens / longest)


def _per_token(name: str, owner: Any, tensor: torch.Tensor, tokens: int) -> float:
    """The share of a tensor's bytes that one more token adds to it."""
    if name == _COMPRESSED:
        return 1 / float(max(1, tensor.shape[1]) * owner.compress_rate)
    if name not in _GROWING:
        return 0
    longest, window = _longest(owner), getattr(owner, "sliding_window", None)
    if longest is not None:
        return 0 if getattr(owner, "is_sliding", False) and tokens >= longest else 1 / longest
    if name in ("keys", "values") and window is not None and tokens >= window - 1:
        return 0
    return 1 / tokens


def _is_counter(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= 1 and not tensor.is_floating_point()


def _named(value: Any, name: str = "states", owner: Any = None) -> Iterator[tuple[str, torch.Tensor, Any]]:
    """Yield the tensors in a cache with their names and the objects that hold them."""
    if isinstance(value, torch.Tensor):
        yield name, value, owner
    elif isinstance(value, _State):
        yield value.name, value.tensor, value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _named(item, name, owner)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named(item, name, owner)
    elif _is_part(value):
        for attribute, item in vars(value).items():
            before = _ENCODED if attribute == "cross_attention_cache" else ""
            for inner, tensor, holder in _named(item, attribute, value):
                yield before + inner, tensor, holder


def _objects(value: Any) -> Iterator[Any]:
    """Yield the objects of a cache."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _objects(item)
    elif _is_part(value):
        yield value
        yield from _objects(vars(value))


def _is_part(value: Any) -> bool:
    from transformers import PreTrainedConfig

    module = type(value).__module__
    return module.startswith(_OWNERS) and hasattr(value, "__dict__") and not isinstance(value, PreTrainedConfig)


def _shallow(value: Any) -> Any:
    return value.copy() if isinstance(value, list | dict) else value
