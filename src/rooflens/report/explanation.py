"""Explanations as text and as plain data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rooflens.costs import Calculation, WorkTerm, result_names
from rooflens.records import Argument, Call, Device, Phase, Tensor, Work
from rooflens.records.calls import to_plain
from rooflens.roofline import bound
from rooflens.units import show

WIDTH = 80
_GLUE = "\N{NO-BREAK SPACE}"
_SHOWN = 4
"""A list of tensors shows this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One operation: how its formula gives its work, and what time that takes.

    Attributes:
        derivation: call, words, and the arithmetic of FLOP and bytes.
        path: the module that makes the call; None for an operation with shapes.
        phase: forward, backward or optimizer.
        calls: how often the same call is made there.
        work: what counts: the derivation's, unless the record that is explained says otherwise (a note tells).
        kernel_work: what a kernel needs for it, where that is less.
        devices: where a time is asked for.
        notes: what a reader must know.
    """

    derivation: Calculation
    path: str | None = None
    phase: Phase = "forward"
    calls: int = 1
    work: Work
    kernel_work: Work | None = None
    devices: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """The operations of one case; `title` is empty for an operation with shapes."""

    title: str
    operations: tuple[Explained, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The formulas of some operations with their numbers filled in: ``print(rl.explain("mm", shapes=...))``.

    Attributes:
        chapters: the operations, by case.
    """

    chapters: tuple[Chapter, ...]

    @property
    def operations(self) -> tuple[Explained, ...]:
        """Every operation that is explained."""
        return tuple(operation for chapter in self.chapters for operation in chapter.operations)

    @property
    def text(self) -> str:
        """The explanation for a person, 80 columns wide."""
        return "\n".join(_text(self))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Explanation({', '.join(operation.derivation.call.name for operation in self.operations)})"

    @property
    def data(self) -> list[dict[str, Any]]:
        """The explanation for a program: one object per operation, numbers in FLOP, bytes and seconds."""
        return [
            {"case": chapter.title or None, **_data(operation)}
            for chapter in self.chapters
            for operation in chapter.operations
        ]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A label and text beside it."""

    label: str
    text: str


_Block = _Entry | str
"""A paragraph, or a line with a label; an empty paragraph is an empty line."""


def _text(explanation: Explanation) -> Iterator[str]:
    for number, chapter in enumerate(explanation.chapters):
        if chapter.title:
            yield from [""] * bool(number)
            yield from _wrapped(chapter.title, "", "  ")
            yield ""
        for place, operation in enumerate(chapter.operations):
            yield from [""] * bool(place)
            yield from _wrapped(_title(operation), "", "  ")
            yield from _laid_out([*_counted(operation), *_timed(operation)])


def _title(explained: Explained) -> str:
    name, family = explained.derivation.call.name, explained.derivation.cost.family
    parts = [
        f"{explained.path}: {name}" if explained.path else name,
        explained.phase,
        f"{explained.calls} calls" if explained.calls > 1 else "",
        f"family {family}" if family != name else "",
    ]
    return ", ".join(filter(None, parts))


def _counted(explained: Explained) -> Iterator[_Block]:
    """The call, the formula in words, FLOP and bytes."""
    derivation = explained.derivation
    work = derivation.cost.work
    yield _written(derivation.call)
    for words in filter(None, derivation.words.replace("``", "").split("\n\n")):
        yield ""
        yield words
    yield ""
    if derivation.uncounted is not None:
        yield _Entry("FLOP", f"not counted: {derivation.uncounted}; unknown, which is not zero (bytes need no formula)")
    elif not derivation.flops:
        yield _Entry("FLOP", "none")
    yield from _lines(derivation.flops, "FLOP")
    if len(derivation.flops) > 1:
        yield _Entry("FLOP", f"together {_number(work.total_flops)} FLOP")
    if derivation.kernel_flops:
        yield ""
        yield "What a causal kernel executes; times are those of this:"
        yield from _lines(derivation.kernel_flops, "FLOP")
    yield ""
    yield from _lines(derivation.bytes, "B")
    yield _Entry("DRAM", f"together {_number(work.bytes['dram'])} B")
    for note in explained.notes:
        yield ""
        yield note


def _lines(lines: tuple[WorkTerm, ...], unit: str) -> Iterator[_Entry]:
    for line in lines:
        result = f"{_number(line.value)} {unit}"
        plain = line.expression in (str(line.value), f"{line.value} {unit}")
        yield _Entry(line.what, result if plain else f"{line.expression} = {result}")


def _timed(explained: Explained) -> Iterator[_Block]:
    for device in explained.devices:
        yield ""
        yield f"On {device.name}:"
        yield from _quotients(explained.kernel_work or explained.work, device)


def _quotients(work: Work, device: Device) -> Iterator[_Entry]:
    """Work over rate for each resource, the sums of those that share silicon, and the largest of all."""
    found = bound(work, device)
    silicon: dict[str, list[str]] = {}
    for resource, seconds in found.shares.items():
        ceiling = device.require(resource)
        computes = resource in work.flops
        amount = f"{_number(work.flops[resource])} FLOP" if computes else f"{_number(work.bytes[resource])} B"
        rate = show(ceiling.rate, "FLOP/s" if computes else "B/s")
        yield _Entry(resource, f"{amount} / {rate} ({ceiling.origin}) = {show(seconds, 's')}")
        silicon.setdefault(ceiling.silicon if computes else resource, []).append(resource)
    for resource in sorted(found.skipped):
        yield _Entry(resource, "no rate is known: left out")
    for unit, resources in silicon.items():
        if len(resources) > 1:
            total = sum(found.shares[resource] for resource in resources)
            yield _Entry(unit, f"{' + '.join(resources)} = {show(total, 's')} on one unit")
    by = f" by {found.bound_by}" if found.bound_by else ""
    yield _Entry("bound", f"{show(found.seconds, 's')}{by}, the largest: units and memory overlap")


def _laid_out(blocks: list[_Block]) -> Iterator[str]:
    """Lines of at most 80 columns, texts beside labels in one column."""
    column = 2 + max(len(block.label) for block in blocks if isinstance(block, _Entry)) + 2
    for block in blocks:
        if isinstance(block, _Entry):
            yield from _wrapped(_glued(block.text), f"  {block.label}".ljust(column), " " * (column + 2))
        else:
            yield from _wrapped(" ".join(block.split()), "  ", "  ") or [""]


def _wrapped(text: str, first: str, others: str) -> list[str]:
    lines = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return [line.replace(_GLUE, " ") for line in lines]


def _glued(text: str) -> str:
    """Broken in front of an operator only, and never inside of a number with its name or unit."""
    for sign in ("x", "/", "+", "-", "="):
        text = text.replace(f" {sign} ", f" {sign}{_GLUE}")
    for follower in ("(", "FLOP", "B"):
        text = text.replace(f" {follower}", f"{_GLUE}{follower}")
    return text


def _written(call: Call) -> str:
    """The call as it could be typed: name=shape:type."""
    given = ", ".join(f"{name}={_value(value)}" for name, value in call.arguments)
    results: dict[str, list[Tensor]] = {}
    for name, tensor in zip(result_names(call), call.outputs, strict=True):
        if tensor.elements:
            results.setdefault(name, []).append(tensor)
    made = ", ".join(f"{name}={_value(t[0] if len(t) == 1 else tuple(t))}" for name, t in results.items())
    return f"{given} -> {made or 'changed in place'}"


def _value(value: Argument) -> str:
    if isinstance(value, Tensor):
        return f"{'x'.join(map(str, value.shape)) or 'scalar'}:{value.dtype}"
    if isinstance(value, tuple):
        shown = value if len(value) <= _SHOWN else value[:_SHOWN]
        more = [f"{len(value) - len(shown)} more"] if len(shown) < len(value) else []
        return "[" + ", ".join([*map(_value, shown), *more]) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return str(value)


def _number(n: float) -> str:
    return f"{int(n):,}" if n == int(n) else f"{n:,}"


def _data(explained: Explained) -> dict[str, Any]:
    derivation = explained.derivation
    work, executed = explained.work, explained.kernel_work
    return {
        "path": explained.path,
        "phase": explained.phase,
        "calls": explained.calls,
        "family": derivation.cost.family,
        "call": to_plain(derivation.call),
        "formula": derivation.words,
        "uncounted": derivation.uncounted,
        "flops": _plain_lines(derivation.flops),
        "kernel_flops": _plain_lines(derivation.kernel_flops),
        "bytes": _plain_lines(derivation.bytes),
        "work": _plain_work(work),
        "kernel_work": None if executed is None else _plain_work(executed),
        "bounds": {device.name: _plain_bound(executed or work, device) for device in explained.devices},
        "notes": list(explained.notes),
    }


def _plain_lines(lines: tuple[WorkTerm, ...]) -> list[dict[str, Any]]:
    return [{"of": line.what, "expression": line.expression, "value": line.value} for line in lines]


def _plain_work(work: Work) -> Mapping[str, Any]:
    return {"flops": dict(work.flops), "bytes": dict(work.bytes)}


def _plain_bound(work: Work, device: Device) -> dict[str, Any]:
    found = bound(work, device)
    return {"seconds": found.seconds, "bound_by": found.bound_by, "shares": found.shares}
