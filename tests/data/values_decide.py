"""Models whose work follows from values of their inputs or buffers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Refine(nn.Module):
    """As many steps as an integer input says."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.step = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        x = self.enc(x)
        for _ in range(int(steps)):
            x = x + self.step(x)
        return x


class Packed(nn.Module):
    """A recurrent layer over sequences of the lengths that an input gives."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(32, 16, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.rnn(packed)[0].data


class Grid(nn.Module):
    """Positions for two images of as many patches as an input says."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, patches: Tensor, grid: Tensor) -> Any:
        places = torch.cat([torch.arange(h * w, dtype=patches.dtype) for h, w in grid.tolist()])
        return self.fc(patches + places[:, None])


class Above(nn.Module):
    """Layers for the rows above a threshold, which a buffer holds."""

    threshold: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.register_buffer("threshold", torch.tensor(2.5))

    def forward(self, x: Tensor) -> Any:
        return self.fc(x[x[:, 0] > self.threshold])


def refine() -> Any:
    return Refine().eval(), {"x": torch.zeros(10, 64), "steps": torch.tensor(8)}


def packed() -> Any:
    return Packed().eval(), {"x": torch.zeros(3, 7, 32), "lengths": torch.tensor([7, 3, 2])}


def grid() -> Any:
    return Grid().eval(), {"patches": torch.zeros(4 * 6 + 2 * 8, 16), "grid": torch.tensor([[4, 6], [2, 8]])}


def above(batch: int = 5) -> Any:
    return Above(), torch.arange(float(batch))[:, None].expand(batch, 8).contiguous()
