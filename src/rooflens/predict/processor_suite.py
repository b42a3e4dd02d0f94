"""The calls that a processor is timed with: fewer and smaller ones than a GPU's, in fp32 and in layouts of models."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.predict.suite_calls import SuiteCall, convolved, dense, made
from rooflens.records import Tensor, dense_strides


def processor_suite() -> tuple[SuiteCall, ...]:
    """Return all calls; none of them computes more than 2 GFLOP."""
    return tuple(
        item for part in (_streams(), _products(), _convolutions(), _norms(), _rows(), _pooling()) for item in part
    )


def _streams() -> Iterator[SuiteCall]:
    for power in (8, 12, 15, 18, 20, 22, 24):
        t = dense(1 << power)
        yield SuiteCall("stream", made("relu_", t, self=t))
        yield SuiteCall("stream", made("add", t, self=t, other=t))
    for power in (14, 19, 22):
        t = dense(1 << power)
        for name in ("gelu", "sigmoid", "silu_", "hardswish_"):
            yield SuiteCall("special", made(name, t, self=t))
    for batch, channels, pixels in ((1, 64, 56), (4, 256, 28)):  # squeeze and excitation
        t, one = dense(batch, channels, pixels, pixels), dense(batch, channels, 1, 1)
        yield SuiteCall("copy", made("mul", t, self=t, other=one))
    for shape in ((4, 64, 56, 56), (2, 197, 768), (64, 49, 96)):
        t = dense(*shape)
        turned = Tensor(t.shape, t.dtype, t.nbytes, None, _turned(shape), 0)
        yield SuiteCall("copy", made("clone", t, self=turned))
        wide = dense(shape[0], 2 * shape[1], *shape[2:])
        yield SuiteCall("copy", made("cat", wide, tensors=(t, t), dim=1))


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor whose last two dimensions were exchanged."""
    *outer, last, one = dense_strides((*shape[:-2], shape[-1], shape[-2]))
    return (*outer, one, last)


def _products() -> Iterator[SuiteCall]:
    for k, n in ((768, 768), (768, 3072), (3072, 768), (1024, 1000), (4096, 4096), (96, 384)):
        for m in (1, 4, 49, 197, 784):
            if m * k * n <= 1 << 30:
                weight = Tensor((k, n), "fp32", 4 * k * n, None, (1, k), 0)  # as a linear layer passes it
                call = made("addmm", dense(m, n), self=dense(n), mat1=dense(m, k), mat2=weight)
                yield SuiteCall("product", call)
    for batch, m, n, k in ((12, 197, 64, 197), (12, 197, 197, 64), (192, 49, 49, 32), (192, 49, 32, 49)):
        yield SuiteCall("product", made("bmm", dense(batch, m, n), self=dense(batch, m, k), mat2=dense(batch, k, n)))
    for heads, tokens in ((12, 197), (6, 64), (16, 512)):
        t = dense(1, heads, tokens, 64)
        yield SuiteCall("attention", made("attention", t, query=t, key=t, value=t, mask=None, causal=False))


PLAIN = (
    (64, 64, 56, 3, 1), (128, 128, 28, 3, 1), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1), (64, 128, 56, 3, 2),
    (256, 512, 14, 3, 2), (96, 208, 14, 3, 1), (64, 192, 27, 5, 1), (32, 32, 28, 5, 1), (64, 256, 56, 1, 1),
    (256, 64, 56, 1, 1), (512, 128, 28, 1, 1), (1024, 256, 14, 1, 1), (512, 2048, 7, 1, 1), (256, 512, 56, 1, 2),
    (16, 96, 56, 1, 1), (24, 144, 56, 1, 1), (160, 960, 7, 1, 1), (40, 240, 28, 1, 1), (240, 40, 28, 1, 1),
    (116, 116, 14, 1, 1), (960, 160, 7, 1, 1), (120, 32, 1, 1, 1), (480, 20, 1, 1, 1),
)  # fmt: skip
"""Channels in and out, pixels, kernel and stride."""
STEMS = ((64, 7, 2), (16, 3, 2), (64, 11, 4), (96, 4, 4), (768, 16, 16), (64, 3, 1))
DEPTHWISE = (
    (16, 112, 3, 2), (96, 56, 3, 1), (72, 28, 5, 1), (240, 14, 5, 1), (576, 7, 5, 1), (144, 56, 3, 2), (96, 56, 7, 1),
    (384, 14, 7, 1),
)  # fmt: skip
GROUPED = ((128, 56, 4), (256, 28, 8), (48, 56, 8), (208, 14, 16), (512, 14, 16))
"""Channels, pixels, and channels of a group."""


def _convolutions() -> Iterator[SuiteCall]:
    for batch in (1, 4):
        for inner, outer, pixels, kernel, stride in PLAIN:
            yield SuiteCall("convolution", convolved(batch, inner, outer, pixels, kernel, stride))
        for outer, kernel, stride in STEMS:
            yield SuiteCall("stem", convolved(batch, 3, outer, 224, kernel, stride))
        for channels, pixels, kernel, stride in DEPTHWISE:
            yield SuiteCall("depthwise", convolved(batch, channels, channels, pixels, kernel, stride, channels))
        for channels, pixels, width in GROUPED:
            groups = channels // width
            yield SuiteCall("grouped", convolved(batch, channels, channels, pixels, 3, 1, groups))


def _norms() -> Iterator[SuiteCall]:
    for batch in (1, 4):
        for channels, pixels in ((16, 112), (64, 56), (144, 28), (256, 14), (512, 7)):
            x, one = dense(batch, channels, pixels, pixels), dense(channels)
            empty = dense(0)
            call = made(
                "native_batch_norm", (x, empty, empty), input=x, weight=one, bias=one, running_mean=one,
                running_var=one, training=False, momentum=0.1, eps=1e-5,
            )  # fmt: skip
            yield SuiteCall("norm", call)
    for rows, width in ((197, 768), (784, 192), (3136, 96), (49, 768)):
        x, one, few = dense(1, rows, width), dense(width), dense(1, rows, 1)
        call = made(
            "native_layer_norm", (x, few, few), input=x, normalized_shape=(width,), weight=one, bias=one, eps=1e-6
        )
        yield SuiteCall("norm", call)


def _rows() -> Iterator[SuiteCall]:
    for shape in ((12, 197, 197), (192, 49, 49), (16, 512, 512), (4, 1000)):
        x = dense(*shape)
        yield SuiteCall("rows", made("_softmax", x, self=x, dim=-1, half_to_float=False))
    for batch, channels, pixels in ((1, 512, 7), (4, 960, 7), (4, 72, 28), (4, 64, 56)):
        x = dense(batch, channels, pixels, pixels)
        yield SuiteCall("rows", made("mean", dense(batch, channels, 1, 1), self=x, dim=(-1, -2), keepdim=True))


def _pooling() -> Iterator[SuiteCall]:
    for batch in (1, 4):
        for channels, pixels, kernel, stride in ((64, 112, 3, 2), (64, 55, 3, 2), (256, 28, 2, 2), (192, 28, 3, 1)):
            side = (pixels + 2 * (kernel // 2) - kernel) // stride + 1
            x, out = dense(batch, channels, pixels, pixels), dense(batch, channels, side, side)
            places = dense(batch, channels, side, side, dtype="int64")
            call = made(
                "max_pool2d_with_indices", (out, places), self=x, kernel_size=(kernel, kernel),
                stride=(stride, stride), padding=(kernel // 2, kernel // 2),
            )  # fmt: skip
            yield SuiteCall("pooling", call)
