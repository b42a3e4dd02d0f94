"""Workload: runs of one model that differ in their batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from rooflens.errors import InvalidValue
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.construction import build
from rooflens.models.dtypes import torch_name
from rooflens.models.forms import example_of
from rooflens.models.load import check_not_generating, find, make_example, make_step
from rooflens.models.step import Step, sum_of_outputs
from rooflens.models.userfile import CallAgain
from rooflens.records import AS_IS
from rooflens.runs.options import ANSWERING
from rooflens.runs.run import Place, Request, Run, is_graph, recorded_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Checked runs, and the blueprint of their model.

    Attributes:
        runs: one for each batch; all else is equal.
        local: module or loss were handed in from Python: no other process can run it.
        place: where a function of the user's is called first, if no values are needed.
        anew: a further call of it is made in a new process.
    """

    runs: tuple[Run, ...]
    blueprint: Blueprint
    local: bool
    place: Place = "meta"
    anew: bool = False

    @property
    def tokens(self) -> int | None:
        """Tokens of each sequence of a language model; of a whole answer those of its first step."""
        return self.blueprint.tokens

    @property
    def least_tokens(self) -> int:
        """The fewest tokens that a sequence can have."""
        return self.blueprint.least_tokens

    @property
    def positions(self) -> int | None:
        """The most tokens of a sequence, by the model's configuration; None where that is not known."""
        return self.blueprint.positions

    def as_stored(self, rates: Iterable[bool] = ()) -> Workload:
        """Return the same with weights as the model's configuration stores them, where no option says how.

        Args:
            rates: for each device that is asked for, whether it has a rate for products on fp8.
        """
        stored, known = self.blueprint.stored, tuple(rates)
        return self if stored is None else replace(self, runs=tuple(stored.of_run(run, known) for run in self.runs))

    def step(self, run: Run, device: str) -> Step:
        """Return the step of a run with values: its module and its inputs are made on `device`.

        A function of the user's makes both, on the CPU.
        """
        if self.blueprint.make is not None:
            return self._made(run, "cpu")
        return self._step(run, build(self.blueprint, device), make_example(self.blueprint_of(run), run.batch, device))

    def blueprint_of(self, run: Run) -> Blueprint:
        """Return the blueprint for a run; of a language model also for one of another length or mode."""
        own = run.mode == self.runs[0].mode and run.options == self.runs[0].options
        if own or self.blueprint.example_of_step is None:
            return self.blueprint
        return replace(self.blueprint, example=self.blueprint.example_of_step(run.mode, run.options))

    def untouched_steps(self) -> Callable[[Run], Step]:
        """Return what makes the steps of the runs without values, as far as their code allows; a module is built once.

        Raises:
            CallAgain: as a step is made: the user's function has to be called again, and `anew` is set.
        """
        if self.blueprint.make is not None:
            return self._made_without_values
        module = build(self.blueprint, "meta")

        def step(run: Run) -> Step:
            made = self._step(run, module, make_example(self.blueprint_of(run), run.batch, "meta"))
            return replace(made, with_values=lambda: self.step(run, "cpu"))

        return step

    def _made_without_values(self, run: Run) -> Step:
        """Return the step that a user's function makes at the place of this workload, or at the next one that works."""

        def with_values() -> Step:
            if self.anew:
                raise CallAgain("values are needed", "cpu")
            return self._made(run, "cpu")

        place = self.place
        while True:
            try:
                made = self._made(run, place)
            except CallAgain as again:
                if self.anew:
                    raise
                place = again.place
                continue
            return made if place == "cpu" else replace(made, with_values=with_values)

    def _made(self, run: Run, place: Place) -> Step:
        assert self.blueprint.make is not None
        if run.batch is not None and not self.blueprint.batched:
            raise InvalidValue(
                f"{run.model} decides its own batch; give its function a parameter named batch, or leave the batch out"
            )
        made = self.blueprint.make(run.batch, place)
        step = self._step(run, made.module, made.example, made.notes)
        if run.dtype == AS_IS or step.cast is not None or not (others := _other_types(step)):
            return step
        note = (
            f"{step.name} gives tensors in {', '.join(others)}, which are brought to float32, since the case is"
            f" {run.dtype}; dtype as-is leaves every tensor as it is"
        )
        return replace(step, cast=torch.float32, notes=(*step.notes, note))

    def _step(self, run: Run, module: torch.nn.Module, example: Example, notes: tuple[str, ...] = ()) -> Step:
        step = make_step(
            recorded_name(run.model),
            module,
            example,
            dtype=run.dtype,
            mode=run.mode,
            loss=self.blueprint.loss,
            optimizer=run.options.optimizer,
            fused=run.options.fused,
            channels_last=run.options.channels_last,
            notes=(*self.blueprint.notes, *notes),
        )
        of_weights = "" if self.blueprint.stored is None else self.blueprint.stored.note(run.options)
        step = replace(step, notes=(*step.notes, of_weights)) if of_weights else step
        kept = replace(step, optimizer_dtype=run.options.optimizer_dtype, master_weights=run.options.master_weights)
        step = _accumulating(kept, run)
        if run.mode == "decode" and run.options.cuda_graph and run.options.kv_cache == "dynamic":
            step = replace(step, notes=(*step.notes, _growing_in_a_graph()))
        if self.blueprint.module is not None and run.dtype != AS_IS and step.cast is None:
            step = replace(step, cast=torch.float32)  # a named model is built in fp32, this one may be of any type
        return step


def _growing_in_a_graph() -> str:
    """What a CUDA graph in which a cache grows cannot do, and what it does beyond the estimate."""
    release = version("transformers") if find_spec("transformers") else ""
    mask = (
        f"; transformers {release} may make a mask while a graph is captured, and repeat keys and values under it: 5.17"
        " does, 5.24 does not"
        if release and tuple(map(int, release.split(".")[:2])) < (5, 24)
        else ""
    )
    return (
        "this graph repeats one step: to write several tokens its cache has to be static (--kv-cache static); it keeps"
        f" the old cache beside the longer one, in the measured peak and not in the estimated one{mask}"
    )


def _accumulating(step: Step, run: Run) -> Step:
    """Return the step with the micro-batches of its run."""
    n = run.options.accumulation_steps
    if n == 1:
        return step
    batch = "" if run.batch is None else f" of {run.batch} samples"
    note = f"a step adds up the gradients of {n} micro-batches{batch}: batch is that of one, work and time are of all"
    return replace(step, accumulation_steps=n, notes=(*step.notes, note))


def _other_types(step: Step) -> list[str]:
    """Return the types of floating tensors of a step that are no fp32, of those in which models are written."""
    given = [leaf for leaf in tree_leaves((step.args, step.kwargs)) if isinstance(leaf, torch.Tensor)]
    tensors = (*step.module.parameters(), *step.module.buffers(), *given)
    found = {tensor.dtype for tensor in tensors} & {torch.float64, torch.float16, torch.bfloat16}
    return sorted(map(torch_name, found))


def workload(asked: Request) -> Workload:
    """Return a workload whose arguments are checked; nothing is built yet.

    Raises:
        InvalidValue: an argument cannot be used.
        UnknownModel: the model is unknown.
    """
    model, options = asked.model, asked.options
    if is_graph(model):
        raise InvalidValue(
            f"{model!r} is an ONNX file, which can be estimated and explained only; give the PyTorch model that it was"
            " exported from"
        )
    if isinstance(model, str):
        if asked.name is not None:
            raise InvalidValue(f"name={asked.name!r} is for a module that is handed in; {model!r} has its own")
        if asked.inputs is not None:
            raise InvalidValue(f"inputs are made for the named model {model!r}; leave inputs out, or hand in a module")
        run = Run(model=model, dtype=asked.dtype or "fp32", mode=asked.mode, options=options)
        blueprint = find(model, options, asked.mode)
        run = replace(run, model=blueprint.name)  # a well-known model has several
        if blueprint.tokens is not None and asked.mode not in ANSWERING:
            run = replace(run, options=replace(options, seq_len=blueprint.tokens))
        own = blueprint.default_batch if blueprint.batched else None
        runs = run.with_batches(own if asked.batch is None else asked.batch)
    else:
        name = asked.name or type(model).__name__
        run = Run(model=name, dtype=asked.dtype or AS_IS, mode=asked.mode, options=options)
        blueprint = _handed(run, model, asked.inputs)
        if asked.batch is not None and not isinstance(asked.batch, int):
            raise InvalidValue(
                f"batch is {asked.batch!r}, but the inputs of a module that is handed in have one batch; give one"
                " number"
            )
        runs = run.with_batches(asked.batch)
    if asked.loss is not None:
        blueprint = replace(blueprint, loss=asked.loss)
    return Workload(runs=runs, blueprint=blueprint, local=asked.loss is not None or blueprint.module is not None)


def workload_of(run: Run) -> Workload:
    """Return the workload of one run of a named model."""
    return workload(Request.of_run(run))


def _handed(run: Run, module: object, inputs: Any) -> Blueprint:
    """Return the blueprint of a module that was handed in with its inputs."""
    if not isinstance(module, torch.nn.Module):
        kind = "a class, not an instance of it" if isinstance(module, type) else type(module).__name__
        hint = ", which its module() is" if kind == "ExportedProgram" else ""
        raise InvalidValue(f"the model is {kind}; give a name or an nn.Module{hint}")
    check_not_generating(run.mode, run.model)
    if run.options.checkpoint:
        raise InvalidValue(
            f"checkpoint=True is for models by name, and {run.model} was handed in: checkpoint its blocks yourself"
            " (torch.utils.checkpoint, or gradient_checkpointing_enable() of transformers), and leave the option out"
        )
    if inputs is None:
        raise InvalidValue(
            f"{run.model} was handed in without inputs; give inputs=tensor, a tuple, a dict, or (args, kwargs)"
        )

    return Blueprint(
        name=run.model,
        build=lambda: module,
        example=lambda batch: example_of(inputs(batch) if callable(inputs) else inputs, module),
        loss=sum_of_outputs,
        batched=False,
        module=module,
    )
