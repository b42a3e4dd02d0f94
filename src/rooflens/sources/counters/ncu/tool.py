"""Nsight Compute's command line: where it is, its version and options, and how it is called."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from rooflens.errors import CountersUnavailable

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda-*/bin/ncu")
"""Where installers put it without adding it to the path."""
VARIABLE = "ROOFLENS_NCU"
"""Names the program where it is elsewhere."""
ASK_SECONDS = 60.0
PRINT_SECONDS = 600.0
CACHES = ("all", "none")
_LEAN = {
    "--import-sass": ("no",),
    "--import-source": ("no",),
    "--apply-rules": ("no",),
    "--disable-extra-suffixes": (),
}
"""What a report does not need: code, advice, and other forms of each counter. Versions differ in what they know."""
WAITING_KERNELS = "nccl"
"""What names of kernels begin with that wait for the same kernels of other processes."""
_VERSION = re.compile(r"Version (\d[\w.]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """An ncu that runs: its version, like ``2025.3.1.0``, and the names of its options."""

    path: str
    version: str
    options: frozenset[str]

    def command(
        self, metrics: Sequence[str], report: Path, *, cache: str, program: Sequence[str], several: bool = False
    ) -> list[str]:
        """Return the command line that runs a program and counts between its profiler marks.

        It says that clocks are left as they are, and how caches are controlled: defaults differ by version. Without the
        code of the kernels a report has a hundredth of the size. Where `several` processes may run, kernels that wait
        for those of others are left out: replayed, one would wait for ever.
        """
        return [
            self.path,
            "--force-overwrite",
            *("--export", str(report)),
            *("--target-processes", "all"),
            *("--clock-control", "none"),
            *("--cache-control", cache),
            *("--profile-from-start", "off"),
            *(word for option, value in _LEAN.items() if option in self.options for word in (option, *value)),
            *(("--kernel-name", f"regex:^(?!{WAITING_KERNELS})") if several else ()),
            "--nvtx",
            *("--metrics", ",".join(metrics)),
            *program,
        ]

    @contextmanager
    def printed(self, report: Path) -> Iterator[Iterator[str]]:
        """Open the lines of a report, as its raw page in CSV and base units; CountersUnavailable if ncu prints none."""
        page = [self.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
        plain = os.environ | {"LC_ALL": "C"}
        with subprocess.Popen(page, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=plain) as run:
            assert run.stdout is not None
            hang = threading.Timer(PRINT_SECONDS, run.kill)
            hang.start()
            try:
                yield iter(run.stdout)
                code = run.wait()
            finally:
                hang.cancel()
                run.stdout.close()
                run.kill()
        if code:
            raise CountersUnavailable(f"ncu cannot print {str(report)!r}: it ended with code {code}")


@cache
def find() -> Tool:
    """Return the ncu of this machine: the one that ``ROOFLENS_NCU`` names, else that on the path, else where CUDA lies.

    Raises:
        CountersUnavailable: there is none, or it does not run.
    """
    named = os.environ.get(VARIABLE)
    path = named or shutil.which("ncu") or _installed()
    if path is None:
        raise CountersUnavailable(
            "Nsight Compute (ncu) is not on this machine's path; install it (conda install -c nvidia nsight-compute, or"
            f" the CUDA toolkit), or name it in the variable {VARIABLE}"
        )
    with ThreadPoolExecutor(2) as both:
        told, help_ = both.map(partial(_asked, path), ("--version", "--help"))
    version = _VERSION.search(told)
    if version is None:
        raise CountersUnavailable(f"{path!r} does not tell its version as Nsight Compute does; is it another program?")
    options = frozenset(re.findall(r"--[a-z][a-z-]+", help_))
    return Tool(path=path, version=version[1], options=options)


def _installed() -> str | None:
    paths = (path for place in PLACES for path in sorted(Path("/").glob(place.removeprefix("/")), reverse=True))
    return next((str(path) for path in paths if os.access(path, os.X_OK)), None)


def _asked(path: str, question: str) -> str:
    try:
        answer = subprocess.run([path, question], capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CountersUnavailable(f"cannot run {path!r} {question}: {error}") from error
    return answer.stdout + answer.stderr
