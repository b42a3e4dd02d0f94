"""Which code is a program's own, and which is installed: Python's, a package's, or that of this one."""

from __future__ import annotations

import sysconfig
from functools import partial
from pathlib import Path

_INSTALLED = (
    "<frozen",
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).parents[1]),
)


def is_installed(file: str) -> bool:
    """True if the code of a file is not the program's own."""
    return file.startswith(_INSTALLED)


def is_own_function(value: object) -> bool:
    """True if a function, method or property is the program's own, or is an object that may be."""
    while (inner := _inside(value)) is not None:
        value = inner
    code = getattr(value, "__code__", None)
    if code is not None:
        return not is_installed(code.co_filename)
    return not hasattr(value, "__text_signature__")  # which what is written in C has


def _inside(value: object) -> object:
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return value.func if isinstance(value, partial) else None
