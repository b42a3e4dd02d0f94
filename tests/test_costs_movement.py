"""Bytes of operations that move data: gathers, scatters, copies, fills. No torch, expected numbers by hand."""

from __future__ import annotations

import pytest
from tests.calls import call, tensor, work

from rooflens.costs import cost
from rooflens.records import Call, Tensor, Work


def of(c: Call) -> Work:
    return cost(c).work


def test_embedding_reads_rows_not_the_table() -> None:
    # 6 of 1000 rows of 16: rows and 6 indices read, rows written.
    c = call("embedding", tensor(6, 16), weight=tensor(1000, 16), indices=tensor(6, dtype="int64"))
    assert of(c) == work(4 * 96 + 8 * 6 + 4 * 96)
    # More indices than rows: at most the whole table is read.
    small = call("embedding", tensor(50, 16), weight=tensor(10, 16), indices=tensor(50, dtype="int64"))
    assert of(small) == work(4 * 160 + 8 * 50 + 4 * 800)


def test_embedding_backward_writes_the_whole_table() -> None:
    c = call("embedding_dense_backward", tensor(1000, 16), grad_output=tensor(6, 16), indices=tensor(6, dtype="int64"))
    assert of(c) == work(4 * 96 + 8 * 6 + 4 * 16000, vector_fp32=96)


@pytest.mark.parametrize("name", ["index_select", "gather"])
def test_gathers_read_what_they_fetch(name: str) -> None:
    index = tensor(5, 8, dtype="int64") if name == "gather" else tensor(5, dtype="int64")
    c = call(name, tensor(5, 8), self=tensor(100, 8), dim=0, index=index)
    assert of(c) == work(4 * 40 + index.nbytes + 4 * 40)


def test_scatter_in_place_touches_its_places() -> None:
    target, source, index = tensor(100, 8), tensor(5, 8), tensor(5, 8, dtype="int64")
    # 40 values and indices read, 40 places written; adding reads them first.
    assert of(call("scatter_", target, self=target, dim=0, index=index, src=source)) == work(4 * 40 + 8 * 40 + 4 * 40)
    adding = call("scatter_add_", target, self=target, dim=0, index=index, src=source)
    assert of(adding) == work(4 * 40 + 8 * 40 + 2 * 4 * 40, vector_fp32=40)
    number = call("scatter_", target, self=target, dim=0, index=index, value=1.0)
    assert of(number) == work(8 * 40 + 4 * 40)
    # Out of place the target is copied.
    copied = call("scatter_add", target, self=target, dim=0, index=index, src=source)
    assert of(copied) == work(4 * 800 + 4 * 40 + 8 * 40 + 4 * 800, vector_fp32=40)


def test_index_add_and_fill_address_slices() -> None:
    target, index = tensor(100, 8), tensor(5, dtype="int64")
    added = call("index_add_", target, self=target, dim=0, index=index, source=tensor(5, 8))
    assert of(added) == work(8 * 5 + 4 * 40 + 2 * 4 * 40, vector_fp32=40)
    assert of(call("index_fill_", target, self=target, dim=1, index=index, value=0.0)) == work(8 * 5 + 4 * 500)


def test_index_put_broadcasts_its_indices() -> None:
    target, rows, columns = tensor(100, 20, 8), tensor(3, 1, dtype="int64"), tensor(4, dtype="int64")
    # Rows x columns are 12 places of 8 elements; one number is written to all of them.
    put = call("index_put_", target, self=target, indices=(rows, columns), values=tensor())
    assert of(put) == work(8 * 7 + 4 + 4 * 96)
    # A dimension without an index is whole: 100 x 4 x 8, added from as many values.
    values = tensor(100, 4, 8)
    added = call("index_put_", target, self=target, indices=(None, columns), values=values, accumulate=True)
    assert of(added) == work(8 * 4 + 4 * 3200 + 2 * 4 * 3200, vector_fp32=3200)
    # A mask may address all that it covers.
    mask = tensor(100, 20, dtype="bool")
    assert of(call("index_put_", target, self=target, indices=(mask,), values=tensor())) == work(2000 + 4 + 4 * 16000)


def test_copies() -> None:
    t, half = tensor(5, 6), tensor(5, 6, dtype="bf16")
    assert of(call("clone", t, self=t)) == work(4 * 60)
    assert of(call("_to_copy", half, self=t, dtype="torch.bfloat16")) == work(4 * 30 + 2 * 30)
    assert of(call("cat", tensor(10, 6), tensors=(t, t), dim=0)) == work(4 * 120)
    # A tensor that was expanded from one row is one row in memory.
    assert of(call("clone", t, self=Tensor((5, 6), "fp32", 4 * 6))) == work(4 * 6 + 4 * 30)


def test_copy_into_does_not_read_its_target() -> None:
    t, half = tensor(5, 6), tensor(5, 6, dtype="bf16")
    assert of(call("copy_", t, self=t, src=half)) == work(2 * 30 + 4 * 30)
    several = Call("_foreach_copy_", (("self", (t, t)), ("src", (half, half))), (), reads=2 * 180, writes=2 * 120)
    assert of(several) == work(2 * (60 + 120))


@pytest.mark.parametrize("name", ["zeros", "full", "arange", "fill_", "zero_", "bernoulli_", "normal_", "ones_like"])
def test_fills_only_write(name: str) -> None:
    t = tensor(5, 6)
    like = {"self": t} if name.endswith(("_", "_like")) else {}
    assert of(call(name, t, **like)) == work(4 * 30)


def test_padding_backward_does_not_read_the_padded_input() -> None:
    c = call("reflection_pad2d_backward", tensor(1, 1, 4, 4), grad_output=tensor(1, 1, 6, 6), self=tensor(1, 1, 4, 4))
    assert of(c) == work(4 * 36 + 4 * 16, vector_fp32=36)


def test_nearest_neighbours_are_copied_forward_and_added_backward() -> None:
    small, large = tensor(1, 2, 3, 3), tensor(1, 2, 6, 6)
    assert of(call("upsample_nearest2d", large, self=small, output_size=(6, 6))) == work(4 * (18 + 72))
    c = call("upsample_nearest2d_backward", small, grad_output=large, output_size=(6, 6), input_size=(1, 2, 3, 3))
    assert of(c) == work(4 * (72 + 18), vector_fp32=72)
