"""Libraries are imported without torch's compiler, and get it when they use it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from rooflens.models import without_compiler
from rooflens.models.without_compiler import compiler_on_demand


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that stands for torch's compiler, and a library that names it while it is imported."""
    package = tmp_path / "toy_compiler"
    package.mkdir()
    (package / "__init__.py").write_text("from toy_compiler import utils\n")
    (package / "utils.py").write_text("def is_compile_supported(kind): return kind == 'cuda'\nlimit = 8\n")
    (tmp_path / "toy_library.py").write_text("from toy_compiler.utils import is_compile_supported\n")
    (tmp_path / "toy_user.py").write_text("import toy_compiler\nlimit = toy_compiler.utils.limit\n")
    (tmp_path / "toy_curious.py").write_text("from toy_compiler.utils import limit\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(without_compiler, "COMPILER", "toy_compiler")
    monkeypatch.setattr(without_compiler, "UTILITIES", "toy_compiler.utils")
    yield
    for name in [name for name in sys.modules if name.startswith("toy_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("compiler")
def test_a_library_that_only_names_the_compiler_loads_none_until_it_calls_it() -> None:
    with compiler_on_demand():
        library: Any = import_module("toy_library")
    assert not {"toy_compiler", "toy_compiler.utils"} & sys.modules.keys()
    assert library.is_compile_supported("cuda")
    assert not library.is_compile_supported("cpu")
    assert "toy_compiler" in sys.modules


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("library", ["toy_user", "toy_curious"])
def test_a_library_that_needs_more_of_it_gets_the_compiler_itself(library: str) -> None:
    with compiler_on_demand():
        import_module("toy_library")
        assert import_module(library).limit == 8
        assert sys.modules["toy_compiler.utils"].__file__
    assert sys.modules["toy_compiler"].__dict__["utils"] is sys.modules["toy_compiler.utils"]


@pytest.mark.usefixtures("compiler")
def test_functions_that_are_left_out_of_compiled_code_run_as_ever() -> None:
    before: Any = torch.compiler.disable

    def doubled(x: int) -> int:
        return 2 * x

    def tripled(x: int) -> int:
        return 3 * x

    with compiler_on_demand():
        disable: Any = torch.compiler.disable
        twice, thrice = disable(doubled), disable(reason="three")(tripled)
    assert torch.compiler.disable is before
    assert (twice(4), thrice(4)) == (8, 12)
