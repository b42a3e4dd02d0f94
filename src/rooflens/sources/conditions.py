"""The machine around a run: clocks, power, temperature, throttling, memory, and who else uses it.

Facts of cards come from NVML (extra ``gpu``), those of processors from ``/proc`` and ``/sys``. Unknown facts are left
out.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rooflens.host_limits import fields_of, text
from rooflens.records import Conditions, Scalar

BUSY_CARD = 0.10
"""Above this utilisation before a run, somebody else uses the card."""
BUSY_CORES = 0.1
"""Other processes disturb a run if they use more than this share of the machine's cores."""
LOADED = 0.5
"""Tasks that ran or waited in the last minute, over cores: above this, somebody else works on the machine."""
CLOCK_CHANGE = 0.05
"""Above this relative change during a run, the card's clock was not settled."""
BESIDE = "another thread of this program ran torch meanwhile: its work is in time and memory"
LOOKS, PAUSE = 5, 0.002
"""How often, and after how many seconds, other threads are looked at: they are seldom outside of torch for long."""
_HARMLESS = {"GpuIdle", "None", "ApplicationsClocksSetting", "SyncBoost", "DisplayClockSetting", "All"}
"""NVML's reasons for a lower clock that do not mean a hot or starved card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Processor seconds so far, of all processes and of this one with those that it started, and the time."""

    busy: float
    own: float
    at: float


@dataclass(slots=True)
class Observation:
    """What an observer saw around a run, and notes on what makes its time doubtful; complete after the run."""

    conditions: Conditions | None = None
    notes: list[str] = field(default_factory=list)


class Observer:
    """Looks at a machine around runs. Make it before the process touches the card: then it sees what others hold.

    Args:
        where: ``cpu`` or ``cuda``.
        untouched: whether this process has not touched the card; by default, torch is asked.
    """

    def __init__(self, where: str, *, untouched: bool | None = None) -> None:
        self.where = where
        self.first = self.look()
        if untouched is None:
            torch = sys.modules.get("torch")
            untouched = torch is None or not torch.cuda.is_initialized()
        self.held_by_others = card_memory_used() if where == "cuda" and untouched else None
        self.first |= _card_processes() if where == "cuda" and untouched else {}

    def look(self) -> dict[str, Scalar]:
        """The facts of now."""
        return _facts_of_card() if self.where == "cuda" else dict(_processor_facts())

    @contextmanager
    def around(self) -> Iterator[Observation]:
        """Look before and after what runs inside."""
        observation = Observation()
        before, ticks = self.look(), _ticks()
        beside = threads_in_torch()
        yield observation
        beside += threads_in_torch()
        after, others = self.look(), _used_by_others(ticks, _ticks())
        if others is not None:
            after["cores used by others"] = round(others, 2)
        observation.conditions = Conditions(before=before, after=after)
        observation.notes += doubts(before, after)
        if beside:
            observation.notes.append(BESIDE)
        if self.where == "cuda":
            observation.notes += _doubts_at_start(self.first)


def advice(where: str) -> Iterator[str]:
    """Yield what to stop, or to wait for, before a long measurement on torch's device type begins."""
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > LOADED * cores:
        yield (
            f"this machine is busy: in the last minute {load:.1f} tasks ran or waited for its {cores} cores; times come"
            " out longer than alone, so stop what runs beside, or wait"
        )
    facts = {**_facts_of_card(), **_card_processes()} if where == "cuda" else {}
    for doubt in _doubts_at_start(facts):
        yield f"{doubt}; times come out longer than alone, so stop what runs beside, or wait"


def doubts(before: dict[str, Scalar], after: dict[str, Scalar]) -> Iterator[str]:
    """Reasons to doubt a time, from the facts before and after it."""
    reasons = sorted({str(facts["throttled by"]) for facts in (before, after) if facts.get("throttled by")})
    if reasons:
        yield f"the card's clock was held down: {', '.join(reasons)}"
    was, now = _number(before, "clock"), _number(after, "clock")
    if "throttled by" in after and _number(before, "utilisation") and was and now and abs(now / was - 1) > CLOCK_CHANGE:
        yield f"the card's clock was not settled: {was / 1e6:.0f} MHz before, {now / 1e6:.0f} MHz after"
    if (_number(after, "cores used by others") or 0.0) > BUSY_CORES * (os.cpu_count() or 1):
        yield f"the processor was busy: other processes used more than {100 * BUSY_CORES:g} % of its cores meanwhile"


def threads_in_torch() -> int:
    """Return how often other threads of this process were seen in modules, in backward or in an optimizer."""
    torch = sys.modules.get("torch")
    if torch is None or torch.__file__ is None or threading.active_count() == 1:
        return 0
    parts = tuple(f"{Path(torch.__file__).parent / part}{os.sep}" for part in ("nn", "autograd", "optim"))
    seen = 0
    for _ in range(LOOKS):
        frames = [frame for thread, frame in sys._current_frames().items() if thread != threading.get_ident()]
        seen += sum(any(f.f_code.co_filename.startswith(parts) for f, _ in traceback.walk_stack(one)) for one in frames)
        time.sleep(PAUSE)
    return seen


def _doubts_at_start(first: dict[str, Scalar]) -> Iterator[str]:
    used = _number(first, "utilisation")
    if used is not None and used > BUSY_CARD:
        others = first.get(_PROCESSES)
        who = f", processes that hold memory of it: {others}" if others else ""
        yield f"the card was busy before anything ran here: {100 * used:.0f} % utilisation{who}"


def _number(facts: dict[str, Scalar], name: str) -> float | None:
    value = facts.get(name)
    return value if isinstance(value, float) else None


def _used_by_others(before: Ticks | None, after: Ticks | None) -> float | None:
    """Number of cores that other processes kept busy between two looks."""
    if before is None or after is None or after.at <= before.at:
        return None
    return max(0.0, ((after.busy - before.busy) - (after.own - before.own)) / (after.at - before.at))


def _facts_of_card() -> dict[str, Scalar]:
    return dict(_answers(_STATE))


def _card_processes() -> dict[str, Scalar]:
    """How many processes compute on the card, this one among them if it has touched it."""
    return dict(_answers({_PROCESSES: lambda nvml, card: len(nvml.nvmlDeviceGetComputeRunningProcesses(card))}))


def card_memory_used() -> int | None:
    """Bytes that all processes together hold on the card, as nvidia-smi shows them; None without NVML.

    Version 1 of NVML's call counts what the driver keeps for itself as used; version 2 does not.
    """
    with _nvml() as (nvml, handle):
        if handle is None:
            return None
        return int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)


def reset_resident_peak() -> bool:
    """Reset the process's peak of resident memory. True if the system can do that (Linux: man 5 proc)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def resident() -> tuple[int, int] | None:
    """Bytes that this process holds now and held at its peak; None where the system does not tell."""
    fields = fields_of(Path("/proc/self/status"))
    if "VmRSS" not in fields or "VmHWM" not in fields:
        return None
    now, peak = (1024 * int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    return now, peak


def driver_facts() -> dict[str, Scalar]:
    """The driver's version and the card's limits."""
    return dict(_answers(_LIMITS))


_Questions = Mapping[str, Callable[[Any, Any], Scalar]]
_LIMITS: _Questions = {
    "driver": lambda nvml, card: _decoded(nvml.nvmlSystemGetDriverVersion()),
    "power limit": lambda nvml, card: nvml.nvmlDeviceGetEnforcedPowerLimit(card) / 1e3,  # from milliwatts
    "highest clock": lambda nvml, card: 1e6 * nvml.nvmlDeviceGetMaxClockInfo(card, nvml.NVML_CLOCK_SM),  # from MHz
}
_PROCESSES = "processes on the card"
_STATE: _Questions = {
    "clock": lambda nvml, card: 1e6 * nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
    "memory clock": lambda nvml, card: 1e6 * nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_MEM),
    "power": lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card) / 1e3,
    "temperature": lambda nvml, card: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
    "utilisation": lambda nvml, card: nvml.nvmlDeviceGetUtilizationRates(card).gpu / 100,
    "throttled by": lambda nvml, card: _reasons(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card)),
}
"""Clocks in Hz, power in W, temperature in degrees Celsius, utilisation from 0 to 1."""


def _answers(questions: _Questions) -> Iterator[tuple[str, Scalar]]:
    """What NVML tells of torch's first card, without what this card, or a container, does not support."""
    with _nvml() as (nvml, card):
        for name, ask in questions.items() if card is not None else ():
            try:
                answer = ask(nvml, card)
            except nvml.NVMLError:
                continue
            yield name, answer


def _reasons(nvml: Any, bits: int) -> str:
    """NVML's names of the throttle reasons in a bit mask."""
    prefix = "nvmlClocksThrottleReason"
    names = {name.removeprefix(prefix): getattr(nvml, name) for name in dir(nvml) if name.startswith(prefix)}
    return ", ".join(sorted(name for name, bit in names.items() if bits & bit and name not in _HARMLESS))


@contextmanager
def _nvml() -> Iterator[tuple[Any, Any]]:
    """NVML and the handle of torch's first card; the handle is None without a driver, card or binding."""
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
    """The handle of torch's ``cuda:0``: the first of CUDA_VISIBLE_DEVICES, by index or by identifier."""
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
    """Processor time so far; None where the system does not tell."""
    columns = text("/proc/stat").split("\n", 1)[0].split()
    if len(columns) < 8 or columns[0] != "cpu":
        return None
    user, nice, system, _, _, interrupts, soft = map(int, columns[1:8])
    busy = (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
    own = sum(os.times()[:4])  # with the processes that it started and saw end: training on several devices
    return Ticks(busy=busy, own=own, at=time.monotonic())


def _decoded(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text
