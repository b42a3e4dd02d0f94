"""A call of a suite, and what makes one: tensors, convolutions, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from rooflens.records import Argument, Call, Phase, Tensor, dense_strides
from rooflens.records.calls import ELEMENT_BYTES

NCHW, NHWC = "contiguous", "channels_last"
PIXELS = {64: 56, 128: 28, 256: 14, 512: 7, 768: 14, 1024: 14, 2048: 7, 96: 56, 192: 28, 384: 14, 32: 112, 16: 112}
"""Side of an image where models have so many channels."""


@dataclass(frozen=True, slots=True)
class SuiteCall:
    """A call to be timed.

    Attributes:
        effect: which constants it tells.
        call: what is called.
        tf32: products on fp32 operands run in TF32.
        phase: in which a step would run it.
    """

    effect: str
    call: Call
    tf32: bool = False
    phase: Phase = "forward"


def dense(*shape: int, dtype: str = "fp32", layout: str = NCHW) -> Tensor:
    """Return a tensor whose elements lie one behind the other; a layout other than row-major is for images."""
    strides = dense_strides(shape, layout if len(shape) == 4 else NCHW)
    return Tensor(shape, dtype, prod(shape) * ELEMENT_BYTES[dtype], None, strides, 0)


def made(name: str, outputs: Tensor | tuple[Tensor, ...], **arguments: Argument) -> Call:
    """Return a call that reads each tensor among its arguments once and writes its outputs."""
    results = (outputs,) if isinstance(outputs, Tensor) else outputs
    inputs = Call(name, tuple(arguments.items()), results, 0, 0).inputs
    reads, writes = (sum(t.nbytes for t in some) for some in (inputs, results))
    return Call(name, tuple(arguments.items()), results, reads, writes)


def convolved(
    batch: int, inner: int, outer: int, pixels: int, kernel: int = 3, stride: int = 1, groups: int = 1,
    dtype: str = "fp32", layout: str = NCHW,
) -> Call:  # fmt: skip
    """Return a convolution with as many results as pixels over the stride."""
    pad = kernel // 2 if kernel != stride else 0
    side = (pixels + 2 * pad - kernel) // stride + 1
    return made(
        "convolution",
        dense(batch, outer, side, side, dtype=dtype, layout=layout),
        input=dense(batch, inner, pixels, pixels, dtype=dtype, layout=layout),
        weight=dense(outer, inner // groups, kernel, kernel, dtype=dtype, layout=layout),
        bias=None,
        stride=(stride, stride),
        padding=(pad, pad),
        dilation=(1, 1),
        transposed=False,
        output_padding=(0, 0),
        groups=groups,
    )


def both_gradients(forward: Call, tf32: bool = False) -> Iterator[SuiteCall]:
    """The gradients of input and weights of a convolution, apart."""
    given = dict(forward.arguments)
    for mask in ((True, False, False), (False, True, False)):
        result = given["input" if mask[0] else "weight"]
        assert isinstance(result, Tensor)
        call = made(
            "convolution_backward", (result,), grad_output=forward.outputs[0], input=given["input"],
            weight=given["weight"], bias_sizes=None,
            **{n: v for n, v in given.items() if n not in ("input", "weight", "bias")}, output_mask=mask,
        )  # fmt: skip
        yield SuiteCall("gradient", call, tf32, "backward")
