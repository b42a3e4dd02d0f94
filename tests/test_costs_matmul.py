"""Formulas of matrix products. Every expected number is a product of the sizes in the test, never the code's."""

from __future__ import annotations

import pytest
from tests.calls import call, tensor, work

from rooflens.costs import Arithmetic, cost, family_of
from rooflens.records import Call, Work

A, B, C = tensor(3, 5), tensor(5, 7), tensor(3, 7)
# Each of the 3 x 7 results is a sum of 5 products: 105 multiply-adds are 210 FLOP.
FLOPS = 210
# fp32: A has 15 elements, B 35, C 21.
BYTES = 4 * (15 + 35 + 21)


def of(c: Call) -> Work:
    return cost(c).work


def test_mm() -> None:
    priced = cost(call("mm", C, self=A, mat2=B))
    assert priced.family == "matmul"
    assert priced.work == work(BYTES, matmul_fp32=FLOPS)
    assert priced.kernel_work is None


def test_addmm_adds_the_bias_to_every_element() -> None:
    # A bias of 7 elements is read; 21 additions.
    added = call("addmm", C, self=tensor(7), mat1=A, mat2=B)
    assert of(added) == work(BYTES + 4 * 7, matmul_fp32=FLOPS, vector_fp32=21)


def test_addmm_with_beta_zero_does_not_read_the_addend() -> None:
    ignored = call("addmm", C, self=tensor(3, 7), mat1=A, mat2=B, beta=0, alpha=1)
    assert of(ignored) == work(BYTES, matmul_fp32=FLOPS)


def test_addmm_in_place_reads_its_target() -> None:
    assert of(call("addmm_", C, self=C, mat1=A, mat2=B)) == work(BYTES + 4 * 21, matmul_fp32=FLOPS, vector_fp32=21)


def test_addmm_with_an_activation_in_the_same_kernel() -> None:
    # Addition of the bias and ReLU: 2 x 21.
    fused = call("_addmm_activation", C, self=tensor(7), mat1=A, mat2=B, use_gelu=False)
    assert of(fused) == work(BYTES + 4 * 7, matmul_fp32=FLOPS, vector_fp32=42)


def test_bmm() -> None:
    # 4 matrices: 4 x 2 x 6 results of 3 products each = 144 multiply-adds. 4 x (6 + 18 + 12) elements.
    batched = call("bmm", tensor(4, 2, 6), self=tensor(4, 2, 3), mat2=tensor(4, 3, 6))
    assert of(batched) == work(4 * 4 * 36, matmul_fp32=288)


def test_baddbmm() -> None:
    arguments = {"self": tensor(4, 2, 6), "batch1": tensor(4, 2, 3), "batch2": tensor(4, 3, 6)}
    # As bmm, and 4 x 12 additions to an addend that is read.
    added = call("baddbmm", tensor(4, 2, 6), **arguments)
    assert of(added) == work(4 * 4 * (36 + 12), matmul_fp32=288, vector_fp32=48)
    # transformers writes attention scores as baddbmm with beta 0 into an empty tensor.
    ignored = call("baddbmm", tensor(4, 2, 6), **arguments, beta=0)
    assert of(ignored) == work(4 * 4 * 36, matmul_fp32=288)


def test_addbmm_sums_over_the_batch() -> None:
    # 4 products of (2, 3) and (3, 6) are added up: 4 x 2 x 6 x 3 multiply-adds, and 12 additions of the addend.
    summed = call("addbmm", tensor(2, 6), self=tensor(2, 6), batch1=tensor(4, 2, 3), batch2=tensor(4, 3, 6))
    assert of(summed) == work(4 * (12 + 24 + 72 + 12), matmul_fp32=288, vector_fp32=12)


def test_products_with_vectors() -> None:
    # (3, 5) times 5: 15 multiply-adds.
    assert of(call("mv", tensor(3), self=A, vec=tensor(5))) == work(4 * (15 + 5 + 3), matmul_fp32=30)
    added = call("addmv", tensor(3), self=tensor(3), mat=A, vec=tensor(5))
    assert of(added) == work(4 * (3 + 15 + 5 + 3), matmul_fp32=30, vector_fp32=3)
    # 9 multiply-adds to one number.
    assert of(call("dot", tensor(), self=tensor(9), tensor=tensor(9))) == work(4 * 19, matmul_fp32=18)
    assert of(call("vdot", tensor(), self=tensor(9), other=tensor(9))) == work(4 * 19, matmul_fp32=18)


def test_outer_product_with_addend() -> None:
    # c + u v^T: one multiply-add for each of 3 x 4 elements, and the addition of c, as addmm counts it.
    outer = call("addr", tensor(3, 4), self=tensor(3, 4), vec1=tensor(3), vec2=tensor(4))
    assert of(outer) == work(4 * (12 + 3 + 4 + 12), matmul_fp32=24, vector_fp32=12)


def test_a_complex_multiply_add_is_8_flop() -> None:
    # (a + ib)(c + id): four real products; two additions to combine them and two to add to the sum.
    a, b, c = (tensor(*shape, dtype="complex64") for shape in ((3, 5), (5, 7), (3, 7)))
    assert of(call("mm", c, self=a, mat2=b)) == work(8 * (15 + 35 + 21), matmul_fp32=8 * 105)


@pytest.mark.parametrize(
    ("dtype", "unit", "item"),
    [
        ("fp64", "matmul.fp64", 8),
        ("fp32", "matmul.fp32", 4),
        ("fp16", "matmul.fp16", 2),
        ("bf16", "matmul.bf16", 2),
        ("float8_e4m3fn", "matmul.fp8", 1),
        ("int8", "matmul.int8", 1),
    ],
)
def test_the_unit_follows_the_operands(dtype: str, unit: str, item: int) -> None:
    a, b, c = (tensor(*shape, dtype=dtype) for shape in ((3, 5), (5, 7), (3, 7)))
    expected = Work(flops={unit: FLOPS}, bytes={"dram": item * 71})
    assert of(call("mm", c, self=a, mat2=b)) == expected


def test_the_addition_of_16_bit_results_runs_on_fp32_lanes() -> None:
    a, b, c, bias = (tensor(*shape, dtype="bf16") for shape in ((3, 5), (5, 7), (3, 7), (7,)))
    added = call("addmm", c, self=bias, mat1=a, mat2=b)
    assert of(added) == work(2 * (71 + 7), matmul_bf16=FLOPS, vector_fp32=21)


def test_quantised_products() -> None:
    # int8 operands, int32 result: adding integers is no FLOP, the product is int8 work.
    a, b = tensor(3, 5, dtype="int8"), tensor(5, 7, dtype="int8")
    assert of(call("_int_mm", tensor(3, 7, dtype="int32"), self=a, mat2=b)) == work(15 + 35 + 4 * 21, matmul_int8=FLOPS)
    # fp8 operands with one fp32 scale each, a bf16 bias of 7 and a bf16 result; 21 additions of the bias.
    a, b = tensor(3, 5, dtype="float8_e4m3fn"), tensor(5, 7, dtype="float8_e4m3fn")
    scaled = call(
        "_scaled_mm",
        tensor(3, 7, dtype="bf16"),
        self=a,
        mat2=b,
        scale_a=tensor(),
        scale_b=tensor(),
        bias=tensor(7, dtype="bf16"),
    )
    assert of(scaled) == work(15 + 35 + 4 + 4 + 2 * 7 + 2 * 21, matmul_fp8=FLOPS, vector_fp32=21)


def test_grouped_products_of_experts() -> None:
    offsets = tensor(4, dtype="int32")  # 16 bytes
    # 10 rows of 5, sorted by expert, meet one of 4 (5, 7) matrices each: 10 x 5 x 7 multiply-adds, all matrices read.
    forward = call(
        "_grouped_mm",
        tensor(10, 7, dtype="bf16"),
        self=tensor(10, 5, dtype="bf16"),
        mat2=tensor(4, 5, 7, dtype="bf16"),
        offs=offsets,
    )
    assert of(forward) == work(2 * (50 + 4 * 35 + 70) + 16, matmul_bf16=2 * 350)
    # The gradient of the matrices: (5, 10) times (10, 7), every row in one of the 4 results: 350 multiply-adds again.
    gradient = call(
        "_grouped_mm",
        tensor(4, 5, 7, dtype="bf16"),
        self=tensor(5, 10, dtype="bf16"),
        mat2=tensor(10, 7, dtype="bf16"),
        offs=offsets,
    )
    assert of(gradient) == work(2 * (50 + 70 + 4 * 35) + 16, matmul_bf16=2 * 350)


def test_experts_without_rows_are_not_read() -> None:
    # 3 rows reach at most 3 of 4 matrices of 5 x 7 bf16.
    few = call(
        "_grouped_mm",
        tensor(3, 7, dtype="bf16"),
        self=tensor(3, 5, dtype="bf16"),
        mat2=tensor(4, 5, 7, dtype="bf16"),
        offs=tensor(4, dtype="int32"),
    )
    assert of(few) == work(2 * (15 + 3 * 35 + 21) + 16, matmul_bf16=2 * 105)


def test_grouped_products_of_equal_groups() -> None:
    # (4, 2, 3) times (4, 3, 6) is a batched product: 144 multiply-adds.
    equal = call(
        "_grouped_mm",
        tensor(4, 2, 6, dtype="bf16"),
        self=tensor(4, 2, 3, dtype="bf16"),
        mat2=tensor(4, 3, 6, dtype="bf16"),
    )
    assert of(equal) == work(2 * 4 * 36, matmul_bf16=288)


@pytest.mark.parametrize("products", ["fp32", "tf32"])
def test_tf32_is_a_switch_for_products_on_fp32(products: str) -> None:
    arithmetic = Arithmetic(products=products, convolutions="fp32")
    fp32 = cost(call("addmm", C, self=tensor(7), mat1=A, mat2=B), arithmetic)
    # Only the products: the addition stays what it is.
    assert fp32.work.flops == {f"matmul.{products}": FLOPS, "vector.fp32": 21}
    a, b, c = (tensor(*shape, dtype="fp16") for shape in ((3, 5), (5, 7), (3, 7)))
    half = cost(call("mm", c, self=a, mat2=b), arithmetic)
    assert half.work.flops == {"matmul.fp16": FLOPS}


def test_the_switch_of_convolutions_does_not_move_products() -> None:
    arithmetic = Arithmetic(products="fp32", convolutions="tf32")
    assert cost(call("mm", C, self=A, mat2=B), arithmetic).work.flops == {"matmul.fp32": FLOPS}


def test_products_that_no_unit_computes_are_listed() -> None:
    a, b, c = (tensor(*shape, dtype="int64") for shape in ((3, 5), (5, 7), (3, 7)))
    priced = cost(call("mm", c, self=a, mat2=b))
    assert priced.family == "matmul"
    assert priced.work == Work(bytes={"dram": 8 * 71}, missing=frozenset({"mm"}))


def test_an_operation_without_a_formula_is_listed_and_keeps_its_bytes() -> None:
    priced = cost(call("frobnicate", tensor(5), self=tensor(3)))
    assert priced.family == family_of("frobnicate") == "other"
    assert priced.work == Work(bytes={"dram": 4 * (3 + 5)}, missing=frozenset({"frobnicate"}))
