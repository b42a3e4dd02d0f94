"""The names that an estimate has for what profilers and NVTX ranges show."""

from __future__ import annotations

from functools import cache

from rooflens.costs.registry import family_of, is_custom

_ENGINE = ("autograd::engine::", "torch::autograd::", "torch::dynamo::")
_ATTENTION = "scaled_dot_product"
_SAME = {
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), "recurrent"),
    **dict.fromkeys(("_cudnn_rnn_backward", "miopen_rnn_backward", "mkldnn_rnn_layer_backward"), "recurrent_backward"),
    **dict.fromkeys(("cudnn_batch_norm", "miopen_batch_norm"), "native_batch_norm"),
    **dict.fromkeys(("cudnn_batch_norm_backward", "miopen_batch_norm_backward"), "native_batch_norm_backward"),
    "cudnn_convolution_backward": "convolution_backward",
    **dict.fromkeys(("dropout", "dropout_"), "native_dropout"),
}
"""What a device, or torch on its way there, calls otherwise: an estimate has one name for all of them."""
TAKEN_APART = frozenset(
    {"linear", "contiguous", "max_pool2d", "relu6", "relu6_", "selu", "selu_", "square", "square_", "clip", "clip_"}
)
"""Calls that torch always makes of others, which a trace shows; formulas know them because ONNX files have them."""


def short(name: str) -> str:
    """An operation's name as an estimate has it: one name for all devices, a namespace only for custom operators.

    >>> short("aten::cudnn_batch_norm"), short("torchvision::nms")
    ('native_batch_norm', 'nms')
    """
    if is_custom(name):
        return name
    plain = name.rsplit("::", 1)[-1]
    if plain.lstrip("_").startswith(_ATTENTION):
        return "attention_backward" if plain.endswith("_backward") else "attention"
    return _SAME.get(plain, plain)


@cache
def is_known(name: str) -> bool:
    """True if an estimate counts what happens under this name as one operation."""
    return "::" in name and not is_engine(name) and short(name) not in TAKEN_APART and family_of(short(name)) != "other"


def is_engine(name: str) -> bool:
    """True for the autograd engine's own bookkeeping around an operation."""
    return name.startswith(_ENGINE)


def accumulates(name: str) -> bool:
    """True if this adds a gradient to that of a parameter."""
    return name.endswith("AccumulateGrad")
