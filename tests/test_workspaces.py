"""What libraries take for themselves. Every right value is derived by hand, or was measured on an H100 (torch 2.11)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.costs import Arithmetic
from rooflens.costs.workspaces import call_workspace
from rooflens.records import Call, Memory
from rooflens.records.operation import Tensor, dense_strides
from rooflens.report.memory_table import memory as memory_table

MIB = 2**20
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
TF32 = Arithmetic(products="tf32", convolutions="tf32")


def tensor(shape: tuple[int, ...], dtype: str, memory_format: str = "contiguous") -> Tensor:
    return Tensor(shape, dtype, math.prod(shape) * BYTES[dtype], None, dense_strides(shape, memory_format), 0)


def convolution(
    image: tuple[int, ...],
    outputs: int,
    kernel: tuple[int, int],
    of: str,
    dtype: str = "fp32",
    *,
    stride: int = 1,
    groups: int = 1,
    memory_format: str = "contiguous",
) -> Call:
    """A padded convolution's call: forward, or the gradient of the input or of the weight."""
    result = (image[0], outputs, *(math.ceil(side / stride) for side in image[2:]))
    x, y = tensor(image, dtype, memory_format), tensor(result, dtype, memory_format)
    w = tensor((outputs, image[1] // groups, *kernel), dtype, memory_format)
    settings: tuple[tuple[str, Any], ...] = (
        ("stride", (stride, stride)),
        ("padding", tuple(k // 2 for k in kernel)),
        ("dilation", (1, 1)),
        ("transposed", False),
        ("output_padding", (0, 0)),
        ("groups", groups),
    )
    if of == "forward":
        return Call("convolution", (("input", x), ("weight", w), ("bias", None), *settings), (y,), 0, 0, 0)
    mask = (of != "weight", of != "input", False)
    operands = (("grad_output", y), ("input", x), ("weight", w), *settings, ("output_mask", mask))
    return Call("convolution_backward", operands, (), 0, 0, 0)


MEASURED = [
    # FFT of 32 x 32: 32 x 17 complex numbers of 8 bytes = 4352 for each of 64 x 256 images and 128 x 128 filters.
    (((64, 128, 28, 28), 128, (3, 3), "input"), 4352 * (64 * 256 + 128 * 128)),
    # An image of 112 has 4 x 4 tiles of 30: two buffers for images and results.
    (((64, 128, 112, 112), 128, (3, 3), "input"), 4352 * (2 * 64 * 256 + 128 * 128)),
    # FFT of 16 x 16, forward: 16 x 9 x 8 = 1152; filters twice, and flipped (4 x 256 x 256 x 9 bytes).
    (((256, 256, 14, 14), 256, (3, 3), "forward"), 1152 * (256 * 512 + 2 * 256 * 256) + 4 * 256 * 256 * 9),
    # Seen with 512 channels, 14 x 14: 652.2 MB. Smaller images of as many FLOP need none.
    (((32, 512, 14, 14), 512, (3, 3), "forward"), 1152 * (32 * 1024 + 2 * 512 * 512) + 4 * 512 * 512 * 9),
    (((32, 1024, 7, 7), 1024, (3, 3), "forward"), 0),
    # FFT of 32 x 32, forward: 4352 for each of 32 x 256 images and twice 128 x 128 filters (seen: 178.8 MB).
    (((32, 128, 28, 28), 128, (3, 3), "forward"), 4352 * (32 * 256 + 2 * 128 * 128) + 4 * 128 * 128 * 9),
    # Winograd of 9 x 9 for 5 x 5: 13 x 13 numbers, 3 x 3 tiles.
    (((256, 64, 27, 27), 192, (5, 5), "weight"), 4 * 169 * (256 * 9 * (64 + 192) + 64 * 192)),
    # Winograd of 4 x 4 for 3 x 3: 6 x 6 numbers, 14 x 14 tiles.
    (((64, 64, 56, 56), 64, (3, 3), "weight"), 4 * 36 * (64 * 196 * 128 + 64 * 64)),
]


@pytest.mark.parametrize(("shape", "nbytes"), MEASURED)
def test_algorithms_of_fp32(shape: tuple[Any, ...], nbytes: int) -> None:
    assert call_workspace(convolution(*shape), Arithmetic()) == nbytes


def test_tensor_cores_want_the_channels_last() -> None:
    # Copies of image (2 x 64 x 8 x 8), weight (32 x 64 x 9) and result (2 x 32 x 8 x 8), of 2 bytes.
    call = convolution((2, 64, 8, 8), 32, (3, 3), "forward", "bf16")
    assert call_workspace(call, Arithmetic()) == 2 * (8192 + 18432 + 4096)
    # Three channels of 2 bytes are padded to 16 bytes, of 4 bytes too.
    call = convolution((2, 3, 8, 8), 32, (5, 5), "forward", "fp16")
    assert call_workspace(call, Arithmetic()) == 16 * 2 * 64 + 2 * (32 * 75 + 4096)
    call = convolution((2, 3, 8, 8), 32, (5, 5), "forward")
    assert call_workspace(call, TF32) == 16 * 2 * 64 + 4 * (32 * 75 + 4096)


def test_few_channels_with_small_kernels_need_no_copies() -> None:
    # The first layer of many networks. Seen on an H100: forward needs none, in TF32 nor does the gradient of weights.
    image, outputs, kernel = (16, 3, 224, 224), 32, (3, 3)
    for of, dtype, arithmetic, copied in (
        ("forward", "bf16", Arithmetic(), False),
        ("weight", "bf16", Arithmetic(), True),
        ("forward", "fp32", TF32, False),
        ("weight", "fp32", TF32, False),
    ):
        call = convolution(image, outputs, kernel, of, dtype, stride=2)
        assert (call_workspace(call, arithmetic) > 0) == copied, (of, dtype)
    # 16 channels in TF32: copied for the gradient of the weights only; 64 channels for all.
    taken = [
        call_workspace(convolution((16, n, 56, 56), 64, kernel, of), TF32) > 0
        for n in (16, 64)
        for of in ("forward", "weight")
    ]
    assert taken == [False, True, True, True]


GROUPED = [
    # Image and result are copied: 2 x 96 x 112 x 112 and, with stride 2, 2 x 96 x 56 x 56 numbers (seen: 12,042,752 B).
    (((2, 96, 112, 112), 96, (3, 3), "forward"), {"stride": 2, "groups": 2}, 4 * 2 * 96 * (112**2 + 56**2)),
    # Of 9 groups 8 at once (seen with batch 32: 48,169,472 B).
    (((2, 432, 28, 28), 432, (3, 3), "forward"), {"stride": 2, "groups": 9}, 4 * 2 * 432 * (784 + 196) * 8 // 9),
    # 16 groups of 64 are too many, 16 of 80 are not; half of them at once.
    (((64, 1024, 7, 7), 1024, (3, 3), "forward"), {"groups": 16}, 0),
    (((64, 1280, 7, 7), 1280, (3, 3), "forward"), {"groups": 16}, 4 * 64 * 2 * 1280 * 49 // 2),
    (((1, 1280, 7, 7), 1280, (3, 3), "forward"), {"groups": 16}, 0),  # one image
    # Winograd of 4 x 4: 14 x 14 tiles of 6 x 6 numbers, 4 filters of 64 x 64 (seen: 2.26 times image and result).
    (
        ((64, 256, 56, 56), 256, (3, 3), "weight"),
        {"groups": 4},
        4 * 36 * (64 * 196 * 512 + 4 * 64 * 64),
    ),
    (((64, 256, 28, 28), 256, (3, 3), "forward"), {"groups": 32}, 0),  # 8 channels each
]


@pytest.mark.parametrize(("shape", "settings", "nbytes"), GROUPED)
def test_groups_in_fp32(shape: tuple[Any, ...], settings: dict[str, int], nbytes: int) -> None:
    image, outputs, kernel, of = shape
    call = convolution(image, outputs, kernel, of, stride=settings.get("stride", 1), groups=settings["groups"])
    assert call_workspace(call, Arithmetic()) == nbytes


def test_a_dilated_convolution_is_no_fft_and_no_winograd() -> None:
    for of in ("forward", "input", "weight"):
        call = convolution((64, 512, 28, 28), 512, (3, 3), of)
        dilated = replace(call, arguments=tuple((k, (2, 2) if k == "dilation" else v) for k, v in call.arguments))
        # Seen on an H100: most gradients of weights copy their operands, 64 x 512 x 28 x 28 twice and 512 x 512 x 9.
        copies = 4 * (2 * 64 * 512 * 784 + 512 * 512 * 9) if of == "weight" else 0
        assert call_workspace(dilated, Arithmetic()) == copies < call_workspace(call, Arithmetic())


def test_calls_of_one_shape_in_two_layouts_take_what_each_takes() -> None:
    shape = (64, 64, 40, 40), 64, (3, 3), "forward", "bf16"
    first, second = convolution(*shape, memory_format="channels_last"), convolution(*shape)
    assert first == second  # layouts do not tell calls apart
    assert [call_workspace(call, Arithmetic()) > 0 for call in (first, second, first)] == [False, True, False]


@pytest.mark.parametrize(
    "call",
    [
        convolution((64, 64, 56, 56), 64, (3, 3), "forward"),  # implicit product on general lanes
        convolution((64, 64, 56, 56), 64, (1, 1), "forward", "bf16"),  # a matrix product
        convolution((64, 64, 56, 56), 64, (3, 3), "weight", "bf16", groups=64),  # one per channel
        convolution((64, 64, 56, 56), 64, (3, 3), "input", "bf16", memory_format="channels_last"),
    ],
)
def test_no_workspace(call: Call) -> None:
    assert call_workspace(call, Arithmetic()) == 0


def test_a_backward_call_takes_the_most_of_its_gradients() -> None:
    shape = (64, 128, 28, 28), 128, (3, 3)
    both, for_input, for_weight = (
        call_workspace(convolution(*shape, of), Arithmetic()) for of in ("both", "input", "weight")
    )
    assert both == max(for_input, for_weight)
    assert for_input != for_weight


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (0, 64, 56, 56)])
@pytest.mark.parametrize("arithmetic", [Arithmetic(), TF32])
@pytest.mark.parametrize("of", ["forward", "both"])
def test_an_empty_batch_takes_nothing(shape: tuple[int, ...], arithmetic: Arithmetic, of: str) -> None:
    assert call_workspace(convolution(shape, 64, (3, 3), of), arithmetic) == 0


def held(module: nn.Module, shape: tuple[int, ...], **options: Any) -> Memory:
    found = rl.estimate(module, inputs=torch.empty(shape), **options).memory
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("device", "mode", "nbytes"),
    [
        ("h100-sxm", "inference", 33 * MIB),  # seen on an H100: 34,603,008 B
        ("h100-sxm", "train", 65 * MIB),  # 68,157,440 B: backward runs in a thread of its own
        ("t4", "inference", 8320 * 1024 + MIB),  # torch's source: 4096 KiB x 2 + 16 KiB x 8
        ("mi300x", "inference", 129 * MIB),
        ("cpu-generic", "inference", None),
    ],
)
def test_what_torch_keeps_for_products(device: str, mode: str, nbytes: int | None) -> None:
    if device == "cpu-generic":
        device = next(d.name for d in rl.devices() if d.kind == "cpu")
    assert held(nn.Linear(64, 64), (4, 64), device=device, mode=mode).workspace == nbytes


def test_without_products_nothing_is_kept() -> None:
    assert held(nn.ReLU(), (4, 64), device="h100-sxm").workspace == 0
    # No bias: no cublasLt (seen on a decoder: 33,554,432 B).
    assert held(nn.Linear(64, 64, bias=False), (4, 64), device="h100-sxm").workspace == 32 * MIB


def test_a_workspace_counts_where_it_tops_the_peak() -> None:
    """The first layer is the peak. The second one's copies count in so far as they top it."""
    layers = nn.Sequential(nn.Conv2d(8, 512, 3, padding=1, bias=False), nn.Conv2d(512, 8, 3, padding=1, bias=False))
    memory = held(layers.to(torch.bfloat16), (1, 8, 64, 64), device="h100-sxm", dtype="bf16")
    small, large, weights = 2 * 8 * 4096, 2 * 512 * 4096, 2 * 2 * 8 * 512 * 9
    assert memory.peak == small + large + small + weights
    # Both layers copy a small and a large tensor and a weight; while the second runs, its result is there too.
    assert memory.workspace == small + large + weights // 2
    assert memory.with_workspace == memory.peak + memory.workspace


def test_a_table_shows_workspaces_by_device() -> None:
    found = rl.estimate(nn.Linear(64, 64), inputs=torch.empty(4, 64), device=["h100-sxm", "t4"])
    table = memory_table(found)
    assert len(table.rows) == 2
    assert any(note.startswith("workspace:") for note in table.notes)
