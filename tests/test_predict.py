"""What each effect adds to the bound, on a card with round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.calls import call, tensor

import rooflens as rl
from rooflens.costs import Arithmetic, cost
from rooflens.errors import InvalidValue
from rooflens.predict import (
    CallOnDevice,
    Constants,
    calls_on_device,
    card_of,
    constants_of,
    expected_seconds,
    generation,
    generations,
)
from rooflens.predict.bands import band
from rooflens.predict.card import Card
from rooflens.predict.effects.attention_kernels import padding
from rooflens.predict.effects.copies import addressing
from rooflens.predict.effects.products import product_sizes, tiled
from rooflens.predict.effects.row_passes import column_parts
from rooflens.predict.effects.streams import cached_share
from rooflens.predict.host import around, dispatching, recording
from rooflens.predict.queues import Launched, two_queues
from rooflens.predict.step import Conduct, Way, predicted
from rooflens.records import (
    Argument,
    Call,
    Case,
    Ceiling,
    Device,
    Fact,
    HostCalls,
    Phase,
    Record,
    Tensor,
    Traffic,
    dense_strides,
)

TERA, GIGA = 1e12, 1e9
CASE = Case(model="one", device="round")


def device(arch: str = "Hopper GH100", **facts: float) -> Device:
    """100 units of 1 GHz, 1 TB/s, a cache of 10 MB, 100 TFLOP/s in 16 bits and 10 in fp32."""
    rates = {"matmul.bf16": 100 * TERA, "matmul.tf32": 50 * TERA, "matmul.fp32": 10 * TERA, "vector.fp32": 10 * TERA}
    ceilings = [
        Ceiling(resource=name, rate=rate, silicon="tensor", origin="user", reference="round")
        for name, rate in rates.items()
    ]
    ceilings.append(Ceiling(resource="dram", rate=TERA, silicon="memory", origin="user", reference="round"))
    known = {"units": 100, "clock": GIGA, "l2": 10e6, **facts}
    return Device(
        name="round", title="Round", vendor="NVIDIA", kind="gpu", arch=arch, ceilings=tuple(ceilings),
        facts={name: Fact(value=value) for name, value in known.items()},
    )  # fmt: skip


def card(**constants: float) -> Card:
    """The round card, with constants by name; a dot is written as two underscores."""
    values = {name.replace("__", "."): value for name, value in constants.items()}
    made = card_of(device(), constants_of(device()).measured(values, "round", "by hand"))
    assert made is not None
    return made


def seconds(what: Call, of: Card, dtype: str = "fp32", weights: float = 0, phase: Phase = "forward") -> float:
    """The expected time of a call."""
    one = cost(what, Arithmetic("tf32", "tf32") if dtype == "tf32" else Arithmetic())
    record = Record(
        case=CASE, source="estimate", scope="op", kind=one.family, name=what.name, phase=phase, work=one.work,
        kernel_work=one.kernel_work, traffic=Traffic(weights=weights, inputs=0, outputs=0), call=what,
    )  # fmt: skip
    ((piece, calls),) = calls_on_device(record)
    assert calls == 1
    return expected_seconds(piece, of)


def laid(memory_format: str, *shape: int, dtype: str = "fp32") -> Tensor:
    plain = tensor(*shape, dtype=dtype)
    return replace(plain, strides=dense_strides(shape, memory_format), offset=0)


# Streams


def test_a_stream_starts_and_then_moves_at_its_share_of_the_bandwidth() -> None:
    of = card(stream__start=2e-6, stream__share_wide=0.8, stream__share_narrow=0.5)
    big = tensor(100_000_000)  # 400 MB in and out, 40 times the cache
    assert seconds(call("relu", big, self=big), of) == pytest.approx(2e-6 + 800e6 / 0.8e12)
    half = tensor(100_000_000, dtype="bf16")
    assert seconds(call("relu", half, self=half), of) == pytest.approx(2e-6 + 400e6 / 0.5e12)


def test_what_was_just_written_is_read_from_the_cache_below_its_size() -> None:
    of = card(stream__start=0, stream__share_wide=1.0, stream__cached=50, stream__full=0.6, stream__empty=1.4)
    # 50 bytes per unit and cycle are 5 TB/s: five times the memory.
    assert [cached_share(size, of) for size in (6e6, 10e6, 14e6)] == pytest.approx([1, 0.5, 0])
    small = tensor(500_000)  # 2 MB in, 2 MB out
    assert seconds(call("relu", small, self=small), of) == pytest.approx(4e6 / 5e12)
    assert seconds(call("relu", small, self=small), of, weights=1e6) == pytest.approx(1e6 / 1e12 + 3e6 / 5e12)


def test_addresses_cost_more_than_bytes_where_a_kernel_computes_them() -> None:
    of = card(stream__start=0, copy__broadcast=1.0, copy__roll=0.5, copy__transpose=0.25)
    rows, row = tensor(10_000, 1_000), tensor(1_000)
    rows_half, row_half = tensor(10_000, 1_000, dtype="bf16"), tensor(1_000, dtype="bf16")
    half = card(stream__start=0, copy__broadcast=1.0, copy__broadcast_narrow=0.8)
    assert seconds(call("add", rows_half, self=rows_half, other=row_half), half) == pytest.approx(1e7 / 80e9)
    for each in (of, half):
        assert seconds(call("add", rows, self=rows, other=row), each) == pytest.approx(1e7 / 100e9)
    assert seconds(call("roll", rows, self=rows), of) == pytest.approx(1e7 / (0.5 * 100 * GIGA))
    image = laid("contiguous", 10, 10, 1000, 100)
    turned = laid("channels_last", 10, 10, 1000, 100)
    assert addressing(call("clone", image, self=image)) is None
    assert seconds(call("clone", turned, self=image), of) == pytest.approx(1e7 / (0.25 * 100 * GIGA))


# Products


def test_tiles_run_in_waves_and_the_last_one_may_be_empty() -> None:
    tiles = ("128x128", "128x64", "64x64", "64x32", "32x32")
    slow = {f"tile__{how}_{tile}": 1e-3 for how in ("alone", "together") for tile in tiles}
    only = {"tile__alone_256x128": 1.0, "tile__together_256x128": 1.0, **slow}
    of = card(product__rate_half=1.0, product__depth_half=0, **only)
    each = 256 * 128 * 1024 / (100 * TERA / 100 / 2)  # a tile in one unit: 33.6 M multiply-adds at 0.5 T/s
    for rows, columns, batch, waves in (
        (256 * 10, 128 * 10, 1, 1),  # 100 tiles fill 100 units once
        (256 * 10, 128 * 10 + 1, 1, 2),  # 110 take a second wave
        (256, 128, 250, 3),  # 250 products of one tile
    ):
        assert tiled(of, "bf16", rows, columns, 1024, batch, (1,)) == pytest.approx(waves * each)


def test_few_tiles_split_their_sum() -> None:
    of = card(product__partial=0)
    # One tile on a unit: 32 parts of the sum run at once, each with its own depth before it.
    assert tiled(of, "bf16", 128, 128, 65536) < tiled(of, "bf16", 128, 128, 65536, 1, (1,)) / 16


def test_a_thin_product_is_as_long_as_reading_its_weights() -> None:
    of = card(product__start=3e-6, product__streamed=0.8)
    row, matrix = tensor(1, 8192, dtype="bf16"), tensor(8192, 8192, dtype="bf16")
    thin = call("mm", tensor(1, 8192, dtype="bf16"), self=row, mat2=matrix)
    reading = (2 * 8192**2 + 4 * 8192) / 0.8e12  # 168 us; its 0.13 GFLOP take far less
    assert seconds(thin, of, weights=2 * 8192**2) == pytest.approx(3e-6 + reading, rel=0.1)


@pytest.mark.parametrize("precision", ["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"])
def test_a_product_of_any_precision_has_a_time(precision: str) -> None:
    assert tiled(card(), precision, 128, 128, 4096) > 0


@pytest.mark.parametrize(
    ("what", "sizes"),
    [
        (call("mm", tensor(2, 3), self=tensor(2, 5), mat2=tensor(5, 3)), (2, 3, 5, 1)),
        (call("addmm", tensor(2, 3), self=tensor(3), mat1=tensor(2, 5), mat2=tensor(5, 3)), (2, 3, 5, 1)),
        (call("bmm", tensor(7, 2, 3), self=tensor(7, 2, 5), mat2=tensor(7, 5, 3)), (2, 3, 5, 7)),
        (call("mv", tensor(2), self=tensor(2, 5), vec=tensor(5)), (2, 1, 5, 1)),
    ],
)
def test_sizes_of_a_product(what: Call, sizes: tuple[int, ...]) -> None:
    assert product_sizes(what) == sizes


# Convolutions


def convolved(
    dtype: str = "bf16",
    layout: str = "contiguous",
    channels: int = 256,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
) -> Call:
    """Images of 32 x 32 pixels, 64 of them."""
    more: dict[str, Argument] = {"stride": (stride, stride), "groups": groups, "transposed": False}
    return call(
        "convolution",
        laid(layout, 64, channels, 32 // stride, 32 // stride, dtype=dtype),
        input=laid(layout, 64, channels, 32, 32, dtype=dtype),
        weight=laid(layout, channels, channels // groups, kernel, kernel, dtype=dtype),
        **more,
    )


def test_a_convolution_on_tensor_cores_copies_channels_first_into_channels_last() -> None:
    of = card(convolution__relayout=0.5, convolution__relayout_taps=0.5, stream__start=1e-6)
    first, last = (seconds(convolved(layout=layout), of) for layout in ("contiguous", "channels_last"))
    # Input and result of 33.6 MB are read and written once more at half of 1 TB/s, and 589,824 weights at 50 G/s.
    copies = 3e-6 + 4 * 33_554_432 / 0.5e12 + 589_824 / 50e9
    assert first - last == pytest.approx(copies)
    assert seconds(convolved(kernel=1), of) == pytest.approx(seconds(convolved(kernel=1, layout="channels_last"), of))
    assert seconds(convolved("fp32"), of) == pytest.approx(seconds(convolved("fp32", "channels_last"), of))


def test_kernels_of_an_earlier_generation_serve_few_channels() -> None:
    fast, slow = (card(convolution__thin=share) for share in (1.0, 0.5))
    wide, thin = (convolved(layout="channels_last", channels=channels) for channels in (128, 64))
    assert seconds(wide, fast) == pytest.approx(seconds(wide, slow))
    start = fast["convolution.start"]
    assert seconds(thin, slow) - start == pytest.approx(2 * (seconds(thin, fast) - start), rel=0.02)


def test_a_bias_is_added_by_another_kernel() -> None:
    of = card(stream__start=2e-6, copy__broadcast=0.1)
    plain = convolved(layout="channels_last")
    biased = call("convolution", plain.outputs[0], **{**dict(plain.arguments), "bias": tensor(256, dtype="bf16")})
    more = seconds(biased, of) - seconds(plain, of)
    assert more == pytest.approx(2e-6 + 64 * 256 * 32 * 32 / (0.1 * 100 * GIGA), rel=1e-3)


def test_a_depthwise_convolution_pays_for_taps_and_not_for_products() -> None:
    of = card(stream__start=0, depthwise__planar_output=10, depthwise__planar_tap=1)
    outputs = 64 * 256 * 32 * 32
    for kernel in (3, 7):
        each = (10 + kernel**2) / (100 * GIGA)  # 10 and 1 units x cycles
        assert seconds(convolved("fp32", kernel=kernel, groups=256), of) == pytest.approx(outputs * each)


def test_each_gradient_of_a_convolution_has_its_own_time() -> None:
    of = card()
    forward = convolved(layout="channels_last")

    def gradients(for_input: bool, for_weight: bool) -> float:
        arguments = dict(forward.arguments)
        return seconds(
            call(
                "convolution_backward", forward.outputs[0], grad_output=forward.outputs[0],
                output_mask=(for_input, for_weight, False), **arguments,
            ),
            of,
        )  # fmt: skip

    both, one, other = gradients(True, True), gradients(True, False), gradients(False, True)
    assert both == pytest.approx(one + other, rel=0.1)
    assert one == pytest.approx(seconds(forward, of), rel=0.1)  # the same product, the other way round


# Norms, attention, lists


def test_a_batch_norm_is_bound_by_planes_and_in_training_by_channels() -> None:
    of = card(stream__start=0, norm__planes=1e-3, norm__channel_training_wide=0.5, norm__plane_wide=100)
    small = tensor(100, 1000, 2, 2)
    vectors = {name: tensor(1000) for name in ("weight", "bias", "running_mean", "running_var")}
    plain = call("native_batch_norm", small, input=small, training=False, **vectors)
    assert seconds(plain, of) == pytest.approx(100_000 / (1e-3 * 100 * GIGA))  # 1 ms; its bytes take microseconds
    training = call("native_batch_norm", small, input=small, training=True, **vectors)
    # 1,000 channels in 200 places; each takes 100 planes of 4 elements / 0.5 + 100 cycles, at 1 GHz.
    assert seconds(training, of) == pytest.approx(5 * 100 * 108e-9)


def test_compiled_code_leaves_no_block_alone_with_a_group_or_a_channel() -> None:
    of = card(stream__start=0, stream__share_wide=0.8, norm__group=1.0, norm__channel_training_wide=1.0)
    x, few = tensor(1, 8, 1000, 1000), tensor(8)
    groups = call("native_group_norm", x, input=x, weight=few, bias=few, group=1)
    channels = call("native_batch_norm", x, input=x, weight=few, bias=few, training=True)
    for what in (groups, channels):
        one = cost(what, Arithmetic())
        piece = CallOnDevice(what, one.family, one.work.flops, one.work.bytes["dram"], 0.0, 1.0, "forward", None)
        assert expected_seconds(piece, of) > 1e-3, "8 M elements of a group, or a million of a channel, one by one"
        # 32 MB are read twice and written once, at 0.8 of 1 TB/s.
        assert expected_seconds(piece._replace(compiled=True), of) == pytest.approx(96e6 / 0.8e12, rel=0.01)


def test_few_channels_that_lie_last_are_slow() -> None:
    of = card(stream__start=0, norm__last_start=0, norm__last_fixed=1.0)
    for channels, rate in ((8, 0.5), (24, 0.75)):
        image = laid("channels_last", 64, channels, 64, 64, dtype="bf16")
        what = call("native_batch_norm", image, input=image, training=False)
        assert seconds(what, of) == pytest.approx(image.elements / (rate * 100 * GIGA))


def test_a_batch_norm_of_rows_is_no_norm_of_many_planes() -> None:
    of = card(stream__start=0, norm__last_start=0, norm__last_fixed=0.01, norm__planes=1e-6)
    rows = tensor(50_176, 512)  # (positions, channels), as LeViT has it
    seen = seconds(call("native_batch_norm", rows, input=rows, training=False), of)
    assert seen == pytest.approx(rows.elements / (0.01 * 100 * GIGA) * 520 / 512)


def test_attention_in_fp32_takes_no_heed_of_tf32_and_a_causal_one_does_half() -> None:
    of = card(attention__start=0, attention__fp32=0.5, attention__flash=0.25)
    many = tensor(8, 100, 1024, 64)  # 6400 blocks of 128 queries, or 12800 of 64: full waves

    def attending(operand: Tensor, causal: bool, dtype: str = "fp32") -> float:
        what = call("attention", (operand, tensor(1)), query=operand, key=operand, value=operand, causal=causal)
        return seconds(what, of, dtype)

    flops = 8 * 100 * 1024 * 1024 * 2 * 2 * 64
    assert attending(many, False) == attending(many, False, "tf32") == pytest.approx(flops / (0.5 * 10 * TERA))
    narrow = tensor(8, 100, 1024, 64, dtype="bf16")
    assert attending(narrow, False) == pytest.approx(flops / (0.25 * 100 * TERA))
    assert attending(narrow, True) == pytest.approx(attending(narrow, False) * 36 / 64)  # 1 + 2 ... + 8 blocks of 8 x 8


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "pairs"),
    [(197, 197, False, 256 * 256), (49, 49, True, 128 * 128), (256, 384, True, 3 * 128**2)],
)
def test_lengths_are_padded_to_blocks(queries: int, keys: int, causal: bool, pairs: int) -> None:
    attending = queries * (queries + 1) / 2 if causal else queries * keys
    assert padding(queries, keys, 128, causal) == pytest.approx(pairs / attending)


def test_one_query_reads_its_cache() -> None:
    of = card(attention__start=5e-6, attention__decode=0.5)
    query, held = tensor(16, 32, 1, 128, dtype="bf16"), tensor(16, 32, 4096, 128, dtype="bf16")
    one = call("attention", (query, tensor(1)), query=query, key=held, value=held, causal=False)
    assert seconds(one, of) == pytest.approx(5e-6 + 2 * held.nbytes / 0.5e12, rel=1e-3)


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "mask", "taken"),
    [
        (512, 1, 4097, None, 2 * 512 * 4097 * 128 * 2 / 0.5e12),  # the length does not matter
        (512, 1, 4097, "bf16", 2 * 512 * 4097 * 128 * 2 / 0.25e12),
        (64, 1, 4097, "bf16", 4097 * 1e-6),  # of 100 units more than half have a head, whose keys they take in turn
        (32, 1, 4097, "bool", 2 * 32 * 4097 * 128 * 2 / 0.25e12 + 4e-6),
        (250, 4, 4097, "bf16", 4097 * 2.5 * 2e-6),  # 2.5 folded heads for each unit
    ],
)
def test_a_mask_slows_reading_a_cache_and_its_length_does_not(
    heads: int, queries: int, keys: int, mask: str | None, taken: float
) -> None:
    of = card(attention__start=1e-6, attention__decode=0.5, attention__decode_masked=0.25, attention__truths=4e-6,
              attention__key=1e-6, attention__key_folded=2e-6)  # fmt: skip
    query, held = tensor(1, heads, queries, 128, dtype="bf16"), tensor(1, heads, keys, 128, dtype="bf16")
    given = None if mask is None else tensor(1, 1, 1, keys, dtype=mask)
    one = call("attention", (query, tensor(1)), query=query, key=held, value=held, mask=given, causal=False)
    assert seconds(one, of) == pytest.approx(1e-6 + taken, rel=0.01)


def test_wide_heads_cost_another_factor_under_a_mask_and_share_no_keys() -> None:
    of = card(attention__start=0, attention__flash=0.5, attention__flash_width=0, attention__masked=2,
              attention__masked_width=0, attention__masked_beyond=1.5, attention__key=1e-6)  # fmt: skip

    def one(heads: int, queries: int, width: int) -> float:
        query, held = tensor(1, heads, queries, width, dtype="bf16"), tensor(1, heads, 1280, width, dtype="bf16")
        mask = tensor(1, 1, queries, 1280, dtype="bf16")
        return seconds(call("attention", query, query=query, key=held, value=held, mask=mask, causal=False), of)

    # 100 blocks of 128 queries: 4 x 10 heads x 1,280 x 1,280 x 256 FLOP at 50 TFLOP/s, twice that, and half more
    assert one(10, 1280, 256) == pytest.approx(4 * 10 * 1280**2 * 256 / 50e12 * 2 * 1.5)
    assert one(10, 1280, 128) == pytest.approx(4 * 10 * 1280**2 * 128 / 50e12 * 2)
    # 4 heads for 100 units: blocks share keys up to a width of 128, and go over all 1,280 beyond
    assert one(4, 1, 256) == pytest.approx(1280e-6)
    assert one(4, 1, 128) < 20e-6


def test_rows_that_are_no_whole_vectors_cost_their_bytes() -> None:
    of = card(product__start=0, product__unaligned=0.25)
    for width, slow in ((49, True), (56, False)):  # 98 bytes, and 112
        left, right = tensor(1000, 56, width, dtype="bf16"), tensor(1000, width, 32, dtype="bf16")
        what = call("bmm", tensor(1000, 56, 32, dtype="bf16"), self=left, mat2=right)
        taken = sum(t.nbytes for t in (left, right, what.outputs[0])) / 0.25e12
        assert (seconds(what, of) == pytest.approx(taken)) is slow


def test_joined_tensors_cost_a_time_each_where_runs_are_short() -> None:
    of = card(stream__start=0, copy__cat_short=1e6, copy__cat_each_short=2e-6)  # their bytes cost nothing here
    parts = tuple(laid("channels_last", 32, 32, 28, 28, dtype="bf16") for _ in range(6))
    out = laid("channels_last", 32, 192, 28, 28, dtype="bf16")
    assert seconds(call("cat", out, tensors=parts, dim=1), of) == pytest.approx(6 * 2e-6, rel=1e-3)


def test_tensors_that_do_not_lie_dense_are_joined_element_by_element() -> None:
    of = card(stream__start=1e-6, copy__cat_one=1.0, copy__cat_all=1.5)  # 100 and 150 G elements/s
    cut = Tensor((8, 8, 2048, 64), "bf16", 8 * 8 * 2048 * 64 * 2, None, (8 * 2049 * 64, 2049 * 64, 64, 1), 0)
    out = tensor(8, 8, 2049, 64, dtype="bf16")
    grown = call("cat", out, tensors=(cut, tensor(8, 8, 1, 64, dtype="bf16")), dim=-2)
    assert seconds(grown, of) == pytest.approx(1e-6 + cut.elements / 100e9)
    half = Tensor((8, 32, 2048, 32), "bf16", 8 * 32 * 2048 * 32 * 2, None, (2048 * 2048, 64, 2048, 1), 0)
    turned = call("cat", tensor(8, 32, 2048, 64, dtype="bf16"), tensors=(half, half), dim=-1)
    assert seconds(turned, of) == pytest.approx(1e-6 + 2 * half.elements / 150e9)


def test_a_copy_that_repeats_elements_has_its_own_rate() -> None:
    of = card(stream__start=1e-6, copy__expand=2.0)  # 200 G elements/s
    for name, shape, strides in (("clone", (8, 8, 4, 100, 64), (51200, 6400, 0, 64, 1)), ("copy_", (64, 999), (0, 1))):
        what = call(name, tensor(*shape, dtype="bf16"), self=Tensor(shape, "bf16", 2, None, strides, 0))
        assert addressing(what) == "expand"
        assert seconds(what, of) == pytest.approx(max(1e-6 + what.outputs[0].elements / 200e9, 0), rel=0.01)


def test_grouped_kernels_cost_a_time_for_each_result() -> None:
    of = card(groups__start_half=0, groups__output_half=2.0, groups__input_half=1.0, product__streamed=1e6)
    what = convolved(layout="channels_last", channels=64, stride=2, groups=16)
    results, elements = what.outputs[0].elements, what.inputs[0].elements
    assert seconds(what, of, "bf16") == pytest.approx((2.0 * results + elements) / (100 * GIGA))


def test_a_list_of_many_small_tensors_costs_launches() -> None:
    of = card(optimizer__start=4e-6)
    small = tuple(tensor(10) for _ in range(250))  # 110 in a launch
    assert seconds(call("_foreach_mul_", small, self=small, scalar=0.9), of) == pytest.approx(3 * 4e-6, rel=0.01)
    # Of two lists 64 tensors are in a launch: in place with another, or with a list of results.
    assert seconds(call("_foreach_add_", small, self=small, other=small), of) == pytest.approx(4 * 4e-6, rel=0.01)
    assert seconds(call("_foreach_mul", small, self=small, scalar=0.9), of) == pytest.approx(4 * 4e-6, rel=0.01)
    # A block goes over a chunk of 65,536 elements alone, two in a cycle of 1 ns, and 300 of 320 blocks have nothing.
    whole = tuple(tensor(65_536) for _ in range(20))
    of = card(optimizer__start=4e-6, optimizer__block=2.0, optimizer__share=1e6, stream__cached=1e6)
    tail = 65_536 / 2 * 1e-9 * 300 / 320
    assert seconds(call("_foreach_mul_", whole, self=whole, scalar=0.9), of) == pytest.approx(4e-6 + tail, rel=0.01)


# Levels


def test_the_level_says_how_the_constants_are_known() -> None:
    assert constants_of(device("Hopper GH100")).level == "datasheet"
    assert constants_of(device("Nothing NV99")).level == "datasheet, unknown generation"
    measured = generation("hopper").measured({"stream.start": 5e-6}, "this card", "a suite")
    assert (measured.level, measured.values["stream.start"]) == ("calibrated", 5e-6)
    assert measured.values["stream.cached"] == generation("hopper").values["stream.cached"]
    with pytest.raises(InvalidValue, match="no constant"):
        generation("hopper").measured({"stream.begin": 1.0}, "this card", "a suite")


def test_every_constant_has_a_source_and_a_general_value() -> None:
    general: Constants = generation("general")
    for name in (*generations(), "general"):
        constants = generation(name)
        assert constants.values.keys() == general.values.keys()
        assert constants.values.keys() == constants.sources.keys()


def test_a_processor_and_a_pair_of_cards_have_no_prediction() -> None:
    assert card_of(rl.device("epyc-7763")) is None
    assert card_of(rl.device("2x h100-sxm")) is None


@pytest.mark.parametrize(
    ("shape", "dims", "parts"),
    [
        # 48 fours of columns: 2 blocks of 32 x 4 threads; 1,600 blocks are wanted, 784 have 16 rows a thread.
        ((50_176, 192), (0,), 784 / 4),
        ((64, 784, 192), (0, 1), 784 / 4),
        ((12_544, 3072), (0,), 67 / 4),  # 24 blocks wide: 67 times as many fill the card
        ((64, 1000), (0,), 0),  # 16 rows a thread are few
        ((50_176, 192), (1,), 0),  # a row is added by its own block
    ],
)
def test_the_last_block_of_a_sum_over_rows_adds_the_parts(
    shape: tuple[int, ...], dims: tuple[int, ...], parts: float
) -> None:
    assert column_parts(tensor(*shape, dtype="bf16"), dims, card()) == pytest.approx(parts)
    images = laid("channels_last", 64, 192, 28, 28)
    assert column_parts(images, (0, 2, 3), card()) == pytest.approx(784 / 4)


def test_gradients_of_a_norm_of_rows_go_over_all_rows_in_few_blocks() -> None:
    of = card(stream__start=0, stream__share_wide=1e6, norm__gradient_rows=1e9, norm__gradient_each=5.0)
    for rows, taken in ((10_000, 10_000 * 5e-9), (100_000, 0.0)):  # 5 cycles of 1 GHz; many rows are shared out
        x, weight, row = tensor(rows, 96), tensor(96), tensor(rows, 1)
        given: dict[str, Argument] = {
            "grad_out": x,
            "input": x,
            "normalized_shape": (96,),
            "mean": row,
            "rstd": row,
            "weight": weight,
        }
        what = call("native_layer_norm_backward", (x, weight, weight), **given)
        assert seconds(what, of, phase="backward") == pytest.approx(taken, abs=1e-9)


def test_a_norm_of_rows_first_copies_what_does_not_lie_dense() -> None:
    of = card(stream__start=1e-6, copy__transpose=0.5, copy__broadcast=1.0)
    weight, row = tensor(768), tensor(64, 196, 1)
    times = []
    for strides in ((150_528, 768, 1), (150_528, 1, 196), (768, 49_152, 1)):
        x = Tensor((64, 196, 768), "fp32", 64 * 196 * 768 * 4, None, strides, 0)
        given: dict[str, Argument] = {
            "input": x,
            "normalized_shape": (768,),
            "weight": weight,
            "bias": weight,
            "eps": 1e-5,
        }
        times.append(seconds(call("native_layer_norm", (tensor(64, 196, 768), row, row), **given), of))
    dense, turned, moved = times
    assert turned - dense == pytest.approx(1e-6 + 64 * 196 * 768 / 50e9)
    assert moved - dense == pytest.approx(1e-6 + 64 * 196 * 768 / 100e9)


def test_a_change_of_type_goes_element_by_element_but_into_16_bits() -> None:
    of = card(stream__start=0, stream__share_wide=1e6, stream__share_narrow=1e6, copy__cast=1.0)
    wide, narrow = tensor(1000, 1000), tensor(1000, 1000, dtype="bf16")
    assert seconds(call("_to_copy", wide, self=narrow), of) == pytest.approx(1e6 / 100e9, rel=1e-3)
    assert seconds(call("_to_copy", wide, self=tensor(1000, 1000, dtype="int64")), of) == pytest.approx(1e-5, rel=1e-3)
    assert seconds(call("_to_copy", narrow, self=wide), of) < 1e-9


def test_the_order_of_operations_decides_who_waits() -> None:
    # Long kernels first: launched after 1 s and 2 s, the device is busy from 1 to 4 and then to 5.
    assert two_queues([Launched(1, 3, 1), Launched(1, 1, 1)]) == (5, 2)
    # Short ones first: it is busy from 1 to 2 and, once more, from 2 to 5; and after a slow host from 3 to 8.
    assert two_queues([Launched(1, 1, 1), Launched(1, 3, 1)]) == (5, 2)
    assert two_queues([Launched(3, 1, 1), Launched(1, 4, 1)]) == (8, 4)
    assert two_queues([]) == (0, 0)
    # Two equal layers, which a trace has once: 1 + 1 s of the host and 0 + 2 s of the device for each, in turn.
    layer = [Launched(2, 0, 2), Launched(2, 4, 2)]
    assert two_queues(layer) == (6, 4), "the device begins after 2 s; in a row of its own each operation would take 8"


def _as_record(what: Call, phase: Phase) -> Record:
    one = cost(what, Arithmetic())
    return Record(
        case=replace(CASE, mode="train"), source="estimate", scope="op", kind=one.family, name=what.name, phase=phase,
        work=one.work, call=what,
    )  # fmt: skip


def test_a_phase_takes_what_it_adds_to_those_before() -> None:
    """Two lists of 50 tensors take the host 10 us and 0.2 ms; behind a busy device they take the device's time."""
    some = tuple(tensor(10) for _ in range(50))
    first = _as_record(call("relu", tensor(10**8), self=tensor(10**8)), "forward")
    step = _as_record(call("_foreach_add_", some, self=some, other=some), "optimizer")
    of = card(host__list=10e-6, host__tensor=2e-6, host__start=0, host__start_optimizer=0, launch__gap=0)
    alone = predicted([step], of, Conduct(), "optimizer")
    behind = predicted([step], of, Conduct(before=(first,)), "optimizer")
    whole, forward = predicted([first, step], of, Conduct()), predicted([first], of, Conduct(), "forward")
    assert alone is not None
    assert behind is not None
    assert whole is not None
    assert forward is not None
    assert alone.seconds == pytest.approx(10e-6 + 2 * 50 * 2e-6 + alone.device), "the host launches, then it runs"
    assert alone.regime == "host-bound"
    assert behind.seconds == pytest.approx(behind.device), "launched while forward ran"
    assert behind.regime == "device-bound"
    assert whole.seconds == pytest.approx(forward.seconds + behind.seconds)


def test_each_gradient_of_a_convolution_costs_the_host_a_call_and_that_of_a_bias_alone_too() -> None:
    x, weight = tensor(1, 8, 4, 4), tensor(8, 8, 1, 1)
    for mask, runs in (((True, True, False), 2), ((True, False, False), 1), ((False, False, True), 1)):
        what = call("convolution_backward", (x, weight), grad_output=x, input=x, weight=weight, output_mask=mask)
        record = Record(
            case=CASE, source="estimate", scope="op", kind="convolution", name=what.name, phase="backward", call=what
        )
        of = card(host__convolution=10.0, host__share_backward=0.5, host__backward=1.0)
        assert dispatching(record, of) == 10 / 2 * runs + 1


def test_gradients_that_meet_are_added_by_no_node_of_autograd() -> None:
    x, of = tensor(4), card(host__operation=6.0, host__share_backward=0.5, host__backward=1.0)
    assert dispatching(_as_record(call("add", x, self=x, other=x), "backward"), of) == 3
    assert dispatching(_as_record(call("mul", x, self=x, other=x), "backward"), of) == 3 + 1


@pytest.mark.parametrize(
    ("way", "constant", "waits"),
    [
        ("eager", "start", (1, 1, 0, 0)),
        ("compiled", "call", (1, 1, 0, 0)),
        ("eager", "start_backward", (1, 0, 1, 0)),
        ("compiled", "start_backward", (1, 0, 1, 0)),
    ],
)
def test_a_phase_begins_when_the_host_has_got_to_its_first_kernel(way: Way, constant: str, waits: object) -> None:
    """A step waits for each of its phases to begin, a phase for itself, and a graph for none."""
    first, then = (_as_record(call("relu", tensor(10), self=tensor(10)), phase) for phase in ("forward", "backward"))
    took = []
    for start in (0.0, 1.0):
        of = card(**{f"host__{constant}": start})
        found = (
            predicted([first, then], of, Conduct(way=way)),
            predicted([first], of, Conduct(way=way), "forward"),
            predicted([then], of, Conduct(way=way, before=(first,)), "backward"),
            predicted([first], of, Conduct(way="graph")),
        )
        took.append([None if its is None else its.seconds for its in found])
    assert [b - a for a, b in zip(*took, strict=True)] == pytest.approx(waits)


KINDS = (
    *("operation", "in_place", "other", "gather", "matmul", "attention"),
    *("convolution", "grouped", "depthwise", "channels", "rows"),
)


def test_what_an_operation_costs_the_host_depends_on_its_kind() -> None:
    """Each kind has a constant; cuDNN's kernels for channels last in 16 bits cost some more."""
    of = card(**{f"host__{kind}": 10.0 + number for number, kind in enumerate(KINDS)}, host__last=0.5)
    x, image = tensor(4, 4), laid("channels_last", 2, 8, 4, 4, dtype="bf16")

    def costs(name: str, family: str, operand: Tensor = x, **more: Argument) -> float:
        what = call(name, operand, self=operand, **more)
        return dispatching(Record(case=CASE, source="estimate", scope="op", kind=family, name=name, call=what), of)

    dense, each, some = (tensor(8, inner, 3, 3) for inner in (8, 1, 4))
    found = (
        costs("relu", "elementwise"), costs("relu_", "elementwise"), costs("clone", "copy"), costs("cat", "copy"),
        costs("index", "gather"), costs("mean", "reduction"), costs("mm", "matmul"), costs("attention", "attention"),
        costs("convolution", "convolution", weight=dense, groups=1),
        costs("convolution", "convolution", weight=some, groups=2),
        costs("convolution", "convolution", weight=each, groups=8),
        costs("native_batch_norm", "normalization"), costs("native_layer_norm", "normalization"),
    )  # fmt: skip
    operation, in_place, other, gather, matmul, attention, convolution, grouped, depthwise, channels, rows = range(11)
    kinds = (operation, in_place, operation, other, gather, other, matmul, attention, convolution, grouped, depthwise)
    assert found == tuple(10.0 + number for number in (*kinds, channels, rows))
    assert costs("native_batch_norm", "normalization", image) == 10.0 + channels + 0.5
    assert costs("convolution", "convolution", image, weight=each, groups=8) == 10.0 + depthwise + 0.5
    assert costs("convolution", "convolution", image, weight=dense, groups=1) == 10.0 + convolution


def test_a_forward_pass_that_autograd_records_costs_the_host_more() -> None:
    x, of = tensor(4), card(host__operation=3.0, host__view=1.0, host__module=2.0, host__recording=1.5)
    record = _as_record(call("mul", x, self=x, other=x), "forward")
    assert dispatching(record, of) == 3 * 1.5
    assert dispatching(replace(record, case=CASE), of) == 3, "inference records nothing"
    calls = [HostCalls(path="", phase="forward", views=3, module_calls=1)]
    assert around(calls, of, recording(record, of)) == (3 + 2) * 1.5


def test_backward_has_the_pace_of_its_own_thread() -> None:
    backward = {"host__backward": 1.0, "host__node": 2.0, "host__thread": 0.5, "host__share_backward": 1.0}
    x, of = tensor(4), card(host__operation=3.0, host__view=5.0, host__recording=1.0, **backward)
    assert dispatching(_as_record(call("mul", x, self=x, other=x), "backward"), of) == (3 + 1) / 2
    assert dispatching(_as_record(call("mul", x, self=x, other=x), "forward"), of) == 3
    assert around([HostCalls(path="", phase="backward", views=3, module_calls=0)], of) == 3 * 2 / 2


def test_a_loop_in_python_launches_all_operations_of_its_turns() -> None:
    # The shortest run has 40 operations and 90 views, a turn 4 and 10, and 500 turns come after it.
    x = tensor(4, 6, 508)
    code: dict[str, Argument] = {
        "units": ("dram", "host/operations", "host/views"),
        "first": (0, 40, 90),
        "step": (0, 4, 10),
    }
    loop = call("selective_scan", x, hidden_states=x, dt=x, A=tensor(6, 4), **code, bend=(0, 0, 0), ahead=500)
    of = card(
        host__operation=3.0, host__other=3.0, host__view=2.0, host__recording=1.0, stream__start=1.0, stream__cached=1e9
    )
    assert dispatching(_as_record(loop, "forward"), of) == (40 + 500 * 4) * 3 + (90 + 500 * 10) * 2
    assert seconds(loop, of) == pytest.approx(40 + 500 * 4)


def test_a_view_in_a_backward_pass_is_a_node_of_autograd() -> None:
    of = card(host__view=1.0, host__node=4.0, host__module=2.0)
    assert around([HostCalls(path="", phase="forward", views=3, module_calls=1)], of) == 3 * 1 + 2
    assert around([HostCalls(path="", phase="backward", views=3, module_calls=0)], of) == 3 * 4


@pytest.mark.parametrize(("way", "begins"), [("eager", 5.0), ("compiled", 7.0)])
def test_each_token_of_an_answer_is_begun(way: Way, begins: float) -> None:
    """A step writes one token: the first comes from the prompt, 63 from steps that the host begins one by one."""
    x, case = tensor(4), replace(CASE, mode="generate", options=(("output_len", 64), ("prompt_len", 8)))
    token = replace(_as_record(call("mul", x, self=x, other=x), "decode"), case=case, calls=63)
    of = card(host__start=5.0, host__call=7.0, host__operation=1.0, host__compiled=1.0, launch__gap=0, stream__start=0)
    found = predicted([token], of, Conduct(way=way), "decode")
    assert found is not None
    assert found.seconds == pytest.approx(63 * (begins + 1.0), rel=1e-6)
    prompt = replace(token, phase="prefill", calls=1)
    read = predicted([prompt], of, Conduct(way=way), "prefill")
    assert read is not None
    assert read.seconds == pytest.approx(begins + 1.0, rel=1e-6)


def test_forward_and_backward_of_each_micro_batch_are_begun() -> None:
    """Three micro-batches: 3 x (5 + 1) s of forward, 3 x (11 + 1) of backward, and one optimizer: 17 + 1."""
    x, case = tensor(4), replace(CASE, mode="train", options=(("accumulation_steps", 3),))
    of = card(
        host__start=5.0, host__start_backward=11.0, host__start_optimizer=17.0, host__operation=1.0,
        host__recording=1.0, host__share_backward=1.0, host__backward=0.0, host__thread=1.0,
    )  # fmt: skip
    batches: tuple[tuple[Phase, int], ...] = (("forward", 3), ("backward", 3), ("optimizer", 1))
    step = [
        replace(_as_record(call("mul", x, self=x, other=x), phase), case=case, calls=calls) for phase, calls in batches
    ]
    found = predicted(step, of, Conduct())
    assert found is not None
    assert found.host == pytest.approx(3 * 6 + 3 * 12 + 18)


def test_phases_whose_records_are_mixed_cost_the_host_no_more() -> None:
    """A set that was joined of parts has the forward pass in several pieces: its 2 views are counted once."""
    x = tensor(4)
    of = card(host__start=5.0, host__start_backward=0.0, host__operation=1.0, host__view=10.0, host__recording=1.0)
    forward, backward = (_as_record(call("mul", x, self=x, other=x), phase) for phase in ("forward", "backward"))
    conduct = Conduct(host_calls=(HostCalls(path="", phase="forward", views=2, module_calls=0),))
    whole, mixed = (
        predicted(step, of, conduct)
        for step in ([forward, forward, backward, backward], [forward, backward, forward, backward])
    )
    assert whole is not None
    assert mixed is not None
    assert mixed.host == whole.host
    least = predicted([forward, forward], of, conduct, "forward")
    assert least is not None
    assert least.host == pytest.approx(5 + 2 * 1 + 2 * 10)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_phase_of_an_answer_has_the_band_of_a_step_of_its_mode(phase: Phase) -> None:
    """The prompt of an answer is read as a step of prefill is: both have the factors of that mode."""
    what = call("relu", tensor(100, 10**6), self=tensor(100, 10**6))
    one = cost(what, Arithmetic())
    record = Record(
        case=replace(CASE, mode="generate"), source="estimate", scope="op", kind=one.family, name="relu", phase=phase,
        work=one.work, call=what,
    )  # fmt: skip
    alone = replace(record, case=replace(CASE, mode=phase))
    answered, step = (predicted([its], card(), Conduct(way="graph"), phase) for its in (record, alone))
    assert answered == step
    assert step is not None
    low, high = band({}, step.regime, step.level, phase)
    assert (step.low, step.high) == pytest.approx((low * step.seconds, high * step.seconds))
