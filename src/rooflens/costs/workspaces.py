"""Bytes that libraries take for their own use: estimates, from the rules in workspaces.toml.

cuDNN's workspace of a convolution lives as long as the call. What torch gives cuBLAS is kept. Other operations take
little beside their results, and are not in here.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from rooflens.costs.convolution import macs
from rooflens.costs.registry import Arithmetic, cost
from rooflens.records import Call, Device, Tensor, Trace
from rooflens.units import parse

ALIGNED = 16
"""Bytes to which cuDNN pads the channels of a position, for kernels that want them last."""
AT_ONCE = 8
"""Groups that cuDNN computes at once in fp32, as seen with 2 to 16 groups."""
CALLS = {"convolution": ("forward",), "convolution_backward": ("input", "weight")}
"""What a convolution's operations compute, in order; `output_mask` says which of the gradients are asked for."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """A convolution, as the rules see it.

    Attributes:
        kind: "plain" if it has two dimensions, one group and is not transposed; "grouped" if only the groups are more.
        inputs: channels of the image, of all groups.
        width: channels of the image of one group.
    """

    kind: str
    groups: int
    width: int
    batch: int
    inputs: int
    outputs: int
    image: tuple[int, ...]
    result: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int
    dilation: int
    flop: int
    image_bytes: int
    weight_bytes: int
    result_bytes: int

    def fits(self, rule: Mapping[str, Any]) -> bool:
        """True if every condition of a rule about sizes holds."""
        ranges = {
            "kernel": max(self.kernel),
            "stride": self.stride,
            "side": max(self.image),
            "batch": self.batch,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "dilation": self.dilation,
            "groups": self.groups,
            "width": self.width,
        }
        return (
            all(rule[name][0] <= size <= rule[name][1] for name, size in ranges.items() if name in rule)
            and self.flop >= rule.get("flop", 0)
            and self.kind in rule.get("kinds", ("plain",))
            and not (rule.get("square", False) and len(set(self.kernel)) > 1)
        )


@dataclass(frozen=True, slots=True)
class Workspaces:
    """What the libraries take during a step.

    Attributes:
        peak: the most bytes at any moment in the tensors and in the workspace of a convolution.
        threads: threads that run matrix products, forward and backward: torch keeps a workspace for each.
        with_bias: a product adds a bias.
    """

    peak: int
    threads: int
    with_bias: bool

    def reported(self, device: Device) -> int | None:
        """Bytes that the device reports at the peak; None where nothing is known of its libraries."""
        products = _products_workspace(device)
        if products is None:
            return None
        return self.peak + products * self.threads + self.with_bias * _bytes(_table()["with_bias"])


def workspaces(trace: Trace, arithmetic: Arithmetic) -> Workspaces | None:
    """What the libraries take during a traced step; None where the memory of its tensors is not known."""
    if trace.memory is None or trace.memory.peak is None or trace.held is None:
        return None
    products = [o for o in trace.operations if cost(o.call, arithmetic).family == "matmul"]
    taken = [
        held + call_workspace(operation.call, arithmetic)
        for operation, held in zip(trace.operations, trace.held, strict=True)
        if operation.call.name in CALLS
    ]
    return Workspaces(
        peak=max((trace.memory.peak, *taken)),
        threads=len({operation.phase == "backward" for operation in products}),
        with_bias=any(operation.call.name == "addmm" for operation in products),
    )


def most_kept(device: Device) -> int | None:
    """Bytes that torch keeps for products at most, in forward and backward; None where nothing is known of a device."""
    return Workspaces(peak=0, threads=2, with_bias=True).reported(device)


def call_workspace(call: Call, arithmetic: Arithmetic) -> int:
    """Bytes that cuDNN takes during a convolution's call, as on an H100: the most of the gradients that it computes."""
    image = call.tensor("input")
    precision = arithmetic.convolutions if image.dtype == "fp32" else image.dtype
    sizes = _sizes(call, image)
    if sizes is None:
        return 0
    asked = call.integers("output_mask") if call.name == "convolution_backward" else (1,)
    return max(
        (_workspace(of, precision, sizes) for of, wanted in zip(CALLS[call.name], asked, strict=False) if wanted),
        default=0,
    )


def _sizes(call: Call, image: Tensor) -> _Sizes | None:
    """The sizes; None of a convolution that no rule is about: an empty one, one per channel, or channels-last order."""
    if not image.elements:
        return None
    weight, groups, transposed = call.tensor("weight"), call.integer("groups"), bool(call["transposed"])
    if groups == image.shape[1] != 1 or image.memory_format in ("channels_last", "channels_last_3d"):
        return None
    result = call.outputs[0] if call.name == "convolution" else call.tensor("grad_output")
    return _Sizes(
        kind="other" if len(weight.shape) != 4 or transposed else "plain" if groups == 1 else "grouped",
        groups=groups,
        width=image.shape[1] // groups,
        batch=image.shape[0],
        inputs=image.shape[1],
        outputs=weight.shape[0],
        image=image.shape[2:],
        result=result.shape[2:],
        kernel=weight.shape[2:],
        stride=max(call.integers("stride")),
        dilation=max(call.integers("dilation")),
        flop=2 * macs(image, weight, result.shape, transposed),
        image_bytes=image.nbytes,
        weight_bytes=weight.nbytes,
        result_bytes=result.nbytes,
    )


@lru_cache(maxsize=4096)  # not of calls: those of one shape are equal in every layout
def _workspace(of: str, precision: str, sizes: _Sizes) -> int:
    for rule in _table()["convolution"]:
        if of in rule["of"] and precision in rule["arithmetic"] and sizes.fits(rule):
            name, _, tile = rule["algorithm"].partition(" ")
            return _FORMULAS[name](of, sizes, int(tile or 0))
    return 0


def _copies(of: str, sizes: _Sizes, _: int) -> int:
    """Image, weight and result are copied into channels-last order, the channels of a position padded to 16 bytes."""
    positions = sizes.batch * math.prod(sizes.image)
    padded = positions * ALIGNED * math.ceil(sizes.image_bytes / positions / ALIGNED)
    return padded + sizes.weight_bytes + sizes.result_bytes


def _fft(of: str, sizes: _Sizes, tile: int) -> int:
    """The spectra, tile x (tile / 2 + 1) complex numbers of 8 bytes each, of every image, filter and result.

    Forward, the spectra of the filters are kept twice, beside a flipped copy of the filters. For the gradient of an
    image of several tiles, images and results have two buffers.
    """
    spectrum = tile * (tile // 2 + 1) * 8
    images, filters = sizes.batch * (sizes.inputs + sizes.outputs), sizes.inputs * sizes.outputs
    if of == "forward":
        return spectrum * (images + 2 * filters) + sizes.weight_bytes
    tiles = math.prod(
        math.ceil(side / (tile + 1 - kernel)) for side, kernel in zip(sizes.image, sizes.kernel, strict=True)
    )
    return spectrum * ((2 if tiles > 1 else 1) * images + filters)


def _winograd(of: str, sizes: _Sizes, tile: int) -> int:
    """Tiles of image and gradient, and filters, each transformed to (tile + kernel - 1)^2 numbers of fp32."""
    tiles = sizes.batch * math.prod(math.ceil(side / tile) for side in sizes.result)
    numbers = tiles * (sizes.inputs + sizes.outputs) + sizes.inputs * sizes.outputs // sizes.groups
    return _at_once(4 * (tile + max(sizes.kernel) - 1) ** 2 * numbers, sizes)


def _grouped_copies(of: str, sizes: _Sizes, _: int) -> int:
    """Image and result are copied into channels-last order."""
    return _at_once(sizes.image_bytes + sizes.result_bytes, sizes)


def _at_once(nbytes: int, sizes: _Sizes) -> int:
    """What is needed for as many groups as are computed at once, of what all need."""
    return nbytes * min(AT_ONCE, sizes.groups) // sizes.groups


_FORMULAS = {"copies": _copies, "fft": _fft, "grouped-copies": _grouped_copies, "winograd": _winograd}


def _products_workspace(device: Device) -> int | None:
    """Bytes of one workspace for products; None where no rule is about the device."""
    for rule in _table()["products"]:
        of_vendor = device.vendor == rule["vendor"] and device.kind in ("gpu", "accelerator")
        if of_vendor and device.arch.startswith(tuple(rule.get("arch", [""]))):
            return _bytes(rule)
    return None


def _bytes(rule: Mapping[str, Any]) -> int:
    return int(parse(rule["bytes"], "B"))


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads((files("rooflens.costs") / "workspaces.toml").read_text(encoding="utf-8"))
