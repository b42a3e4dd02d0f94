"""An explanation, as text and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from rooflens.costs import WorkTerm
from rooflens.explanation.chapters import Chapter, Explained
from rooflens.explanation.text import lines_of
from rooflens.records import Device, Work
from rooflens.records.calls import to_plain
from rooflens.roofline import bound


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
        return "\n".join(lines_of(self.chapters))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Explanation({', '.join(operation.calculation.call.name for operation in self.operations)})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f'<pre style="white-space: pre-wrap">{escape(self.text)}</pre>'

    @property
    def data(self) -> list[dict[str, Any]]:
        """The explanation for a program: one object per operation, numbers in FLOP, bytes and seconds."""
        return [
            {"case": chapter.title or None, **_plain(operation)}
            for chapter in self.chapters
            for operation in chapter.operations
        ]


def _plain(explained: Explained) -> dict[str, Any]:
    """One operation; numbers in FLOP, bytes and seconds."""
    calculation, kernel_work, floor = explained.calculation, explained.kernel_work, explained.floor
    return {
        "path": explained.path,
        "phase": explained.phase,
        "calls": explained.calls,
        "family": calculation.cost.family,
        "call": to_plain(calculation.call, layout=False),
        "formula": calculation.formula,
        "uncounted": calculation.uncounted,
        "flops": _plain_terms(calculation.flops),
        "kernel_flops": _plain_terms(calculation.kernel_flops),
        "bytes": _plain_terms(calculation.bytes),
        "work": _plain_work(explained.work),
        "kernel_work": None if kernel_work is None else _plain_work(kernel_work),
        "floor": None if floor is None else {"cause": floor.cause, "formula": floor.formula, **_plain_work(floor.work)},
        "bounds": {device.name: _plain_bound(explained.executed, device) for device in explained.devices},
        "notes": list(explained.notes),
    }


def _plain_terms(terms: tuple[WorkTerm, ...]) -> list[dict[str, Any]]:
    return [{"of": term.what, "expression": term.expression, "value": term.value} for term in terms]


def _plain_work(work: Work) -> dict[str, Any]:
    return {"flops": dict(work.flops), "bytes": dict(work.bytes)}


def _plain_bound(work: Work, device: Device) -> dict[str, Any]:
    shortest = bound(work, device)
    return {"seconds": shortest.seconds, "bound_by": shortest.bound_by, "shares": shortest.shares}
