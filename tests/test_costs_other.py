"""Formulas of everything that is no matrix product. Expected numbers are derived from the sizes in the test."""

from __future__ import annotations

import pytest
from tests.calls import ITEM_BYTES, call, tensor, work

from rooflens.costs import Arithmetic, cost, families, family_of
from rooflens.records import Argument, Call, Work

BOTH_TF32 = Arithmetic(products="tf32", convolutions="tf32")


def of(c: Call) -> Work:
    return cost(c).work


def unary(name: str, *shape: int, dtype: str = "fp32", **options: Argument) -> Call:
    t = tensor(*shape, dtype=dtype)
    return call(name, t, self=t, **options)


# Normalisation -------------------------------------------------------------------------------------------------------

X = tensor(2, 3, 4, 4)  # 96 elements, 3 channels
CHANNEL = tensor(3)


def batch_norm(training: bool, **changed: Argument) -> Call:
    arguments: dict[str, Argument] = {"input": X, "weight": CHANNEL, "bias": CHANNEL, "running_mean": CHANNEL}
    arguments |= {"running_var": CHANNEL, "training": training, "momentum": 0.1, "eps": 1e-5}
    saved = CHANNEL if training else tensor(0)
    return call("native_batch_norm", (X, saved, saved), **(arguments | changed))


def test_batch_norm_in_training() -> None:
    # Mean 1, variance 3 (subtract, square, add), normalise 2, weight and bias 2; one inverse root per channel.
    # Bytes: image twice, four vectors of 3 read, two written.
    assert of(batch_norm(True)) == work(4 * (96 + 12 + 96 + 6), vector_fp32=8 * 96, special_fp32=3)


def test_batch_norm_in_eval_takes_no_statistics() -> None:
    assert of(batch_norm(False)) == work(4 * (96 + 12 + 96), vector_fp32=4 * 96, special_fp32=3)
    plain = batch_norm(False, weight=None, bias=None)
    assert of(plain) == work(4 * (96 + 6 + 96), vector_fp32=2 * 96, special_fp32=3)


@pytest.mark.parametrize("name", ["_native_batch_norm_legit_no_training", "_batch_norm_no_update"])
def test_names_that_say_eval(name: str) -> None:
    norms = {"weight": CHANNEL, "bias": CHANNEL, "running_mean": CHANNEL, "running_var": CHANNEL}
    assert of(call(name, (X, tensor(0), tensor(0)), input=X, **norms)).flops["vector.fp32"] == 4 * 96


def batch_norm_backward(train: bool, mask: tuple[bool, bool, bool]) -> Call:
    gradients = tuple(g for g, wanted in zip((X, CHANNEL, CHANNEL), mask, strict=True) if wanted)
    return call(
        "native_batch_norm_backward", gradients, grad_out=X, input=X, weight=CHANNEL, train=train, output_mask=mask
    )


@pytest.mark.parametrize(
    ("train", "mask", "per_element"),
    [
        # Normalised value 2, gradients of bias 1, weight 2, input 4.
        (True, (True, True, True), 9),
        (True, (False, True, True), 5),
        (True, (True, False, False), 9),  # the sums are needed all the same
        (False, (True, True, True), 2 + 1 + 2 + 1),
        (False, (True, False, False), 1),  # a frozen batch norm is one factor per channel
    ],
)
def test_batch_norm_backward(train: bool, mask: tuple[bool, bool, bool], per_element: int) -> None:
    assert of(batch_norm_backward(train, mask)).flops == {"vector.fp32": per_element * 96}


def test_layer_norm() -> None:
    x, row = tensor(4, 6, 8), tensor(8)
    # 192 elements in 24 rows: statistics 4, normalise 2, weight and bias 2.
    rows = tensor(4, 6, 1)
    affine = call("native_layer_norm", (x, rows, rows), input=x, normalized_shape=(8,), weight=row, bias=row)
    assert of(affine) == work(4 * (192 + 16 + 192 + 48), vector_fp32=8 * 192, special_fp32=24)
    # Backward: normalised value 2, weight 2, bias 1, sums of the row 1 + 1 + 2, input 4.
    gradients = call(
        "native_layer_norm_backward",
        (x, row, row),
        grad_out=x,
        input=x,
        mean=rows,
        rstd=rows,
        weight=row,
        bias=row,
        output_mask=(True, True, True),
    )
    assert of(gradients) == work(4 * (3 * 192 + 48 + 2 * 8 + 2 * 8), vector_fp32=13 * 192)


def test_group_norm() -> None:
    # 2 samples x 3 groups have a mean each. Without weight and bias: 4 + 2 per element.
    x, groups = tensor(2, 6, 5), tensor(2, 3)
    plain = call("native_group_norm", (x, groups, groups), input=x, weight=None, bias=None, N=2, C=6, HxW=5, group=3)
    assert of(plain) == work(4 * (60 + 60 + 12), vector_fp32=6 * 60, special_fp32=6)


def test_rms_norm() -> None:
    x, row, rows = tensor(4, 8), tensor(8), tensor(4, 1)
    # Square, add, times the inverse root, times the weight.
    forward = call("_fused_rms_norm", (x, rows), input=x, normalized_shape=(8,), weight=row, eps=None)
    assert of(forward) == work(4 * (32 + 8 + 32 + 4), vector_fp32=4 * 32, special_fp32=4)
    # Normalised value 1, weight 2, input: times weight 1, sum of products 2, multiply, subtract, multiply.
    backward = call(
        "_fused_rms_norm_backward",
        (x, row),
        grad_out=x,
        input=x,
        normalized_shape=(8,),
        rstd=rows,
        weight=row,
        output_mask=(True, True),
    )
    assert of(backward).flops == {"vector.fp32": 9 * 32}


def test_weight_norm() -> None:
    v, norms = tensor(4, 8), tensor(4, 1)
    forward = call("_weight_norm_interface", (v, norms), v=v, g=norms, dim=0)
    assert of(forward) == work(4 * (32 + 4 + 32 + 4), vector_fp32=96, special_fp32=4)
    backward = call(
        "_weight_norm_interface_backward", (v, norms), grad_w=v, saved_v=v, saved_g=norms, saved_norms=norms, dim=0
    )
    assert of(backward).flops == {"vector.fp32": 160}


def test_softmax() -> None:
    x = tensor(3, 10)
    # Maximum, subtract, sum, divide; an exponential.
    assert of(unary("_softmax", 3, 10, dim=-1)) == work(4 * 60, vector_fp32=4 * 30, special_fp32=30)
    assert of(unary("_log_softmax", 3, 10, dim=-1)) == work(4 * 60, vector_fp32=4 * 30, special_fp32=30)
    # Gradient times output, sum, subtract, multiply.
    assert of(call("_softmax_backward_data", x, grad_output=x, output=x)) == work(4 * 90, vector_fp32=4 * 30)
    # Sum, exponential of the output, multiply, subtract.
    logs = call("_log_softmax_backward_data", x, grad_output=x, output=x)
    assert of(logs) == work(4 * 90, vector_fp32=3 * 30, special_fp32=30)


# Pooling and interpolation -------------------------------------------------------------------------------------------

IMAGE, POOLED, INDICES = tensor(2, 3, 8, 8), tensor(2, 3, 4, 4), tensor(2, 3, 4, 4, dtype="int64")


def test_max_pool() -> None:
    # 96 windows of 3 x 3; the indices are 8 bytes each.
    c = call("max_pool2d_with_indices", (POOLED, INDICES), self=IMAGE, kernel_size=(3, 3), stride=(2, 2))
    assert of(c) == work(4 * 384 + 4 * 96 + 8 * 96, vector_fp32=9 * 96)


def test_one_number_stands_for_all_sides_of_a_window() -> None:
    assert of(call("avg_pool2d", POOLED, self=IMAGE, kernel_size=(2,))).flops == {"vector.fp32": 4 * 96}
    cube = call("avg_pool3d", tensor(1, 1, 2, 2, 2), self=tensor(1, 1, 4, 4, 4), kernel_size=(2,))
    assert of(cube) == work(4 * (64 + 8), vector_fp32=8 * 8)
    # One-dimensional pooling comes as (1, k).
    line = call("avg_pool2d", tensor(2, 3, 1, 4), self=tensor(2, 3, 1, 8), kernel_size=(1, 2))
    assert of(line).flops == {"vector.fp32": 2 * 24}


@pytest.mark.parametrize("name", ["max_pool2d_with_indices_backward", "adaptive_max_pool2d_backward"])
def test_max_pool_backward_does_not_read_the_input(name: str) -> None:
    c = call(name, IMAGE, grad_output=POOLED, self=IMAGE, kernel_size=(3, 3), indices=INDICES)
    assert of(c) == work(4 * 96 + 8 * 96 + 4 * 384, vector_fp32=96)


def test_average_pool_backward_does_not_read_the_input() -> None:
    c = call("avg_pool2d_backward", IMAGE, grad_output=POOLED, self=IMAGE, kernel_size=(2, 2))
    assert of(c) == work(4 * 96 + 4 * 384, vector_fp32=4 * 96)
    adaptive = call("_adaptive_avg_pool2d_backward", IMAGE, grad_output=POOLED, self=IMAGE)
    assert of(adaptive) == work(4 * 96 + 4 * 384, vector_fp32=384)


def test_adaptive_pool_reads_every_element_once() -> None:
    assert of(call("_adaptive_avg_pool2d", POOLED, self=IMAGE, output_size=(4, 4))) == work(4 * 480, vector_fp32=384)


@pytest.mark.parametrize(
    ("name", "points"),
    [("upsample_bilinear2d", 4), ("upsample_bicubic2d", 16), ("_upsample_bilinear2d_aa", 4)],
)
def test_interpolation_weights_and_adds_the_points_around(name: str, points: int) -> None:
    enlarged = call(name, IMAGE, self=POOLED, output_size=(8, 8))
    assert of(enlarged) == work(4 * 480, vector_fp32=2 * points * 384)
    gradient = call(f"{name}_backward", POOLED, grad_output=IMAGE, output_size=(8, 8), input_size=(2, 3, 4, 4))
    assert of(gradient) == work(4 * 480, vector_fp32=2 * points * 384)


def test_grid_sample() -> None:
    # 4 corners: 2 FLOP to weight and add, 2 for the weight. The grid has 2 coordinates per position.
    grid = tensor(2, 4, 4, 2)
    assert of(call("grid_sampler_2d", POOLED, input=IMAGE, grid=grid)) == work(4 * (384 + 64 + 96), vector_fp32=16 * 96)


# Element-wise --------------------------------------------------------------------------------------------------------


def test_in_place_forms_cost_what_the_plain_ones_do() -> None:
    t = tensor(5, 6)
    expected = work(4 * 90, vector_fp32=30)
    assert of(call("add", t, self=t, other=t)) == expected
    assert of(call("add_", t, self=t, other=t)) == expected
    assert of(unary("relu_", 5, 6)) == of(unary("relu", 5, 6)) == work(4 * 60, vector_fp32=30)
    assert family_of("add_") == family_of("relu") == "elementwise"


def test_broadcast_operands_count_per_element_of_the_result() -> None:
    assert of(call("mul", tensor(5, 6), self=tensor(5, 1), other=tensor(6))) == work(4 * (5 + 6 + 30), vector_fp32=30)


def test_activations() -> None:
    # x / (1 + exp -x): add, multiply; exponential, reciprocal.
    assert of(unary("silu", 30)) == work(4 * 60, vector_fp32=60, special_fp32=60)
    # x + 3, two comparisons, / 6, times x.
    assert of(unary("hardswish", 30)) == work(4 * 60, vector_fp32=150)
    assert of(unary("tanh", 30)) == work(4 * 60, special_fp32=30)
    # Half of the channels gate the other half: per result multiply, sigmoid.
    assert of(call("glu", tensor(15), self=tensor(30))) == work(4 * 45, vector_fp32=30, special_fp32=30)


@pytest.mark.parametrize(
    ("exponent", "vector", "special"), [(2, 1, 0), (3.0, 2, 0), (0.5, 0, 1), (-1, 0, 1), (1.7, 1, 2)]
)
def test_powers(exponent: float, vector: int, special: int) -> None:
    flops = of(unary("pow", 30, exponent=exponent)).flops
    assert (flops.get("vector.fp32", 0), flops.get("special.fp32", 0)) == (30 * vector, 30 * special)


@pytest.mark.parametrize(("dtype", "lanes"), [("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64")])
def test_lanes_compute_in_fp32_or_fp64(dtype: str, lanes: str) -> None:
    t = tensor(30, dtype=dtype)
    expected = Work(flops={f"vector.{lanes}": 30}, bytes={"dram": 90 * ITEM_BYTES[dtype]})
    # TF32 is no matter of element-wise work.
    assert cost(call("add", t, self=t, other=t), BOTH_TF32).work == expected


def test_integers_do_no_flop_but_move_bytes() -> None:
    t, mask = tensor(30, dtype="int64"), tensor(30, dtype="bool")
    assert of(call("add", t, self=t, other=t)) == work(8 * 90)
    assert of(call("eq", mask, self=t, other=t)) == work(8 * 60 + 30)
    assert of(call("logical_and", mask, self=mask, other=mask)) == work(90)
    assert of(call("sum", tensor(dtype="int64"), self=t)) == work(8 * 31)


def test_comparisons_of_floats_are_flop() -> None:
    assert of(call("lt", tensor(30, dtype="bool"), self=tensor(30), other=tensor(30))) == work(
        4 * 60 + 30, vector_fp32=30
    )


def test_selection_is_no_flop() -> None:
    t = tensor(30)
    assert of(call("where", t, condition=tensor(30, dtype="bool"), self=t, other=t)) == work(30 + 4 * 90)


def test_complex_element_wise_work_is_real_work() -> None:
    t = tensor(10, dtype="complex64")
    # Two additions; four products and two additions.
    assert of(call("add", t, self=t, other=t)) == work(8 * 30, vector_fp32=20)
    assert of(call("mul", t, self=t, other=t)) == work(8 * 30, vector_fp32=60)
    # Cosine and sine, each times the length.
    polar = call("polar", t, abs=tensor(10), angle=tensor(10))
    assert of(polar) == work(4 * 20 + 8 * 10, vector_fp32=20, special_fp32=20)


def foreach(name: str, count: int, writes: int, **arguments: Argument) -> Call:
    """An in-place call on lists: it returns nothing and writes its first list."""
    draft = Call(name, tuple(arguments.items()), (), 0, 0)
    assert len(draft.inputs) == count
    return Call(name, draft.arguments, (), reads=sum(t.nbytes for t in draft.inputs), writes=writes)


def test_foreach_forms_sum_over_their_lists() -> None:
    pair = (tensor(10), tensor(4, 5))
    # 30 elements in two tensors: self and other read, self written; multiply and add are addcmul's 3 with the factor.
    assert of(foreach("_foreach_add_", 4, 120, self=pair, other=pair)) == work(4 * 90, vector_fp32=30)
    moments = foreach("_foreach_addcmul_", 6, 120, self=pair, tensor1=pair, tensor2=pair)
    assert of(moments) == work(4 * 120, vector_fp32=90)
    roots = Call("_foreach_sqrt", (("self", pair),), pair, reads=120, writes=120)
    assert of(roots) == work(240, special_fp32=30)
    # Two norms: square and add 30 elements, a root each.
    norms = Call("_foreach_norm", (("self", pair),), (tensor(), tensor()), reads=120, writes=8)
    assert of(norms) == work(128, vector_fp32=60, special_fp32=2)


def test_gradient_scaler() -> None:
    # Scale and check every gradient; two numbers are read besides.
    pair = (tensor(10), tensor(4, 5))
    c = foreach("_amp_foreach_non_finite_check_and_unscale_", 4, 124, self=pair, found_inf=tensor(), inv_scale=tensor())
    assert of(c) == work(4 * 32 + 124, vector_fp32=60)


def test_dropout() -> None:
    x, mask = tensor(30), tensor(30, dtype="bool")
    # Compare and scale; a mask of one byte per element.
    forward = cost(call("native_dropout", (x, mask), input=x, p=0.1, train=True))
    assert forward.family == "dropout"
    assert forward.work == work(4 * 30 + 4 * 30 + 30, vector_fp32=60)
    backward = call("native_dropout_backward", x, grad_output=x, mask=mask, scale=1.1)
    assert of(backward) == work(4 * 30 + 30 + 4 * 30, vector_fp32=60)


# Reductions and losses -----------------------------------------------------------------------------------------------


def test_reductions() -> None:
    x, rows = tensor(4, 8), tensor(4)
    assert of(call("sum", rows, self=x, dim=(1,))) == work(4 * 36, vector_fp32=32)
    assert of(call("mean", rows, self=x, dim=(1,))) == work(4 * 36, vector_fp32=32 + 4)
    # Mean, subtract, square, add; divide; root.
    assert of(call("std", rows, self=x)) == work(4 * 36, vector_fp32=4 * 32 + 4, special_fp32=4)
    assert of(call("linalg_vector_norm", rows, self=x)) == work(4 * 36, vector_fp32=64, special_fp32=4)
    # Maximum, subtract, sum; an exponential each; a logarithm and an addition per row.
    assert of(call("logsumexp", rows, self=x, dim=(1,))) == work(4 * 36, vector_fp32=96 + 4, special_fp32=32 + 4)
    # Values and indices.
    largest = call("max", (rows, tensor(4, dtype="int64")), self=x, dim=1)
    assert of(largest) == work(4 * 36 + 8 * 4, vector_fp32=32)


def test_maximum_of_two_tensors_is_element_wise() -> None:
    x = tensor(4, 8)
    assert of(call("max", x, self=x, other=x)) == work(4 * 96, vector_fp32=32)


def test_distances() -> None:
    # 5 x 7 pairs of points with 3 coordinates: subtract, square, add; a root per pair.
    c = call("_cdist_forward", tensor(5, 7), x1=tensor(5, 3), x2=tensor(7, 3), p=2.0)
    assert of(c) == work(4 * (15 + 21 + 35), vector_fp32=3 * 35 * 3, special_fp32=35)
    # Back to the 5 points: a division per pair, and per coordinate subtract, multiply, add.
    pairs, first, second = tensor(5, 7), tensor(5, 3), tensor(7, 3)
    gradient = call("_cdist_backward", first, grad=pairs, x1=first, x2=second, p=2.0, cdist=pairs)
    assert of(gradient) == work(4 * (35 + 15 + 21 + 35 + 15), vector_fp32=35 * (1 + 9))


def test_fourier_transforms() -> None:
    # 3 transforms of 16 complex points: 5 * 16 * log2(16) = 320 each; half of it where the input is real.
    points, real = tensor(3, 16, dtype="complex64"), tensor(3, 16)
    assert of(call("_fft_c2c", points, self=points, dim=(1,))) == work(2 * 3 * 16 * 8, vector_fp32=960)
    half = tensor(3, 9, dtype="complex64")
    found = of(call("_fft_r2c", half, self=real, dim=(1,), onesided=True))
    assert found == work(3 * 16 * 4 + 3 * 9 * 8, vector_fp32=480)


def test_adding_a_multiple_is_a_multiply_add() -> None:
    x = tensor(100)
    assert of(call("add", x, self=x, other=x, alpha=1)).flops == {"vector.fp32": 100}
    assert of(call("add", x, self=x, other=x, alpha=3)).flops == {"vector.fp32": 200}
    assert of(call("_foreach_add_", (), self=(x, x), other=(x, x), alpha=-0.1)).flops == {"vector.fp32": 400}


def test_sorting_does_no_flop() -> None:
    values, places = tensor(4, 2), tensor(4, 2, dtype="int64")
    assert of(call("topk", (values, places), self=tensor(4, 8), k=2)) == work(4 * 32 + 4 * 8 + 8 * 8)


def test_nll_loss_fetches_one_value_per_target() -> None:
    # 6 of 600 log-probabilities, 6 targets; loss and total weight are written.
    logs, target = tensor(6, 100), tensor(6, dtype="int64")
    forward = call("nll_loss_forward", (tensor(), tensor()), self=logs, target=target, weight=None)
    assert of(forward) == work(4 * 6 + 8 * 6 + 8, vector_fp32=12)
    # With class weights of 100 elements.
    weighted = call("nll_loss_forward", (tensor(), tensor()), self=logs, target=target, weight=tensor(100))
    assert of(weighted) == work(4 * 6 + 8 * 6 + 400 + 8, vector_fp32=12)


def test_nll_loss_backward_does_not_read_the_log_probabilities() -> None:
    logs, target = tensor(6, 100), tensor(6, dtype="int64")
    c = call("nll_loss_backward", logs, grad_output=tensor(), self=logs, target=target, total_weight=tensor())
    assert of(c) == work(4 + 8 * 6 + 4 * 600, vector_fp32=6)


def test_losses_per_element() -> None:
    x = tensor(30)
    # Subtract, square, add.
    assert of(call("mse_loss", tensor(), self=x, target=x)) == work(4 * 61, vector_fp32=90)
    # Twice the difference times the gradient.
    assert of(call("mse_loss_backward", x, grad_output=tensor(), self=x, target=x)) == work(4 * 91, vector_fp32=90)
    logits = of(call("binary_cross_entropy_with_logits", tensor(), self=x, target=x))
    assert logits == work(4 * 61, vector_fp32=180, special_fp32=60)


# The whole table -----------------------------------------------------------------------------------------------------

TESTED = {
    "mm": "matmul",
    "convolution": "convolution",
    "attention": "attention",
    "recurrent": "recurrent",
    "selective_scan": "scan",
    "native_batch_norm": "normalization",
    "_softmax": "softmax",
    "avg_pool2d": "pooling",
    "upsample_bilinear2d": "interpolation",
    "embedding": "gather",
    "clone": "copy",
    "zeros": "fill",
    "_fft_r2c": "fourier",
    "relu": "elementwise",
    "native_dropout": "dropout",
    "sum": "reduction",
    "mse_loss": "loss",
}


def test_every_family_has_a_test_here() -> None:
    assert {name: family_of(name) for name in TESTED} == TESTED
    assert set(families()) == set(TESTED.values())
