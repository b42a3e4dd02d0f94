"""Modules that are equal: whatever one does with some arguments, the other does too, with tensors of the same sizes.

Two modules are equal if their classes, all attributes and all parts are, and if their parameters have the same shapes
and types. A layer may know its place in the stack, as long as its code uses that to find its own part of a cache alone.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

FEWEST = 3
"""Equal modules in a container from which on it pays not to run all."""
_PLACE = re.compile(r"(?:(?:layer|block)_?)?(?:idx|index|id|number)$")
_KEPT_APART = frozenset({"_parameters", "_buffers", "_modules"})
_LARGEST = 1_000
"""Items of the largest container that is compared by value."""


class Same:
    """An object that is equal to itself alone. It is kept, so that no other one gets its identity."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def equal_modules(root: nn.Module) -> dict[nn.Module, Hashable]:
    """Return the modules in lists and sequences that have equal ones beside them, with what equal ones share."""
    found: dict[nn.Module, Hashable] = {}
    for container in root.modules():
        if not isinstance(container, nn.ModuleList | nn.Sequential):
            continue
        outlines = {child: _outline(child) for child in container}
        alike = Counter(outlines.values())
        kinds = {child: kind_of(child) for child, outline in outlines.items() if alike[outline] >= FEWEST}
        equal = Counter(kinds.values())
        found |= {child: kind for child, kind in kinds.items() if equal[kind] >= FEWEST}
    return found


def _outline(module: nn.Module) -> Hashable:
    """Return what equal modules share, and others may: the classes of a module and of its parts, and its own sizes."""
    tensors = ((name, tensor) for part in (module._parameters, module._buffers) for name, tensor in part.items())
    own = tuple((name, None if tensor is None else _described(tensor)) for name, tensor in tensors)
    return type(module), own, tuple((name, type(part)) for name, part in module._modules.items())


def kind_of(module: nn.Module) -> Hashable:
    """Return what a module shares with those that are equal to it, and with no other."""
    tensors: dict[int, int] = {}
    return _kind(module, tensors)


def _kind(module: nn.Module, tensors: dict[int, int]) -> Hashable:
    kind, held = type(module), vars(module)
    if "forward" in held or any(hooks for name, hooks in held.items() if name.endswith("_hooks")):
        return Same(module)
    attributes = tuple(
        (name, frozen(value))
        for name, value in sorted(held.items())
        if name not in _KEPT_APART and not (_is_place(name, value) and _only_finds(module, name))
    )
    own = tuple(
        (name, None if tensor is None else (_described(tensor), tensors.setdefault(id(tensor), len(tensors))))
        for part in (module._parameters, module._buffers)
        for name, tensor in part.items()
    )
    parts = tuple((name, None if part is None else _kind(part, tensors)) for name, part in module._modules.items())
    return kind, attributes, own, parts


def places(module: nn.Module) -> frozenset[int]:
    """Return the places in a stack that a module and its parts know."""
    held = (item for part in module.modules() for item in vars(part).items())
    return frozenset(value for name, value in held if _is_place(name, value))


def frozen(value: Any) -> Hashable:
    """Return what equal values share, and no others; objects are equal to themselves alone."""
    if value is None or isinstance(value, bool | int | float | str | bytes | torch.dtype | torch.device | type):
        return type(value), value
    if isinstance(value, Tensor):
        return _described(value)
    if type(value) in (tuple, list, set, frozenset) and len(value) <= _LARGEST:
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return type(value), tuple(map(frozen, items))
    if type(value) in (dict, OrderedDict) and len(value) <= _LARGEST:
        return dict, tuple((frozen(key), frozen(item)) for key, item in value.items())
    if type(value) is partial:
        return partial, frozen(value.func), frozen(value.args), frozen(value.keywords)
    return Same(value)


def own_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors that a module and its parts hold, those of equal modules in the same order."""
    for part in module.modules():
        for held in (part._parameters, part._buffers, vars(part)):
            yield from (value for _, value in sorted(held.items(), key=_name) if isinstance(value, Tensor))


def _name(item: tuple[str, object]) -> str:
    return item[0]


def _described(tensor: Tensor) -> Hashable:
    if type(tensor) not in (Tensor, nn.Parameter, FakeTensor) or tensor.layout is not torch.strided or tensor.is_nested:
        return Same(tensor)
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad


def _is_place(name: str, value: object) -> bool:
    return type(value) is int and _PLACE.fullmatch(name) is not None


def _only_finds(module: nn.Module, name: str) -> bool:
    """True if the code of a module uses an attribute to look something up in what it is given, and for nothing else.

    It may hand it to parts of its own that do so.
    """
    return _parts_only_find(module, _handed_on(type(module), name))  # type: ignore[arg-type]


def _parts_only_find(module: nn.Module, handed: tuple[tuple[str, int | str], ...] | None) -> bool:
    return handed is not None and all(part in module._modules and _finds_it(module, part, at) for part, at in handed)


def _finds_it(module: nn.Module, part: str, place: int | str) -> bool:
    """True if a part of a module only looks something up by an argument, which has this name or place."""
    child = module._modules[part]
    if child is None:
        return True
    known = list(inspect.signature(type(child).forward).parameters.values())[1:]
    names = [one.name for one in known if one.kind is one.POSITIONAL_OR_KEYWORD]
    name = place if isinstance(place, str) else "".join(names[place : place + 1])
    handed = _handed_on(type(child), name, argument=True)  # type: ignore[arg-type]
    return name in names and _parts_only_find(child, handed)


@cache
def _handed_on(kind: type, name: str, argument: bool = False) -> tuple[tuple[str, int | str], ...] | None:
    """Return which parts of a module get an attribute of it, or an argument of its `forward`, and as which argument.

    None if the code of the class uses the value for more than to look something up.
    """
    found: list[tuple[str, int | str]] = []
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == "torch" or base is object:
            continue
        if argument and "forward" not in vars(base):
            continue
        try:
            tree: ast.AST = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            return None
        if argument:
            own = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "forward")
            if (forward := next(own, None)) is None:
                return None
            tree = forward
        for parents in _uses(tree, name, argument):
            if not _finds(parents):
                part = _part_that_takes(parents)
                if part is None:
                    return None
                found.append(part)
        if argument:
            break
    return tuple(found)


def _uses(tree: ast.AST, name: str, argument: bool, parents: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, ...]]:
    """Yield each use of an attribute outside of `__init__`, or of an argument, below the nodes around it."""
    if isinstance(tree, ast.FunctionDef) and tree.name == "__init__":
        return
    as_attribute = isinstance(tree, ast.Attribute) and tree.attr == name and isinstance(tree.ctx, ast.Load)
    if (isinstance(tree, ast.Name) and tree.id == name) if argument else as_attribute:
        yield (*parents, tree)
    for child in ast.iter_child_nodes(tree):
        yield from _uses(child, name, argument, (*parents, tree))


def _part_that_takes(nodes: tuple[ast.AST, ...]) -> tuple[str, int | str] | None:
    """The part of a module that is called with a use, and its argument; None if the use is anything else."""
    *_, around, use = nodes
    place: int | str | None = None
    if isinstance(around, ast.keyword):
        place, around = around.arg, nodes[-3]
    if not isinstance(around, ast.Call) or any(isinstance(given, ast.Starred) for given in around.args):
        return None
    if use in around.args:
        place = around.args.index(use)
    called = around.func
    if place is None or not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return None
    return (called.attr, place) if called.value.id == "self" else None


def _finds(nodes: tuple[ast.AST, ...]) -> bool:
    """True if a use is an argument of an object's method, or an index, of something other than self and configuration.

    What it finds there is compared where it is handed in.
    """
    *_, around, use = nodes
    if isinstance(around, ast.keyword):
        around = nodes[-3]
    if isinstance(around, ast.Call) and use is not around.func:
        used = around.func.value if isinstance(around.func, ast.Attribute) else None
    elif isinstance(around, ast.Subscript) and use is around.slice:
        used = around.value
    else:
        return isinstance(around, ast.FormattedValue)
    while isinstance(used, ast.Attribute | ast.Subscript):
        if isinstance(used, ast.Attribute) and "config" in used.attr:
            return False
        used = used.value
    return isinstance(used, ast.Name) and used.id != "self" and "config" not in used.id
