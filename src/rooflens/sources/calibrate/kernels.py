"""Builds our own kernels where they run: CUDA C with the compiler that torch brings along, C with the system's."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC")
BUILD_SECONDS = 30


def source(name: str) -> str:
    """The text of a kernel file."""
    return (files("rooflens.sources.calibrate") / name).read_text(encoding="utf-8")


@cache
def cuda_kernel(name: str) -> Callable[..., Any]:
    """A kernel of kernels.cu, called as ``kernel(grid=(n, 1, 1), block=(256, 1, 1), args=[...])``.

    NVRTC needs neither a C compiler nor a CUDA toolkit, which Triton and torch's extensions do.

    Raises:
        RuntimeError, OSError, AttributeError: this torch cannot build it for this device.
    """
    with some_toolkit():
        kernel: Callable[..., Any] = torch.cuda._compile_kernel(source("kernels.cu"), name)
    return kernel


@contextmanager
def some_toolkit() -> Iterator[None]:
    """Give torch a folder where it wants a CUDA toolkit with headers: our kernels include none."""
    from torch.utils import cpp_extension

    before = cpp_extension.CUDA_HOME
    cpp_extension.CUDA_HOME = before or tempfile.gettempdir()
    try:
        yield
    finally:
        cpp_extension.CUDA_HOME = before


@cache
def c_library() -> ctypes.CDLL:
    """The functions of lanes.c.

    Raises:
        FileNotFoundError: no C compiler.
        RuntimeError: it failed.
    """
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CC"), *COMPILERS)))), None)
    if compiler is None:
        raise FileNotFoundError(f"no C compiler found: {', '.join(COMPILERS)}; set CC, or install one")
    with tempfile.TemporaryDirectory(prefix="rooflens-") as folder:
        text, built = Path(folder, "lanes.c"), Path(folder, "lanes.so")
        text.write_text(source("lanes.c"))
        command = [compiler, *FLAGS, str(text), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"{Path(compiler).name} failed: {done.stderr.strip()[-200:]}")
        return ctypes.CDLL(str(built))
