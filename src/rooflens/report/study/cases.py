"""How cases are named in a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from rooflens.records import Case
from rooflens.report.case_names import differing, name_of
from rooflens.report.figures.palette import Symbol

SHAPES: tuple[Symbol, ...] = get_args(Symbol)
"""Of devices, beside their colours."""


def naming(cases: Sequence[Case]) -> Callable[[Case], str]:
    """What names each of some cases: the fields in which they differ, the device among them."""
    fields = differing(cases)
    several = len({case.device for case in cases}) > 1

    def named(case: Case) -> str:
        words = name_of(case, fields)
        return f"{words} on {case.device}" if several and case.device else words

    return named


def device_note(cases: Iterable[Case]) -> tuple[str, ...]:
    """The device that all cases share, where their names leave it out."""
    devices = {case.device for case in cases}
    return tuple(f"on {device}" for device in devices if device is not None and len(devices) == 1)


def count(number: int, what: str) -> str:
    """A number of things: ``2 errors``; what has no plural (info) stays as it is."""
    return f"{number} {what}" if number == 1 or what == "info" else f"{number} {what}s"


def spread(values: Sequence[float]) -> str:
    """``, 3 to 5`` behind a median; nothing where all values read alike."""
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return "" if low == high else f", {low} to {high}"
