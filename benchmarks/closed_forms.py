"""Multiply-adds of the models of the counting benchmark, by closed form.

Each is a function of the model's dimensions, written from its paper or its source, independent of how rooflens counts.
Backward costs forward once for the gradient of the weights and once for that of the inputs, less the gradients that
are not asked for (`less`): those of the data, and of frozen weights.
"""

from __future__ import annotations

from typing import NamedTuple


class Macs(NamedTuple):
    """Multiply-adds of forward and of backward."""

    forward: int
    backward: int


def learning(forward: int, less: int) -> Macs:
    return Macs(forward, 2 * forward - less)


# Images --------------------------------------------------------------------------------------------------------------


def conv(c_in: int, c_out: int, kernel: int, size: int) -> int:
    """A square convolution with a result of size x size; `c_in` is that of a group."""
    return c_out * size**2 * c_in * kernel**2


def resnet18() -> Macs:
    # Four stages of two blocks of two 3 x 3; the first layer of stages two to four halves, and has a 1 x 1 beside it.
    first = conv(3, 64, 7, 112)
    forward = first + 4 * conv(64, 64, 3, 56) + 512 * 1000
    for c, size in ((128, 28), (256, 14), (512, 7)):
        forward += conv(c // 2, c, 3, size) + 3 * conv(c, c, 3, size) + conv(c // 2, c, 1, size)
    return learning(forward, less=first)


def linear_probe() -> Macs:
    # Only the head learns: the gradient of its weights.
    return Macs(resnet18().forward, 512 * 1000)


def resnext50() -> Macs:
    # Blocks of 1 x 1, 3 x 3 in 32 groups, 1 x 1 to twice the width. The 3 x 3 layer halves the size.
    first = conv(3, 64, 7, 112)
    forward, c_in, before = first + 2048 * 1000, 64, 56
    for width, size, blocks in ((128, 56, 3), (256, 28, 4), (512, 14, 6), (1024, 7, 3)):
        out = 2 * width
        grouped = conv(width // 32, width, 3, size)
        forward += conv(c_in, width, 1, before) + grouped + conv(width, out, 1, size) + conv(c_in, out, 1, size)
        forward += (blocks - 1) * (conv(out, width, 1, size) + grouped + conv(width, out, 1, size))
        c_in, before = out, size
    return learning(forward, less=first)


def mobilenet_v2() -> Macs:
    # Blocks of 1 x 1 up (not in the first), 3 x 3 depthwise, 1 x 1 down.
    first = conv(3, 32, 3, 112)
    forward, c_in, before = first, 32, 112
    for expansion, c_out, blocks, size in (
        (1, 16, 1, 112),
        (6, 24, 2, 56),
        (6, 32, 3, 28),
        (6, 64, 4, 14),
        (6, 96, 3, 14),
        (6, 160, 3, 7),
        (6, 320, 1, 7),
    ):
        for _ in range(blocks):
            inside = expansion * c_in
            up = conv(c_in, inside, 1, before) if expansion > 1 else 0
            forward += up + conv(1, inside, 3, size) + conv(inside, c_out, 1, size)
            c_in, before = c_out, size
    forward += conv(320, 1280, 1, 7) + 1280 * 1000
    return learning(forward, less=first)


def convnext_tiny() -> Macs:
    # 4 x 4 patches; blocks of 7 x 7 depthwise and an MLP of four times the width; 2 x 2 patches between stages.
    first = conv(3, 96, 4, 56)
    forward = first + 768 * 1000
    for width, size, blocks in ((96, 56, 3), (192, 28, 3), (384, 14, 9), (768, 7, 3)):
        forward += blocks * (conv(1, width, 7, size) + 2 * size**2 * width * 4 * width)
        forward += conv(width // 2, width, 2, size) if width > 96 else 0
    return learning(forward, less=first)


def unet(channels: int, levels: int, classes: int, size: int) -> Macs:
    def double(c_in: int, c_out: int, size: int) -> int:
        return conv(c_in, c_out, 3, size) + conv(c_out, c_out, 3, size)

    first = conv(3, channels, 3, size)
    forward = first + conv(channels, channels, 3, size) + conv(channels, classes, 1, size)
    for n in range(1, levels):
        width, half = channels * 2**n, size // 2**n
        forward += double(width // 2, width, half)  # down to this level
        forward += half**2 * width * (width // 2) * 2**2  # back up: every input meets a 2 x 2 kernel
        forward += double(width, width // 2, 2 * half)
    return learning(forward, less=first)


def generator() -> Macs:
    # Transposed: every input meets the whole 4 x 4 kernel; results of 4, 8, 16 and 32.
    first = 100 * 256 * 16
    forward = first + sum(
        size**2 * c_in * c_out * 16 for size, c_in, c_out in ((4, 256, 128), (8, 128, 64), (16, 64, 3))
    )
    return learning(forward, less=first)


def dilated_pyramid(c_in: int, c_out: int, branches: int, size: int) -> Macs:
    first = branches * conv(c_in, c_out, 3, size)
    return learning(first + conv(branches * c_out, c_out, 1, size), less=first)


def video() -> Macs:
    first = 8 * 56**2 * 3 * 32 * 27
    return learning(first + 8 * 28**2 * 32 * 64 * 27 + 4 * 14**2 * 64 * 128 * 27 + 128 * 10, less=first)


def bare_parameters(channels: int, classes: int, size: int) -> Macs:
    first = conv(3, channels, 3, size)
    return learning(first + channels * classes, less=first)


# Transformers --------------------------------------------------------------------------------------------------------


def attention(queries: int, keys: int, width: int) -> int:
    """Scores and weighted sum: every query meets every key twice, over all heads `width` wide."""
    return 2 * queries * keys * width


def layer(tokens: int, width: int, inside: int) -> int:
    """Projections of query, key, value and output, attention, and an MLP."""
    return tokens * (4 * width**2 + 2 * width * inside) + attention(tokens, tokens, width)


def vit_b_16() -> Macs:
    patches = conv(3, 768, 16, 14)
    return learning(patches + 12 * layer(14**2 + 1, 768, 4 * 768) + 768 * 1000, less=patches)


def swin_t() -> Macs:
    # Attention within windows of 7 x 7; between stages four neighbours become one of twice the width.
    patches = conv(3, 96, 4, 56)
    forward = patches + 768 * 1000
    for width, size, blocks in ((96, 56, 2), (192, 28, 2), (384, 14, 6), (768, 7, 2)):
        windows = (size // 7) ** 2
        forward += blocks * windows * layer(49, width, 4 * width)
        forward += size**2 * (4 * width // 2) * width if width > 96 else 0
    return learning(forward, less=patches)


def mixer() -> Macs:
    # One MLP across the 196 patches, one across the 768 channels.
    patches = conv(3, 768, 16, 14)
    forward = patches + 12 * (768 * 2 * 196 * 384 + 196 * 2 * 768 * 3072) + 768 * 1000
    return learning(forward, less=patches)


def encoder(layers: int, tokens: int, width: int, inside: int) -> Macs:
    # The data enter the first layer's query, key and value.
    return learning(layers * layer(tokens, width, inside), less=3 * tokens * width**2)


def encoder_decoder(layers: int, source: int, target: int, width: int, inside: int) -> Macs:
    # A decoder layer also asks the encoder: query and output for targets, key and value for sources.
    cross = 2 * target * width**2 + 2 * source * width**2 + attention(target, source, width)
    forward = layers * (layer(source, width, inside) + layer(target, width, inside) + cross)
    return learning(forward, less=3 * (source + target) * width**2)


def self_attention(tokens: int, width: int) -> Macs:
    forward = 4 * tokens * width**2 + attention(tokens, tokens, width)
    return learning(forward, less=3 * tokens * width**2)


def gpt2(layers: int, tokens: int, width: int, words: int) -> Macs:
    # The table of tokens learns, so every input has a gradient.
    return learning(layers * layer(tokens, width, 4 * width) + tokens * width * words, less=0)


def llama(layers: int, tokens: int, width: int, shared: int, inside: int, words: int) -> Macs:
    # Keys and values of fewer heads, `shared` wide; an MLP of three matrices.
    matrices = 2 * width**2 + 2 * width * shared + 3 * width * inside
    forward = layers * (tokens * matrices + attention(tokens, tokens, width)) + tokens * width * words
    return learning(forward, less=0)


def bert(layers: int, tokens: int, width: int) -> Macs:
    return learning(layers * layer(tokens, width, 4 * width), less=0)


def experts(tokens: int, width: int, inside: int, count: int) -> Macs:
    # Whatever the router decides, each token meets two experts.
    enter = tokens * width**2
    return learning(enter + tokens * width * count + tokens * 2 * 2 * width * inside, less=enter)


# Sequences and others ------------------------------------------------------------------------------------------------


def recurrent(gates: int, steps: int, width: int, hidden: int, layers: int, directions: int = 1) -> Macs:
    # Each gate reads the input (of upper layers: the outputs of all directions) and the own state. Backward is that of
    # one kernel for the layer, which gives the gradient of the initial state too.
    def one(inputs: int) -> int:
        return directions * steps * gates * hidden * (inputs + hidden)

    forward = one(width) + (layers - 1) * one(directions * hidden)
    return learning(forward, less=directions * steps * gates * hidden * width)


def cell_loop(steps: int, width: int, hidden: int) -> Macs:
    # No gradient of the data, and none of the state before the first step, which is zeros.
    forward = steps * 4 * hidden * (width + hidden)
    return learning(forward, less=steps * 4 * hidden * width + 4 * hidden * hidden)


def tied_words(words: int, width: int) -> Macs:
    return learning(width**2 + width * words, less=0)


def depthwise_sequence(steps: int, width: int, kernel: int) -> Macs:
    enter = steps * width * 2 * width
    return learning(enter + steps * width * kernel + steps * width**2, less=enter)


def recommender(batch: int, dense: int, tables: int, width: int) -> Macs:
    features = tables + 1
    top = (width + features**2) * 64 + 64
    forward = batch * (dense * 64 + 64 * width + features**2 * width + top)
    return learning(forward, less=batch * dense * 64)


def graph_convolution(nodes: int, features: int, hidden: int, classes: int) -> Macs:
    # Neither the features nor the adjacency matrix learn.
    enter, spread = nodes * features * hidden, nodes**2 * (hidden + classes)
    return learning(enter + spread + nodes * hidden * classes, less=enter + spread)
