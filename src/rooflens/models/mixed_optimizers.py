"""Optimizers whose state has another type than the parameters, and those that update a copy of these in fp32.

torch has none. What is here updates parameter after parameter in fp32 by torch's own functions, with casts around them.
State in 8 bits has the layout of bitsandbytes and its one kernel for a parameter, which is traced and never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from rooflens.errors import InvalidValue
from rooflens.models.dtypes import FLOATING_TYPES, torch_name

STATES = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq"), "adamw": ("exp_avg", "exp_avg_sq")}
"""What an optimizer keeps of each parameter, beside the number of its steps."""
SMALLEST, BLOCK, CODES = 4096, 256, 256
"""bitsandbytes: state of fewer elements stays in fp32; elements that share a scale; values of a code."""
HALVES = (torch.float16, torch.bfloat16)

LIBRARY = torch.library.Library("rooflens", "FRAGMENT")
LIBRARY.define(
    "blockwise_update_(Tensor(a!) self, Tensor grad, Tensor(b!)[] states, Tensor(c!)[] scales, Tensor[] tables,"
    " str optimizer, float weight_decay) -> ()"
)
torch.library.register_fake("rooflens::blockwise_update_", lambda *_: None)
LIBRARY.impl("blockwise_update_", lambda *_: None, "CPU")  # the last thing of a step: no value of it decides anything


class MixedOptimizer(torch.optim.Optimizer):
    """SGD, Adam or AdamW with state in a type of its own."""

    def __init__(self, name: str, parameters: Sequence[Tensor], *, state: str | None, master: bool, **settings: Any):
        """Make an optimizer.

        Args:
            name: sgd, adam or adamw.
            state: fp32, bf16 or int8; None is the type in which the optimizer updates.
            master: it updates copies of 16-bit parameters in fp32, from which these are made anew.
            settings: of the update, as torch names them.
        """
        super().__init__(parameters, settings)
        self.name, self.kept, self.master = name, state, master
        self.tables: list[Tensor] = []

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        kept = self.state[parameter]
        if not kept:
            kept.update(self._begun(parameter, group))
        held = kept.get("master", parameter)
        states = [kept[name] for name in STATES[self.name]]
        if self.kept == "int8":
            scales = [kept[name] for name in kept if name.startswith("absmax")]
            tables = self.tables if scales else []
            decay = group["weight_decay"]
            torch.ops.rooflens.blockwise_update_(held, gradient, states, scales, tables, self.name, decay)
        else:
            self._in_full(held, gradient, states, kept.get("step"), group)
        if held is not parameter:
            parameter.copy_(held)

    def _begun(self, parameter: Tensor, group: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """The state before the first step."""
        small = parameter.numel() < SMALLEST
        dtype = torch.uint8 if self.kept == "int8" and not small else FLOATING_TYPES.get(self.kept or "", torch.float32)
        if self.master and parameter.dtype in HALVES:
            yield "master", parameter.detach().float()
        for name in STATES[self.name]:
            yield name, torch.zeros_like(parameter, dtype=dtype)
        if dtype is torch.uint8:
            self._fill_tables(parameter)
            blocks = -(-parameter.numel() // BLOCK)
            for n, _ in enumerate(STATES[self.name]):
                yield f"absmax{n}", parameter.new_zeros(blocks, dtype=torch.float32)
                yield f"table{n}", self.tables[n]
        elif self.name != "sgd":
            # As torch does: the host reads a number of its own, whose value a trace knows; a CUDA graph counts itself.
            capturable = group["capturable"]
            yield "step", torch.zeros((), device=parameter.device) if capturable else torch.tensor(0.0)

    def _fill_tables(self, parameter: Tensor) -> None:
        """The values of codes: one table for a kind of state, which all parameters share."""
        while len(self.tables) < len(STATES[self.name]):
            self.tables.append(parameter.new_zeros(CODES, dtype=torch.float32))

    def _in_full(self, held: Tensor, grad: Tensor, states: list[Tensor], step: Any, group: dict[str, Any]) -> None:
        """Update in fp32, or in fp64: what has another type is cast before and after."""
        dtype = torch.promote_types(held.dtype, torch.float32)
        weight, gradient, *full = (tensor.to(dtype) for tensor in (held, grad, *states))
        own = {name: value for name, value in group.items() if name not in ("params", "betas", "capturable")}
        if self.name == "sgd":
            sgd([weight], [gradient], [*full], foreach=True, dampening=0, nesterov=False, maximize=False, **own)
        else:
            beta1, beta2 = group["betas"]
            adam(
                *([weight], [gradient], [full[0]], [full[1]], [], [step]),
                foreach=True,
                capturable=group["capturable"],
                decoupled_weight_decay=self.name == "adamw",
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                maximize=False,
                **own,
            )
        for kept, updated in zip((held, *states), (weight, *full), strict=True):
            if kept is not updated:
                kept.copy_(updated)


def needs_mixing(parameters: Sequence[Tensor], state: str | None, master: bool) -> bool:
    """Return whether torch's own optimizers cannot keep this state of these parameters.

    Raises:
        InvalidValue: there is no 16-bit parameter to copy.
    """
    if master and not any(parameter.dtype in HALVES for parameter in parameters):
        types = ", ".join(sorted({torch_name(parameter.dtype) for parameter in parameters}))
        raise InvalidValue(
            f"master_weights=True keeps copies of 16-bit parameters in fp32, and these are {types}; give dtype bf16 or"
            " fp16, or leave it out (under autocast, amp-bf16, parameters are in fp32 anyway)"
        )
    others = state is not None and any(p.dtype is not FLOATING_TYPES.get(state) for p in parameters)
    return master or others
