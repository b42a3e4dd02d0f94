"""What the machine is like around a run: clocks, power, temperature, throttling, who else uses it.

Cards are asked through NVML (extra ``gpu``), processors through ``/proc`` and ``/sys``. What nobody tells is left out.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflens.records import Conditions, Scalar
from rooflens.sources.container import memory_left, text

BUSY_CARD = 0.10
"""Utilisation before a run above which somebody else is at work."""
BUSY_CORES = 0.1
"""Share of the machine's cores that other processes use during a run above which they disturb it."""
MOST_OF_FREE = 0.9
"""Share of the free memory that a measured model may take on a processor."""
CLOCK_CHANGE = 0.05
"""Relative change of the card's clock during a run above which it was not settled."""
_HARMLESS = {"GpuIdle", "None", "ApplicationsClocksSetting", "SyncBoost", "DisplayClockSetting", "All"}
"""NVML's reasons for a clock below the highest that are no sign of a hot or starved card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Processor seconds spent so far, by all and by this process with those that it started, and when."""

    busy: float
    own: float
    at: float


class Observer:
    """Looks at a machine around runs. Make it before the process touches the card, so that it sees what others hold.

    Args:
        where: ``cpu`` or ``cuda``.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.first = self.look()
        torch = sys.modules.get("torch")
        untouched = torch is None or not torch.cuda.is_initialized()
        self.held_by_others = card_memory_used() if where == "cuda" and untouched else None

    def look(self) -> dict[str, Scalar]:
        """The facts of this moment."""
        return dict(_card_facts() if self.where == "cuda" else _processor_facts())

    @contextmanager
    def around(self, notes: list[str], found: list[Conditions]) -> Iterator[None]:
        """Look before and after what runs inside; adds the conditions, and notes on what makes a time doubtful."""
        before, ticks = self.look(), _ticks()
        yield
        after, others = self.look(), _used_by_others(ticks, _ticks())
        if others is not None:
            after["cores used by others"] = round(others, 2)
        found.append(Conditions(before=before, after=after))
        notes.extend(doubts(before, after))
        if self.where == "cuda":
            notes.extend(_doubts_at_start(self.first))


def doubts(before: dict[str, Scalar], after: dict[str, Scalar]) -> Iterator[str]:
    """What two looks at a machine say against the time between them."""
    reasons = sorted({str(facts["throttled by"]) for facts in (before, after) if facts.get("throttled by")})
    if reasons:
        yield f"the card's clock was held down: {', '.join(reasons)}"
    was, now = _number(before, "clock"), _number(after, "clock")
    if "throttled by" in after and _number(before, "utilisation") and was and now and abs(now / was - 1) > CLOCK_CHANGE:
        yield f"the card's clock was not settled: {was / 1e6:.0f} MHz before, {now / 1e6:.0f} MHz after"
    if (_number(after, "cores used by others") or 0.0) > BUSY_CORES * (os.cpu_count() or 1):
        yield f"the processor was busy: other processes used more than {100 * BUSY_CORES:g} % of its cores meanwhile"


def _doubts_at_start(first: dict[str, Scalar]) -> Iterator[str]:
    used = _number(first, "utilisation")
    if used is not None and used > BUSY_CARD:
        yield f"the card was busy before anything ran here: {100 * used:.0f} % utilisation"


def _number(facts: dict[str, Scalar], name: str) -> float | None:
    value = facts.get(name)
    return value if isinstance(value, float) else None


def _used_by_others(before: Ticks | None, after: Ticks | None) -> float | None:
    """Cores that other processes kept busy between two looks."""
    if before is None or after is None or after.at <= before.at:
        return None
    return max(0.0, ((after.busy - before.busy) - (after.own - before.own)) / (after.at - before.at))


def card_memory_used() -> int | None:
    """Bytes that all processes together hold on the card, as nvidia-smi shows them; None where NVML is silent.

    The first form of the question counts what the driver keeps for itself as used; the second does not.
    """
    with _nvml() as (nvml, handle):
        if handle is None:
            return None
        return int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)


def reset_resident_peak() -> bool:
    """Let the process's peak of resident memory start anew; whether the system can do that (Linux: man 5 proc)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def resident() -> tuple[int, int] | None:
    """Bytes of memory that this process holds now and held at its peak; None where the system does not say."""
    fields = _fields(Path("/proc/self/status"))
    if "VmRSS" not in fields or "VmHWM" not in fields:
        return None
    now, peak = (1024 * int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    return now, peak


def bound_memory() -> None:
    """Let this process ask for no more memory than is free now, so that it fails and not the machine.

    Without it the system would kill some process, and not always the one that asked too much.
    """
    free = available_memory()
    held = _fields(Path("/proc/self/status")).get("VmData")
    if free is None or held is None:
        return
    import resource

    most = int(MOST_OF_FREE * free) + 1024 * int(held.split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def available_memory() -> int | None:
    """Bytes that this process could still get: of the machine, and of its control groups."""
    machine = _fields(Path("/proc/meminfo")).get("MemAvailable")
    if machine is None:
        return None
    free, left = 1024 * int(machine.split()[0]), memory_left()
    return free if left is None else min(free, left)


def driver_facts() -> dict[str, Scalar]:
    """What NVML knows of the driver and the card's limits."""
    with _nvml() as (nvml, handle):
        if handle is None:
            return {}
        facts: dict[str, Scalar] = {"driver": _words(nvml.nvmlSystemGetDriverVersion())}
        with _unless_unsupported(nvml):
            facts["power limit"] = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3  # from milliwatts
        with _unless_unsupported(nvml):
            facts["highest clock"] = 1e6 * nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)  # from MHz
        return facts


def _card_facts() -> Iterator[tuple[str, Scalar]]:
    """Clocks in Hz, power in W, temperature in degrees Celsius, utilisation from 0 to 1."""
    with _nvml() as (nvml, handle):
        if handle is None:
            return
        questions: dict[str, Callable[[], Scalar]] = {
            "clock": lambda: 1e6 * nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory clock": lambda: 1e6 * nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "throttled by": lambda: _reasons(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        }
        for name, ask in questions.items():
            with _unless_unsupported(nvml):
                yield name, ask()


def _reasons(nvml: Any, bits: int) -> str:
    """The names that NVML gives to the bits of a mask of throttle reasons."""
    prefix = "nvmlClocksThrottleReason"
    names = {name.removeprefix(prefix): getattr(nvml, name) for name in dir(nvml) if name.startswith(prefix)}
    return ", ".join(sorted(name for name, bit in names.items() if bits & bit and name not in _HARMLESS))


@contextmanager
def _unless_unsupported(nvml: Any) -> Iterator[None]:
    """Leave out what this card, or a container, does not tell."""
    try:
        yield
    except nvml.NVMLError:
        return


@contextmanager
def _nvml() -> Iterator[tuple[Any, Any]]:
    """NVML and the handle of torch's first card; the handle is None where there is no driver, card or binding."""
    try:
        import pynvml
    except ImportError:
        yield None, None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield pynvml, None
        return
    try:
        yield pynvml, _handle(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _handle(nvml: Any) -> Any:
    """The card that torch calls ``cuda:0``: the first of CUDA_VISIBLE_DEVICES, by index or by identifier."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    try:
        return nvml.nvmlDeviceGetHandleByIndex(int(first)) if first.isdigit() else nvml.nvmlDeviceGetHandleByUUID(first)
    except nvml.NVMLError:
        return None


def _processor_facts() -> Iterator[tuple[str, Scalar]]:
    folder = "/sys/devices/system/cpu/cpu0/cpufreq"
    governor = text(f"{folder}/scaling_governor").strip()
    if governor:
        yield "governor", governor
    clock = text(f"{folder}/scaling_cur_freq").strip()
    if clock.isdigit():
        yield "clock", 1e3 * int(clock)  # from kHz
    if hasattr(os, "getloadavg"):
        yield "load of the last minute", round(os.getloadavg()[0], 2)


def _ticks() -> Ticks | None:
    """Processor time so far; None where the system does not say."""
    words = text("/proc/stat").split("\n", 1)[0].split()
    if len(words) < 8 or words[0] != "cpu":
        return None
    user, nice, system, _, _, interrupts, soft = (int(word) for word in words[1:8])
    busy = (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
    own = sum(os.times()[:4])  # with the processes that it started and saw end: training on several devices
    return Ticks(busy=busy, own=own, at=time.monotonic())


def _fields(path: Path) -> dict[str, str]:
    pairs = (line.partition(":") for line in text(path).splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _words(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text
