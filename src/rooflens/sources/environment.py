"""Where and how records are made: versions, machine, switches and command; no host name, user or secret."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rooflens import __version__
from rooflens.host_limits import container_limits
from rooflens.records import Environment, Scalar
from rooflens.sources.command import harmless
from rooflens.sources.conditions import driver_facts

PACKAGES = ("torch", "torchvision", "timm", "transformers", "onnx", "numpy", "triton")


def capture(command: Sequence[str] | None = None) -> Environment:
    """The environment of this process.

    It has facts of torch only if that was imported before, since reading records must not import it, and facts of a
    card only if this process uses it: an estimate must not wake one.

    Args:
        command: the command line; default: that of the process.
    """
    return Environment(
        rooflens=__version__,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        command=harmless(sys.argv if command is None else command),
        versions={"python": platform.python_version(), **dict(_versions())},
        machine=_machine(),
        flags=_flags(),
        commit=_commit(),
    )


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(errors="replace"), re.MULTILINE)
        if match:
            return match.group(1).strip()
    return platform.processor() or platform.machine()


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, (_loaded_version if package in sys.modules else version)(package)
        except PackageNotFoundError:
            continue


@cache
def _loaded_version(package: str) -> str:
    """The version of a package that is imported: what is installed over it later does not run."""
    return version(package)


def _machine() -> dict[str, Scalar]:
    facts: dict[str, Scalar] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
    }
    facts |= container_limits()
    torch = sys.modules.get("torch")
    if torch is None:
        return facts
    facts["threads"] = torch.get_num_threads()
    if torch.cuda.is_initialized():
        properties = torch.cuda.get_device_properties(0)
        facts |= {
            "card": properties.name,
            "card memory": properties.total_memory,
            "cuda": torch.version.cuda or "",
            "cudnn": torch.backends.cudnn.version() or 0,
        }
        facts |= driver_facts()
    return facts


def _flags() -> dict[str, Scalar]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    from rooflens.models.precisions import tf32_allowed

    products, cudnn = tf32_allowed()
    return {
        "products may use TF32": products,
        "cudnn may use TF32": cudnn,
        "cudnn benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _commit() -> str | None:
    """The git revision of the working folder, None without one."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
