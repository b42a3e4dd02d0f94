"""Workload: runs of one model that differ in their batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from rooflens.errors import InvalidValue
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.load import build, check_not_generating, find, make_example, make_step
from rooflens.models.step import Loss, Step, sum_of_outputs
from rooflens.models.userfile import split_inputs
from rooflens.records import AS_IS
from rooflens.runs.options import Options
from rooflens.runs.run import Run, is_graph, without_home


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
        return make_step(
            without_home(run.model),
            module,
            make_example(self.blueprint, run.batch, device),
            dtype=run.dtype,
            mode=run.mode,
            loss=self.blueprint.loss,
            optimizer=run.options.optimizer,
            fused=run.options.fused,
            channels_last=run.options.channels_last,
        )


def workload(
    model: str | torch.nn.Module,
    *,
    batch: int | Sequence[int] | None = None,
    dtype: str | None = None,
    mode: str = "inference",
    options: Options | None = None,
    name: str | None = None,
    inputs: Any = None,
    loss: Loss | None = None,
) -> Workload:
    """Return a workload whose arguments are checked; nothing is built yet.

    Args:
        name: what to call a module that is handed in.
        inputs: of such a module, or a function from the batch to inputs.
        loss: instead of the blueprint's.

    Raises:
        InvalidValue: an argument cannot be used.
        UnknownModel: the model is unknown.
    """
    options = options or Options()
    if is_graph(model):
        raise InvalidValue(
            f"{model!r} is an ONNX file, which can be estimated and explained only; give the PyTorch model that it was"
            " exported from"
        )
    if isinstance(model, str):
        if name is not None:
            raise InvalidValue(f"name={name!r} is for a module that is handed in; {model!r} has its own")
        if inputs is not None:
            raise InvalidValue(f"inputs are made for the named model {model!r}; leave inputs out, or hand in a module")
        run = Run(model=model, dtype=dtype or "fp32", mode=mode, options=options)
        blueprint = find(model, options, mode)
        if blueprint.tokens is not None:
            run = replace(run, options=replace(options, seq_len=blueprint.tokens))
        own = blueprint.default_batch if blueprint.batched else None
        runs = run.with_batches(own if batch is None else batch)
    else:
        run = Run(model=name or type(model).__name__, dtype=dtype or AS_IS, mode=mode, options=options)
        blueprint = _handed(run, model, inputs)
        if batch is not None and not isinstance(batch, int):
            raise InvalidValue(
                f"batch is {batch!r}, but the inputs of a module that is handed in have one batch; give one number"
            )
        runs = run.with_batches(batch)
    if loss is not None:
        blueprint = replace(blueprint, loss=loss)
    return Workload(runs=runs, blueprint=blueprint, local=loss is not None or blueprint.module is not None)


def workload_of(run: Run) -> Workload:
    """Return the workload of one run of a named model."""
    return workload(run.model, batch=run.batch, dtype=run.dtype, mode=run.mode, options=run.options)


def _handed(run: Run, module: object, inputs: Any) -> Blueprint:
    """Return the blueprint of a module that was handed in with its inputs."""
    if not isinstance(module, torch.nn.Module):
        kind = "a class, not an instance of it" if isinstance(module, type) else type(module).__name__
        raise InvalidValue(f"the model is {kind}; give a name or an nn.Module")
    check_not_generating(run.mode, run.model)
    if inputs is None:
        raise InvalidValue(
            f"{run.model} was handed in without inputs; give inputs=tensor, a tuple, a dict, or (args, kwargs)"
        )

    def example(batch: int | None) -> Example:
        args, kwargs = split_inputs(inputs(batch) if callable(inputs) else inputs)
        return Example(args=args, kwargs=kwargs)

    return Blueprint(
        name=run.model, build=lambda: module, example=example, loss=sum_of_outputs, batched=False, module=module
    )
