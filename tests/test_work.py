"""The algebra of work: sums unite units and intersect levels, and origins never mix."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.errors import InvalidValue
from rooflens.records import COMPUTE_RESOURCES, DATA_RESOURCES, Origin, Work

# Whole numbers, as FLOP and bytes are: their sums are exact in any order.
AMOUNTS = st.integers(0, 10**20)


def works(origin: Origin = "algorithmic") -> st.SearchStrategy[Work]:
    return st.builds(
        Work,
        flops=st.dictionaries(st.sampled_from(sorted(COMPUTE_RESOURCES)), AMOUNTS, max_size=4),
        bytes=st.dictionaries(st.sampled_from(sorted(DATA_RESOURCES)), AMOUNTS),
        origin=st.just(origin),
        missing=st.frozensets(st.sampled_from(["topk", "sort", "fft"])),
    )


TIMES = st.integers(0, 1000)


@given(works(), works())
def test_addition_commutes(a: Work, b: Work) -> None:
    assert a + b == b + a


@given(works(), works(), works())
def test_addition_is_associative(a: Work, b: Work, c: Work) -> None:
    assert (a + b) + c == a + (b + c)


@given(works(), works(), TIMES)
def test_repeating_distributes_over_addition(a: Work, b: Work, n: int) -> None:
    assert (a + b) * n == a * n + b * n
    assert n * a == a * n


@given(works(), TIMES, TIMES)
def test_repeats_add_up(a: Work, m: int, n: int) -> None:
    assert a * (m + n) == a * m + a * n
    assert a * m * n == a * (m * n)
    assert a * 1 == a


@given(works(), works())
def test_units_unite_and_levels_intersect(a: Work, b: Work) -> None:
    total = a + b
    assert total.flops.keys() == a.flops.keys() | b.flops.keys()
    assert total.bytes.keys() == a.bytes.keys() & b.bytes.keys()
    assert total.missing == a.missing | b.missing
    assert total.total_flops == a.total_flops + b.total_flops
    assert total.matmul_flops == a.matmul_flops + b.matmul_flops


def test_a_sum_written_out() -> None:
    # A product of 2 x 3 and 3 x 4 matrices in fp32: 2*2*3*4 = 48 FLOP, (6 + 12 + 8) * 4 = 104 bytes.
    product = Work(flops={"matmul.fp32": 48}, bytes={"dram": 104, "l2": 104})
    # A sum of two vectors of 8: 8 FLOP, 3 * 8 * 4 = 96 bytes, and nobody counted its L2 traffic.
    addition = Work(flops={"vector.fp32": 8}, bytes={"dram": 96}, missing=frozenset({"sort"}))
    assert product + addition == Work(
        flops={"matmul.fp32": 48, "vector.fp32": 8}, bytes={"dram": 200}, missing=frozenset({"sort"})
    )
    assert product * 3 == Work(flops={"matmul.fp32": 144}, bytes={"dram": 312, "l2": 312})


@given(works("algorithmic"), works("executed"))
def test_origins_never_mix(formula: Work, counted: Work) -> None:
    with pytest.raises(InvalidValue, match="cannot add algorithmic work to executed work"):
        formula + counted
    with pytest.raises(InvalidValue, match="cannot add executed work to algorithmic work"):
        Work.sum([counted, formula])


@given(st.lists(works(), min_size=1, max_size=5))
def test_a_sum_is_repeated_addition(parts: list[Work]) -> None:
    total = parts[0]
    for part in parts[1:]:
        total += part
    assert Work.sum(iter(parts)) == total


def test_the_sum_of_nothing_is_unknown() -> None:
    assert Work.sum([]) is None


@pytest.mark.parametrize(
    ("flops", "nbytes", "message"),
    [
        ({"matmul": 1}, {}, "unknown compute resource 'matmul'; known: matmul.bf16, "),
        ({"matmul.fp12": 1}, {}, "unknown compute resource 'matmul.fp12'"),
        ({"dram": 1}, {}, "unknown compute resource 'dram'"),
        ({}, {"hbm": 1}, "unknown level 'hbm'; known: dram, l1, l2, network, nvlink, pcie"),
        ({}, {"matmul.fp32": 1}, "unknown level 'matmul.fp32'"),
        ({"matmul.fp32": -1}, {}, "work cannot have -1 FLOP of 'matmul.fp32'"),
        ({"matmul.fp32": math.inf}, {}, "work cannot have inf FLOP of 'matmul.fp32'"),
        ({}, {"dram": math.nan}, "work cannot have nan bytes of 'dram'"),
    ],
)
def test_impossible_work(flops: Mapping[str, float], nbytes: Mapping[str, float], message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Work(flops=flops, bytes=nbytes)
    assert str(caught.value).startswith(message)


def test_work_cannot_be_changed() -> None:
    work = Work(flops={"matmul.fp32": 2})
    with pytest.raises(AttributeError):
        work.origin = "executed"  # type: ignore[misc]
