"""Step: a module, its inputs, and what a mode runs. The same step is traced and measured."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from types import MethodType
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map_only

from rooflens.errors import InvalidValue
from rooflens.models.blueprint import Example
from rooflens.models.mixed_optimizers import MixedOptimizer, needs_mixing
from rooflens.records import AS_IS
from rooflens.runs.options import OPTIONS

Loss = Callable[[Any, Any], torch.Tensor]
"""From the model's output and the targets (None where the step has none) to a scalar."""


ONE_DICT = "if the dict is one argument, give ({...},)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Example):
    """One run of a model, with its inputs.

    Attributes:
        name: the model as the user named it.
        dtype: its name, as cases have it.
        module: the model; its tensors may be on the meta device if the step is only traced.
        mode: inference, train, prefill or decode; generate is run, and traced a step at a time.
        loss: used in train mode.
        optimizer: used in train mode.
        fused: the optimizer updates all parameters in one kernel, instead of an operation at a time.
        optimizer_dtype: type of the optimizer's state, or None for that of the parameters.
        master_weights: the optimizer updates copies of 16-bit parameters in fp32.
        accumulation_steps: how often forward and backward run before the optimizer does.
        cast: type to which the floating tensors of module and inputs are brought, or None to leave them.
        autocast: element type under autocast, or None.
        channels_last: images and convolution weights have channels last.
        with_values: makes the same step on the CPU, for one whose module or inputs were made without values; None
            where they are those that somebody handed in.
        notes: what has to be said of it beside its numbers.
    """

    name: str
    module: torch.nn.Module
    dtype: str = AS_IS
    mode: str = "inference"
    loss: Loss
    optimizer: str = "sgd"
    fused: bool = False
    optimizer_dtype: str | None = None
    master_weights: bool = False
    accumulation_steps: int = 1
    cast: torch.dtype | None = None
    autocast: torch.dtype | None = None
    channels_last: bool = False
    with_values: Callable[[], Step] | None = None
    notes: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        """What to try if it fails: where its one argument was given by name, the dict itself may be the argument."""
        return f"; {ONE_DICT}" if not self.args and argument_names(self.module) == list(self.kwargs) else ""

    @property
    def training(self) -> bool:
        return self.mode == "train"

    @property
    def seen_before(self) -> int:
        """Tokens of each sequence that the cache has seen when the step begins."""
        if self.seen is None or not self.prompt:
            return 0
        return self.seen - (1 if self.mode == "decode" else int(self.kwargs["input_ids"].shape[1]))

    @property
    def generates(self) -> bool:
        """True if the step goes on with a cache that is there before it begins."""
        return bool(self.prompt) or (self.mode == "prefill" and self.empty_cache is not None)

    @property
    def scaled(self) -> bool:
        """True if the loss is scaled, without which fp16 gradients underflow."""
        return self.training and self.autocast is torch.float16

    def optimizer_of(self, parameters: Sequence[torch.Tensor]) -> torch.optim.Optimizer | None:
        """Return the optimizer of its parameters; None where it stops after backward."""
        return make_optimizer(
            self.optimizer, list(parameters), self.fused, state=self.optimizer_dtype, master=self.master_weights
        )

    def loss_of(self, output: Any, targets: Any) -> torch.Tensor:
        """Return the loss of an output; of several micro-batches, its share in their mean."""
        loss = self.loss(output, targets)
        return loss if self.accumulation_steps == 1 else loss / self.accumulation_steps

    def precision(self, device_type: str) -> AbstractContextManager[Any]:
        """Return the autocast context of the forward pass."""
        return torch.autocast(device_type, self.autocast) if self.autocast is not None else nullcontext()


def argument_names(module: torch.nn.Module) -> list[str]:
    """Return the names of the arguments of `forward`; none where it takes any, or where they are not known."""
    if not isinstance(module.forward, MethodType):
        return []
    parameters = inspect.signature(module.forward, follow_wrapped=False).parameters
    return [] if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else list(parameters)


class _Given(torch.autograd.Function):
    """A tensor with a node of the backward graph that asks for nothing further."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return None, None


def as_result(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of a tensor as the result of operations before the step: no leaf, so it may change in place."""
    with torch.enable_grad():
        result: torch.Tensor = _Given.apply(torch.empty((), requires_grad=True), tensor.detach())
    return result


_ADAM = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
_SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
    "adam": _ADAM | {"weight_decay": 0.0},
    "adamw": _ADAM | {"weight_decay": 1e-2},
}


def with_results(inputs: Any) -> Any:
    """Return inputs for one run: those that are results of operations anew, since the run may change them in place."""
    tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    if all(tensor.is_leaf for tensor in tensors):
        return inputs
    return tree_map_only(torch.Tensor, lambda tensor: tensor if tensor.is_leaf else as_result(tensor), inputs)


def make_optimizer(
    name: str,
    parameters: Sequence[torch.Tensor],
    fused: bool = False,
    *,
    state: str | None = None,
    master: bool = False,
) -> torch.optim.Optimizer | None:
    """Return the optimizer of a training step, in torch's form ``foreach`` or fused; None for "none".

    SGD has the ImageNet example's momentum of 0.9 and weight decay of 1e-4; Adam and AdamW have torch's defaults.

    Args:
        state: type of what it keeps of each parameter; None is that of the parameter.
        master: it updates copies of 16-bit parameters in fp32.

    Raises:
        InvalidValue: the name is unknown, or there is nothing to copy.
    """
    OPTIONS["optimizer"].check(name)
    if name == "none" or not parameters:
        return None
    if (state is not None or master) and needs_mixing(parameters, state, master):
        settings = _SETTINGS[name] | ({} if name == "sgd" else {"capturable": False})
        return MixedOptimizer(name, parameters, state=state, master=master, **settings)
    if name == "sgd":
        return torch.optim.SGD(parameters, **_SETTINGS[name], foreach=not fused, fused=fused)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(parameters, **_SETTINGS[name], foreach=not fused, fused=fused)


def is_compiled(module: torch.nn.Module) -> TypeGuard[Any]:
    """True for what torch.compile returns. Its package is not loaded for that, which takes as long as torch itself."""
    compiler = sys.modules.get("torch._dynamo")
    kind = None if compiler is None else vars(compiler).get("OptimizedModule")  # None where it is not loaded
    return kind is not None and isinstance(module, kind)


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """Return the model inside of torch.compile, DataParallel and DistributedDataParallel."""
    while True:
        if is_compiled(module):
            module = module._orig_mod
        elif isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module
        else:
            return module


def check_whole(module: torch.nn.Module, name: str) -> None:
    """Raise InvalidValue for a module of which this process holds a part: by fully_shard, FSDP or tensor parallel."""
    parts: list[type] = [type(part) for part in module.modules() if _is_of(type(part), "torch.distributed.fsdp")]
    tensors = (*module.parameters(), *module.buffers())
    parts += [type(tensor) for tensor in tensors if _is_of(type(tensor), "torch.distributed")]
    if parts:
        raise InvalidValue(
            f"{name} is spread over processes ({parts[0].__name__}), and this one holds a part of it; hand in the"
            " module as it was before it was spread (built anew, on the meta device if it is large)"
        )


def _is_of(kind: type, package: str) -> bool:
    return any(f"{base.__module__}.".startswith(f"{package}.") for base in kind.__mro__)


def sum_of_outputs(output: Any, targets: Any) -> torch.Tensor:
    """Return the sum of all floating tensors in `output`; of complex ones, of real and imaginary parts.

    Raises:
        InvalidValue: there is none, or none needs a gradient.
    """
    tensors = floating_tensors(output)
    if not tensors:
        raise InvalidValue("the output holds no floating tensor to train on; give a loss=callable")
    sums = [tensor.sum() for tensor in tensors]
    total, *more = [s.real + s.imag if s.is_complex() else s for s in sums]
    for one in more:
        total = total + one
    return total


def cross_entropy(output: Any, targets: Any) -> torch.Tensor:
    """Return the cross entropy of all logits in the output, of auxiliary heads too, against the same targets.

    Logits are (batch, classes), (batch, classes, height, width) or (batch, sequence, classes) with targets of the same
    shape less the classes.
    """
    total = None
    for logits in floating_tensors(output):
        if logits.dim() == 3 and targets.dim() == 2:
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        else:
            loss = functional.cross_entropy(logits, targets)
        total = loss if total is None else total + loss
    if total is None:
        raise InvalidValue("the output holds no floating tensor to train on; give a loss=callable")
    return total


def floating_tensors(structure: Any) -> list[torch.Tensor]:
    """Return all floating or complex tensors in nested lists, dicts, dataclasses and other known structures."""
    return [tensor for tensor in _tensors(structure) if tensor.is_floating_point() or tensor.is_complex()]


def _tensors(structure: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(structure):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif is_dataclass(leaf):
            yield from _tensors([getattr(leaf, part.name) for part in fields(leaf)])
        elif isinstance(leaf, Mapping):
            yield from _tensors(list(leaf.values()))
