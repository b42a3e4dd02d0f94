"""What a process can get of this host: free memory, and limits that control groups set (Linux; man 7 cgroups).

A limit may be set for the process's own group or for any group around it: a container's for the root that it sees, a
Slurm job's some levels below.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
UNLIMITED = 1 << 60
"""Without a limit, version 1 gives the largest multiple of a page, which is above this."""

MOST_OF_FREE = 0.9
"""Share of the free memory that a model may take on a processor."""


def container_limits() -> dict[str, float]:
    """The tightest limits: ``container cpus`` (cores) and ``container memory`` (bytes)."""
    limits: dict[str, float] = {}
    cores = [each for folder in _folders("cpu") if (each := _cores(folder)) is not None]
    if cores:
        limits["container cpus"] = min(cores)
    memory = [each for folder in _folders("memory") if (each := _most(folder)) is not None]
    if memory:
        limits["container memory"] = min(memory)
    return limits


def memory_left() -> int | None:
    """Bytes that the process can still get before it meets a limit; None without a limit.

    Pages of files count as used, but the system frees them before it enforces a limit.
    """
    return min((each for folder in _folders("memory") if (each := _left(folder)) is not None), default=None)


def available_memory() -> int | None:
    """Bytes that this process can still get: from the machine, and within its control groups."""
    machine = fields_of(Path("/proc/meminfo")).get("MemAvailable")
    if machine is None:
        return None
    free, left = 1024 * int(machine.split()[0]), memory_left()
    return free if left is None else min(free, left)


def bound_memory(beside: int = 1) -> tuple[int, int] | None:
    """Limit this process to the memory that is free now, or to its share of it; return the limits before, if it did.

    Otherwise the system would kill some process, and not always the one that asked for too much.

    Args:
        beside: processes that share the free memory, with this one.
    """
    free = available_memory()
    held = fields_of(Path("/proc/self/status")).get("VmData")
    if free is None or held is None:
        return None
    import resource

    most = int(MOST_OF_FREE * free / beside) + 1024 * int(held.split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([most, *known]), hard))
    return soft, hard


@contextmanager
def within_free_memory() -> Iterator[None]:
    """Limit this process to the memory that is free now, as long as the context lasts."""
    before = bound_memory()
    try:
        yield
    finally:
        if before is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, before)


def memory_kills() -> int | None:
    """Processes that the system has ended so far for lack of memory, here or on the machine; None if it does not tell.

    The kernel counts those of every group, and those of the machine.
    """
    files = (Path("/proc/vmstat"), *(folder / "memory.events" for folder in _folders("memory")))
    counts = [line.split()[1] for file in files for line in text(file).splitlines() if line.startswith("oom_kill ")]
    return sum(map(int, counts)) if counts else None


def _left(folder: Path) -> int | None:
    most = _most(folder)
    used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
    if most is None or used is None:
        return None
    statistics = dict(line.split(maxsplit=1) for line in text(folder / "memory.stat").splitlines() if " " in line)
    # Version 1 has one number for the group alone, and another (total_) with the groups inside it.
    files = (statistics.get(f"total_{name}", statistics.get(name, "0")) for name in ("inactive_file", "active_file"))
    return max(0, most - used + sum(map(int, files)))


def _most(folder: Path) -> int | None:
    most = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
    return None if most is None or most >= UNLIMITED else most


def _cores(folder: Path) -> float | None:
    values = text(folder / "cpu.max").split() or [
        text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    quota, period = values if len(values) == 2 else ("", "")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _folders(controller: str) -> Iterator[Path]:
    """The groups that may limit this process, from its own to the outermost that it sees."""
    for line in text(OWN).splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        base = GROUPS / controller if names else GROUPS
        own = base / path.strip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(base))


def _number(*files: Path) -> int | None:
    """The number in the first file that holds one."""
    return next((int(content) for file in files if (content := text(file).strip()).isdigit()), None)


def text(path: str | Path) -> str:
    """The text of a system file, "" if there is none."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def fields_of(path: Path) -> dict[str, str]:
    """The lines of a system file that have a name before a colon."""
    pairs = (line.partition(":") for line in text(path).splitlines())
    return {name: value.strip() for name, _, value in pairs}
