"""From the name of a node to the module that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx

LONGEST = 400
"""Characters of a path; longer names are cut."""
_SCOPES = "namespace"
"""Metadata of torch's exporter: ``: Model/layer1: Sequential/layer1.0: Block/relu_1: aten.relu.default``."""
_REPEATED = re.compile(r"_\d+$")


def module_paths(nodes: Iterable[onnx.NodeProto]) -> dict[str, str]:
    """The path of every node, by node name (or, where it has none, by its first output)."""
    listed = list(nodes)
    scopes = {key_of(node): _scope(node) for node in listed}
    called = {scope[:depth] for scope in scopes.values() for depth in range(1, len(scope) + 1)}
    return {key: _clean(_joined(_first_call(scope, called))) for key, scope in scopes.items()}


def key_of(node: onnx.NodeProto) -> str:
    """The name of a node; if it has none, that of its first output."""
    return node.name or next(iter(node.output), "")


def shown(name: str) -> str:
    """A name from a file, cut if it is long, and without signs that cannot be printed."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[:LONGEST])


def _scope(node: onnx.NodeProto) -> tuple[str, ...]:
    """The modules around a node, outermost first, as the exporter wrote them."""
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            names = [scope.partition(": ")[0] for scope in entry.value.split("/")[:-1]]
            return (names[-1],) if names and names[-1] else ()
    name = node.name.strip("/")
    if "/" in name:
        return tuple(filter(None, name.split("/")[:-1]))
    numbered = re.compile(rf"(node_)?{re.escape(node.op_type)}[_\d]*", re.IGNORECASE)
    return () if not name or numbered.fullmatch(name) else (name,)


def _first_call(scope: tuple[str, ...], called: set[tuple[str, ...]]) -> tuple[str, ...]:
    """The scope of a module that is called again: the exporter numbers it ``relu_1``, but it is ``relu``."""
    first: tuple[str, ...] = ()
    for name in scope:
        bare = (*first, _REPEATED.sub("", name))
        first = bare if bare in called else (*first, name)
    return first


def _joined(scope: tuple[str, ...]) -> str:
    """The dotted path of a scope; ``layer1, layer1.0`` says the first module twice."""
    path: list[str] = []
    before = ""
    for name in scope:
        if before and name.startswith(f"{before}."):
            path.pop()
        path.append(name)
        before = name
    return ".".join(path)


def _clean(path: str) -> str:
    """A path of non-empty names. One in brackets would stand for work outside of the model."""
    names = [name for name in shown(path).split(".") if name]
    return ".".join(names).lstrip("(")
