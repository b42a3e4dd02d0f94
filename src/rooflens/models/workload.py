"""Workload: runs of one model that differ in their batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from rooflens.errors import InvalidValue
from rooflens.models.blueprint import Blueprint
from rooflens.models.load import build, check_not_generating, find, make_example, make_step
from rooflens.models.step import Step, sum_of_outputs
from rooflens.models.userfile import example_of
from rooflens.records import AS_IS
from rooflens.runs.run import Request, Run, is_graph, recorded_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Checked runs, and the blueprint of their model.

    Attributes:
        runs: one for each batch; all else is equal.
        local: module or loss were handed in from Python: no other process can run it.
    """

    runs: tuple[Run, ...]
    blueprint: Blueprint
    local: bool

    def build(self, device: str) -> torch.nn.Module:
        """Return the module, built on a device unless it was handed in."""
        return build(self.blueprint, device)

    def step(self, run: Run, module: torch.nn.Module, device: str) -> Step:
        """Return the step of a run; inputs of a named model are made on `device`."""
        step = make_step(
            recorded_name(run.model),
            module,
            make_example(self.blueprint, run.batch, device),
            dtype=run.dtype,
            mode=run.mode,
            loss=self.blueprint.loss,
            optimizer=run.options.optimizer,
            fused=run.options.fused,
            channels_last=run.options.channels_last,
        )
        if self.blueprint.module is not None and run.dtype != AS_IS and step.cast is None:
            step = replace(step, cast=torch.float32)  # a named model is built in fp32, this one may be of any type
        if device != "meta":
            return step
        return replace(step, with_values=lambda: self.step(run, self.build("cpu"), "cpu"))


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
        if blueprint.tokens is not None:
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
    if inputs is None:
        raise InvalidValue(
            f"{run.model} was handed in without inputs; give inputs=tensor, a tuple, a dict, or (args, kwargs)"
        )

    return Blueprint(
        name=run.model,
        build=lambda: module,
        example=lambda batch: example_of(inputs(batch) if callable(inputs) else inputs),
        loss=sum_of_outputs,
        batched=False,
        module=module,
    )
