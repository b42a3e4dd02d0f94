"""The cache that a run asks for: of a fixed length, or with keys and values in fewer bits."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rooflens.errors import InvalidValue
from rooflens.models.quantised_caches import quantised
from rooflens.runs.options import Options


def asked_cache(name: str, kind: type, config: Any, options: Options, tokens: int) -> Callable[[], Any] | None:
    """Return what makes the empty cache of a step; None where the model makes its own.

    Args:
        name: of the model, for messages.
        kind: class of the model.
        tokens: that the cache has to have room for.

    Raises:
        InvalidValue: the family has no such cache, or it is too short for the step.
    """
    if options.kv_cache == "dynamic" and options.kv_dtype is None:
        return None
    from transformers import DynamicCache, EncoderDecoderCache, StaticCache

    encodes_first = "decoder_input_ids" in inspect.signature(kind.forward).parameters  # type: ignore[attr-defined]
    static, length = options.kv_cache == "static", options.kv_cache_len or tokens
    if static and not getattr(kind, "_can_compile_fullgraph", False):
        raise InvalidValue(
            f"{name}: transformers runs {config.model_type} with no cache of a fixed length; leave out"
            " kv_cache='static'"
        )
    if length < tokens:
        raise InvalidValue(
            f"kv_cache_len={length} has no room for the {tokens} tokens of the step; give at least {tokens}"
        )

    def decoding() -> Any:
        cache = StaticCache(config=config, max_cache_len=length) if static else DynamicCache(config=config)
        return cache if options.kv_dtype is None else quantised(cache, options.kv_dtype, options.kv_group_size)

    def make() -> Any:
        # What is made of the encoder's output never grows, and models take it from the cache as it is.
        return EncoderDecoderCache(decoding(), DynamicCache()) if encodes_first else decoding()

    if options.kv_dtype is not None and not _attending(decoding()):
        raise InvalidValue(
            f"kv_dtype={options.kv_dtype!r} is the type of keys and values, and {name} keeps none: the states of its"
            " layers stay as they are"
        )
    return make


def _attending(cache: Any) -> list[Any]:
    from transformers.cache_utils import CacheLayerMixin

    return [layer for layer in cache.layers if isinstance(layer, CacheLayerMixin)]
