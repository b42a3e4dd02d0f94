"""The tree of the modules of a model, and what each has done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from rooflens.records import Phase, Record, TracedModule
from rooflens.results import RecordSet

ITSELF = "(itself)"
"""Names what a module's own code does, beside the modules in it."""


@dataclass(slots=True, kw_only=True)
class Module:
    """A module in the tree, or one of the places outside of it: ``(loss)``, ``(optimizer)``.

    Attributes:
        path: dotted path, ``""`` for the root.
        name: last part of the path.
        depth: 0 for the root and for the places outside of it.
        traced: what it is, and its sizes; None where that is not known.
        own: records of the module itself that have work.
        timed: records of the module itself that have a time.
        children: the modules in it, in the order of the model, or else in that in which they first ran.
        repeats: true if it stands for the own work of another module, whose `own` and `timed` it holds again.
    """

    path: str
    name: str
    depth: int
    traced: TracedModule | None = None
    own: list[Record] = field(default_factory=list)
    timed: list[Record] = field(default_factory=list)
    children: dict[str, Module] = field(default_factory=dict)
    repeats: bool = False

    def walk(self) -> Iterator[Module]:
        """Yield the module and everything below it, parents first. A loop, since a path in a file may be very deep."""
        waiting = [self]
        while waiting:
            module = waiting.pop()
            yield module
            waiting.extend(reversed(module.children.values()))

    def records(self) -> list[Record]:
        """Return the records with work of the module and of everything below it."""
        return [record for module in self.walk() for record in module.own]


def modules(rs: RecordSet, phase: Phase | None = None, times: Iterable[Record] = ()) -> tuple[Module, ...]:
    """Return the root module and the places outside of it, holding the records of `phase` that have work.

    Modules come in the order of the model where it is known, else in that in which they first ran, also where the
    phase visits them in another one.

    Args:
        times: records that time the same case piece by piece.
    """
    root = Module(path="", name="", depth=0)
    outside: dict[str, Module] = {}
    for traced in next((record.modules for record in rs.records if record.modules is not None), ()):
        _inside(root, traced.path).traced = traced
    worked = [(record, False) for record in rs.records if record.work is not None]
    timed = [(record, True) for record in times if record.timing is not None and record.scope != "model"]
    for record, has_time in (*worked, *timed):
        if record.path.startswith("("):
            module = outside.setdefault(record.path, Module(path=record.path, name=record.path, depth=0))
        else:
            module = _inside(root, record.path)
        if phase in (None, record.phase):
            (module.timed if has_time else module.own).append(record)
    return (root, *outside.values())


def _inside(root: Module, path: str) -> Module:
    """Return the module of a path below the root, made where it is not there yet."""
    module = root
    for name in path.split(".") if path else ():
        if name not in module.children:
            below = name if module is root else f"{module.path}.{name}"
            module.children[name] = Module(path=below, name=name, depth=module.depth + 1)
        module = module.children[name]
    return module


def with_own_rows(tops: Iterable[Module]) -> Iterator[Module]:
    """Yield every module, parents first; where one works beside those in it, also its own work as if it were a module.

    So the rows below a module add up to it.
    """
    for module in (module for top in tops for module in top.walk()):
        yield module
        beside = any(each.own or each.timed for child in module.children.values() for each in child.walk())
        if beside and (module.own or module.timed):
            yield _own_row(module)


def _own_row(module: Module) -> Module:
    """Return a module that stands for the own work and parameters of another; its class and sizes are told there."""
    known = module.traced
    return Module(
        path=f"{module.path} {ITSELF}".strip(),
        name=ITSELF,
        depth=module.depth + 1,
        traced=known and replace(known, kind="", inputs=(), outputs=(), kernel_size=()),
        own=module.own,
        timed=module.timed,
        repeats=True,
    )
