"""Bounds, ridges and points, with every expected number derived by hand."""

from __future__ import annotations

import pytest

from rooflens.errors import InvalidValue, MissingCeiling
from rooflens.records import Bound, Ceiling, Device, Silicon, Work
from rooflens.roofline import bound, point, ridge, serial_bound


def ceiling(resource: str, rate: float, silicon: Silicon) -> Ceiling:
    return Ceiling(resource=resource, rate=rate, silicon=silicon, origin="user", reference="made up for this test")


def device(*ceilings: Ceiling) -> Device:
    return Device(name="toy", title="Toy", vendor="none", kind="gpu", arch="toy", ceilings=ceilings, facts={})


# Round rates, so that times are round: 100 TFLOP/s of matrix units, 10 TFLOP/s of lanes, 1 TB/s of DRAM.
DRAM = ceiling("dram", 1e12, "memory")
L2 = ceiling("l2", 4e12, "memory")
MATMUL = ceiling("matmul.bf16", 100e12, "tensor")
VECTOR = ceiling("vector.fp32", 10e12, "fma")
SPECIAL = ceiling("special.fp32", 1e12, "special")
GPU = device(MATMUL, VECTOR, SPECIAL, DRAM, L2)
# Products run on the general lanes, as on a CPU.
CPU = device(ceiling("matmul.fp32", 2e12, "fma"), ceiling("vector.fp32", 1e12, "fma"), DRAM)


def test_different_silicon_and_memory_overlap() -> None:
    # 200 GFLOP / 100 TFLOP/s = 2 ms; 10 GFLOP / 10 TFLOP/s = 1 ms; 3 GFLOP / 1 TFLOP/s = 3 ms; 5 GB / 1 TB/s = 5 ms.
    work = Work(flops={"matmul.bf16": 200e9, "vector.fp32": 10e9, "special.fp32": 3e9}, bytes={"dram": 5e9, "l2": 8e9})
    found = bound(work, GPU)
    assert found.seconds == pytest.approx(5e-3)
    assert found.bound_by == "dram"
    assert found.shares == pytest.approx(
        {"matmul.bf16": 2e-3, "vector.fp32": 1e-3, "special.fp32": 3e-3, "dram": 5e-3, "l2": 2e-3}
    )
    assert found.skipped == frozenset()


def test_the_unit_that_needs_longest_binds() -> None:
    assert bound(Work(flops={"matmul.bf16": 200e9}, bytes={"dram": 1e9}), GPU).bound_by == "matmul.bf16"
    assert bound(Work(flops={"special.fp32": 3e9}, bytes={"dram": 1e9}), GPU).bound_by == "special.fp32"
    assert bound(Work(bytes={"dram": 1e9, "l2": 8e9}), GPU).bound_by == "l2"


def test_times_on_one_piece_of_silicon_add() -> None:
    # 4 GFLOP / 2 TFLOP/s = 2 ms and 1.5 GFLOP / 1 TFLOP/s = 1.5 ms on the same lanes: 3.5 ms, above 3 ms of memory.
    work = Work(flops={"matmul.fp32": 4e9, "vector.fp32": 1.5e9}, bytes={"dram": 3e9})
    found = bound(work, CPU)
    assert found.seconds == pytest.approx(3.5e-3)
    assert found.bound_by == "matmul.fp32"
    # On silicon of their own they would overlap, and memory would bind.
    apart = device(ceiling("matmul.fp32", 2e12, "tensor"), ceiling("vector.fp32", 1e12, "fma"), DRAM)
    assert bound(work, apart).seconds == pytest.approx(3e-3)
    assert bound(work, apart).bound_by == "dram"


def test_two_precisions_of_one_unit_add() -> None:
    mixed = device(MATMUL, ceiling("matmul.tf32", 50e12, "tensor"))
    # 100 GFLOP / 100 TFLOP/s + 150 GFLOP / 50 TFLOP/s = 1 ms + 3 ms.
    found = bound(Work(flops={"matmul.bf16": 100e9, "matmul.tf32": 150e9}), mixed)
    assert found.seconds == pytest.approx(4e-3)
    assert found.bound_by == "matmul.tf32"


def test_what_a_device_has_no_rate_for_is_left_out_and_named() -> None:
    work = Work(flops={"matmul.fp32": 4e9, "special.fp32": 1e15}, bytes={"dram": 1e9, "nvlink": 1e15})
    found = bound(work, CPU)
    assert found.seconds == pytest.approx(2e-3)
    assert found.skipped == {"special.fp32", "nvlink"}
    assert found.shares.keys() == {"matmul.fp32", "dram"}


def test_a_matrix_unit_without_a_rate_is_an_error() -> None:
    with pytest.raises(MissingCeiling) as caught:
        bound(Work(flops={"matmul.fp4": 1e9}), CPU)
    assert str(caught.value) == (
        "no fp4: device 'toy' has no ceiling for 'matmul.fp4'; it has matmul.fp32, vector.fp32, dram."
        " Choose another dtype, or give a device file that has one"
    )
    # A unit that does nothing needs no rate.
    assert bound(Work(flops={"matmul.fp4": 0}), CPU).seconds == 0
    with pytest.raises(MissingCeiling, match="it has none"):
        bound(Work(flops={"matmul.fp4": 1e9}), device())


def test_no_work_has_no_bound_by() -> None:
    assert bound(Work(), GPU) == Bound(seconds=0.0, bound_by="", shares={})


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_is_a_positive_number(rate: float) -> None:
    with pytest.raises(InvalidValue, match=r"ceiling 'dram' has rate .*; leave out a rate that is not known"):
        ceiling("dram", rate, "memory")


def test_parts_in_a_row_add_up_and_are_never_faster_than_their_sum() -> None:
    # A product: 2 ms of matrix units over 1 ms of memory. A copy: 3 ms of memory. One after the other: 5 ms, 3 of
    # them memory's. Summed first they would overlap: max(2, 1 + 3) = 4 ms.
    product = Work(flops={"matmul.bf16": 200e9}, bytes={"dram": 1e9})
    copy = Work(bytes={"dram": 3e9})
    found = serial_bound([bound(product, GPU), bound(copy, GPU)])
    assert found.seconds == pytest.approx(5e-3)
    assert found.bound_by == "dram"
    assert found.shares == pytest.approx({"matmul.bf16": 2e-3, "dram": 3e-3})
    assert bound(product + copy, GPU).seconds == pytest.approx(4e-3)


def test_parts_in_a_row_remember_what_was_skipped() -> None:
    parts = [bound(Work(bytes={"nvlink": 1.0}), CPU), bound(Work(bytes={"dram": 1e9}), CPU)]
    assert serial_bound(parts) == Bound(
        seconds=1e-3, bound_by="dram", shares={"dram": 1e-3}, skipped=frozenset({"nvlink"})
    )
    assert serial_bound([]) == Bound(seconds=0.0, bound_by="", shares={})


def test_ridge_is_where_compute_and_memory_take_equally_long() -> None:
    # 100 TFLOP/s over 1 TB/s.
    assert ridge(MATMUL, DRAM) == 100.0
    at_the_ridge = bound(Work(flops={"matmul.bf16": 100e9}, bytes={"dram": 1e9}), GPU)
    assert at_the_ridge.shares["matmul.bf16"] == at_the_ridge.shares["dram"]


def test_a_point_under_its_roof() -> None:
    # 200 GFLOP and 5 GB: 40 FLOP/byte; 5 ms of memory, so 40 TFLOP/s at most; done in 10 ms: 20 TFLOP/s, half.
    work = Work(flops={"matmul.bf16": 200e9}, bytes={"dram": 5e9, "l2": 10e9})
    found = point(work, bound(work, GPU), 10e-3)
    assert (found.level, found.intensity) == ("dram", 40.0)
    assert found.performance == pytest.approx(20e12)
    assert found.attainable == pytest.approx(40e12)
    assert found.efficiency == pytest.approx(0.5)
    assert point(work, None, None, level="l2").intensity == 20.0


def test_a_copy_has_no_intensity_but_an_efficiency() -> None:
    copy = Work(bytes={"dram": 3e9})
    found = point(copy, bound(copy, GPU), 4e-3)
    assert found.intensity is None
    assert found.efficiency == pytest.approx(0.75)


def test_what_is_unknown_stays_unknown() -> None:
    work = Work(flops={"matmul.bf16": 200e9})
    found = point(work, None, None)
    assert (found.intensity, found.performance, found.attainable, found.efficiency) == (None, None, None, None)
