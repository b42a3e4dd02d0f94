"""torch's compiler is imported when it is used, and not when a library only names it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rooflens import without_compiler
from rooflens.without_compiler import compiler_on_demand

MARKS = """
def disable(fn, recursive=True, **how):
    fn.left_out = how
    return fn
def allow_in_graph(fn):
    fn.called_as_it_is = True
    return fn
def assume_constant_result(fn):
    if isinstance(fn, list): return [assume_constant_result(one) for one in fn]
    fn.kept = True
    return fn
def mark_static_address(t, guard=False):
    t.guarded = guard
optimize = "fast"
"""
UTILS = """
def is_compile_supported(kind): return kind == "cuda"
limit = 8
"""
FILES = {
    "toy_compiler/__init__.py": "from . import config\nfrom .marks import *\nfrom .utils import limit\n",
    "toy_compiler/config.py": "cache = True\n",
    "toy_compiler/marks.py": MARKS,
    "toy_compiler/utils.py": UTILS,
    "toy_vision.py": "from toy_compiler.utils import is_compile_supported\n",
    "toy_fakes.py": "import toy_compiler.config\ncache = toy_compiler.config.cache\n",
    "toy_backend/__init__.py": "from .standalone import build\n",
    "toy_backend/config.py": "graphs = False\n",
    "toy_backend/standalone.py": "import toy_compiler.marks\nbuild = 'built'\n",
    "toy_profiler.py": "import toy_backend.config\ngraphs = toy_backend.config.graphs\n",
    "toy_user.py": "import toy_compiler\nfound = toy_compiler.optimize\n",
    "toy_marks.py": "from toy_compiler.marks import optimize as found\n",
    "toy_limit.py": "from toy_compiler.utils import limit as found\n",
}


@pytest.fixture(autouse=True)
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that stands for torch's compiler, and libraries that name it."""
    for package in ("toy_compiler", "toy_backend"):
        (tmp_path / package).mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(without_compiler, "COMPILER", "toy_compiler")
    monkeypatch.setattr(without_compiler, "BACKEND", "toy_backend")
    monkeypatch.setattr(without_compiler, "UTILITIES", "toy_compiler.utils")
    monkeypatch.setattr(without_compiler, "ALONE", ("toy_compiler.config", "toy_backend.config"))
    compiler_on_demand()
    yield
    for name in [name for name in sys.modules if name.startswith("toy_")]:
        del sys.modules[name]


def ran() -> bool:
    """True if the code of the package has run."""
    return "toy_compiler.marks" in sys.modules


def test_what_only_names_it_or_reads_its_settings_runs_none_of_it() -> None:
    vision: Any = import_module("toy_vision")
    assert import_module("toy_fakes").cache
    assert not ran()
    assert vision.is_compile_supported("cuda")
    assert not vision.is_compile_supported("cpu")
    assert ran()


@pytest.mark.parametrize(("library", "found"), [("toy_user", "fast"), ("toy_marks", "fast"), ("toy_limit", 8)])
def test_what_uses_it_gets_it_whole_and_once(library: str, found: object) -> None:
    import_module("toy_vision")
    import_module("toy_fakes")
    shell = sys.modules["toy_compiler"]
    assert import_module(library).found == found
    whole: Any = sys.modules["toy_compiler"]
    assert whole is shell
    assert type(whole) is ModuleType
    assert whole.utils is sys.modules["toy_compiler.utils"]
    assert whole.marks is sys.modules["toy_compiler.marks"]
    assert whole.config is sys.modules["toy_compiler.config"]
    assert [inspect.getsource(part) for part in (whole.marks, whole.utils)] == [MARKS, UTILS]
    assert "from .marks" in inspect.getsource(whole)


def test_functions_that_it_leaves_out_run_as_they_are_until_it_is_there() -> None:
    compiler: Any = import_module("toy_compiler")

    def double(x: int) -> int:
        return 2 * x

    marked = compiler.disable(double, reason="no")
    assert (marked(4), marked.__name__, ran()) == (8, "double", False)
    assert compiler.disable(recursive=False)(double)(5) == 10
    assert compiler.graph_break() is None
    assert compiler.optimize == "fast"
    assert marked(4) == 8
    assert double.left_out == {"reason": "no"}  # type: ignore[attr-defined]
    assert compiler.disable.__module__ == "toy_compiler.marks"


def test_marks_of_functions_are_handed_on_when_it_is_there() -> None:
    compiler: Any = import_module("toy_compiler")

    @compiler.assume_constant_result  # type: ignore[untyped-decorator]
    @compiler.allow_in_graph  # type: ignore[untyped-decorator]
    def one() -> int:
        return 1

    def two() -> int:
        return 2

    class Cache:
        """Of a fixed length."""

    stays, left = Cache(), Cache()
    compiler.mark_static_address(stays, guard=True)
    compiler.mark_static_address(left)
    del left
    assert (one(), ran(), vars(one), vars(stays)) == (1, False, {}, {})
    assert compiler.assume_constant_result([two]) == [two]  # no function: the compiler itself sees to it
    assert ran()
    assert vars(one) == {"called_as_it_is": True, "kept": True}
    assert vars(two) == {"kept": True}
    assert vars(stays) == {"guarded": True}
    assert compiler.allow_in_graph.__module__ == "toy_compiler.marks"


def test_who_reads_a_setting_of_the_backend_loads_neither() -> None:
    """As torch's profiler does in every profile."""
    profiler: Any = import_module("toy_profiler")
    assert profiler.graphs is False
    assert not {"toy_backend.standalone", "toy_compiler.marks"} & {*sys.modules}
    backend: Any = sys.modules["toy_backend"]
    assert backend.build == "built"
    assert type(backend) is ModuleType
    assert ran()


def test_who_has_the_compiler_gets_the_backend_at_once() -> None:
    assert import_module("toy_user").found == "fast"
    import_module("toy_backend")
    assert "toy_backend.standalone" in sys.modules
