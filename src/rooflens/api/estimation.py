"""Estimates: work, memory and bounds of a model on any device, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rooflens.api.arguments import given_to, named_options
from rooflens.capacity import asked_devices, asked_limits, asked_reserve, searched, searched_in_worker
from rooflens.errors import InvalidValue, checked
from rooflens.machine import find_all, listed
from rooflens.progress import Progress
from rooflens.records import Device
from rooflens.results import Fits, RecordSet, TimeLimit
from rooflens.running.estimating import estimable, estimated_requests, read_by_worker
from rooflens.runs.options import Fusion
from rooflens.runs.run import Request, is_graph, is_own_file, several
from rooflens.runs.time_limits import LIMIT, check_limit

if TYPE_CHECKING:
    import torch

    from rooflens.models import Loss


@named_options()
def estimate(
    model: str | torch.nn.Module,
    *,
    inputs: Any = None,
    name: str | None = None,
    batch: int | Sequence[int] | None = None,
    device: str | Device | Sequence[str | Device] | None = None,
    dtype: str | Sequence[str] | None = None,
    mode: str = "inference",
    loss: Loss | None = None,
    optimizer: str = "sgd",
    fused: bool = False,
    optimizer_dtype: str | None = None,
    master_weights: bool = False,
    checkpoint: bool = False,
    accumulation_steps: int = 1,
    img_size: int | Sequence[int] | None = None,
    seq_len: int | Sequence[int] | None = None,
    cached_tokens: int | Sequence[int] | None = None,
    prompt_len: int | Sequence[int] | None = None,
    output_len: int | Sequence[int] | None = None,
    dims: Mapping[str, int] | None = None,
    kv_cache: str = "dynamic",
    kv_cache_len: int | None = None,
    kv_dtype: str | None = None,
    kv_group_size: int | None = None,
    weights: str | None = None,
    weights_group_size: int | None = None,
    weights_except: str | None = None,
    price_per_hour: float | None = None,
    channels_last: bool = False,
    causal: bool = False,
    fusion: Fusion = "none",
    compile: bool = False,
    cuda_graph: bool = False,
    limit: float = LIMIT,
    progress: Progress | None = None,
) -> RecordSet:
    """Estimate a step: FLOP, bytes and memory of every operation, and the shortest time on each device.

    >>> estimate("resnet18", batch=256, device="a100-sxm4-40gb").total().matmul_flops  # doctest: +SKIP
    928805552128

    Args:
        model: a name (``resnet18``, ``timm:convnext_tiny``, ``hf:llama``, ``path/file.py:function``,
            ``path/file.onnx``) or a module, which is left exactly as it was.
        inputs: of a module: a tensor, a tuple, a dict, or ``(args, kwargs)``. Shapes and types count, values do not.
        name: what to call a module in its cases; default is the name of its class.
        batch: samples per step, one or several.
        device: names, device files or devices; none is needed to count.
        dtype: one or several of ``fp32`` (default of a named model), ``tf32``, ``default``, ``bf16``, ``fp16``,
            ``amp-bf16`` or ``amp-fp16``; a module is left as it is unless a dtype is given, and an ONNX file always.
            ``as-is`` leaves what a function in a file of your own makes as it is.
        mode: ``inference`` or ``train`` (forward with loss, backward, optimizer); of a language model by name also
            ``prefill``, ``decode`` or ``generate`` (a whole answer; its lengths alone ask for it too).
        loss: from output and targets to a scalar; default: cross entropy for a named model, else the sum of the
            outputs.
        optimizer: ``none``, ``sgd``, ``adam`` or ``adamw``.
        fused: the optimizer updates everything in one kernel, instead of an operation at a time (``foreach``).
        optimizer_dtype: ``fp32``, ``bf16`` or ``int8``: the type in which the optimizer keeps its state; default: that
            of the parameters.
        master_weights: keep copies of 16-bit parameters in fp32, which the optimizer updates.
        checkpoint: keep of each block of layers its input alone, and compute the rest again in backward; of models by
            name.
        accumulation_steps: micro-batches in a training step, each of the batch; gradients add up, and the optimizer
            runs once.
        img_size: height and width of images, one or several, where the model's own is not wanted.
        seq_len: tokens per sequence, one or several.
        cached_tokens: tokens that the cache holds before prefill, one or several: earlier chunks, or a cached prefix.
        prompt_len: tokens of the prompt of a whole answer, one or several: prefill reads them.
        output_len: tokens of its output, one or several: the first comes from prefill, each other one from a step of
            decode, whose cache has grown by one token.
        dims: of an ONNX file: sizes that it leaves open, by the name they have there (``input:1`` where they have
            none). Batch, image size and length of a sequence are mostly recognised and have arguments of their own.
        kv_cache: of prefill and decode: ``dynamic`` grows with each token, ``static`` has a fixed length.
        kv_cache_len: tokens that a static cache has room for; default: those of the step.
        kv_dtype: ``fp8``, ``int8`` or ``int4``: the type in which the cache keeps keys and values.
        kv_group_size: numbers that share a scale in an int8 or int4 cache; default: 64, or the most below that divide a
            head.
        weights: ``int8``, ``int4``, ``fp8``, ``nf4``, ``nf4-double`` or ``mxfp4``: how weights of products are stored,
            in inference, prefill and decode; default: what the model's configuration says. ``none``: the dtype.
        weights_group_size: weights that share a scale; default: 128 in int4, 64 in nf4, an output channel in int8.
        weights_except: modules whose weights stay, by name or pattern, with commas: ``lm_head,*.gate``. What is inside
            of one stays too.
        price_per_hour: price of the device for an hour, in a currency of yours; costs follow from it.
        channels_last: lay images and convolution weights out with channels last.
        causal: count causal attention as the half that its kernel executes.
        fusion: what runs as one kernel and keeps its intermediate results on the chip: ``none`` (each operation moves
            its own bytes, as in eager mode), ``pointwise`` (as a compiler fuses) or ``attention`` (besides, attention
            that is written out). Anything but ``none`` is an option of the case.
        compile: the step runs through torch.compile: ``pointwise`` fusion, unless more is asked for.
        cuda_graph: the step runs from CUDA graphs: no host has a part in its expected time.
        limit: seconds for each batch of a model in a file of your own, which is read and run in a worker process only.

    Returns:
        Operation records and one model record per case (size, batch, dtype and device). A case that cannot be estimated
        (its device has no rate for the dtype, say) is a `Failure` in `.failures`, and the others go on.

    Raises:
        InvalidValue, UnknownModel, UnknownDevice: an argument cannot be used, or names are not known, all of which are
            told; raised before anything is built.
        MissingCeiling, ModelError: no case can be estimated.
    """
    requests = Request.each_of(given_to(estimate, locals()))
    check_limit(limit)
    _check_price(price_per_hour, device)
    return estimated_requests(requests, partial(find_all, device), limit, progress)


@named_options()
def largest_batch(
    model: str | torch.nn.Module,
    *,
    device: str | Device | Sequence[str | Device],
    inputs: Callable[[int], Any] | None = None,
    dtype: str | None = None,
    mode: str = "inference",
    loss: Loss | None = None,
    optimizer: str = "sgd",
    fused: bool = False,
    optimizer_dtype: str | None = None,
    master_weights: bool = False,
    checkpoint: bool = False,
    accumulation_steps: int = 1,
    img_size: int | None = None,
    seq_len: int | None = None,
    cached_tokens: int | None = None,
    prompt_len: int | None = None,
    output_len: int | None = None,
    dims: Mapping[str, int] | None = None,
    kv_cache: str = "dynamic",
    kv_cache_len: int | None = None,
    kv_dtype: str | None = None,
    kv_group_size: int | None = None,
    weights: str | None = None,
    weights_group_size: int | None = None,
    weights_except: str | None = None,
    price_per_hour: float | None = None,
    channels_last: bool = False,
    causal: bool = False,
    fusion: Fusion = "none",
    compile: bool = False,
    cuda_graph: bool = False,
    name: str | None = None,
    reserve: str | float | None = None,
    max_time_per_token: str | float | None = None,
    max_time_to_first_token: str | float | None = None,
    limit: float = LIMIT,
    progress: Progress | None = None,
) -> Fits:
    """The largest batch of a step that fits into a device's memory, beside the context and workspaces.

    >>> largest_batch("resnet18", device="t4", mode="train").batch  # doctest: +SKIP
    579

    The peak is traced for the answer and for one sample more: the first fits and the second does not.

    Args:
        device: names, device files or devices; ``all`` is the whole catalogue. ``2x NAME`` is data parallel: the whole
            model on each of them, and a batch of its own.
        inputs: of a module that is handed in: a function from the batch size to its inputs.
        reserve: what stays free of each device's memory, in bytes or like ``2 GB``, instead of the figures that
            docs/memory.md lists.
        max_time_per_token, max_time_to_first_token: what a token may take, in seconds or like ``50 ms``: the largest
            batch keeps it by the expected time, and `by_bound` is the largest whose bound does.
        limit: seconds for the search, of a model in a file of your own; it is read and run in a worker process only.
        (others): as in :func:`estimate`.

    Returns:
        One answer per device, and the estimates at these batches.

    Raises:
        DataDependent: shapes depend on values, so that every batch would have to be run.
        InvalidValue, UnknownModel, UnknownDevice, MissingCeiling, ModelError: see :mod:`rooflens.errors`. Of several
            devices, one that has no rate for the step's precision is no error but an answer without a batch.
    """
    requests = Request.each_of(given_to(largest_batch, locals()))
    if len(requests) > 1:
        raise InvalidValue(
            "the largest batch is searched for one dtype, length and size; give one dtype, seq_len and img_size"
        )
    if not isinstance(model, str) and not callable(inputs):
        raise InvalidValue(
            f"the largest batch of {type(model).__name__} needs inputs of any batch; give inputs=function, which takes"
            " the batch size and returns a tensor, a tuple, a dict, or (args, kwargs)"
        )
    _check_price(price_per_hour, device)
    check_limit(limit)
    free = None if reserve is None else (asked_reserve(reserve),)
    asked = replace(requests[0], batch=None if is_graph(model) else 1)
    limits = _limits(asked, max_time_per_token, max_time_to_first_token)
    if read_by_worker(asked):
        return searched_in_worker(asked, asked_devices(device), free, limit, progress)
    targets, _ = checked(partial(asked_devices, device), partial(estimable, asked))  # all mistakes in names at once
    return searched(asked, targets, free, progress, limits=limits)


@named_options()
def longest_context(
    model: str,
    *,
    device: str | Device | Sequence[str | Device],
    batch: int | Sequence[int] = 1,
    dtype: str | None = None,
    mode: str = "decode",
    optimizer: str = "sgd",
    fused: bool = False,
    optimizer_dtype: str | None = None,
    master_weights: bool = False,
    checkpoint: bool = False,
    accumulation_steps: int = 1,
    img_size: int | None = None,
    kv_cache: str = "dynamic",
    kv_dtype: str | None = None,
    kv_group_size: int | None = None,
    weights: str | None = None,
    weights_group_size: int | None = None,
    weights_except: str | None = None,
    price_per_hour: float | None = None,
    causal: bool = False,
    fusion: Fusion = "none",
    compile: bool = False,
    cuda_graph: bool = False,
    reserve: str | float | None = None,
    max_time_per_token: str | float | None = None,
    max_time_to_first_token: str | float | None = None,
    progress: Progress | None = None,
) -> Fits:
    """The longest context of a language model by name that fits into a device's memory, at a batch.

    >>> longest_context("llama-3-8b", device="h100-sxm", dtype="bf16", batch=8).context  # doctest: +SKIP
    8191

    The peak is traced for the answer and for one token more: the first fits and the second does not, or the
    configuration of the model names no more positions.

    Args:
        device: as in :func:`largest_batch`.
        batch: one, or several, each with a search of its own.
        mode: ``decode`` (a token beside so many in the cache), ``prefill`` (so many tokens at once), ``inference`` or
            ``train``.
        reserve, max_time_per_token, max_time_to_first_token: as in :func:`largest_batch`.
        (others): as in :func:`estimate`.

    Returns:
        One answer per batch and device, with what limits it, and the estimates at these contexts.

    Raises:
        InvalidValue: the model reads no sequences of tokens whose length rooflens can choose.
        UnknownModel, UnknownDevice, MissingCeiling, ModelError, DataDependent: as :func:`largest_batch`.
    """
    if not isinstance(model, str) or is_graph(model) or is_own_file(model):
        name = model if isinstance(model, str) else type(model).__name__
        raise InvalidValue(f"the longest context is searched for language models by name, and {name!r} is none")
    requests = Request.each_of(given_to(longest_context, locals()))
    if len(requests) > 1:
        raise InvalidValue("the longest context is searched for one dtype and size; give one of each")
    _check_price(price_per_hour, device)
    free = None if reserve is None else (asked_reserve(reserve),)
    limits = _limits(requests[0], max_time_per_token, max_time_to_first_token)
    targets, _ = checked(partial(asked_devices, device), partial(estimable, requests[0]))
    at_batches = [replace(requests[0], batch=one) for one in several(batch)]
    every = [searched(asked, targets, free, progress, of="seq_len", limits=limits) for asked in at_batches]
    return Fits((fit for fits in every for fit in fits), RecordSet.union(fits.records for fits in every))


def _limits(asked: Request, per_token: str | float | None, first_token: str | float | None) -> tuple[TimeLimit, ...]:
    return asked_limits(asked.mode, max_time_per_token=per_token, max_time_to_first_token=first_token)


def _check_price(price: float | None, device: object) -> None:
    """Raise InvalidValue for a price of no device, or of several."""
    named = listed(device)
    if price is not None and len(named) != 1:
        which = "none is named" if not named else f"{len(named)} are named"
        raise InvalidValue(
            f"price_per_hour={price} is the price of one device, and {which}; name one device (several have a price"
            " each in 'rooflens compare --question devices --price NAME=PRICE')"
        )
