"""Modules of kinds that no library ships: each shows one thing that counters get wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class First(nn.Module):
    """Calls a layer and returns the first of its results."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)[0]
        return output


class SelfAttention(nn.Module):
    """A bare nn.MultiheadAttention on one sequence."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.attention(x, x, x)[0]
        return output


class Tokens(nn.Module):
    """A transformer of the transformers library, from tokens to logits or hidden states, without a cache."""

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, ids: Tensor) -> Tensor:
        output: Tensor = self.model(input_ids=ids, **self.options)[0]
        return output


class CellLoop(nn.Module):
    """An LSTM cell over (steps, width): one step at a time."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in x:
            state = self.cell(step, state)
        assert state is not None
        hidden: Tensor = state[0]
        return hidden


def double(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1), nn.ReLU(), nn.Conv2d(c_out, c_out, 3, padding=1), nn.ReLU()
    )


class UNet(nn.Module):
    """Down by max-pooling, up by transposed convolutions, with skips; the channels double at each level."""

    def __init__(self, channels: int, levels: int, classes: int) -> None:
        super().__init__()
        widths = [channels * 2**n for n in range(levels)]
        self.down = nn.ModuleList(double(3 if n == 0 else widths[n - 1], width) for n, width in enumerate(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in widths[-2::-1])
        self.merge = nn.ModuleList(double(2 * width, width) for width in widths[-2::-1])
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for n, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if n else x)
            skips.append(x)
        for skip, up, merge in zip(skips[-2::-1], self.up, self.merge, strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        logits: Tensor = self.head(x)
        return logits


class Experts(nn.Module):
    """Each token goes to its best two of several MLPs: how many tokens an expert gets depends on values."""

    def __init__(self, width: int, inside: int, experts: int) -> None:
        super().__init__()
        self.enter, self.router = nn.Linear(width, width), nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inside), nn.GELU(), nn.Linear(inside, width)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        total = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == n)
            total = total.index_add(0, rows, weights[rows, places, None] * expert(x[rows]))
        return total


class EinsumAttention(nn.Module):
    """Attention of einsums and bare parameters: no module, no linear layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (
            nn.Parameter(torch.randn(heads, width, width // heads) / width**0.5) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.einsum("btd,hde->bhte", x, weight) for weight in (self.q, self.k, self.v))
        weights = torch.einsum("bhie,bhje->bhij", q, k).softmax(-1)
        return torch.einsum("bhie,hde->bid", weights @ v, self.out)


class BareParameters(nn.Module):
    """Functional convolution and linear on parameters of the module itself."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(channels, 3, 3, 3) / 5)
        self.head = nn.Parameter(torch.randn(classes, channels) / channels**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.conv2d(x, self.kernel, padding=1).relu().mean((2, 3)), self.head)


class TiedWords(nn.Module):
    """The mean of the surrounding words, one layer, and the embedding again as the head."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(words, width), nn.Linear(width, width)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.layer(self.table(ids).mean(1)), self.table.weight)


class DepthwiseSequence(nn.Module):
    """The convolution module of a Conformer on (batch, width, steps)."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding="same", groups=width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.leave(F.silu(self.norm(self.depthwise(F.glu(self.enter(x), 1)))))
        return output


class Recommender(nn.Module):
    """Dense features and looked-up ones meet in products of all pairs, as in DLRM."""

    def __init__(self, dense: int, tables: int, width: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(1000, width) for _ in range(tables))
        self.top = nn.Sequential(nn.Linear(width + (tables + 1) ** 2, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        features = torch.stack([bottom, *(table(ids[:, n]) for n, table in enumerate(self.tables))], 1)
        pairs = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        score: Tensor = self.top(torch.cat([bottom, pairs], 1))
        return score


class GraphConvolution(nn.Module):
    """Two layers of A (X W) with a dense adjacency matrix A."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, hidden, bias=False), nn.Linear(hidden, classes, bias=False)

    def forward(self, adjacency: Tensor, x: Tensor) -> Tensor:
        scores: Tensor = adjacency @ self.second(torch.relu(adjacency @ self.first(x)))
        return scores


class DilatedPyramid(nn.Module):
    """Convolutions of several dilations in parallel, then 1 x 1, as in DeepLab."""

    def __init__(self, c_in: int, c_out: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Conv2d(c_in, c_out, 3, padding=d, dilation=d) for d in dilations)
        self.project = nn.Conv2d(len(dilations) * c_out, c_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.project(torch.cat([branch(x) for branch in self.branches], 1))
        return output


def generator() -> nn.Sequential:
    """DCGAN's: transposed convolutions from 100 numbers to an image of 32 x 32."""
    return nn.Sequential(
        nn.ConvTranspose2d(100, 256, 4, bias=False),
        nn.BatchNorm2d(256),
        nn.ReLU(),
        nn.ConvTranspose2d(256, 128, 4, 2, 1, bias=False),
        nn.BatchNorm2d(128),
        nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def video() -> nn.Sequential:
    """3-D convolutions on 8 frames of 56 x 56."""
    return nn.Sequential(
        nn.Conv3d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(64, 128, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
