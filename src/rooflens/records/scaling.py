"""Scaling: a training step on several devices, compared with the same step on one."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.records.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Data parallel training on the devices of one machine, each with a whole batch (weak scaling).

    Attributes:
        devices: how many.
        alone: seconds of the whole step on one of them, the others idle.
        together: seconds of the whole step on all; of each sample, those of the slowest device.
        gradient_bytes: bytes of gradients that each device hands in.
        reduce: seconds of an all-reduce of that many bytes, alone.
        peaks: peak bytes allocated on each device, None where nobody counts them.
    """

    devices: int
    alone: Timing
    together: Timing
    gradient_bytes: int
    reduce: Timing
    peaks: tuple[int | None, ...] = ()

    @property
    def efficiency(self) -> float:
        """Throughput of all devices, over `devices` times the throughput of one."""
        return self.alone.median / self.together.median

    @property
    def bus_bytes(self) -> float:
        """Bytes that an all-reduce sends from each device, at least: 2 (n - 1) / n of the gradients.

        Each device sends n - 1 of n pieces twice, once to be summed and once as a sum (NCCL tests, "bus bandwidth").
        """
        return 2 * (self.devices - 1) / self.devices * self.gradient_bytes

    @property
    def bus_bandwidth(self) -> float:
        """Bytes per second in one direction that the all-reduce reached."""
        return self.bus_bytes / self.reduce.median

    def least_reduce(self, link: float) -> float:
        """Seconds that the all-reduce takes at least over a link whose rate counts both directions together."""
        return 2 * self.bus_bytes / link

    @property
    def exposed(self) -> float:
        """Seconds by which the step is longer than on one device: communication that no computation hides."""
        return self.together.median - self.alone.median
