"""The micro-measurements of a suite: calls of every effect in the sizes, types and layouts that models have.

A list and no program: `sources/replay` times the calls, and `predict/fitting.py` reads constants off their times.
"""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.predict.suite_calls import NCHW, NHWC, PIXELS, SuiteCall, both_gradients, convolved, dense, made
from rooflens.predict.suite_language import language
from rooflens.predict.suite_steps import steps
from rooflens.records import Argument, Call, Tensor


def suite() -> tuple[SuiteCall, ...]:
    """Return all calls, those first that tell most."""
    parts = (
        _streams(), _products(), _convolutions(), _norms(), _attention(), _copies(), _depthwise(), _grouped(), _rows(),
        _pooling(), _gradients(), _lookups(), _lists(), _decoding(), _rare(), steps(),
        language(),
    )  # fmt: skip
    return tuple(item for part in parts for item in part)


def _streams() -> Iterator[SuiteCall]:
    for dtype in ("fp32", "bf16"):
        for power in (10, 14, 17, 19, 20, 21, 22, 23, 24, 26, 28):
            t = dense(1 << power, dtype=dtype)
            yield SuiteCall("stream", made("relu", t, self=t))
            yield SuiteCall("stream", made("add", t, self=t, other=t))


def _products() -> Iterator[SuiteCall]:
    widths = ((768, 3072), (3072, 768), (1024, 1024), (2048, 1000), (4096, 4096), (4096, 14336), (2048, 32000))
    for dtype, tf32 in (("fp32", False), ("fp32", True), ("bf16", False)):
        for k, n in widths:
            for m in (1, 8, 64, 197, 1024, 4096, 12608):
                if m * n * k > (1 << 38) or (dtype == "fp32" and not tf32 and m * n * k > 1 << 36):
                    continue
                x, w, out = (dense(*shape, dtype=dtype) for shape in ((m, k), (k, n), (m, n)))
                yield SuiteCall("product", made("mm", out, self=x, mat2=w), tf32)
        for batch, m, n, k in (
            (768, 49, 49, 32), (3072, 49, 32, 49), (192, 197, 197, 64), (96, 512, 64, 512), (16, 2048, 2048, 128),
        ):  # fmt: skip
            x, w, out = (dense(*shape, dtype=dtype) for shape in ((batch, m, k), (batch, k, n), (batch, m, n)))
            yield SuiteCall("product", made("bmm", out, self=x, mat2=w), tf32)


FORMS = (("fp32", False, NCHW), ("fp32", True, NCHW), ("bf16", False, NHWC), ("bf16", False, NCHW))
"""Types, TF32 and layouts in which convolutional networks run."""


def _convolutions() -> Iterator[SuiteCall]:
    for dtype, tf32, layout in FORMS:
        for batch in (1, 32, 128):
            for channels in (64, 128, 256, 512):
                same = convolved(batch, channels, channels, PIXELS[channels], dtype=dtype, layout=layout)
                wider = convolved(batch, channels, 4 * channels, PIXELS[channels], 1, dtype=dtype, layout=layout)
                less = convolved(batch, 4 * channels, channels, PIXELS[channels], 1, dtype=dtype, layout=layout)
                half = convolved(batch, channels, 2 * channels, PIXELS[channels], 3, 2, dtype=dtype, layout=layout)
                for call in (same, wider, less, half):
                    yield SuiteCall("convolution", call, tf32)
            for big in ((64, 224), (128, 112), (256, 56), (512, 28)):  # as in a VGG
                if batch < 128:
                    yield SuiteCall(
                        "convolution", convolved(batch, big[0], big[0], big[1], dtype=dtype, layout=layout), tf32
                    )
            for outer, kernel, stride in ((64, 7, 2), (96, 4, 4), (32, 3, 2), (64, 3, 1), (768, 16, 16)):
                yield SuiteCall(
                    "stem", convolved(batch, 3, outer, 224, kernel, stride, dtype=dtype, layout=layout), tf32
                )
            for odd in ((24, 144), (116, 116), (160, 960), (288, 1728), (40, 120)):
                for inner, outer in (odd, odd[::-1]):
                    yield SuiteCall(
                        "convolution", convolved(batch, inner, outer, 28, 1, dtype=dtype, layout=layout), tf32
                    )


def _depthwise() -> Iterator[SuiteCall]:
    for dtype, tf32, layout in (FORMS[0], FORMS[2], FORMS[3]):
        for batch in (1, 64):
            for channels, pixels, kernel, stride in (
                (16, 112, 3, 1), (72, 56, 5, 2), (144, 56, 3, 1), (240, 28, 3, 2), (960, 7, 5, 1), (58, 28, 3, 1),
                (96, 56, 7, 1), (384, 14, 7, 1), (768, 7, 7, 1),
            ):  # fmt: skip
                call = convolved(batch, channels, channels, pixels, kernel, stride, channels, dtype, layout)
                yield SuiteCall("depthwise", call, tf32)


def _grouped() -> Iterator[SuiteCall]:
    for dtype, tf32, layout in FORMS:
        for batch in (1, 64):
            for channels, groups, pixels in (
                (128, 32, 56), (256, 32, 28), (1024, 32, 14), (224, 4, 56), (896, 16, 14), (384, 2, 13),
            ):  # fmt: skip
                call = convolved(batch, channels, channels, pixels, 3, 1, groups, dtype, layout)
                yield SuiteCall("grouped", call, tf32)


def _batch_norm(batch: int, channels: int, dtype: str, layout: str, training: bool) -> Call:
    pixels = PIXELS[channels]
    image = dense(batch, channels, pixels, pixels, dtype=dtype, layout=layout)
    vectors: dict[str, Argument] = {
        n: dense(channels, dtype=dtype) for n in ("weight", "bias", "running_mean", "running_var")
    }
    return made("native_batch_norm", image, input=image, **vectors, training=training, momentum=0.1, eps=1e-5)


def _norms() -> Iterator[SuiteCall]:
    for dtype, _, layout in (FORMS[0], FORMS[2], FORMS[3]):
        for batch in (1, 64, 256):
            for channels in (32, 64, 256, 512, 2048):
                for training in (False, True):
                    yield SuiteCall("norm", _batch_norm(batch, channels, dtype, layout, training))
                if batch == 64:
                    call = _batch_norm(batch, channels, dtype, layout, True)
                    x, vector = call.outputs[0], dense(channels, dtype=dtype)
                    yield SuiteCall(
                        "norm",
                        made(
                            "native_batch_norm_backward", (x, vector, vector), grad_out=x, input=x, weight=vector,
                            running_mean=vector, running_var=vector, save_mean=vector, save_invstd=vector, train=True,
                            eps=1e-5, output_mask=(True, True, True),
                        ),
                        phase="backward",
                    )  # fmt: skip
    for dtype in ("fp32", "bf16"):
        for rows, width in (
            (1, 4096),
            (197, 768),
            (3136, 96),
            (12608, 768),
            (200704, 96),
            (50432, 768),
            (4096, 4096),
            (784, 384),
        ):
            x, weight, row = dense(rows, width, dtype=dtype), dense(width, dtype=dtype), dense(rows, 1)
            given_: dict[str, Argument] = {"input": x, "normalized_shape": (width,)}
            yield SuiteCall(
                "norm", made("native_layer_norm", (x, row, row), **given_, weight=weight, bias=weight, eps=1e-5)
            )
            yield SuiteCall(
                "norm",
                made(
                    "native_layer_norm_backward", (x, weight, weight), grad_out=x, **given_, mean=row, rstd=row,
                    weight=weight, bias=weight, output_mask=(True, True, True),
                ),
                phase="backward",
            )  # fmt: skip


def _attention() -> Iterator[SuiteCall]:
    sizes = (
        (1, 12, 197, 64), (64, 12, 197, 64), (256, 12, 197, 64), (16, 16, 512, 64), (8, 32, 1024, 128),
        (2, 32, 4096, 128), (64, 6, 49, 32), (512, 3, 49, 32), (32, 12, 128, 64),
    )  # fmt: skip
    for dtype in ("bf16", "fp32"):
        for batch, heads, length, width in sizes:
            q = dense(batch, heads, length, width, dtype=dtype)
            rows = dense(batch, heads, length)
            for causal in (False, True):
                call = made(
                    "attention", (q, rows), query=q, key=q, value=q, mask=None, dropout=0.0, causal=causal, saving=False
                )
                yield SuiteCall("attention", call)
            mask = dense(1, 1, length, length, dtype=dtype)
            masked = made(
                "attention", (q, rows), query=q, key=q, value=q, mask=mask, dropout=0.0, causal=False, saving=False
            )
            yield SuiteCall("attention", masked)
            yield SuiteCall(
                "attention",
                made(
                    "attention_backward", (q, q, q), grad=q, query=q, key=q, value=q, output=q, logsumexp=rows,
                    mask=None, dropout=0.0, causal=False, needed=(True, True, True, False),
                ),
                phase="backward",
            )  # fmt: skip
    for batch, heads, kept, length in (
        (1, 32, 32, 512),
        (1, 32, 8, 8192),
        (8, 32, 8, 2048),
        (64, 32, 8, 512),
        (64, 32, 8, 4096),
    ):
        q, k = dense(batch, heads, 1, 128, dtype="bf16"), dense(batch, kept, length, 128, dtype="bf16")
        call = made(
            "attention", (q, dense(0)), query=q, key=k, value=k, mask=None, dropout=0.0, causal=False, saving=False
        )
        yield SuiteCall("attention", call)


def _decoding() -> Iterator[SuiteCall]:
    """Caches with a number of keys that is no multiple of anything, and masks over them, as decoders have them."""
    for batch, length, width in ((1, 8193, 128), (8, 513, 64), (8, 8193, 64), (64, 513, 128)):
        k = dense(batch, 8, length, width, dtype="bf16")
        grouped, folded = (dense(batch, *shape, width, dtype="bf16") for shape in ((32, 1), (8, 4)))
        mask = dense(batch, 1, 1, length, dtype="bf16")
        for q, its in ((grouped, None), (folded, mask)):
            call = made(
                "attention", (q, dense(0)), query=q, key=k, value=k, mask=its, dropout=0.0, causal=False, saving=False
            )
            yield SuiteCall("attention", call)


def _rare() -> Iterator[SuiteCall]:
    """What a later look at models missed: odd channels, tensors joined in short runs, groups of other widths."""
    for dtype, tf32, layout in FORMS[1:]:
        for batch in (1, 32, 256):
            for channels, groups, pixels in ((216, 9, 28), (576, 24, 14), (448, 8, 14), (512, 32, 14)):
                yield SuiteCall(
                    "grouped", convolved(batch, channels, channels, pixels, 3, 1, groups, dtype, layout), tf32
                )
            for inner, outer in ((58, 58), (116, 116), (162, 162), (300, 60)):
                yield SuiteCall("convolution", convolved(batch, inner, outer, 28, 1, dtype=dtype, layout=layout), tf32)
        for batch in (1, 32, 256):
            for count in (2, 6, 20):
                parts = tuple(dense(batch, 32, 14, 14, dtype=dtype, layout=layout) for _ in range(count))
                out = dense(batch, 32 * count, 14, 14, dtype=dtype, layout=layout)
                yield SuiteCall("copy", made("cat", out, tensors=parts, dim=1), tf32)
            x = dense(batch, 512, 14, 14, dtype=dtype, layout=layout)
            places = dense(batch, 512, 14, 14, dtype="int64", layout=layout)
            window: dict[str, Argument] = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1)}
            yield SuiteCall("pooling", made("max_pool2d_with_indices", (x, places), self=x, **window))
    for batch, channels, kernel in ((64, 64, 3), (64, 128, 3), (64, 256, 3), (64, 512, 3), (64, 256, 1), (64, 1024, 1)):
        yield from both_gradients(convolved(batch, channels, channels, PIXELS[channels], kernel, dtype="bf16"))


def _copies() -> Iterator[SuiteCall]:
    for dtype in ("fp32", "bf16"):
        for batch in (1, 32, 128):
            image, last = (dense(batch, 128, 56, 56, dtype=dtype, layout=layout) for layout in (NCHW, NHWC))
            row, plane = dense(1, 128, 1, 1, dtype=dtype), dense(batch, 128, 1, 1, dtype=dtype)
            for name, other in (("add", row), ("mul", plane)):
                yield SuiteCall("copy", made(name, image, self=image, other=other))
                yield SuiteCall("copy", made(name, last, self=last, other=other))
            yield SuiteCall("copy", made("clone", last, self=image, memory_format="torch.channels_last"))
            yield SuiteCall("copy", made("clone", image, self=last, memory_format="torch.contiguous_format"))
            yield SuiteCall("copy", made("roll", image, self=image, shifts=(3, 3), dims=(2, 3)))
            padded = dense(batch, 128, 58, 58, dtype=dtype)
            yield SuiteCall("copy", made("constant_pad_nd", padded, self=image, pad=(1, 1, 1, 1), value=0.0))
            both = dense(batch, 256, 56, 56, dtype=dtype)
            yield SuiteCall("copy", made("cat", both, tensors=(image, image), dim=1))
            heads = dense(batch, 197, 12, 64, dtype=dtype)
            turned = Tensor((batch, 12, 197, 64), dtype, heads.nbytes, None, (197 * 768, 64, 768, 1), 0)
            yield SuiteCall(
                "copy",
                made(
                    "clone",
                    dense(batch, 12, 197, 64, dtype=dtype),
                    self=turned,
                    memory_format="torch.contiguous_format",
                ),
            )
            for name in ("sigmoid", "gelu", "silu", "hardswish"):
                yield SuiteCall("stream", made(name, image, self=image))


def _rows() -> Iterator[SuiteCall]:
    for dtype in ("fp32", "bf16"):
        for rows, width in ((12 * 197, 197), (64 * 12 * 197, 197), (64, 1000), (4096, 32000), (200704, 49)):
            x = dense(rows, width, dtype=dtype)
            yield SuiteCall("rows", made("_softmax", x, self=x, dim=-1, half_to_float=False))
            yield SuiteCall("rows", made("_log_softmax", x, self=x, dim=-1, half_to_float=False))
            yield SuiteCall("rows", made("sum", dense(1, width, dtype=dtype), self=x, dim=(0,), keepdim=True))
        for batch, channels in ((1, 512), (64, 512), (64, 2048), (256, 64)):
            pixels = PIXELS[channels]
            for layout in (NCHW, NHWC):
                x = dense(batch, channels, pixels, pixels, dtype=dtype, layout=layout)
                yield SuiteCall(
                    "rows",
                    made("mean", dense(batch, channels, 1, 1, dtype=dtype), self=x, dim=(-1, -2), keepdim=True),
                )


def _pooling() -> Iterator[SuiteCall]:
    for dtype, _, layout in (FORMS[0], FORMS[2], FORMS[3]):
        for batch, channels, pixels, kernel, stride in (
            (1, 64, 112, 3, 2),
            (64, 64, 112, 3, 2),
            (64, 128, 112, 2, 2),
            (64, 480, 28, 3, 1),
        ):
            side = (pixels + 2 * (kernel // 2) - kernel) // stride + 1
            x = dense(batch, channels, pixels, pixels, dtype=dtype, layout=layout)
            out = dense(batch, channels, side, side, dtype=dtype, layout=layout)
            places = dense(batch, channels, side, side, dtype="int64", layout=layout)
            window: dict[str, Argument] = {
                "kernel_size": (kernel, kernel), "stride": (stride, stride), "padding": (kernel // 2, kernel // 2),
            }  # fmt: skip
            yield SuiteCall("pooling", made("max_pool2d_with_indices", (out, places), self=x, **window))
            yield SuiteCall("pooling", made("avg_pool2d", out, self=x, **window))


def _gradients() -> Iterator[SuiteCall]:
    for dtype, tf32, layout in FORMS[:3]:
        for batch, channels, kernel, groups in (
            (64, 64, 3, 1), (64, 128, 3, 1), (64, 256, 3, 1), (64, 512, 3, 1), (64, 256, 1, 1), (64, 1024, 1, 1),
            (64, 96, 7, 96), (64, 384, 7, 384), (64, 192, 3, 192), (16, 512, 3, 1),
        ):  # fmt: skip
            forward = convolved(batch, channels, channels, PIXELS[channels], kernel, 1, groups, dtype, layout)
            yield from both_gradients(forward, tf32)


def _lookups() -> Iterator[SuiteCall]:
    for dtype in ("fp32", "bf16"):
        for rows, width, tokens in ((32000, 4096, 2048), (50257, 768, 8192), (32000, 4096, 1)):
            table, indices = dense(rows, width, dtype=dtype), dense(tokens, dtype="int64")
            out = dense(tokens, width, dtype=dtype)
            yield SuiteCall("lookup", made("embedding", out, weight=table, indices=indices))
            yield SuiteCall("lookup", made("index_select", out, self=table, dim=0, index=indices))
            if tokens > 1:
                call = made(
                    "embedding_dense_backward", table, grad_output=out, indices=indices, num_weights=rows,
                    padding_idx=-1, scale_grad_by_freq=False,
                )  # fmt: skip
                yield SuiteCall("lookup", call, phase="backward")


def _lists() -> Iterator[SuiteCall]:
    for count, size in ((64, 1 << 10), (320, 1 << 10), (64, 1 << 20), (320, 1 << 18), (16, 1 << 24)):
        some = tuple(dense(size) for _ in range(count))
        yield SuiteCall("list", made("_foreach_mul_", some, self=some, scalar=0.9), phase="optimizer")
        yield SuiteCall("list", made("_foreach_add_", some, self=some, other=some, alpha=0.1), phase="optimizer")
        call = made("_foreach_addcdiv_", some, self=some, tensor1=some, tensor2=some, value=0.1)
        yield SuiteCall("list", call, phase="optimizer")
        yield SuiteCall("list", made("_foreach_sqrt", some, self=some), phase="optimizer")
