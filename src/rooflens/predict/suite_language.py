"""Calls of a suite that language models beyond the smallest dense ones have: experts, wide heads, halves of rows."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.predict.suite_calls import SuiteCall, dense, made
from rooflens.predict.suite_steps import laid
from rooflens.records import Tensor


def language() -> Iterator[SuiteCall]:
    """Return them, those of experts first."""
    yield from _experts()
    yield from _routing()
    yield from _sorted_rows()
    yield from _halves()
    yield from _heads()


def _experts() -> Iterator[SuiteCall]:
    """Rows that are sorted by expert, times the matrix of their expert, which lies transposed: few and many rows."""
    for experts, inner, outer, some in (
        (64, 2048, 4096, (8, 64, 512, 4096, 32768, 65536)), (64, 2048, 1024, (64, 4096, 32768)),
        (128, 2048, 1536, (8, 128, 4096, 32768)), (128, 768, 2048, (8, 4096, 32768)),
        (8, 4096, 14336, (2, 16, 1024, 8192)), (32, 2880, 5760, (4, 2048, 16384)),
    ):  # fmt: skip
        weights = laid((experts, inner, outer), (inner * outer, 1, inner))
        for rows in some:
            x, out = dense(rows, inner, dtype="bf16"), dense(rows, outer, dtype="bf16")
            ends = dense(experts, dtype="int32")
            call = made("_grouped_mm", out, self=x, mat2=weights, offs=ends, out_dtype=None)
            yield SuiteCall("experts", call)


def _routing() -> Iterator[SuiteCall]:
    """What finds the experts of each token, and sorts tokens by expert."""
    for tokens, experts, chosen in ((8, 64, 8), (512, 64, 8), (8192, 64, 8), (4096, 128, 8), (8192, 8, 2)):
        scores = dense(tokens, experts)
        results = dense(tokens, chosen), dense(tokens, chosen, dtype="int64")
        yield SuiteCall("routing", made("topk", results, self=scores, k=chosen))
    for rows in (64, 4096, 32768, 65536):
        whole, numbers, counts = dense(rows, dtype="int64"), dense(rows), dense(64)
        yield SuiteCall("routing", made("sort", (whole, whole), self=whole))
        yield SuiteCall("routing", made("histc", counts, self=numbers, bins=64, min=0, max=63))
        yield SuiteCall("added", made("index_put_", whole, self=whole, indices=(whole,), values=whole))


def _sorted_rows() -> Iterator[SuiteCall]:
    """Rows of tokens that are taken in the order of experts, added to where they came from, and summed."""
    for tokens, width, chosen in ((64, 2048, 8), (4096, 2048, 8), (8192, 4096, 2)):
        x, many = dense(tokens, width, dtype="bf16"), dense(tokens * chosen, width, dtype="bf16")
        places = dense(tokens * chosen, dtype="int64")
        yield SuiteCall("lookup", made("index", many, self=x, indices=(places,)))
        yield SuiteCall("lookup", made("index", many, self=many, indices=(places,)))
        yield SuiteCall("added", made("index_add_", x, self=x, dim=0, index=places, source=many))
        summed = dense(tokens, chosen, width, dtype="bf16")
        yield SuiteCall("rows", made("sum", x, self=summed, dim=(1,)))
        shares = dense(tokens * chosen, 1, dtype="bf16")
        yield SuiteCall("copy", made("mul", many, self=many, other=shares))


def _halves() -> Iterator[SuiteCall]:
    """Halves of rows, as of a gate beside what it opens; rows that are scaled by a number or by a vector of weights."""
    for rows, width in ((64, 2048), (4096, 2048), (32768, 2048), (8192, 14336)):
        half, out = laid((rows, width), (2 * width, 1)), dense(rows, width, dtype="bf16")
        yield SuiteCall("copy", made("silu", out, self=half))
        yield SuiteCall("copy", made("mul", out, self=out, other=half))
    for tokens, width in ((512, 2048), (4096, 4096), (65536, 1152)):
        x, one, narrow = dense(1, tokens, width), dense(1, tokens, 1), dense(1, tokens, width, dtype="bf16")
        yield SuiteCall("copy", made("mul", x, self=x, other=one))
        yield SuiteCall("copy", made("mul", narrow, self=dense(width, dtype="bf16"), other=narrow))
        yield SuiteCall("copy", made("mul", x, self=x, other=dense(width)))
        yield SuiteCall("rows", made("mean", one, self=x, dim=(-1,), keepdim=True))
    for batch, heads, length, width in ((8, 32, 512, 128), (1, 32, 8192, 128), (8, 4, 8192, 256)):
        turned = laid((batch, heads, length, width), (length * heads * width, width, heads * width, 1))
        angles = dense(batch, 1, length, width, dtype="bf16")
        yield SuiteCall("copy", made("mul", turned, self=turned, other=angles))
        half = laid((batch, heads, length, width // 2), turned.strides or ())
        negative = laid(half.shape, (length * heads * width // 2, width // 2, heads * width // 2, 1))
        yield SuiteCall("copy", made("neg", negative, self=half))
        yield SuiteCall("copy", made("cat", dense(batch, heads, length, width, dtype="bf16"),
                                     tensors=(negative, half), dim=-1))  # fmt: skip


def _heads() -> Iterator[SuiteCall]:
    """Attention to long prompts and with other head widths: causal, under a mask of truth values, and of one query."""
    for batch, heads, kept, length, width in (
        (1, 32, 8, 8192, 128), (8, 32, 8, 2048, 128), (8, 32, 8, 512, 128), (1, 32, 8, 8192, 64), (8, 4, 1, 2048, 256),
        (1, 4, 1, 8192, 256), (8, 4, 1, 8192, 256), (1, 16, 8, 4096, 256), (1, 32, 32, 2048, 80),
        (1, 32, 32, 2048, 96), (1, 24, 8, 4096, 128), (1, 32, 2, 4096, 128),
    ):  # fmt: skip
        query, key = (_turned(batch, n, length, width) for n in (heads, kept))
        yield _attention(query, key, None, causal=True)
    for batch, heads, length, width in (
        (8, 4, 2048, 256), (1, 4, 8192, 256), (1, 16, 2048, 256), (1, 32, 2048, 128), (1, 32, 2048, 80),
        (8, 4, 512, 256),
    ):  # fmt: skip
        query = _turned(batch, heads, length, width)
        yield _attention(query, query, laid((batch, 1, length, length), (length * length, 0, length, 1), "bool"))
    for batch, heads, length, width in ((1, 4, 512, 256), (8, 4, 2048, 256), (64, 4, 512, 256)):
        query, key = (dense(batch, heads, n, width, dtype="bf16") for n in (1, length))
        yield _attention(query, key, dense(batch, 1, 1, length, dtype="bool"))


def _turned(batch: int, heads: int, length: int, width: int) -> Tensor:
    """Heads that lie beside each other for every token, as a projection leaves them."""
    return laid((batch, heads, length, width), (length * heads * width, width, heads * width, 1))


def _attention(query: Tensor, key: Tensor, mask: Tensor | None, *, causal: bool = False) -> SuiteCall:
    call = made(
        "attention", (query, dense(0)), query=query, key=key, value=key, mask=mask, dropout=0.0, causal=causal,
        saving=False,
    )  # fmt: skip
    return SuiteCall("attention", call)
