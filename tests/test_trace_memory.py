"""Memory by cause from storage lifetimes, against sums by hand. Blocks are rounded up to 512 bytes."""

from __future__ import annotations

import torch
from torch import nn

from rooflens.models import Example, make_step, sum_of_outputs
from rooflens.records import Memory
from rooflens.trace import trace

KIB = 1024


def memory(module: nn.Module, x: torch.Tensor, mode: str, optimizer: str = "none") -> Memory:
    example = Example(args=(x,))
    step = make_step("m", module, example, dtype="as-is", mode=mode, loss=sum_of_outputs, optimizer=optimizer)
    held = trace(step).memory
    assert held is not None
    return held


def layers() -> nn.Sequential:
    """Two square layers of width 256 without bias: 256 * 256 * 4 B = 256 KiB each."""
    return nn.Sequential(nn.Linear(256, 256, bias=False), nn.ReLU(), nn.Linear(256, 256, bias=False))


def test_inference_holds_two_activations_at_a_time() -> None:
    # A batch of 64 is 64 * 256 * 4 B = 64 KiB. While ReLU runs, its input and its output are alive.
    held = memory(layers(), torch.randn(64, 256), "inference")
    assert held == Memory(
        peak=(512 + 64 + 128) * KIB,
        parameters=512 * KIB,
        buffers=0,
        inputs=64 * KIB,
        activations=0,
        gradients=0,
        optimizer=0,
        kv_cache=0,
        temporaries=128 * KIB,
    )


def test_a_training_step_peaks_in_backward() -> None:
    held = memory(layers(), torch.randn(64, 256), "train")
    # The peak comes when the first layer's weight gradient is made: the second's (256 KiB) is there already.
    assert held.gradients == 512 * KIB
    # ReLU's output, saved for its own gradient and the second layer's, is gone by then. The output of the model and the
    # loss (one block of 512 B) are alive as in any training loop.
    assert held.activations == 64 * KIB + 512
    # Besides them: the gradient of the first layer's output, and the one that backward started from.
    assert held.temporaries == 64 * KIB + 512
    assert (held.parameters, held.inputs) == (512 * KIB, 64 * KIB)
    assert held.peak == (512 + 64 + 512 + 64 + 64) * KIB + 2 * 512


def test_the_optimizer_holds_its_state() -> None:
    # SGD with momentum keeps one number per parameter, Adam two; its step counters are in memory of the host.
    assert memory(layers(), torch.randn(64, 256), "train", "sgd").optimizer == 512 * KIB
    assert memory(layers(), torch.randn(64, 256), "train", "adam").optimizer == 1024 * KIB


def test_small_tensors_take_a_whole_block() -> None:
    held = memory(nn.Linear(2, 2), torch.randn(1, 2), "inference")
    assert (held.parameters, held.inputs, held.temporaries) == (1024, 512, 512)


def test_buffers_and_shared_storage_count_once() -> None:
    module = nn.Sequential(nn.Linear(256, 256, bias=False), nn.BatchNorm1d(256, affine=False)).eval()
    module.append(module[0])
    held = memory(module, torch.randn(64, 256), "inference")
    assert held.parameters == 256 * KIB
    assert held.buffers == 2 * KIB + 512  # running mean and variance of 1 KiB each, and a counter


def test_checkpointing_trades_memory_for_work() -> None:
    from torch.utils.checkpoint import checkpoint

    class Stack(nn.Module):
        def __init__(self, saving: bool) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(layers() for _ in range(8))
            self.saving = saving

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.saving else block(x)
            return x

    x = torch.randn(4096, 256)
    plain, saving = (memory(Stack(saving), x, "train") for saving in (False, True))
    assert plain.activations is not None
    assert saving.activations is not None
    # Each of 8 blocks saves its input and ReLU's output of 4 MiB; with checkpoints only its input. The first input is
    # the model's, and the output of the last block stays alive: 7 + 8 + 1 against 7 + 1.
    mib = 1024 * KIB
    assert plain.activations == 16 * 4 * mib + 512
    assert saving.activations == 8 * 4 * mib + 512
