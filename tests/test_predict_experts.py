"""Products of experts, and what finds the experts of a token, on a card with round numbers."""

from __future__ import annotations

import pytest
import torch
from tests.calls import call, tensor
from tests.test_predict import card, seconds

from rooflens.records import Call
from rooflens.sources.replay.operands import Untimed, runner

PLAIN = {"product__rate_half": 1.0, "product__depth_half": 0.0, "grouped__streamed": 1.0, "grouped__start": 0.0}


def experts(rows: int, groups: int, inner: int, outer: int) -> Call:
    x, weights, out = (tensor(*shape, dtype="bf16") for shape in ((rows, inner), (groups, inner, outer), (rows, outer)))
    return call("_grouped_mm", out, self=x, mat2=weights, offs=tensor(groups, dtype="int32"), out_dtype=None)


def test_the_last_tile_of_each_expert_is_half_empty() -> None:
    # 65,536 rows of 8 experts: 512 tiles of 128 rows and a half for each expert, 4 tiles across: 2,064 on 100 units.
    # A tile is 128 x 256 x 1,024 multiply-adds; a unit does 0.5 T of them in a second, this kernel half of that.
    one = 128 * 256 * 1024 / 0.25e12
    moving = (65_536 * (1024 + 1024) + 8 * 1024 * 1024) * 2 / 1e12
    expected = ((20.64 * one) ** 3 + moving**3) ** (1 / 3)
    found = seconds(experts(65_536, 8, 1024, 1024), card(**PLAIN, grouped__many=0.5), "bf16")
    assert found == pytest.approx(expected)


def test_a_few_rows_read_the_matrices_of_the_experts_that_they_hit() -> None:
    # Two rows among two experts hit both in half of the cases: 1.5 matrices of 2 x 8,192 x 1,024 bytes on average.
    moving = 1.5 * 2 * 8192 * 1024 / 1e12 + 2 * 2 * (8192 + 1024) / 1e12
    found = seconds(experts(2, 2, 8192, 1024), card(**PLAIN, grouped__few=1e6), "bf16")
    assert found == pytest.approx(moving, rel=1e-3)


def test_experts_without_many_rows_have_the_smaller_tile() -> None:
    # 512 rows of 8 experts, 64 each: a tile and a half of 64 rows, 8 of 128 columns: 96 tiles, less than one for each
    # of 100 units.
    one = 64 * 128 * 4096 / 0.5e12
    found = seconds(experts(512, 8, 4096, 1024), card(**PLAIN, grouped__few=1.0), "bf16")
    moving = (512 * (4096 + 1024) + 8 * 4096 * 1024) * 2 / 1e12
    assert found == pytest.approx((one**3 + moving**3) ** (1 / 3))


def test_more_than_4096_elements_are_sorted_in_passes() -> None:
    of = card(
        routing__sort_short=10e-6, routing__sort_each=5, routing__sort_long=50e-6, routing__keys=0.1, stream__cached=1e9
    )
    few, many = (tensor(n, dtype="int64") for n in (4000, 1_000_000))
    # a block takes 5 cycles of 1 ns for each of 4,000 elements: 20 us, and every row has a block of its own
    assert seconds(call("sort", (few, few), self=few), of) == pytest.approx(30e-6)
    rows = tensor(50, 4000, dtype="int64")
    assert seconds(call("sort", (rows, rows), self=rows), of) == pytest.approx(30e-6)
    # 1 M elements at 0.1 for each of 100 units in each of 1 G cycles: 100 us
    assert seconds(call("sort", (many, many), self=many), of) == pytest.approx(150e-6, rel=1e-2)


def test_the_largest_of_each_row_are_found_by_a_block() -> None:
    scores, results = tensor(100_000, 8), (tensor(100_000, 2), tensor(100_000, 2, dtype="int64"))
    found = seconds(call("topk", results, self=scores, k=2), card(routing__largest=10e-6, routing__rows=1e-3))
    assert found == pytest.approx(10e-6 + 100_000 / (1e-3 * 100 * 1e9))


@pytest.mark.parametrize(("name", "values"), [("index_add_", "source"), ("scatter_add_", "src")])
def test_sums_at_places_count_elements_in_16_bits(name: str, values: str) -> None:
    # 4,000 rows of 1,000 at 0.4 sums for each of 100 units in each of 1 G cycles: 100 us, and 10 for the start.
    of = card(lookup__added_half=0.4, lookup__scatter=1.0, stream__start=10e-6, stream__cached=1e9)
    places = tensor(4000, dtype="int64")

    def adding(dtype: str) -> Call:
        target, source = tensor(100, 1000, dtype=dtype), tensor(4000, 1000, dtype=dtype)
        return call(name, target, self=target, dim=0, index=places, **{values: source})

    assert seconds(adding("bf16"), of, "bf16") == pytest.approx(110e-6)
    assert seconds(adding("fp32"), of) < 100e-6  # by their bytes: 48 MB at most, at 1 TB/s


def test_rows_of_experts_are_dealt_out_and_timed() -> None:
    result = runner(experts(32, 4, 16, 8), "cpu")()
    assert result.shape == (32, 8)
    assert bool(torch.isfinite(result.float()).all())
    left, right = tensor(16, 32, dtype="bf16"), tensor(32, 8, dtype="bf16")
    ends = tensor(4, dtype="int32")
    gradient = call("_grouped_mm", tensor(4, 16, 8, dtype="bf16"), self=left, mat2=right, offs=ends, out_dtype=None)
    with pytest.raises(Untimed, match="groups of another dimension"):
        runner(gradient, "cpu")


def test_indices_stay_inside_of_the_dimension_that_they_index() -> None:
    places = tensor(1000, dtype="int64")
    narrow = call("index_select", tensor(64, 1000), self=tensor(64, 2), dim=1, index=places)
    assert runner(narrow, "cpu")().shape == (64, 1000)  # of 64 places, most are none of two columns
    whole = call("index", tensor(1000, dtype="int64"), self=tensor(1000, dtype="int64"), indices=(places,))
    assert runner(whole, "cpu")().shape == (1000,)
