"""Famous models layer by layer, by hand: channels, kernels and sizes are those of the papers and of torchvision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rooflens as rl
from rooflens.results import RecordSet


def conv(c_in: int, c_out: int, kernel: int, size: int) -> int:
    """Multiply-adds of a square convolution with a result of size x size: `c_in` is that of a group."""
    return c_out * size * size * c_in * kernel * kernel


def counted(model: str, batch: int) -> RecordSet:
    """A training step without optimizer; everything has a formula, and eval mode counts the same."""
    step = rl.estimate(model, batch=batch, mode="train", optimizer="none")
    assert step.coverage.uncounted == ()
    assert rl.estimate(model, batch=batch).total("forward").matmul_flops == step.total("forward").matmul_flops
    return step


def check(model: str, batch: int, forward: int, first: int, parameters: int) -> None:
    """`forward` and `first`, the first convolution, in multiply-adds per image.

    Backward costs forward once for weights and once for inputs, but the image needs no gradient.
    """
    step = counted(model, batch)
    assert step.total("forward").matmul_flops == 2 * batch * forward
    assert step.total("forward").macs == batch * forward
    assert step.total("backward").matmul_flops == 2 * batch * (2 * forward - first)
    assert step.parameters == parameters


def test_alexnet() -> None:
    # 224 -> 55 (kernel 11, stride 4, padding 2) -> pooled 27 -> 13 -> 6.
    first = conv(3, 64, 11, 55)
    convolutions = first + conv(64, 192, 5, 27) + conv(192, 384, 3, 13) + conv(384, 256, 3, 13) + conv(256, 256, 3, 13)
    forward = convolutions + 256 * 6 * 6 * 4096 + 4096 * 4096 + 4096 * 1000
    assert 2 * 256 * forward == 365_664_501_760
    check("alexnet", 256, forward, first, parameters=61_100_840)


def test_vgg16() -> None:
    # Two, two, three, three, three layers of 3 x 3, the size halved after each group.
    forward, c_in = 0, 3
    for size, channels, layers in ((224, 64, 2), (112, 128, 2), (56, 256, 3), (28, 512, 3), (14, 512, 3)):
        for _ in range(layers):
            forward += conv(c_in, channels, 3, size)
            c_in = channels
    forward += 512 * 7 * 7 * 4096 + 4096 * 4096 + 4096 * 1000
    assert 2 * 256 * forward == 7_920_775_331_840
    check("vgg16", 256, forward, conv(3, 64, 3, 224), parameters=138_357_544)


def test_resnet18() -> None:
    # Four stages of two blocks of two 3 x 3 layers; the first layer of a stage halves the size, and so does a 1 x 1
    # layer beside it (not in the first stage).
    first = conv(3, 64, 7, 112)
    forward = first + 4 * conv(64, 64, 3, 56)
    for c_in, channels, size in ((64, 128, 28), (128, 256, 14), (256, 512, 7)):
        forward += conv(c_in, channels, 3, size) + 3 * conv(channels, channels, 3, size) + conv(c_in, channels, 1, size)
    forward += 512 * 1000
    assert 2 * 256 * forward == 928_805_552_128
    assert 2 * 256 * (2 * forward - first) == 1_797_187_960_832
    check("resnet18", 256, forward, first, parameters=11_689_512)


def test_resnet50() -> None:
    # Blocks of 1 x 1 down, 3 x 3, 1 x 1 up to four times the width. torchvision halves the size in the 3 x 3 layer, so
    # the first 1 x 1 layer of a stage still sees the larger size. Each stage has a 1 x 1 layer beside its first block.
    first = conv(3, 64, 7, 112)
    forward, c_in, before = first, 64, 56
    for width, size, blocks in ((64, 56, 3), (128, 28, 4), (256, 14, 6), (512, 7, 3)):
        out = 4 * width
        forward += conv(c_in, width, 1, before) + conv(width, width, 3, size) + conv(width, out, 1, size)
        forward += conv(c_in, out, 1, size)
        forward += (blocks - 1) * (conv(out, width, 1, size) + conv(width, width, 3, size) + conv(width, out, 1, size))
        c_in, before = out, size
    forward += 2048 * 1000
    assert 2 * forward == 8_178_368_512
    check("resnet50", 1, forward, first, parameters=25_557_032)


# Kernel, expanded channels, result channels, size after the block, squeezed channels (0: no squeeze and excitation).
# Squeezed is a quarter of the expanded, to a multiple of 8 that is at least 90 % of it.
MOBILENET_V3_LARGE = (
    (3, 16, 16, 112, 0),
    (3, 64, 24, 56, 0),
    (3, 72, 24, 56, 0),
    (5, 72, 40, 28, 24),
    (5, 120, 40, 28, 32),
    (5, 120, 40, 28, 32),
    (3, 240, 80, 14, 0),
    (3, 200, 80, 14, 0),
    (3, 184, 80, 14, 0),
    (3, 184, 80, 14, 0),
    (3, 480, 112, 14, 120),
    (3, 672, 112, 14, 168),
    (5, 672, 160, 7, 168),
    (5, 960, 160, 7, 240),
    (5, 960, 160, 7, 240),
)


def test_mobilenet_v3_large() -> None:
    first = conv(3, 16, 3, 112)
    forward, c_in, before = first, 16, 112
    for kernel, expanded, out, size, squeezed in MOBILENET_V3_LARGE:
        if expanded != c_in:
            forward += conv(c_in, expanded, 1, before)
        forward += conv(1, expanded, kernel, size)  # depthwise
        forward += 2 * expanded * squeezed  # on one position: down and up
        forward += conv(expanded, out, 1, size)
        c_in, before = out, size
    forward += conv(160, 960, 1, 7) + 960 * 1280 + 1280 * 1000
    check("mobilenet_v3_large", 16, forward, first, parameters=5_483_032)
    # Depthwise layers cost in backward what they cost in forward, channel by channel.
    assert 1.9 < (2 * forward - first) / forward < 2.0


def test_vit_b_16() -> None:
    # 14 x 14 patches of 16 x 16 and a class token; 12 layers of 768 with 4 x 768 inside.
    tokens, width = 197, 768
    patches = conv(3, width, 16, 14)
    layer = tokens * (4 + 2 * 4) * width**2 + 2 * tokens**2 * width
    forward = patches + 12 * layer + width * 1000
    assert 2 * forward == pytest.approx(35.1e9, rel=1e-3)
    # No gradient of the image; the tokens of the first layer have one, for the class token and the positions.
    check("vit_b_16", 1, forward, patches, parameters=86_567_656)


def configuration(folder: Path, **fields: object) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return f"hf:{path}"


def test_gpt2_by_closed_form(tmp_path: Path) -> None:
    d, layers, vocabulary, batch, tokens = 48, 3, 101, 2, 16
    model = configuration(
        tmp_path, model_type="gpt2", n_embd=d, n_layer=layers, n_head=4, vocab_size=vocabulary, n_positions=32
    )
    step = rl.estimate(model, batch=batch, seq_len=tokens, mode="train", optimizer="none")
    # Per token and layer: query, key, value 3 d^2, output d^2, inside 2 x 4 d^2. Per layer every token meets each
    # token twice (scores, weighted sum) in d multiply-adds. The head: d x vocabulary.
    per_token = layers * 12 * d**2 + d * vocabulary
    forward = batch * (tokens * per_token + layers * 2 * tokens**2 * d)
    assert step.total("forward").macs == forward
    # The embedding learns, so every input has a gradient.
    assert step.total("backward").macs == 2 * forward
    # Biases 13 d with the two norms' 4 d; the head shares the table of tokens; 32 positions; the last norm.
    assert step.parameters == vocabulary * d + 32 * d + layers * (12 * d**2 + 13 * d) + 2 * d
    assert step.coverage.uncounted == ()


LLAMA = {
    "model_type": "llama",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def test_llama_by_closed_form(tmp_path: Path) -> None:
    d, inside, layers, shared, vocabulary, batch, tokens = 48, 80, 2, 16, 101, 2, 16
    # Query and output d^2 each; keys and values of 2 heads of 48 / 6 = 8; gate, up and down.
    matrices = 2 * d**2 + 2 * d * shared + 3 * d * inside
    forward = batch * (tokens * (layers * matrices + d * vocabulary) + layers * 2 * tokens**2 * d)
    step = rl.estimate(configuration(tmp_path, **LLAMA), batch=batch, seq_len=tokens, mode="train", optimizer="none")
    assert step.total("forward").macs == forward
    assert step.total("backward").macs == 2 * forward
    # Table and head apart; two norms per layer and a last one.
    assert step.parameters == 2 * vocabulary * d + layers * (matrices + 2 * d) + d
    assert step.coverage.uncounted == ()


def test_a_decoder_is_causal_and_shares_its_keys(tmp_path: Path) -> None:
    tokens = 16
    found = rl.estimate(configuration(tmp_path, **LLAMA), batch=1, seq_len=tokens, dtype="fp32")
    attention = [r for r in found if r.kind == "attention"]
    pairs = tokens * (tokens + 1) // 2
    # 6 heads of 8; two products.
    assert [r.kernel_work.matmul_flops for r in attention if r.kernel_work] == [2 * 2 * 6 * pairs * 8] * 2
    # Queries and result of 48, keys and values of 16, and at most a sum of exponentials per head and query.
    least = 4 * tokens * (2 * 48 + 2 * 16)
    assert all(r.work is not None and least <= r.work.bytes["dram"] <= least + 4 * 6 * tokens for r in attention)
