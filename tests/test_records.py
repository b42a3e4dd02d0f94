"""Records and ceilings: what they say of themselves."""

from __future__ import annotations

from rooflens.records import Case, Ceiling, Record, Timing, Work, allocated


def test_seconds_are_those_of_all_calls() -> None:
    # The median of 1, 5 and 3 s is 3 s; four calls take 12 s.
    timing = Timing(samples=(1.0, 5.0, 3.0), origin="monotonic")
    record = Record(case=Case(model="net"), source="profile", scope="op", timing=timing, calls=4)
    assert record.seconds == 12.0
    assert Record(case=Case(model="net"), source="profile", scope="op", calls=4).seconds is None


def test_a_causal_call_needs_what_its_kernel_executes() -> None:
    counted, half = Work(flops={"matmul.fp32": 8}), Work(flops={"matmul.fp32": 5})
    record = Record(case=Case(model="net"), source="estimate", scope="op", work=counted, kernel_work=half)
    assert record.bound_work == half
    assert Record(case=Case(model="net"), source="estimate", scope="op", work=counted).bound_work == counted
    assert Record(case=Case(model="net"), source="estimate", scope="op").bound_work is None


def test_units_compute_and_levels_and_links_move() -> None:
    def computes(resource: str) -> bool:
        return Ceiling(resource=resource, rate=1.0, silicon="fma", origin="user", reference="-").computes

    assert [computes(r) for r in ("matmul.bf16", "special.fp32", "dram", "nvlink")] == [True, True, False, False]


def test_the_allocator_gives_whole_blocks_of_512_bytes() -> None:
    assert [allocated(n) for n in (0, 1, 512, 513)] == [0, 512, 512, 1024]
