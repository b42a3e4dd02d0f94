"""Matrix work of small layers through the public estimate. Every right value is a product of the sizes in the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.counting import Calls, macs, train
from torch import Tensor, nn
from torch.nn import functional as F

import rooflens as rl

# Convolutions --------------------------------------------------------------------------------------------------------


def test_transposed_convolutions_count_their_input() -> None:
    # 2 x 6 x 9 x 9 inputs meet 4 channels x 3 x 3 taps each; backward to the weights alone is the same once more.
    once = 2 * 6 * 81 * 4 * 9
    up = nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1, bias=False)
    assert macs(up, torch.randn(2, 6, 9, 9)) == (once, once)
    # In two groups an input meets 2 of 4 channels; five inputs in a row, four taps.
    grouped = nn.ConvTranspose1d(6, 4, 4, groups=2)
    assert macs(grouped, torch.randn(1, 6, 5)) == (6 * 5 * 2 * 4, 6 * 5 * 2 * 4)


def test_grouped_convolutions_keep_their_groups_in_backward() -> None:
    # 12 results of 3 channels x 9 taps at 10 x 10; two layers: both weights and the second input have a gradient.
    one = 2 * 12 * 100 * 3 * 9
    layers = nn.Sequential(*(nn.Conv2d(12, 12, 3, padding=1, groups=4, bias=False) for _ in range(2)))
    assert macs(layers, torch.randn(2, 12, 10, 10)) == (2 * one, 3 * one)


def test_depthwise_convolution_with_multiplier_and_stride() -> None:
    # 21 + 2 x 1 - 3 = 20, halved: 11 positions each way; 3 results per channel of 9 taps.
    once = 30 * 121 * 9
    layer = nn.Conv2d(10, 30, 3, stride=2, padding=1, groups=10, bias=False)
    assert macs(layer, torch.randn(1, 10, 21, 21)) == (once, once)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_padding_as_a_word() -> None:
    # "same" keeps 12 x 12 whatever the dilation, and for an even kernel; "valid" leaves 12 - 2 = 10.
    layers = nn.Sequential(
        nn.Conv2d(4, 6, 3, dilation=3, padding="same", bias=False), nn.Conv2d(6, 2, 2, padding="same", bias=False)
    )
    first, second = 144 * 6 * 4 * 9, 144 * 2 * 6 * 4
    assert macs(layers, torch.randn(1, 4, 12, 12)) == (first + second, first + 2 * second)
    valid = 100 * 6 * 4 * 9
    assert macs(nn.Conv2d(4, 6, 3, padding="valid"), torch.randn(1, 4, 12, 12)) == (valid, valid)


def test_one_and_three_dimensions() -> None:
    line = 3 * 8 * 20 * 5 * 3  # batch 3, 8 results, 20 positions, 5 channels x 3 taps
    assert macs(nn.Conv1d(5, 8, 3, padding=1), torch.randn(3, 5, 20)) == (line, line)
    cube = 4 * (3 * 4 * 5) * 2 * 8  # 4 results, 3 x 4 x 5 positions, 2 channels x 2 x 2 x 2 taps
    assert macs(nn.Conv3d(2, 4, 2), torch.randn(1, 2, 4, 5, 6)) == (cube, cube)


# Products ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8,), (5, 8), (2, 5, 8), (2, 3, 5, 8), (2, 1, 3, 5, 8)])
def test_linear_layers_take_any_rank(shape: tuple[int, ...]) -> None:
    rows = torch.Size(shape[:-1]).numel()
    evaluated = rl.estimate(nn.Linear(8, 6), inputs=torch.randn(shape)).total("forward")
    assert evaluated.macs == rows * 8 * 6
    # The bias is one addition per result, named apart from the products.
    assert evaluated.flops == 2 * rows * 8 * 6 + rows * 6


def test_functional_calls_with_bare_parameters() -> None:
    def run(self: Any, x: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        return F.linear(x, self.matrix), F.conv2d(image, self.kernel, stride=2)

    module = Calls(run, matrix=torch.randn(9, 5), kernel=torch.randn(4, 3, 3, 3))
    # 7 rows; 11 x 11 with kernel 3 and stride 2: 5 x 5 positions.
    once = 7 * 5 * 9 + 25 * 4 * 3 * 9
    assert macs(module, torch.randn(7, 5), torch.randn(1, 3, 11, 11)) == (once, once)
    assert train(module, torch.randn(7, 5), torch.randn(1, 3, 11, 11)).parameters == 9 * 5 + 4 * 3 * 9


@pytest.mark.parametrize(
    ("function", "weight", "inputs", "forward"),
    [
        (lambda s, x: x @ s.w, (8, 5), (6, 8), 6 * 8 * 5),
        (lambda s, x: torch.mm(x, s.w), (8, 5), (6, 8), 6 * 8 * 5),
        (lambda s, x: x.matmul(s.w), (8, 5), (2, 3, 6, 8), 2 * 3 * 6 * 8 * 5),
        (lambda s, x: torch.bmm(x, s.w), (4, 8, 5), (4, 6, 8), 4 * 6 * 8 * 5),
        (lambda s, x: x @ s.w, (3, 1, 8, 5), (2, 6, 8), 3 * 2 * 6 * 8 * 5),  # broadcast to (3, 2)
        (lambda s, x: torch.einsum("bij,jk->bik", x, s.w), (8, 5), (4, 6, 8), 4 * 6 * 8 * 5),
        (lambda s, x: torch.einsum("bhqd,hkd->bhqk", x, s.w), (3, 7, 8), (2, 3, 6, 8), 2 * 3 * 6 * 7 * 8),
        (lambda s, x: torch.baddbmm(x.new_zeros(1), x, s.w), (4, 8, 5), (4, 6, 8), 4 * 6 * 8 * 5),
        (lambda s, x: torch.tensordot(x, s.w, dims=1), (8, 5), (2, 6, 8), 2 * 6 * 8 * 5),
    ],
)
def test_every_way_to_write_a_product(
    function: Callable[..., Any], weight: tuple[int, ...], inputs: tuple[int, ...], forward: int
) -> None:
    # Only the weight has a gradient: one product of the same size.
    assert macs(Calls(function, w=torch.randn(weight)), torch.randn(inputs)) == (forward, forward)


def test_products_of_results_have_two_gradients() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        y = x @ self.w  # (3, 6, 8) x (8, 8)
        return torch.bmm(y, y.transpose(1, 2))  # (3, 6, 8) x (3, 8, 6)

    product, square = 3 * 6 * 8 * 8, 3 * 6 * 8 * 6
    assert macs(Calls(run, w=torch.randn(8, 8)), torch.randn(3, 6, 8)) == (product + square, product + 2 * square)


def test_products_with_vectors() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        return torch.dot(self.v, self.w @ x)

    found = rl.estimate(Calls(run, w=torch.randn(6, 9), v=torch.randn(6)), inputs=torch.randn(9))
    assert found.total("forward").macs == 6 * 9 + 6


# All work and bytes ---------------------------------------------------------------------------------------------------


def test_a_small_network_in_full() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
    )
    total = rl.estimate(network, inputs=torch.randn(2, 3, 8, 8)).total("forward")
    # 2 x 4 x 64 = 512 results of 27 taps, pooled to 128; 64 of an image to 5.
    products = 2 * (512 * 27 + 2 * 64 * 5)
    # Bias 1, batch norm 4, ReLU 1 per result; 4 comparisons per window; bias of the last layer.
    vector = 512 * (1 + 4 + 1) + 128 * 4 + 10
    assert total.work is not None
    # torch's switches as they are: cuDNN may use TF32, products may not. One inverse root per channel.
    assert total.work.flops == {
        "matmul.tf32": 2 * 512 * 27,
        "matmul.fp32": 2 * 2 * 64 * 5,
        "vector.fp32": vector,
        "special.fp32": 4,
    }
    assert (total.matmul_flops, total.flops) == (products, products + vector + 4)
    elements = (
        (384 + 4 * 27 + 4 + 512)  # image, weights, bias, result
        + (512 + 4 * 4 + 512)  # four numbers per channel
        + (512 + 512)
        + (512 + 128 + 2 * 128)  # the pool writes 8-byte indices too; flattening is free
        + (128 + 320 + 5 + 10)
    )
    assert total.bytes == {"dram": 4 * elements}


# Attention -----------------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, *, weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.weights = weights

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x, need_weights=self.weights)[0]
        return out


@pytest.mark.parametrize("weights", [False, True])
def test_multihead_attention_costs_the_same_however_it_runs(weights: bool) -> None:
    # 3 sequences of 10 tokens, 16 wide. Four projections of 16 x 16 per token; two products of 10 x 10 x 16.
    projections, attention = 30 * 16 * 16, 3 * 100 * 16
    forward = 4 * projections + 2 * attention
    # Weights of all four, the input of the last; attention twice forward.
    backward = 5 * projections + 4 * attention
    module, x = SelfAttention(16, 4, weights=weights), torch.randn(3, 10, 16)
    assert macs(module, x) == (forward, backward)
    # torch's fast path for inference is the same work.
    module.eval()
    assert rl.estimate(module, inputs=x).total("forward").macs == forward


def test_cross_attention_with_other_widths() -> None:
    # 2 sequences; 5 queries of 12; 7 keys of 8, values of 10.
    query, key, value, attention = 10 * 12 * 12, 14 * 8 * 12, 14 * 10 * 12, 2 * 35 * 12
    module = Calls(
        lambda s, q, k, v: s.attention(q, k, v)[0],
        attention=nn.MultiheadAttention(12, 3, kdim=8, vdim=10, batch_first=True),
    )
    inputs = (torch.randn(2, 5, 12), torch.randn(2, 7, 8), torch.randn(2, 7, 10))
    forward = query + key + value + query + 2 * attention
    backward = query + key + value + 2 * query + 4 * attention
    assert macs(module, *inputs) == (forward, backward)


def test_attention_called_directly() -> None:
    def leaf() -> Tensor:
        return torch.randn(2, 3, 8, 4, requires_grad=True)

    module = Calls(lambda s, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    # 6 heads x 8 x 8 pairs, two products of 4; backward twice that. In full, also for a causal call.
    assert macs(module, leaf(), leaf(), leaf()) == (2 * 6 * 64 * 4, 4 * 6 * 64 * 4)
    # Asked for causal: 8 x 9 / 2 = 36 of 64 pairs.
    halved = rl.estimate(module, inputs=(leaf(), leaf(), leaf()), causal=True)
    assert halved.total("forward").macs == 2 * 6 * 36 * 4


def test_grouped_queries() -> None:
    module = Calls(lambda s, q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    q, kv = torch.randn(1, 6, 10, 8), torch.randn(1, 2, 10, 8)
    total = rl.estimate(module, inputs=(q, kv, kv.clone())).total("forward")
    # Work follows the 6 query heads, bytes the 2 heads of keys and values.
    assert total.macs == 2 * 6 * 100 * 8
    least = 4 * (2 * 6 * 80 + 2 * 2 * 80)
    assert least <= total.bytes["dram"] <= least + 4 * 6 * 10  # and at most one sum of exponentials per query


def test_gradients_of_attention_that_nobody_asks_for() -> None:
    # Keys and values come from outside: per pair the gradient of the weights and of Q, not of K and V.
    module = Calls(lambda s, x, kv: F.scaled_dot_product_attention(s.q(x), kv, kv), q=nn.Linear(8, 8, bias=False))
    x = torch.randn(1, 1, 5, 8)
    projection, attention = 5 * 8 * 8, 5 * 7 * 8
    assert macs(module, x, torch.randn(1, 1, 7, 8)) == (projection + 2 * attention, projection + 2 * attention)


def test_encoder_layer() -> None:
    # 2 sequences of 6 tokens, 16 wide, 24 inside.
    tokens, attention = 12, 2 * 2 * 36 * 16
    forward = tokens * (4 * 16 * 16 + 2 * 16 * 24) + attention
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    # All weights and inputs but the input of query, key and value's projections.
    backward = 2 * forward - tokens * 3 * 16 * 16
    assert macs(layer, torch.randn(2, 6, 16)) == (forward, backward)
    with torch.no_grad():
        assert rl.estimate(layer.eval(), inputs=torch.randn(2, 6, 16)).total("forward").macs == forward


# Recurrent -----------------------------------------------------------------------------------------------------------


def test_lstm_of_two_layers() -> None:
    # 7 steps x 2 sequences; 4 x 6 gates; the second layer reads the 6 units of the first.
    vectors = 14
    forward = vectors * 24 * ((5 + 6) + (6 + 6))
    # Twice forward less the gradient of the input.
    assert macs(nn.LSTM(5, 6, num_layers=2), torch.randn(7, 2, 5)) == (forward, 2 * forward - vectors * 24 * 5)


def test_bidirectional_gru_with_batch_first() -> None:
    # 2 directions x (3 x 8) vectors x 3 x 4 gates x (6 + 4).
    forward = 2 * 24 * 12 * 10
    found = macs(nn.GRU(6, 4, batch_first=True, bidirectional=True), torch.randn(3, 8, 6))
    assert found == (forward, 2 * forward - 2 * 24 * 12 * 6)


def test_lstm_with_projection() -> None:
    # Gates read 5 inputs and a state of 3; the projection is 3 x 6.
    found = rl.estimate(nn.LSTM(5, 6, proj_size=3), inputs=torch.randn(7, 2, 5))
    assert found.total("forward").macs == 14 * (24 * (5 + 3) + 3 * 6)


@pytest.mark.parametrize(("cell", "gates"), [(nn.LSTMCell, 4), (nn.GRUCell, 3), (nn.RNNCell, 1)])
def test_a_cell_in_a_loop(cell: type[nn.Module], gates: int) -> None:
    def run(self: Any, x: Tensor) -> Any:
        state = None
        for step in x:
            state = self.cell(step, state)
        return state

    module = Calls(run, cell=cell(5, 6))
    found = rl.estimate(module, inputs=torch.randn(4, 3, 5))
    assert found.total("forward").macs == 4 * 3 * gates * 6 * (5 + 6)
    assert found.parameters == gates * 6 * (5 + 6 + 2)
