"""Formulas of convolutions. Every expected number is a product of the sizes in the test, never the code's."""

from __future__ import annotations

from math import prod

import pytest
from tests.calls import call, tensor, work

from rooflens.costs import Arithmetic, cost
from rooflens.records import Argument, Call, Tensor, Work


def of(c: Call) -> Work:
    return cost(c).work


def convolution(
    inputs: Tensor,
    weight: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None = None,
    transposed: bool = False,
    **options: Argument,
) -> Call:
    """A call with the arguments of aten::convolution; what only shapes show (stride, padding) may be left out."""
    return call("convolution", out, input=inputs, weight=weight, bias=bias, transposed=transposed, **options)


def elements(*tensors: Tensor) -> int:
    return sum(prod(t.shape) for t in tensors)


def test_1d() -> None:
    # Length 10, kernel 3, no padding: 8 positions. 2 images x 6 channels x 8 positions, each over 4 channels x 3 taps.
    macs = 2 * 6 * 8 * 4 * 3
    x, w, y = tensor(2, 4, 10), tensor(6, 4, 3), tensor(2, 6, 8)
    assert of(convolution(x, w, y)) == work(4 * (80 + 72 + 96), matmul_fp32=2 * macs)


def test_2d_with_bias() -> None:
    # 7 x 7, kernel 3 x 3, padding 1: 7 x 7 positions. The bias is added to each of 2 x 5 x 49 results.
    macs = 2 * 5 * 49 * 3 * 9
    x, w, y, b = tensor(2, 3, 7, 7), tensor(5, 3, 3, 3), tensor(2, 5, 7, 7), tensor(5)
    expected = work(4 * (2 * 3 * 49 + 5 * 27 + 5 + 2 * 5 * 49), matmul_fp32=2 * macs, vector_fp32=2 * 5 * 49)
    assert of(convolution(x, w, y, bias=b)) == expected


def test_3d() -> None:
    # 4 x 5 x 6 with kernel 2 x 2 x 2: 3 x 4 x 5 positions of 8 taps over 2 channels.
    macs = 1 * 3 * 60 * 2 * 8
    x, w, y = tensor(1, 2, 4, 5, 6), tensor(3, 2, 2, 2, 2), tensor(1, 3, 3, 4, 5)
    assert of(convolution(x, w, y)) == work(4 * elements(x, w, y), matmul_fp32=2 * macs)


def test_stride_and_dilation_change_the_positions_not_the_taps() -> None:
    # 11 x 11, kernel 3, dilation 2 (span 5), stride 2: (11 - 5) / 2 + 1 = 4 positions each way, 9 taps at each.
    macs = 1 * 8 * 16 * 4 * 9
    x, w, y = tensor(1, 4, 11, 11), tensor(8, 4, 3, 3), tensor(1, 8, 4, 4)
    strided = convolution(x, w, y, stride=(2, 2), dilation=(2, 2))
    assert of(strided) == work(4 * elements(x, w, y), matmul_fp32=2 * macs)


def test_padding_counts_as_input() -> None:
    # 10 + 2 x 1 - 4 + 1 = 9 positions each way; each is a sum over 4 x 4 taps, those on the padding included.
    macs = 1 * 2 * 81 * 3 * 16
    x, w, y = tensor(1, 3, 10, 10), tensor(2, 3, 4, 4), tensor(1, 2, 9, 9)
    assert of(convolution(x, w, y, padding=(1, 1))) == work(4 * elements(x, w, y), matmul_fp32=2 * macs)


def test_grouped() -> None:
    # 8 channels in 4 groups: each of 12 results per position sums over 2 channels x 9 taps.
    macs = 1 * 12 * 25 * 2 * 9
    x, w, y = tensor(1, 8, 5, 5), tensor(12, 2, 3, 3), tensor(1, 12, 5, 5)
    assert of(convolution(x, w, y, groups=4)) == work(4 * elements(x, w, y), matmul_fp32=2 * macs)


def test_depthwise_with_multiplier() -> None:
    # 6 channels, 2 results of each; one channel x 25 taps per result.
    macs = 3 * 12 * 16 * 1 * 25
    x, w, y = tensor(3, 6, 8, 8), tensor(12, 1, 5, 5), tensor(3, 12, 4, 4)
    assert of(convolution(x, w, y, groups=6)) == work(4 * elements(x, w, y), matmul_fp32=2 * macs)


def test_transposed_counts_every_input_element_against_every_tap() -> None:
    # Weights are (in, out, 2, 2): each of 1 x 6 x 5 x 5 inputs meets 4 results x 4 taps.
    macs = 6 * 25 * 4 * 4
    x, w, y = tensor(1, 6, 5, 5), tensor(6, 4, 2, 2), tensor(1, 4, 10, 10)
    assert of(convolution(x, w, y, transposed=True, stride=(2, 2))) == work(4 * elements(x, w, y), matmul_fp32=2 * macs)


def test_transposed_and_grouped() -> None:
    # Weights are (in, out / groups, kernel): with 2 groups an input meets 2 of the 4 results.
    macs = 6 * 25 * 2 * 4
    x, w, y = tensor(1, 6, 5, 5), tensor(6, 2, 2, 2), tensor(1, 4, 10, 10)
    grouped = convolution(x, w, y, transposed=True, stride=(2, 2), groups=2)
    assert of(grouped) == work(4 * elements(x, w, y), matmul_fp32=2 * macs)


def test_transposed_with_bias_adds_it_to_the_larger_result() -> None:
    x, w, y, b = tensor(1, 6, 5, 5), tensor(6, 4, 2, 2), tensor(1, 4, 10, 10), tensor(4)
    flops = of(convolution(x, w, y, transposed=True, bias=b)).flops
    assert flops == {"matmul.fp32": 2 * 6 * 25 * 4 * 4, "vector.fp32": 400}


@pytest.mark.parametrize("name", ["cudnn_convolution", "mkldnn_convolution"])
def test_library_forms_name_their_input_self(name: str) -> None:
    x, w, y = tensor(1, 4, 10), tensor(6, 4, 3), tensor(1, 6, 8)
    assert of(call(name, y, self=x, weight=w)) == work(4 * (40 + 72 + 48), matmul_fp32=2 * 6 * 8 * 12)


# Backward of 2 x 4 x 8 x 8 by (6, 4, 3, 3) to 2 x 6 x 6 x 6.
X, W, GRAD = tensor(2, 4, 8, 8), tensor(6, 4, 3, 3), tensor(2, 6, 6, 6)
MACS = 2 * 6 * 36 * 4 * 9
X_BYTES, W_BYTES, GRAD_BYTES, BIAS_BYTES = 4 * 512, 4 * 216, 4 * 432, 4 * 6


def backward(
    for_input: bool,
    for_weight: bool,
    for_bias: bool,
    *,
    inputs: Tensor = X,
    weight: Tensor = W,
    grad: Tensor = GRAD,
    bias: int = 6,
    transposed: bool = False,
) -> Call:
    wanted = ((inputs, for_input), (weight, for_weight), (tensor(bias), for_bias))
    return call(
        "convolution_backward",
        tuple(result for result, wants in wanted if wants),
        grad_output=grad,
        input=inputs,
        weight=weight,
        bias_sizes=(bias,),
        transposed=transposed,
        output_mask=(for_input, for_weight, for_bias),
    )


@pytest.mark.parametrize("for_input", [False, True])
@pytest.mark.parametrize("for_weight", [False, True])
@pytest.mark.parametrize("for_bias", [False, True])
def test_backward_computes_and_reads_what_is_asked_for(for_input: bool, for_weight: bool, for_bias: bool) -> None:
    # The input's gradient needs the weight, the weight's gradient the input, and each is a contraction like forward's.
    # The bias gradient is a sum of the 432 output gradients. The output's gradient is read once for all of them.
    flops: dict[str, float] = {}
    if for_input or for_weight:
        flops["matmul_fp32"] = 2 * MACS * (for_input + for_weight)
    if for_bias:
        flops["vector_fp32"] = 432
    nbytes = GRAD_BYTES
    nbytes += (W_BYTES + X_BYTES) * for_input  # read the weight, write the gradient
    nbytes += (X_BYTES + W_BYTES) * for_weight  # read the input, write the gradient
    nbytes += BIAS_BYTES * for_bias
    assert of(backward(for_input, for_weight, for_bias)) == work(nbytes, **flops)


def test_backward_of_a_grouped_convolution() -> None:
    # 12 results of 3 channels x 9 taps at 25 positions, for the input and again for the weight.
    x, w, g = tensor(1, 12, 5, 5), tensor(12, 3, 3, 3), tensor(1, 12, 5, 5)
    grouped = backward(True, True, False, inputs=x, weight=w, grad=g)
    assert of(grouped).flops == {"matmul.fp32": 2 * 2 * (12 * 25 * 27)}


def test_backward_of_a_depthwise_convolution() -> None:
    # torch's own counter multiplies by the number of channels here.
    x, w, g = tensor(4, 16, 7, 7), tensor(16, 1, 3, 3), tensor(4, 16, 7, 7)
    depthwise = backward(True, True, False, inputs=x, weight=w, grad=g)
    # Per gradient: 4 x 16 x 49 results of 9 taps. Bytes: gradient, input, weight read; both gradients written.
    assert of(depthwise) == work(4 * (3 * 3136 + 2 * 144), matmul_fp32=2 * 2 * (4 * 16 * 49 * 9))


def test_backward_of_a_transposed_convolution() -> None:
    # Each of 6 x 25 inputs met 4 x 4 taps; so does its gradient, and so do the weights'.
    x, w, g = tensor(1, 6, 5, 5), tensor(6, 4, 2, 2), tensor(1, 4, 10, 10)
    both = backward(True, True, False, inputs=x, weight=w, grad=g, transposed=True)
    assert of(both).flops == {"matmul.fp32": 2 * 2 * (6 * 25 * 16)}


@pytest.mark.parametrize(
    ("dtype", "precision", "item"), [("fp16", "fp16", 2), ("bf16", "bf16", 2), ("fp64", "fp64", 8)]
)
def test_the_unit_follows_the_input(dtype: str, precision: str, item: int) -> None:
    x, w, y = tensor(2, 4, 10, dtype=dtype), tensor(6, 4, 3, dtype=dtype), tensor(2, 6, 8, dtype=dtype)
    expected = Work(flops={f"matmul.{precision}": 2 * 1152}, bytes={"dram": item * (80 + 72 + 96)})
    assert of(convolution(x, w, y)) == expected


def test_tf32_is_a_switch_of_its_own_for_convolutions() -> None:
    plain = convolution(tensor(2, 4, 10), tensor(6, 4, 3), tensor(2, 6, 8))
    # torch's default: cuDNN may use TF32, products may not.
    assert cost(plain, Arithmetic(convolutions="tf32")).work.flops == {"matmul.tf32": 2 * 1152}
    assert cost(plain, Arithmetic(products="tf32")).work.flops == {"matmul.fp32": 2 * 1152}
    gradients = cost(backward(True, True, True), Arithmetic(convolutions="tf32"))
    assert gradients.work.flops == {"matmul.tf32": 2 * 2 * MACS, "vector.fp32": 432}
    assert gradients.family == "convolution"


@pytest.mark.parametrize("name", ["convolution", "convolution_backward"])
def test_a_complex_convolution_is_three_real_ones(name: str) -> None:
    """(1, 2, 5) with 3 kernels of 2 taps: 4 places x 3 x 2 x 2 = 48 complex multiply-adds of 6 FLOP."""
    x, w, out = (tensor(*shape, dtype="complex64") for shape in ((1, 2, 5), (3, 2, 2), (1, 3, 4)))
    if name == "convolution":
        one = call(name, out, input=x, weight=w, transposed=False)
    else:
        one = call(name, w, grad_output=out, input=x, weight=w, transposed=False, output_mask=(False, True, False))
    assert cost(one).work.matmul_flops == 6 * 48
