"""More ways to write a product, a convolution and attention. Right values are products of the sizes in the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.counting import Calls, macs, train
from torch import Tensor, nn, randn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import rooflens as rl
from rooflens.errors import ModelError

sdpa = F.scaled_dot_product_attention


def flash_for_cpu(query: Tensor, key: Tensor, value: Tensor) -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)[0]


def forward(module: nn.Module, *inputs: Any, **options: Any) -> float | None:
    found = rl.estimate(module, inputs=inputs, **options)
    assert found.coverage.uncounted == ()
    return found.total("forward").macs


# Convolutions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "weight", "inputs", "once"),
    [
        # Padding in words with groups and dilation keeps 11 positions; 2 channels x 4 taps of a group.
        (lambda s, x: F.conv1d(x, s.w, padding="same", dilation=3, groups=2), (6, 2, 4), (2, 4, 11), 2 * 6 * 11 * 8),
        # Each of 4 x 27 inputs meets 3 channels x 8 taps of its group, whatever is appended to the result.
        (
            lambda s, x: F.conv_transpose3d(x, s.w, stride=2, output_padding=1, groups=2),
            (4, 3, 2, 2, 2),
            (2, 4, 3, 3, 3),
            2 * 4 * 27 * 3 * 8,
        ),
        (
            lambda s, x: F.conv_transpose1d(x, s.w, stride=3, dilation=2, padding=1, output_padding=2, groups=2),
            (6, 2, 5),
            (3, 6, 7),
            3 * 6 * 7 * 2 * 5,
        ),
        # One image without a batch.
        (lambda s, x: F.conv2d(x, s.w), (5, 3, 3, 3), (3, 8, 8), 5 * 36 * 27),
        # A convolution written as a product of unfolded patches.
        (lambda s, x: s.w @ F.unfold(x, 3), (5, 27), (2, 3, 8, 8), 2 * 5 * 36 * 27),
    ],
)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_functional_convolutions(
    function: Callable[..., Any], weight: tuple[int, ...], inputs: tuple[int, ...], once: int
) -> None:
    assert macs(Calls(function, w=randn(weight)), randn(inputs)) == (once, once)


def test_convolutions_with_time_first() -> None:
    # 7 times x 2 sequences x 6 results, 3 taps x 4 channels, one of padding at both ends.
    module = Calls(lambda s, x: torch.conv_tbc(x, s.w, s.b, 1), w=randn(3, 4, 6), b=randn(6))
    assert forward(module, randn(7, 2, 4)) == 7 * 2 * 6 * 3 * 4


def test_deformable_convolutions() -> None:
    ops = pytest.importorskip("torchvision.ops")
    once = 36 * 4 * 3 * 9  # 6 x 6 positions, 4 results of 3 channels x 9 taps; back to weights and to samples
    module = Calls(lambda s, x, offset: ops.deform_conv2d(x, offset, s.w), w=randn(4, 3, 3, 3))
    assert macs(module, randn(1, 3, 8, 8), randn(1, 18, 6, 6)) == (once, 2 * once)


# Products ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "weight", "inputs", "once"),
    [
        (lambda s, x: F.linear(x, s.w), (5, 8), (8,), 5 * 8),
        (lambda s, x: F.linear(x, s.w), (8,), (4, 8), 4 * 8),
        (lambda s, x: torch.matmul(x, s.w), (2, 3, 8, 5), (8,), 6 * 8 * 5),
        (lambda s, x: torch.matmul(x, s.w), (8,), (2, 3, 5, 8), 30 * 8),
        (lambda s, x: torch.einsum("...ij,jk->...ik", x, s.w), (8, 5), (2, 3, 6, 8), 36 * 8 * 5),
        (lambda s, x: torch.einsum("bii,ij->bj", x, s.w), (5, 6), (4, 5, 5), 4 * 5 * 6),
        (lambda s, x: torch.einsum("bi,bi->b", x, s.w), (4, 5), (4, 5), 20),
        (lambda s, x: torch.tensordot(x, s.w, dims=([1, 2], [0, 1])), (8, 3, 6), (2, 8, 3), 2 * 24 * 6),
        (lambda s, x: torch.inner(x, s.w), (5, 8), (3, 8), 3 * 5 * 8),
        (lambda s, x: torch.addbmm(x.new_zeros(6, 5), x, s.w), (4, 8, 5), (4, 6, 8), 4 * 6 * 8 * 5),
        (lambda s, x: torch.vmap(lambda w: x @ w)(s.w), (3, 8, 4), (5, 8), 3 * 5 * 8 * 4),
    ],
)
def test_products_of_any_rank(
    function: Callable[..., Any], weight: tuple[int, ...], inputs: tuple[int, ...], once: int
) -> None:
    assert macs(Calls(function, w=randn(weight)), randn(inputs)) == (once, once)


@pytest.mark.parametrize(
    "function",
    [
        lambda s, x: torch.einsum("ij,ij->ij", x, s.w),
        lambda s, x: torch.einsum("ij,kl->ijkl", x, s.w),
        lambda s, x: torch.kron(x, s.w),
        lambda s, x: torch.outer(x[0], s.w[0]),
        lambda s, x: torch.linalg.vecdot(x, s.w),
    ],
)
def test_what_sums_over_nothing_or_element_by_element_is_no_matrix_product(function: Callable[..., Any]) -> None:
    found = rl.estimate(Calls(function, w=randn(4, 5)), inputs=randn(4, 5)).total("forward")
    assert found.matmul_flops == 0
    assert found.flops is not None
    assert found.flops > 0


def test_chains_of_products_take_the_cheapest_order() -> None:
    # (2 x 10)(10 x 3)(3 x 8): from the left 60 + 48, from the right 240 + 160.
    module = Calls(lambda s, x: torch.linalg.multi_dot([x, s.b, s.c]), b=randn(10, 3), c=randn(3, 8))
    # Gradients of b, of c and of the product before c.
    assert macs(module, randn(2, 10)) == (60 + 48, 60 + 2 * 48)


def test_matrix_powers() -> None:
    # A = x w, then A A A: two products with two gradients each, and one for w.
    module = Calls(lambda s, x: torch.linalg.matrix_power(x @ s.w, 3), w=randn(4, 4))
    assert macs(module, randn(4, 4)) == (3 * 64, 64 + 4 * 64)


def test_bilinear_layers_backward() -> None:
    # 4 rows, 3 features, 5 and 7 inputs. Back to x1: W x2 (4 x 3 x 35), summed over features (4 x 35). To x2: x1 W
    # (4 x 3 x 35), summed over features (4 x 3 x 7). To W: a sum over rows (4 x 3 x 35).
    x1, x2 = randn(4, 5, requires_grad=True), randn(4, 7, requires_grad=True)
    backward = (420 + 140) + (420 + 84) + 420
    assert macs(nn.Bilinear(5, 7, 3), x1, x2) == (420 + 84, backward)


def test_distances_by_products() -> None:
    # From 26 points on torch writes |x|^2 + |y|^2 - 2 x y as one product, two columns wider than the points.
    module = Calls(lambda s, x: torch.cdist(x, s.y), y=randn(40, 8))
    assert forward(module, randn(30, 8)) == 30 * 40 * (8 + 2)


def test_grids_of_affine_maps() -> None:
    # 36 positions (x, y, 1) of 2 images times 3 x 2.
    module = Calls(lambda s, x: F.affine_grid(s.t.expand(2, 2, 3), [2, 1, 6, 6], align_corners=False), t=randn(1, 2, 3))
    assert forward(module, randn(1)) == 2 * 36 * 3 * 2


def test_complex_layers_train() -> None:
    # 3 rows of 4 to 5: 4 real multiply-adds each; the loss adds real and imaginary parts.
    layer = nn.Linear(4, 5, dtype=torch.complex64)
    assert macs(layer, randn(3, 4, dtype=torch.complex64)) == (4 * 60, 4 * 60)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_sparse_matrix_times_a_vector_takes_what_is_stored() -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2], [1, 0, 3]]), torch.ones(3), (4, 5))
    assert forward(Calls(lambda s, a: a @ s.v, v=randn(5)), sparse) == 3


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_sparse_matrix_that_the_model_builds() -> None:
    def run(self: Any, places: Tensor, values: Tensor, x: Tensor) -> Tensor:
        out: Tensor = torch.sparse.mm(torch.sparse_coo_tensor(places, values, (4, 5)), self.layer(x))
        return out

    module = Calls(run, layer=nn.Linear(6, 6, bias=False))
    # The layer 5 x 36, the three elements 6 columns each; back: the layer's weight, and the same three.
    inputs = (torch.tensor([[0, 1, 2], [1, 0, 3]]), randn(3), randn(5, 6))
    assert macs(module, *inputs) == (180 + 18, 180 + 18)


# Grouped products ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [F.grouped_mm, torch._grouped_mm])
def test_experts_in_any_type(dtype: torch.dtype, function: Callable[..., Tensor]) -> None:
    # 40 rows of 16, each meeting one of four 16 x 32 matrices; only the matrices need a gradient.
    module = Calls(lambda s, x, ends: function(x, s.w, offs=ends), w=randn(4, 16, 32, dtype=dtype))
    ends = torch.tensor([8, 16, 24, 40], dtype=torch.int32)
    assert macs(module, randn(40, 16, dtype=dtype), ends) == (40 * 16 * 32, 40 * 16 * 32)


def test_a_batch_of_experts_and_experts_of_columns() -> None:
    # Without ends each of 4 experts has its 5 rows; with them the columns of the right operand are cut.
    batch = Calls(lambda s, x: F.grouped_mm(x, s.w), w=randn(4, 16, 32))
    assert macs(batch, randn(4, 5, 16)) == (4 * 5 * 16 * 32, 4 * 5 * 16 * 32)
    columns = Calls(lambda s, x, ends: F.grouped_mm(s.w, x, offs=ends), w=randn(4, 8, 16))
    ends = torch.tensor([8, 16, 24, 40], dtype=torch.int32)
    assert macs(columns, randn(16, 40), ends) == (8 * 16 * 40, 8 * 16 * 40)


def test_grouped_products_that_run_with_values_are_right() -> None:
    from rooflens.trace import fused  # noqa: F401  (defines the operation)

    x, w, ends = randn(10, 4), randn(3, 4, 5), torch.tensor([2, 2, 10])
    product = torch.ops.rooflens._grouped_mm(x, w, ends, None)
    assert torch.allclose(product, torch.cat([x[:2] @ w[0], x[2:10] @ w[2]]))
    by_group = torch.ops.rooflens._grouped_mm(x.t(), randn(10, 5), ends, None)
    assert by_group.shape == (3, 4, 5)
    assert not by_group[1].any()  # no row chose the second


# Attention -----------------------------------------------------------------------------------------------------------


def test_grouped_queries_with_a_mask_and_wider_values() -> None:
    # 2 x 6 query heads, 5 queries and 7 keys of width 8, values of 12.
    one = 2 * 6 * 35
    module = Calls(lambda s, q, k, v, m: sdpa(q * s.one, k * s.one, v * s.one, m, enable_gqa=True), one=torch.ones(1))
    inputs = (randn(2, 6, 5, 8), randn(2, 2, 7, 8), randn(2, 2, 7, 12), torch.ones(5, 7, dtype=torch.bool))
    assert macs(module, *inputs) == (one * 20, 2 * one * 20)


def test_a_mask_that_learns_needs_the_gradient_of_the_weights() -> None:
    module = Calls(lambda s, q, k, v: sdpa(q, k, v, attn_mask=s.m), m=randn(5, 7))
    # 6 heads x 35 pairs: width 8 and values of 4; back only the gradient times the values.
    assert macs(module, randn(2, 3, 5, 8), randn(2, 3, 7, 8), randn(2, 3, 7, 4)) == (210 * 12, 210 * 4)


@pytest.mark.parametrize("function", [torch.ops.aten.scaled_dot_product_attention, flash_for_cpu])
def test_attention_by_torchs_own_operations(function: Callable[..., Tensor]) -> None:
    module = Calls(lambda s, q, k, v: function(q, k, v))
    assert forward(module, randn(2, 3, 5, 8), randn(2, 3, 7, 8), randn(2, 3, 7, 8)) == 2 * 3 * 35 * 16


def test_attention_without_a_fused_kernel_is_written_out() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return sdpa(self.layer(x), x, x)

    module, x = Calls(run, layer=nn.Linear(8, 8, bias=False)), randn(1, 2, 5, 8)
    # 10 rows of 64, 2 heads x 25 pairs x 16; back the layer's weight, and for queries alone: weights and queries.
    assert macs(module, x) == (640 + 800, 640 + 800)
    names = {record.name for record in rl.estimate(module, inputs=x)}
    assert {"bmm", "_softmax"} <= names or {"bmm", "_safe_softmax"} <= names
    assert "attention" not in names


def test_attention_differentiated_twice() -> None:
    def penalty(self: Any, x: Tensor, backend: SDPBackend) -> Tensor:
        with torch.enable_grad(), sdpa_kernel(backend):
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(sdpa(self.layer(x), x, x).sum(), x, create_graph=True)
        return gradient.pow(2).sum()

    module, x = Calls(penalty, layer=nn.Linear(8, 8, bias=False)), randn(2, 5, 8)
    # No fused kernel has a second derivative; the error says what has.
    with pytest.raises(ModelError, match=r"no second derivative.*SDPBackend.MATH"):
        train(module, x, SDPBackend.FLASH_ATTENTION)
    written_out = train(module, x, SDPBackend.MATH)
    # Layer and attention, and back through both to x: attention twice, the layer's input once.
    assert written_out.total("forward").macs == 640 + 800 + 2 * 800 + 640
    assert written_out.total("backward").matmul_flops not in (None, 0)


def test_flexible_attention() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    module = Calls(
        lambda s, q, k, v: flex.flex_attention(s.q(q), k, v, enable_gqa=True), q=nn.Linear(16, 16, bias=False)
    )
    inputs = (randn(2, 4, 16, 16), randn(2, 2, 16, 16), randn(2, 2, 16, 16))
    layer, attention = 2 * 4 * 16 * 256, 2 * 2 * 4 * 256 * 16
    # Back: the layer's weight, and the gradients of weights and of queries.
    assert macs(module, *inputs) == (layer + attention, layer + attention)


def test_multihead_attention_with_bias_keys_and_every_weight() -> None:
    # 2 x 5 tokens of 16: four projections; 5 queries against 5 keys and two added ones.
    layer, projection, attention = (
        nn.MultiheadAttention(16, 4, add_bias_kv=True, add_zero_attn=True),
        10 * 256,
        2 * 35 * 16,
    )
    module = Calls(lambda s, x: s.layer(x, x, x, average_attn_weights=False), layer=layer)
    assert macs(module, randn(5, 2, 16)) == (4 * projection + 2 * attention, 5 * projection + 4 * attention)


def test_encoder_with_padding_and_decoder_with_memory() -> None:
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[1, 4:] = True
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24, batch_first=True), 2)
    one = 12 * (4 * 256 + 2 * 16 * 24) + 2 * 2 * 36 * 16
    # Twice forward less the input of the first layer's query, key and value.
    assert macs(encoder, randn(2, 6, 16), src_key_padding_mask=mask) == (2 * one, 4 * one - 12 * 3 * 256)
    decoder = nn.TransformerDecoderLayer(16, 4, 24, batch_first=True)
    tokens, memory = 2 * 5, 2 * 7
    forward_ = tokens * (6 * 256 + 2 * 16 * 24) + memory * 2 * 256 + 2 * 2 * (25 + 35) * 16
    backward = 2 * forward_ - tokens * 3 * 256 - memory * 2 * 256
    assert macs(decoder, randn(2, 5, 16), randn(2, 7, 16)) == (forward_, backward)


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit:FutureWarning", "ignore:.*torch.jit:DeprecationWarning", "ignore:Converting a tensor"
)
def test_scripted_attention_and_recurrence() -> None:
    projections, attention = 4 * 10 * 256, 2 * 2 * 25 * 16
    layer = torch.jit.script(nn.MultiheadAttention(16, 4, batch_first=True).eval())
    assert forward(layer, *(randn(2, 5, 16),) * 3) == projections + attention
    # 14 vectors, 4 x 6 gates that read 5 and 6; back there is no gradient to the states of zeros.
    once = 14 * 24 * 11
    lstm = torch.jit.trace(nn.LSTM(5, 6), randn(7, 2, 5))
    assert macs(lstm, randn(7, 2, 5)) == (once, 2 * once - 14 * 24 * 5)
