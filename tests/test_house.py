"""What holds for the source as a whole: one meaning for each name, no cycles, short functions with few imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import networkx
import pytest
from grimp import build_graph

import rooflens as rl

SOURCE = Path(rl.__file__).parent
MOST_MODULES_OF_A_NAME = 2
MOST_LINES = {"function": 60, "file": 400}
MOST_IMPORTS_IN_FUNCTIONS = 149
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[Path, ast.Module]:
    """Every module of the package, parsed."""
    return {path.relative_to(SOURCE): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}


def public_types(tree: ast.Module) -> Iterator[str]:
    """Names of the public classes of a module, and of its aliases of types: ``Name = Literal[...]``."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[0].isupper() and not name.isupper() and not is_type_variable(node.value):
                yield name


def is_type_variable(value: ast.expr) -> bool:
    """True for ``TypeVar("T")``, which names no concept."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function of a module, inner ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def imports_in_functions(tree: ast.Module) -> int:
    """Import statements that run when a function is called."""
    statements = {
        id(node)
        for function in functions(tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    return len(statements)


def cycles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Groups of modules that reach each other."""
    groups = networkx.strongly_connected_components(networkx.DiGraph(edges))
    return sorted(sorted(group) for group in groups if len(group) > 1)


def test_cycles_are_found() -> None:
    line = [("a", "b"), ("b", "c"), ("e", "a")]
    assert cycles(line) == []
    assert cycles([*line, ("c", "a")]) == [["a", "b", "c"]]


def test_no_module_reaches_itself_not_even_by_imports_inside_functions() -> None:
    graph = build_graph("rooflens", exclude_type_checking_imports=True, cache_dir=None)
    imports = ((module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module))
    assert cycles(imports) == []


def test_a_public_type_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for name in public_types(tree):
            homes[name].append(str(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_few_modules_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in trees():
        if path.name != "__init__.py":
            homes[path.name].append(str(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > MOST_MODULES_OF_A_NAME} == {}


def longer(sizes: Iterable[tuple[str, int]], most: int) -> dict[str, int]:
    """Those that are longer than they may be."""
    return {name: size for name, size in sizes if size > most}


def test_functions_and_files_are_short() -> None:
    """Public functions of the api, and the commands beside them, are as long as their options and docstrings."""
    sizes = (
        (f"{path}:{function.name}", (function.end_lineno or 0) - function.lineno + 1)
        for path, tree in trees().items()
        for function in functions(tree)
        if not (path.parts[0] == "api" and function.name in rl.__all__)
    )
    assert longer(sizes, MOST_LINES["function"]) == {}
    files = ((str(path), len((SOURCE / path).read_text(encoding="utf-8").splitlines())) for path in trees())
    assert longer(files, MOST_LINES["file"]) == {}


def test_imports_inside_functions_are_few() -> None:
    assert sum(map(imports_in_functions, trees().values())) <= MOST_IMPORTS_IN_FUNCTIONS


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a", 0),
        ("def f():\n    import a\n    def g():\n        from b import c", 2),
        ("class A:\n    import a", 0),
    ],
)
def test_imports_inside_functions_are_counted_once(source: str, expected: int) -> None:
    assert imports_in_functions(ast.parse(source)) == expected
