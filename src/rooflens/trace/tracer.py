"""Run a step on copies of its tensors: fake ones, or real ones where values decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rooflens.errors import DataDependent, ModelError
from rooflens.host_limits import within_free_memory
from rooflens.models import (
    Step,
    begun_cache,
    cache_tensors,
    changed_while_running,
    check_whole,
    kv_cache,
    neutral,
    settings,
    unwrapped,
    valid_parts,
)
from rooflens.models.fakes import usual_methods
from rooflens.models.holders import Holders
from rooflens.models.quiet import no_hints_of_kernels
from rooflens.records import AS_IS, Cached, KvCache, Mask, Trace, with_cache
from rooflens.trace.autocast import cuda_casts, other_casts
from rooflens.trace.called_modules import CalledModules
from rooflens.trace.copies import Copies, FakeCopies, RealCopies, own_state
from rooflens.trace.higher_order import flexible_attention
from rooflens.trace.lifetimes import Lifetimes
from rooflens.trace.masks import Known, known_masks
from rooflens.trace.modules import ModulePaths, has_scripts, switch, untouched, with_own_parameters
from rooflens.trace.recorder import Recorder
from rooflens.trace.refusals import (
    model_errors,
    refuse_iterator,
    refuse_lazy,
    refuse_what_does_not_fit,
)
from rooflens.trace.repeated_layers import RepeatedLayers
from rooflens.trace.replaced_calls import OPERATORS, AcceleratorCalls, without_mkldnn
from rooflens.trace.replaced_operators import replaced
from rooflens.trace.scan_calls import Scans
from rooflens.trace.seen_calls import NotRepeated
from rooflens.trace.threads import bystanders, own_thread
from rooflens.trace.training import Training
from rooflens.trace.varlen_calls import nested_layers


def trace(step: Step, *, summing: bool = False) -> Trace:
    """The operations of one step, as an accelerator would run them, without computing anything.

    Args:
        summing: only sums are asked for: where that is possible, the operations of one layer stand for those of others
            (`Trace.neighbours`).

    Where a shape or a branch depends on values, a copy of the step is really run on the CPU, if it fits in memory. The
    module is left exactly as it was.

    Raises:
        InvalidValue: this process holds a part of the module only.
        ModelError: the module raised; the message names the module that was running.
        DataDependent: a shape or branch depends on values, and the model is too large to run here.
    """
    check_whole(step.module, step.name)
    refuse_lazy(step)
    with neutral(step.dtype) as disturbed, no_hints_of_kernels():
        try:
            _refuse_what_has_no_fake(step)
            done = _run_on_fakes(step, summing)
        except DataDependent as error:
            refuse_what_does_not_fit(step, error)
            try:
                with within_free_memory():
                    real = step if step.with_values is None else step.with_values()
                    done = _run(real, RealCopies(step.cast, step.channels_last))
            except ModelError as failed:
                if failed.__cause__ is None:  # a sentence of ours
                    raise
                raise ModelError(f"{failed}; this was on the CPU with values, since {error}") from failed
            how = f"{error}: the step was run on the CPU with values"
            done = replace(done, with_values=True, notes=(how, *done.notes, *bystanders()))
        return replace(done, notes=(*done.notes, *disturbed))


def _run_on_fakes(step: Step, summing: bool = False) -> Trace:
    """A trace in which equal layers run once, or each for itself where that could miss something."""
    for sums in (True, False) if summing else (False,):
        layers: list[RepeatedLayers] = []
        try:
            return _run(step, FakeCopies(step.cast, step.channels_last, step.known), layers.append, sums)
        except NotRepeated:
            continue
        except ModelError:
            if not any(one.used for one in layers):
                raise
    return _run(step, FakeCopies(step.cast, step.channels_last, step.known))


def _run(
    step: Step, copies: Copies, repeating: Callable[[RepeatedLayers], None] | None = None, summing: bool = False
) -> Trace:
    with own_thread(step.name) as notes:
        done = _Run(step, copies, repeating, summing).trace()
    return replace(done, notes=(*done.notes, *notes))


def _refuse_what_has_no_fake(step: Step) -> None:
    """Raise for scripts, which run in C++ with their own tensors, and for sparse tensors, whose size is a value."""
    if has_scripts(step.module):
        raise DataDependent(f"{step.name}: what a script runs is known only when it runs")
    for path, child in step.module.named_modules():
        for name, value in (*vars(child).items(), *child._buffers.items(), *child._parameters.items()):
            if isinstance(value, Tensor) and value.layout is not torch.strided:
                where = f"{path}.{name}".lstrip(".")
                raise DataDependent(
                    f"{step.name}: what the sparse tensor {where!r} holds is known only from its values"
                )


class _Run:
    """One trace in progress."""

    def __init__(
        self, step: Step, copies: Copies, repeating: Callable[[RepeatedLayers], None] | None, summing: bool
    ) -> None:
        """Begin.

        Args:
            repeating: is given what lets equal layers run once; None: each runs.
        """
        self.step = step
        self.module = unwrapped(step.module)
        self.copies = copies
        # A script cannot be run with other tensors than its own, so a copy of the model is run with these.
        self.stateless = not has_scripts(self.module)
        if not self.stateless:
            self.module = with_own_parameters(self.module).to("cpu", step.cast)
        self.state = copies.state(self.module) if self.stateless else own_state(self.module)
        self.paths = ModulePaths(self.module)
        self.called = CalledModules(self.paths)
        self.lifetimes = Lifetimes()
        self.scans = Scans()
        names = {id(tensor): name for name, tensor in self.state.items()}
        self.cache: tuple[Cached, ...] = ()
        self.masks: list[Mask] = []
        self.recorder = Recorder(self.paths, self.lifetimes, names, self._adopted)
        self.layers = RepeatedLayers(self.paths, self.called, self.lifetimes, self.recorder, self.masks, summing)
        self.repeating = repeating
        self.outside: list[tuple[Tensor, Tensor | None]] = []
        self.parameters = [self.state[name] for name, _ in self.module.named_parameters()]
        self.buffers = [self.state[name] for name, _ in self.module.named_buffers()]

    def trace(self) -> Trace:
        with ExitStack() as contexts:
            contexts.callback(self._leave_outside)
            copied = self.copies.of if self.stateless else lambda tensor: tensor
            held = contexts.enter_context(untouched(self.module, copied))
            if not self.stateless:
                # torch's passes over a script compare its constants, by operations that the model does not ask for.
                contexts.enter_context(without_mkldnn())
                contexts.enter_context(torch.jit.optimized_execution(False))
            self._label_state(held)
            if self.repeating is not None:
                self.repeating(self.layers)
                self.layers.take_over(self.module)
            return self._trace(*contexts.enter_context(self._given()))

    def _trace(self, args: Any, kwargs: Any, targets: Any) -> Trace:
        step, before = self.step, settings()
        if getattr(self.module, "training", step.training) != step.training:  # a frozen script has no such flag
            switch(self.module, step.training)
        with (
            self.copies.mode,
            model_errors(step, self.paths),
            AcceleratorCalls(),
            cuda_casts() as casts,
            replaced(OPERATORS),
            self.scans.replaced(),
            nested_layers(),
            flexible_attention(),
            usual_methods(),
            known_masks(self._see_mask, self._seen_before),
            torch.set_grad_enabled(step.training),
        ):
            training = Training(step, self.recorder, self.paths, self.lifetimes, self.state, self.parameters)
            if step.training:
                training.prepare_optimizer()
            if step.generates:
                kwargs = kwargs | {step.cache: self._begun_cache()}
            with self.recorder, self.called.followed(), self.paths.followed(), self.recorder.following_functions():
                output, cache = self._ran(training, args, kwargs, targets)
        begun, stand_ins = self.layers.finish(self.cache), self.layers.stand_ins
        neighbours, stood_for = ((), ()) if stand_ins is None else (stand_ins.neighbours, stand_ins.stood_for)
        lasting = self.lifetimes.lasting
        held = self._held_by(cache)
        memory = with_cache(self.lifetimes.peak(), held)
        del output, cache
        return Trace(
            lasting=lasting,
            serving=step.mode in ("prefill", "decode"),
            cache=begun,
            masks=tuple(self.masks),
            operations=tuple(self.recorder.operations),
            times=tuple(self.recorder.times) if step.accumulation_steps > 1 or neighbours else (),
            neighbours=neighbours,
            stood_for=stood_for,
            blocks=tuple(self.lifetimes.blocks) if neighbours else (),
            host_calls=self.recorder.host_calls,
            modules=tuple(self.called.all(self.module, self.recorder.forward_calls, self.recorder.packed)),
            memory=memory,
            held=tuple(self.recorder.held),
            kv_cache=held,
            parameter_blocks=self.lifetimes.blocks_of(self.parameters),
            buffer_blocks=self.lifetimes.blocks_of(self.buffers),
            parameters=sum(p.numel() for p in self.module.parameters()) + self.recorder.packed.weights,
            notes=(
                *step.notes,
                *changed_while_running(step.name, before, settings()),
                *(other_casts(step.name, casts, step.autocast) if step.dtype != AS_IS else ()),
                *self.recorder.notes,
                *self.recorder.packed.notes,
                *self.scans.notes,
            ),
        )

    def _ran(self, training: Training, args: Any, kwargs: Any, targets: Any) -> tuple[Any, Any]:
        """Run the step; return its output, and the cache that it has filled or gone on with."""
        if self.step.training:
            return training.run(self._called, args, kwargs, targets), None
        with self.step.precision("cpu"):
            output = self._called(args, kwargs)
        cache = None if self.step.cache is None else output.get(self.step.cache, kwargs.get(self.step.cache))
        self._label_cache(cache)
        return output, cache

    def _label_state(self, held: list[Any]) -> None:
        """What the module holds: it exists before the step begins."""
        for tensor in self.copies.made:  # attributes too, and what the class of a parameter wraps
            self.lifetimes.label(tensor, "buffers")
        trainable = {name for name, _ in self.module.named_parameters()}
        for name, tensor in self.state.items():
            self.lifetimes.label(tensor, "parameters" if name in trainable else "buffers")
        self.recorder.packed.label(self.module, held)

    def _adopted(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor that neither the module nor the inputs hold: it exists before the step too."""
        if tensor.layout is not torch.strided or tensor.is_nested:
            return tensor
        ours = self.copies.standing_for(tensor)
        if self.lifetimes.number(ours) < 0:
            self.lifetimes.label(ours, "buffers", from_start=True)
            if tensor.is_leaf and tensor.requires_grad:
                self.outside.append((tensor, tensor.grad))
        return ours

    def _leave_outside(self) -> None:
        """Give the parameters of others back the gradients that they had."""
        for parameter, gradient in self.outside:
            parameter.grad = gradient

    @contextmanager
    def _given(self) -> Iterator[tuple[Any, Any, Any]]:
        """Copies of the inputs and targets. An object among them holds copies meanwhile, and is itself again then."""
        before = len(self.copies.made)
        given = self.copies.tree((self.step.args, self.step.kwargs, self.step.targets))
        objects = Holders(given)
        try:
            objects.exchange(self.copies.of)
            made = self.copies.made[before:]
            self.copies.are_inputs(made)
            for tensor in made:
                self.lifetimes.label(tensor, "inputs")
            yield given
        finally:
            objects.restore()

    def _begun_cache(self) -> Any:
        """The cache that exists before the step begins."""
        with self.step.precision("cpu"):
            cache = begun_cache(replace(self.step, module=self.module), self.copies.tree)
        self._label_cache(cache)
        self.cache = tuple(self._cached(cache)) if cache is not None else ()
        return cache

    @property
    def _seen_before(self) -> int:
        """Tokens of each sequence that the cache has seen when the step begins."""
        return self.step.seen_before

    def _cached(self, cache: Any) -> Iterator[Cached]:
        """The blocks of a cache, and how much of each is valid when the step begins."""
        for tensor, elements in valid_parts(cache, self._seen_before):
            yield Cached(self.lifetimes.number(tensor), elements, elements * tensor.element_size())

    def _see_mask(self, mask: Tensor, known: Known) -> None:
        if self.recorder.is_watching():
            self.masks.append(known(self.lifetimes.number(mask), self._seen_before))

    def _label_cache(self, cache: Any) -> None:
        for tensor in cache_tensors(cache) if cache is not None else ():
            self.lifetimes.label(tensor, "kv_cache")

    def _held_by(self, cache: Any) -> KvCache | None:
        if cache is None or self.step.seen is None:
            return None
        tensors = torch.utils._pytree.tree_leaves(self.step.kwargs)
        batch = next(tensor.shape[0] for tensor in tensors if isinstance(tensor, Tensor))
        return kv_cache(cache, batch, self.step.seen, self.layers.times)

    def _called(self, args: Any, kwargs: Any) -> Any:
        """The model's output."""
        output = self.module(*args, **kwargs)
        refuse_iterator(self.step.name, output)
        return output
