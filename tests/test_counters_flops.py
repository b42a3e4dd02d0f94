"""FLOP from counters: each trap of the hardware's names by itself."""

from __future__ import annotations

import pytest

from rooflens.sources.counters.flops import Counted, counted
from rooflens.sources.counters.launches import names_of
from rooflens.sources.counters.printed_numbers import CounterValue
from rooflens.sources.counters.work import bytes_of, seconds_of, short

OPS = "sm__ops_path_tensor_{}.sum"
PIPE = "sm__inst_executed_pipe_tensor.sum"
MOVES = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"


def lanes(**terms: CounterValue) -> dict[str, CounterValue]:
    every = {f"{p}{op}": 0 for p in "dfh" for op in ("add", "mul", "fma")} | terms
    return {f"smsp__sass_thread_inst_executed_op_{term}_pred_on.sum": value for term, value in every.items()}


def flops(counters: dict[str, CounterValue], cc: str = "9.0", name: str = "k") -> Counted:
    return counted(name, names_of(tuple(counters)), counters, cc)


def used(found: Counted) -> dict[str, float]:
    return {resource: n for resource, n in found.flops.items() if n}


def test_an_fma_is_two() -> None:
    found = flops(lanes(dadd=1, dmul=2, dfma=3, fadd=10, fmul=20, ffma=30) | {PIPE: 0})
    assert used(found) == {"vector.fp64": 1 + 2 + 6, "vector.fp32": 10 + 20 + 60}
    assert not found.unknown


def test_packed_fp32_of_data_centre_blackwell() -> None:
    more = {f"smsp__sass_thread_inst_executed_op_{term}_pred_on.sum": 5 for term in ("fadd2", "fmul2", "ffma2")}
    # 1 fadd and 5 of each packed one: 1 + 5*2 + 5*2 + 5*4 = 41
    assert used(flops(lanes(fadd=1) | more, "10.0")) == {"vector.fp32": 41}
    assert used(flops(lanes(fadd=1) | more, "9.0")) == {"vector.fp32": 1}
    assert flops(lanes(fadd=1), "10.3").unknown


@pytest.mark.parametrize("term", ["fadd", "fmul", "ffma"])
def test_a_missing_term_makes_its_precision_unknown(term: str) -> None:
    found = flops(lanes(**{"fadd": 1, "dadd": 7, term: None}) | {PIPE: 0})
    assert found.unknown
    assert used(found) == {"vector.fp64": 7}


def test_moves_by_their_own_counter() -> None:
    # 10 warp instructions are 320 threads; 330 hfma leave 10, and 10 * 2 = 20 FLOP.
    assert used(flops(lanes(hfma=330) | {PIPE: 10, MOVES: 10})) == {"vector.fp16": 20}


@pytest.mark.parametrize(("hfma", "pipe"), [(65536, 2048), (3, 1), (30720, 960)])
def test_moves_by_the_tensor_pipe(hfma: int, pipe: int) -> None:
    found = flops(lanes(hfma=hfma) | {PIPE: pipe}, "8.0")
    assert used(found) == {}
    assert not found.unknown


def test_half_arithmetic_beside_moves_is_kept() -> None:
    found = flops(lanes(hadd=4, hfma=64) | {PIPE: 2}, "8.0")
    assert used(found) == {"vector.fp16": 4 + 2 * 64}
    assert any("may hold moves" in note for note in found.notes)


def test_other_chips_have_no_moves() -> None:
    assert used(flops(lanes(hfma=64) | {PIPE: 2}, "8.6")) == {"vector.fp16": 128}


def test_512_on_volta_only() -> None:
    assert used(flops(lanes() | {PIPE: 50}, "7.0")) == {"matmul.fp16": 25600}
    for cc in ("7.5", "8.0", "8.9", "9.0", "12.0"):
        found = flops(lanes() | {PIPE: 50}, cc)
        assert found.unknown
        assert used(found) == {}


def test_total_and_splits_count_once() -> None:
    counters: dict[str, CounterValue] = {
        OPS.format("src_tf32_dst_fp32"): 118,
        OPS.format("op_hgmma_src_tf32_dst_fp32"): 76,
        OPS.format("op_hgmma_src_tf32_dst_fp32_sparsity_off"): 76,
        OPS.format("op_hgmma_src_tf32_dst_fp32_sparsity_on"): 0,
        OPS.format("op_hmma_src_tf32_dst_fp32"): 42,
        OPS.format("op_hmma_src_tf32_dst_fp32_sparsity_off"): 42,
        OPS.format("src_tf32_dst_fp32_realtime"): 118,
    }
    assert used(flops(lanes() | counters)) == {"matmul.tf32": 118}
    del counters[OPS.format("src_tf32_dst_fp32")]
    assert used(flops(lanes() | counters)) == {"matmul.tf32": 76 + 42}


def test_results_of_one_kind_of_operands_add() -> None:
    counters: dict[str, CounterValue] = {
        OPS.format("src_fp16_dst_fp16_sparsity_off"): 3,
        OPS.format("src_fp16_dst_fp32_sparsity_off"): 4,
        OPS.format("src_fp4_fp6_fp8_dst_fp32"): 5,
        OPS.format("src_int8"): 6,
        OPS.format("src_fp16_bf16_tf32_dst_fp32"): 7,
        OPS.format("src_int1"): 8,
    }
    found = flops(lanes() | counters)
    assert used(found) == {"matmul.fp16": 3 + 4 + 7, "matmul.fp8": 5, "matmul.int8": 6}
    assert any("int1 are no FLOP" in note for note in found.notes)


def test_a_part_without_a_value_is_not_zero() -> None:
    counters: dict[str, CounterValue] = {
        OPS.format("op_hgmma_src_bf16_dst_fp32_sparsity_off"): 3,
        OPS.format("op_hmma_src_bf16_dst_fp32_sparsity_off"): None,
    }
    assert flops(lanes() | counters).unknown
    assert used(flops(lanes() | counters | {OPS.format("src_bf16_dst_fp32"): 9})) == {"matmul.bf16": 9}


def test_sparse_operations_are_told() -> None:
    counters: dict[str, CounterValue] = {
        OPS.format("src_fp8_sparsity_on"): 4,
        OPS.format("src_fp8_sparsity_off"): 0,
        OPS.format("src_fp8"): 4,
    }
    assert any("2:4 sparsity" in note for note in flops(lanes() | counters).notes)


def test_tensor_instructions_that_no_counter_saw() -> None:
    counters: dict[str, CounterValue] = {OPS.format("op_hgmma_src_bf16_dst_fp32_sparsity_off"): 0, PIPE: 100, MOVES: 0}
    assert flops(lanes() | counters).unknown
    assert not flops(lanes() | counters | {MOVES: 100}).unknown


@pytest.mark.parametrize(
    ("name", "doubt"),
    [("nvjet_tst_128x256", True), ("ampere_sgemm_128x64_tn", False), ("relu_kernel", True), ("triton_mm_kernel", True)],
)
def test_what_was_not_collected_is_not_zero(name: str, doubt: bool) -> None:
    assert flops(lanes(), name=name).unknown is doubt
    for none in (PIPE, "sm__pipe_tensor_cycles_active.sum"):
        assert flops(lanes() | {none: 0}, name=name).unknown is False


def test_general_lanes_that_were_not_collected_are_unknown() -> None:
    found = flops({OPS.format("src_bf16_dst_fp32"): 0, PIPE: 0})
    assert found.unknown
    assert "FLOP of the general lanes are unknown" in found.notes[0]


def test_a_chip_that_may_have_no_tensor_cores_gives_their_counters_no_value() -> None:
    assert not flops(lanes() | {PIPE: None}, "7.5").unknown
    assert flops(lanes() | {PIPE: None}, "8.0").unknown


def test_bytes_of_a_level_need_all_terms() -> None:
    def levels(**values: CounterValue) -> dict[str, float]:
        counters = {f"{name}.sum": value for name, value in values.items()}
        return bytes_of(names_of(tuple(counters)), counters)[0]

    assert levels(dram__bytes_read=3) == {}
    assert levels(dram__bytes_read=3, dram__bytes_write=4) == {"dram": 7}
    assert levels(dram__bytes_op_read=3, dram__bytes_op_write=4, dram__bytes_read=None) == {"dram": 7}
    assert levels(dram__bytes=9, dram__bytes_read=3, dram__bytes_write=4) == {"dram": 9}
    assert levels(lts__t_sectors_srcunit_tex=2, lts__t_bytes=900, l1tex__t_bytes=5) == {"l2": 64, "l1": 5}
    assert levels(lts__t_sectors_srcunit_tex=None, lts__t_bytes=900) == {"l2": 900}


def test_time_from_cycles_where_there_is_no_duration() -> None:
    # 13,999 cycles at 1.30587 GHz are 10.72 us
    cycles: dict[str, CounterValue] = {"sm__cycles_elapsed.avg": 13999, "sm__cycles_elapsed.avg.per_second": 1.30587e9}
    assert seconds_of(cycles) == pytest.approx(10.72e-6, rel=1e-4)
    assert seconds_of(cycles | {"gpu__time_duration.sum": 1e-6}) == 1e-6
    assert seconds_of({"sm__cycles_elapsed.avg": 13999}) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void at::native::(anonymous namespace)::dropout<double, 1>(at::Info<double>, unsigned int)", "dropout"),
        ("unnamed>::saxpy_kernel(float, const float *, float *, int)", "saxpy_kernel"),
        ("sm80_xmma_fprop", "sm80_xmma_fprop"),
        ("a<int, 4>(float*, int)", "a"),
        ("", ""),
        ("(((", "((("),
        ("::", "::"),
    ],
)
def test_short_names(name: str, expected: str) -> None:
    assert short(name) == expected


def test_tensor_work_that_no_counter_saw_is_looked_for() -> None:
    from rooflens.sources.counters.flops import MOVES, has_unseen_tensor_work

    pipe, wgmma = "sm__inst_executed_pipe_tensor.sum", "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum"
    assert has_unseen_tensor_work({pipe: 8, wgmma: 0})
    assert not has_unseen_tensor_work({pipe: 8, wgmma: 64})
    assert not has_unseen_tensor_work({pipe: 8, MOVES: 8, wgmma: 0})  # only constants were loaded
    assert has_unseen_tensor_work({})
