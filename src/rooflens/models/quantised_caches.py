"""Caches that keep keys and values in fewer bits, each layer as transformers' own of the same kind.

``fp8``: e4m3, one scale in fp32 for all keys of a layer and one for its values, set by the first tokens. ``int8`` and
``int4``: a group of neighbouring numbers of a head shares a scale and a least value, both in the type of the model;
two int4 numbers lie in a byte. States, and the keys of indexers, stay in the type of the model.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch import Tensor

from rooflens.errors import InvalidValue

GROUP = 64
"""Numbers that share a scale, where none are asked for and a head has so many: that of transformers and of KIVI."""
_FP8 = torch.float8_e4m3fn
_LEVELS = {"int8": 255, "int4": 15}
_LIBRARY = torch.library.Library("rooflens", "FRAGMENT")


def quantised(cache: Any, kv_dtype: str, group: int | None = None) -> Any:
    """Return an empty cache of transformers with keys and values in `kv_dtype`."""
    from transformers.cache_utils import CacheLayerMixin

    cache.layers = [
        _layer(layer, kv_dtype, group) if isinstance(layer, CacheLayerMixin) else layer for layer in cache.layers
    ]
    return cache


def _layer(layer: Any, kv_dtype: str, group: int | None) -> Any:
    scales = copy(layer)  # no deep copy: tensors without values have none
    vars(scales).update({name: held.clone() for name, held in vars(layer).items() if isinstance(held, Tensor)})
    scales.holds_scales = True
    kind = type(layer)
    # A class with a layer type of its own would take the place of transformers' own in every later cache.
    own = {"_layer_type": None, "__module__": __name__}
    made: Any = object.__new__(type(f"Quantised{kind.__name__}", (_Quantised, kind), own))
    vars(made).update(vars(layer), kv_dtype=kv_dtype, group=group, scales=scales)
    return made


class _Quantised:
    """A layer that keeps codes where its class keeps keys and values, and their scales in a second one of its kind."""

    kv_dtype: str
    group: int | None
    scales: Any
    keys_scale: Tensor | None = None
    values_scale: Tensor | None = None

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values; return all of them in their own type."""
        if self.kv_dtype == "fp8":
            held, scales = self._in_fp8(keys, values, args, kwargs)
        else:
            made = [torch.ops.rooflens.quantize_cache(new, self.kv_dtype, self._grouped(new)) for new in (keys, values)]
            (key_codes, key_scales), (value_codes, value_scales) = made
            held = super().update(key_codes, value_codes, *args, **kwargs)  # type: ignore[misc]
            scales = self.scales.update(key_scales, value_scales, *args, **kwargs)
        if held[0].shape[-2] == keys.shape[-2]:  # nothing is there beside what came now
            return keys, values
        dequantize = torch.ops.rooflens.dequantize_cache
        return dequantize(held[0], scales[0], self.kv_dtype, keys.dtype), dequantize(
            held[1], scales[1], self.kv_dtype, values.dtype
        )

    def _in_fp8(self, keys: Tensor, values: Tensor, args: Any, kwargs: Any) -> Any:
        if self.keys_scale is None or self.values_scale is None:
            self.keys_scale, self.values_scale = _scale(keys), _scale(values)
        codes = [(new / by).to(_FP8) for new, by in ((keys, self.keys_scale), (values, self.values_scale))]
        return super().update(*codes, *args, **kwargs), (self.keys_scale, self.values_scale)  # type: ignore[misc]

    def _grouped(self, new: Tensor) -> int:
        """Numbers of a head that share a scale."""
        width = new.shape[-1]
        group = self.group or next(n for n in range(min(GROUP, width), 0, -1) if width % n == 0)
        if width % group or (self.kv_dtype == "int4" and width % 2):
            fitting = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
            raise InvalidValue(
                f"a head has {width} numbers, which do not fall into groups of {group} in {self.kv_dtype}:"
                f" kv_group_size may be {fitting}; in int4 their number is even"
            )
        return group

    def reset(self) -> None:
        """Forget all tokens."""
        super().reset()  # type: ignore[misc]
        self.scales.reset()
        self.keys_scale = self.values_scale = None


def _scale(new: Tensor) -> Tensor:
    """The scale by which the largest number becomes the largest of fp8."""
    return (new.abs().amax().float() / torch.finfo(_FP8).max).clamp(min=torch.finfo(torch.float32).tiny)


def _empty_codes(new: Tensor, kv_dtype: str, group: int) -> tuple[Tensor, Tensor]:
    width = new.shape[-1]
    codes = new.new_empty((*new.shape[:-1], width if kv_dtype == "int8" else width // 2), dtype=torch.uint8)
    return codes, new.new_empty((*new.shape[:-1], 2 * width // group))


def _quantize(new: Tensor, kv_dtype: str, group: int) -> tuple[Tensor, Tensor]:
    grouped = new.float().unflatten(-1, (-1, group))
    least, most = grouped.amin(-1), grouped.amax(-1)
    scale = ((most - least) / _LEVELS[kv_dtype]).clamp(min=torch.finfo(torch.float32).tiny)
    codes = ((grouped - least[..., None]) / scale[..., None]).round().to(torch.uint8).flatten(-2)
    if kv_dtype == "int4":
        codes = codes[..., ::2] | (codes[..., 1::2] << 4)
    return codes, torch.cat([scale, least], dim=-1).to(new.dtype)


def _empty_numbers(codes: Tensor, scales: Tensor, kv_dtype: str, dtype: torch.dtype) -> Tensor:
    width = codes.shape[-1] * (2 if kv_dtype == "int4" else 1)
    return codes.new_empty((*codes.shape[:-1], width), dtype=dtype)


def _dequantize(codes: Tensor, scales: Tensor, kv_dtype: str, dtype: torch.dtype) -> Tensor:
    if kv_dtype == "fp8":
        return (codes.float() * scales).to(dtype)
    if kv_dtype == "int4":
        codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
    scale, least = scales.float().chunk(2, dim=-1)
    grouped = codes.float().unflatten(-1, (scale.shape[-1], -1))
    numbers: Tensor = grouped * scale[..., None] + least[..., None]
    return numbers.flatten(-2).to(dtype)


for _schema, _shapes, _kernel in (
    ("quantize_cache(Tensor self, str kv_dtype, int group) -> (Tensor, Tensor)", _empty_codes, _quantize),
    (
        "dequantize_cache(Tensor self, Tensor scales, str kv_dtype, ScalarType dtype) -> Tensor",
        _empty_numbers,
        _dequantize,
    ),
):
    _name = _schema.partition("(")[0]
    _LIBRARY.define(_schema)
    torch.library.register_fake(f"rooflens::{_name}", _shapes, lib=_LIBRARY)
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
