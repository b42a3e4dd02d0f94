"""Changes that may make a step faster: which of them a step can have, what they are called, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rooflens.records import Device
from rooflens.results import Evidence
from rooflens.runs.options import GENERATING
from rooflens.runs.run import Request, is_graph

Part = Literal["precision", "layout", "fusion", "launches", "optimizer", "weights", "cache", "batch"]
"""What of a step is changed; two changes of one part exclude each other."""
_WIDE = ("matmul.fp32", "matmul.tf32")
_HALF = ("bf16", "fp16")
_LOSSES = {
    "tf32": "products keep 10 of 23 bits of the mantissa",
    "bf16": "weights and results keep 7 of 23 bits of the mantissa",
    "fp16": "weights and results keep 10 of 23 bits, and overflow above 65,504",
    "amp-bf16": "products and their results keep 7 of 23 bits; weights stay in fp32",
    "amp-fp16": "products and their results keep 10 of 23 bits; weights stay in fp32, and the loss has to be scaled",
}
_STORED = {
    "int8": "weights keep 8 bits: test the answers",
    "int4": "weights keep 4 bits: test the answers with care",
    "fp8": "weights and what they multiply keep 3 bits of the mantissa (e4m3): test the answers",
}
_CACHED = {
    "fp8": "keys and values keep 3 bits of the mantissa (e4m3): test long answers; faster only where attention reads"
    " them as they are",
    "int8": "keys and values keep 8 bits: test long answers; faster only where attention reads them as they are",
}
LARGER = (4, 2)
"""Times the batch; the second where the first does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that can be done to a step.

    Attributes:
        name: what it is called; `asked`: the option that asks for it.
        part: what of the step it changes.
        costs: what it takes, in words.
        dtype: the dtype of the step then; None leaves it.
        times: the batch is larger by it.
        options: options of the run by name.
    """

    name: str
    asked: str
    part: Part
    costs: str
    dtype: str | None = None
    times: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    def of(self, request: Request) -> Request:
        """Return the changed request."""
        return replace(
            request,
            dtype=self.dtype or request.dtype,
            batch=request.batch if self.times == 1 else self.times * request.batch,
            options=replace(request.options, **self.options),
        )


def changes_of(request: Request, evidence: Evidence, device: Device) -> tuple[Change, ...]:
    """Return the changes that a step on a device can have and does not have yet."""
    found = [*_precisions(request, evidence, device), *_larger(request)]
    if not is_graph(request.model):
        found += [*_layouts(request, evidence), *_launches(request, evidence), *_training(request)]
        found += [*_weights(request, evidence, device), *_caches(request, evidence)]
    return tuple(found)


def _precisions(request: Request, evidence: Evidence, device: Device) -> Iterator[Change]:
    work = None if (total := evidence.total()) is None else total.as_written.work
    wide = [name for name in _WIDE if work is not None and work.flops.get(name)]
    if not wide:
        return
    names = ["tf32"] if "matmul.fp32" in wide else []
    if not is_graph(request.model):  # whose tensors have the types of the file
        half = next((name for name in _HALF if device.ceiling(f"matmul.{name}")), None)
        mixed = request.mode == "train"
        names += [] if half is None else [f"amp-{half}" if mixed else half]
    for name in names:
        if device.ceiling(f"matmul.{name.removeprefix('amp-')}") and name != request.dtype:
            yield Change(name=name, asked=f"--dtype {name}", part="precision", dtype=name, costs=_LOSSES[name])


def _larger(request: Request) -> Iterator[Change]:
    if isinstance(request.batch, int) and isinstance(request.model, str):
        training = ", and training may need another learning rate" if request.mode == "train" else ""
        for times in LARGER:
            batch = times * request.batch
            yield Change(
                name=f"batch {batch}",
                asked=f"-b {batch}",
                part="batch",
                times=times,
                costs=f"each step takes longer, and more memory{training}",
            )


def _layouts(request: Request, evidence: Evidence) -> Iterator[Change]:
    if "convolution" in _families(evidence) and not request.options.channels_last:
        yield Change(
            name="channels last",
            asked="--channels-last",
            part="layout",
            options={"channels_last": True},
            costs="images have to come in that layout",
        )


def _launches(request: Request, evidence: Evidence) -> Iterator[Change]:
    options, families = request.options, _families(evidence)
    fused = options.compile or options.fusion != "none"
    if not fused:
        first = "the first call of each shape takes up to minutes"
        yield Change(name="compile", asked="--compile", part="fusion", options={"compile": True}, costs=first)
        if "softmax" in families and "attention" not in families:
            yield Change(
                name="fused attention",
                asked="--compile --fusion attention",
                part="fusion",
                options={"compile": True, "fusion": "attention"},
                costs="the code has to call scaled_dot_product_attention, whose sums have another order",
            )
    if not options.cuda_graph and not options.checkpoint:
        cached = request.mode in GENERATING[1:] and options.kv_cache == "dynamic"
        if cached:
            yield Change(
                name="static cache",
                asked="--kv-cache static",
                part="launches",  # a graph has one too
                options={"kv_cache": "static"},
                costs="a cache of one length, which attention reads as a whole; no step copies it to make it longer",
            )
        yield Change(
            name="CUDA graph",
            asked="--cuda-graph" + (" --kv-cache static" if cached else ""),
            part="launches",
            options={"cuda_graph": True, **({"kv_cache": "static"} if cached else {})},
            costs="one shape for each graph, which keeps its memory"
            + (", and a cache of one length" if cached else ""),
        )


def _training(request: Request) -> Iterator[Change]:
    options = request.options
    own_state = options.optimizer_dtype is not None or options.master_weights
    if request.mode == "train" and options.optimizer != "none" and not options.fused and not own_state:
        costs = "nothing but the last bits of the sums"
        yield Change(name="fused optimizer", asked="--fused", part="optimizer", options={"fused": True}, costs=costs)


def _weights(request: Request, evidence: Evidence, device: Device) -> Iterator[Change]:
    decodes, stored = request.mode in GENERATING[1:], dict(evidence.case.options).get("weights")
    if decodes and stored is None and request.dtype in _HALF:
        for name, costs in _STORED.items():
            if name != "fp8" or device.ceiling("matmul.fp8"):  # the product of such weights runs in fp8
                yield Change(
                    name=f"{name} weights",
                    asked=f"--weights {name}",
                    part="weights",
                    options={"weights": name},
                    costs=costs,
                )


def _caches(request: Request, evidence: Evidence) -> Iterator[Change]:
    cache = None if evidence.work is None else evidence.work.kv_cache
    if request.mode in GENERATING[1:] and request.options.kv_dtype is None and cache is not None and cache.per_token:
        for name, costs in _CACHED.items():
            yield Change(
                name=f"{name} cache",
                asked=f"--kv-dtype {name}",
                part="cache",
                options={"kv_dtype": name},
                costs=costs,
            )


def _families(evidence: Evidence) -> frozenset[str]:
    return frozenset(record.kind for record in evidence.work or () if record.work is not None)
