"""A training step: forward with its loss, backward, and the optimizer, in the order of every training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rooflens.errors import ModelError
from rooflens.models import Step, with_results
from rooflens.trace.lifetimes import Lifetimes
from rooflens.trace.modules import ModulePaths
from rooflens.trace.recorder import Recorder
from rooflens.trace.refusals import refuse_sparse_gradients

LOSS, OPTIMIZER = "(loss)", "(optimizer)"


class Training:
    """Runs a training step, and says which phase runs and why memory is there."""

    def __init__(
        self,
        step: Step,
        recorder: Recorder,
        paths: ModulePaths,
        lifetimes: Lifetimes,
        state: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
    ) -> None:
        self._step, self._recorder, self._paths, self._lifetimes = step, recorder, paths, lifetimes
        self._state, self._parameters = state, parameters
        self._optimizer: torch.optim.Optimizer | None = None

    def run(self, call: Callable[[Any, Any], Any], args: Any, kwargs: Any, targets: Any) -> Any:
        """Run the step, and return output and loss.

        All micro-batches after the first are alike: one stands for them.

        Args:
            call: gives the model's output for positional and named inputs.
        """
        made = None
        for n in range(min(2, self._step.accumulation_steps)):
            made = None  # what an earlier micro-batch made is gone
            self._recorder.stands_for = self._step.accumulation_steps - 1 if n else 1
            self._recorder.phase = "forward"
            self._paths.enter("")
            its_args, its_kwargs = with_results((args, kwargs)) if n else (args, kwargs)
            made = self._forward(call, its_args, its_kwargs, targets)
            self._backward(made[1])
        self._recorder.stands_for = 1
        self._update()
        return made

    def _forward(self, call: Callable[[Any, Any], Any], args: Any, kwargs: Any, targets: Any) -> tuple[Any, Tensor]:
        with self._step.precision("cpu"):
            output = call(args, kwargs)
            self._paths.enter(LOSS)
            loss = self._step.loss_of(output, targets)
        return output, loss * torch.empty((), dtype=torch.float32) if self._step.scaled else loss

    def _backward(self, loss: Tensor) -> None:
        self._lifetimes.label_alive("activations")
        self._recorder.phase = "backward"
        if not loss.requires_grad:
            raise ModelError(
                f"{self._step.name}: the loss depends on no parameter that needs a gradient; use mode inference"
            )
        torch.autograd.backward(loss)
        for parameter in self._parameters:
            if parameter.grad is not None:
                self._lifetimes.label(parameter.grad, "gradients")

    def prepare_optimizer(self) -> None:
        """Make the optimizer, if the step has one, and let it step once: its state is there before every later step.

        That step is of length zero, since the values of parameters may decide what runs.
        """
        trainable = [p for p in self._parameters if p.requires_grad]
        optimizer = self._optimizer = self._step.optimizer_of(trainable)
        if optimizer is None:
            return
        for parameter in trainable:
            parameter.grad = torch.zeros_like(parameter)
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor) and value.dim():  # step counters stay on the host
                    self._lifetimes.label(value, "optimizer")

    def _update(self) -> None:
        optimizer = self._optimizer
        if optimizer is None:
            return
        self._recorder.phase = "optimizer"
        self._paths.enter(OPTIMIZER)
        refuse_sparse_gradients(self._step, self._state)
        if self._step.scaled:
            gradients = [p.grad for p in self._parameters if p.grad is not None]
            infinite, inverse = torch.empty(()), torch.empty(())
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, infinite, inverse)
            if self._step.fused:  # only looks for infinities there, and the kernel takes the scale away
                optimizer.grad_scale, optimizer.found_inf = inverse, infinite  # type: ignore[attr-defined]
        optimizer.step()
