"""Calls of a suite that profiles of steps made known: training in autocast, decoders, masks of truth values."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.predict.suite_calls import NCHW, NHWC, SuiteCall, both_gradients, convolved, dense, made
from rooflens.records import Argument, Tensor


def steps() -> Iterator[SuiteCall]:
    """Return them, those of decoders first."""
    yield from _caches()
    yield from _masks()
    yield from _casts()
    yield from _sums()
    yield from _norms()
    yield from _convolutions()


def laid(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "bf16") -> Tensor:
    """Return a tensor with strides of its own: a view, or one whose elements repeat."""
    return Tensor(shape, dtype, dense(*shape, dtype=dtype).nbytes, None, strides, 0)


def _caches() -> Iterator[SuiteCall]:
    """Caches that grow, as they are and cut out of a longer one; heads that are repeated; halves that are turned."""
    for batch, heads, length, width in ((1, 8, 512, 64), (8, 8, 2048, 64), (1, 8, 8192, 128), (64, 8, 512, 128)):
        out, one = (dense(batch, heads, n, width, dtype="bf16") for n in (length + 1, 1))
        shape, row = (batch, heads, length, width), (length + 1) * width
        for kept in (dense(*shape, dtype="bf16"), laid(shape, (heads * row, row, width, 1))):
            yield SuiteCall("copy", made("cat", out, tensors=(kept, one), dim=-2))
        repeated = (batch, heads, 4, length, width)
        given = laid(repeated, (heads * row, row, 0, width, 1))
        out = dense(*repeated, dtype="bf16")
        yield SuiteCall("copy", made("clone", out, self=given, memory_format="torch.contiguous_format"))
        half = laid((batch, 32, length, width // 2), (32 * width * length, width, 32 * width, 1))
        turned = dense(batch, 32, length, width, dtype="bf16")
        yield SuiteCall("copy", made("cat", turned, tensors=(half, half), dim=-1))


def _masks() -> Iterator[SuiteCall]:
    """Attention under masks of truth values: a query against a cache, heads folded or repeated; whole prompts."""
    for batch, length, width in ((1, 513, 64), (8, 2049, 64), (1, 8193, 128), (64, 513, 128)):
        mask = dense(batch, 1, 1, length, dtype="bool")
        for heads, queries in ((32, 1), (8, 4)):
            q, k = (dense(batch, heads, n, width, dtype="bf16") for n in (queries, length))
            yield _attention(q, k, mask)
    for batch, heads, length, width in ((1, 32, 512, 64), (8, 32, 512, 64), (1, 14, 2048, 64), (4, 32, 2048, 128)):
        q = dense(batch, heads, length, width, dtype="bf16")
        yield _attention(q, q, laid((batch, 1, length, length), (length * length, 0, length, 1), "bool"))


def _attention(query: Tensor, key: Tensor, mask: Tensor) -> SuiteCall:
    call = made(
        "attention", (query, dense(0)), query=query, key=key, value=key, mask=mask, dropout=0.0, causal=False,
        saving=False,
    )  # fmt: skip
    return SuiteCall("attention", call)


def _casts() -> Iterator[SuiteCall]:
    for shape in ((768,), (3072, 768), (64, 196, 768), (64, 96, 56, 56), (128, 128, 56, 56)):
        wide, narrow = dense(*shape), dense(*shape, dtype="bf16")
        yield SuiteCall("copy", made("_to_copy", wide, self=narrow, dtype="torch.float32"))
        yield SuiteCall("copy", made("_to_copy", narrow, self=wide, dtype="torch.bfloat16"))
    for shape in ((64, 50, 3072), (64, 196, 3072)):
        x = dense(*shape, dtype="bf16")
        yield SuiteCall("copy", made("gelu", x, self=x, approximate="none"))
        yield SuiteCall("copy", made("gelu_backward", x, grad_output=x, self=x, approximate="none"), phase="backward")


def _sums() -> Iterator[SuiteCall]:
    """Sums over rows: gradients of biases."""
    for dtype in ("fp32", "bf16"):
        for rows, columns in ((3200, 768), (12544, 384), (12544, 3072), (50176, 192), (200704, 96), (4096, 4096)):
            x = dense(rows, columns, dtype=dtype)
            out = dense(1, columns, dtype=dtype)
            yield SuiteCall("rows", made("sum", out, self=x, dim=(0,), keepdim=True), phase="backward")


def _norms() -> Iterator[SuiteCall]:
    """Batch norms in autocast (images in 16 bits, weights in 32), and gradients of norms of many short rows."""
    for channels, pixels in ((64, 112), (64, 56), (256, 56), (512, 28), (1024, 14), (2048, 7)):
        for layout in (NCHW, NHWC):
            x, vector = dense(64, channels, pixels, pixels, dtype="bf16", layout=layout), dense(channels)
            kept: dict[str, Argument] = dict.fromkeys(("weight", "running_mean", "running_var"), vector)
            forward = made(
                "native_batch_norm", (x, vector, vector), input=x, **kept, bias=vector, training=True, momentum=0.1,
                eps=1e-5,
            )  # fmt: skip
            yield SuiteCall("norm", forward)
            backward = made(
                "native_batch_norm_backward", (x, vector, vector), grad_out=x, input=x, **kept, save_mean=vector,
                save_invstd=vector, train=True, eps=1e-5, output_mask=(True, True, True),
            )  # fmt: skip
            yield SuiteCall("norm", backward, phase="backward")
    for rows, width in ((3136, 768), (12544, 384), (50176, 192), (512, 2048)):
        x, weight, row = dense(rows, width), dense(width), dense(rows, 1)
        call = made(
            "native_layer_norm_backward", (x, weight, weight), grad_out=x, input=x, normalized_shape=(width,), mean=row,
            rstd=row, weight=weight, bias=weight, output_mask=(True, True, True),
        )  # fmt: skip
        yield SuiteCall("norm", call, phase="backward")


def _convolutions() -> Iterator[SuiteCall]:
    """Gradients in 16 bits with channels first: 1x1 kernels on whole vectors and not, strides, stems, depthwise."""
    for inner, outer, pixels, kernel, stride, groups in (
        (64, 256, 56, 1, 1, 1), (512, 128, 28, 1, 1, 1), (1024, 256, 14, 1, 1, 1), (512, 2048, 7, 1, 1, 1),
        (256, 512, 56, 1, 2, 1), (128, 128, 56, 3, 2, 1), (3, 64, 224, 7, 2, 1), (3, 32, 224, 3, 2, 1),
        (144, 144, 56, 3, 1, 144), (384, 384, 14, 7, 1, 384), (960, 960, 7, 3, 1, 960),
    ):  # fmt: skip
        forward = convolved(64, inner, outer, pixels, kernel, stride, groups, "bf16", NCHW)
        yield SuiteCall("depthwise" if groups > 1 else "stem" if inner == 3 else "convolution", forward)
        yield from both_gradients(forward)
