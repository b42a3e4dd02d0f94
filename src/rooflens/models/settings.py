"""Settings of torch that a case decides, and the words for those that a user's code has changed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import overrides
from torch.utils._device import DeviceContext

from rooflens.models.dtypes import torch_name
from rooflens.models.precisions import tf32_allowed

DECIDED = {
    "the default type": "the dtype of the case decides",
    "the default device": "the device of the case decides",
    "autocast": "the dtype of the case decides (amp-bf16, amp-fp16)",
    "TF32 for products": "the dtype of the case decides (fp32, tf32)",
    "TF32 for cuDNN": "the dtype of the case decides (fp32, tf32)",
    "gradients": "the mode of the case decides",
    "inference mode": "the mode of the case decides",
    "deterministic algorithms": "a case runs without them",
    "anomaly detection": "a case runs without it",
    "modes of torch functions and of dispatch": "a case runs without them",
}
"""The settings, and who decides in their place."""


def settings() -> Mapping[str, str]:
    """Return what this thread and this process have set, in words."""
    products, cudnn = tf32_allowed()
    cast = [
        f"{torch_name(torch.get_autocast_dtype(place))} on {place}"
        for place in ("cpu", "cuda")
        if torch.is_autocast_enabled(place)
    ]
    functions = [mode for mode in overrides._get_current_function_mode_stack() if not isinstance(mode, DeviceContext)]
    values = (
        torch_name(torch.get_default_dtype()),
        str(torch.get_default_device()),
        " and ".join(cast) or "off",
        _switch(products),
        _switch(cudnn),
        _switch(torch.is_grad_enabled()),
        _switch(torch.is_inference_mode_enabled()),
        _switch(torch.are_deterministic_algorithms_enabled()),
        _switch(torch.is_anomaly_enabled()),
        str(len(functions) + torch._C._len_torch_dispatch_stack()),
    )
    return dict(zip(DECIDED, values, strict=True))


def _switch(on: bool) -> str:
    return "on" if on else "off"


def changed(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note for each setting that the code of `name` has changed and that its case does not use."""
    return tuple(
        f"{name} sets {what} to {after[what]}, which is not used: {DECIDED[what]}"
        for what in DECIDED
        if before[what] != after[what]
    )


def changed_while_running(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note for each setting that a step has changed: what follows in it ran with the new one."""
    return tuple(
        f"{name} sets {what} to {after[what]} while it runs: what followed in the step ran so, whatever the case says"
        for what in DECIDED
        if before[what] != after[what]
    )
