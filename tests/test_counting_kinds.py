"""Models whose tensors or modules are out of the ordinary: scripted, sparse, packed, quantised, lazy."""

from __future__ import annotations

from math import log2
from typing import Any

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.errors import ModelError

SCRIPTING = pytest.mark.filterwarnings(
    "ignore:.*torch.jit:FutureWarning", "ignore:.*torch.jit:DeprecationWarning", "ignore:Converting a tensor"
)


def forward(module: nn.Module, *inputs: Any, **options: Any) -> float | None:
    est = rl.estimate(module, inputs=inputs, **options)
    assert est.coverage.uncounted == ()
    return est.total("forward").matmul_flops


class Inner(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.last = inner, nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.last(self.inner(x))
        return output


@SCRIPTING
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_scripts_are_run_on_a_copy(kind: str) -> None:
    module = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)).train()
    script = torch.jit.script(module) if kind == "script" else torch.jit.trace(module, torch.randn(4, 16))
    before = {name: tensor.clone() for name, tensor in script.state_dict().items()}
    for outer, more in ((script, 0), (Inner(script), 2 * 4 * 8 * 2)):
        est = rl.estimate(outer, inputs=torch.randn(4, 16), mode="train", optimizer="none")
        assert est.total("forward").matmul_flops == 2 * 4 * 16 * 8 + more
        assert any("script" in note for note in est.notes)
    assert all(torch.equal(before[name], tensor) for name, tensor in script.state_dict().items())
    assert all(p.grad is None for p in script.parameters())


class Sparse(nn.Module):
    """A sparse matrix of 8 x 16 with 40 elements stored."""

    weight: torch.Tensor

    def __init__(self, layout: str, registered: bool) -> None:
        super().__init__()
        dense = torch.zeros(8, 16)
        dense.view(-1)[torch.randperm(128, generator=torch.Generator().manual_seed(0))[:40]] = 1.0
        weight = dense.to_sparse_csr() if layout == "csr" else dense.to_sparse()
        if registered:
            self.register_buffer("weight", weight)
        else:
            self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight @ x


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("registered", [True, False])
def test_of_a_sparse_matrix_only_what_is_stored_is_multiplied(layout: str, registered: bool) -> None:
    assert forward(Sparse(layout, registered), torch.randn(16, 5)) == 2 * 40 * 5


class Packed8(nn.Module):
    weight: torch.Tensor
    scales: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(24, 32, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(24, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._weight_int8pack_mm(x, self.weight, self.scales)


def test_eight_bit_weights_are_read_as_bytes_and_multiplied_in_the_inputs_type() -> None:
    est = rl.estimate(Packed8(), inputs=torch.randn(4, 32, dtype=torch.bfloat16))
    (product,) = (r.work for r in est if r.work is not None)
    # Each of the 4 x 24 results is scaled.
    assert product.flops == {"matmul.bf16": 2 * 4 * 32 * 24, "vector.fp32": 4 * 24}
    # Inputs of 2 bytes, weights of 1, scales and results of 2.
    assert product.bytes == {"dram": 2 * 4 * 32 + 24 * 32 + 2 * 24 + 2 * 4 * 24}


class Packed4(nn.Module):
    weight: torch.Tensor
    scales: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        # 8 features of 64 inputs at 4 bits: 256 bytes in tiles of int32, and a scale and zero per group of 32.
        self.register_buffer("weight", torch.zeros(1, 2, 8, 4, dtype=torch.int32))
        self.register_buffer("scales", torch.ones(2, 8, 2, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.ops.aten._weight_int4pack_mm(x, self.weight, 32, self.scales)
        return output


def test_four_bit_weights_are_half_a_byte_each() -> None:
    est = rl.estimate(Packed4(), inputs=torch.randn(4, 64, dtype=torch.bfloat16))
    (product,) = (r.work for r in est if r.work is not None)
    # Each of the 64 x 8 weights is scaled and shifted.
    assert product.flops == {"matmul.bf16": 2 * 4 * 64 * 8, "vector.fp32": 2 * 64 * 8}
    assert product.bytes == {"dram": 2 * 4 * 64 + 64 * 8 // 2 + 2 * 2 * 8 * 2 + 2 * 4 * 8}


def test_a_complex_product_is_four_real_ones_and_their_sums() -> None:
    class Complex(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b

    a, b = torch.randn(4, 6, dtype=torch.complex64), torch.randn(6, 5, dtype=torch.complex64)
    assert forward(Complex(), a, b) == 8 * 4 * 6 * 5


@pytest.mark.parametrize("mode", ["inference", "train"])
def test_a_complex_convolution_is_three_real_ones(mode: str) -> None:
    """3 kernels of 2 taps over 2 channels at 4 places: 48 complex multiply-adds of 6 FLOP."""
    layer = nn.Conv1d(2, 3, 2, bias=False, dtype=torch.complex64)
    done = rl.estimate(layer, inputs=torch.randn(1, 2, 5, dtype=torch.complex64), mode=mode)
    assert done.total("forward").matmul_flops == 6 * 48
    assert done.total("backward").matmul_flops == (6 * 48 if mode == "train" else None)


def test_bilinear_layers() -> None:
    # For each of 3 features: x1 W is 5 x 7 multiply-adds, and its product with x2 another 7.
    assert forward(nn.Bilinear(5, 7, 3), torch.randn(4, 5), torch.randn(4, 7)) == 2 * 4 * 3 * (5 * 7 + 7)


def test_an_embedding_bag_reads_its_rows() -> None:
    est = rl.estimate(nn.EmbeddingBag(1000, 16, mode="sum"), inputs=torch.zeros(3, 4, dtype=torch.int64))
    (bag,) = (r.work for r in est if r.kind == "gather" and r.work is not None)
    assert bag.flops == {"vector.fp32": 3 * 4 * 16}
    rows, indices, out = 12 * 16 * 4, 12 * 8, 3 * 16 * 4
    # Three offsets of 8 bytes besides, and small tables for backward.
    assert rows + indices + out <= bag.bytes["dram"] <= rows + indices + out + 3 * 8 + 3 * 12 * 8


@pytest.mark.parametrize(
    ("transform", "flops"),
    [
        (lambda x: torch.fft.fft(x.to(torch.complex64)), 5 * 4 * 64 * log2(64)),
        (torch.fft.rfft, 2.5 * 4 * 64 * log2(64)),
        (torch.fft.rfft2, 2.5 * 4 * 64 * log2(4 * 64)),
    ],
)
def test_fourier_transforms(transform: Any, flops: float) -> None:
    class Transforms(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = transform(x)
            return output

    est = rl.estimate(Transforms(), inputs=torch.randn(4, 64))
    (work,) = (r.work for r in est if r.kind == "fourier" and r.work is not None)
    assert work.flops == {"vector.fp32": flops}


def test_lazy_layers_say_what_to_do() -> None:
    with pytest.raises(ModelError, match=r"'0.weight' has no shape yet; call the model once"):
        rl.estimate(nn.Sequential(nn.LazyLinear(8)), inputs=torch.randn(4, 16))


def test_per_sample_gradients_through_vmap() -> None:
    class Mapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = torch.vmap(self.layer)(x)
            return output

    assert forward(Mapped(), torch.randn(4, 16)) == 2 * 4 * 16 * 8
