"""How cases are named in a report, and how devices are told apart in its charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import get_args

from rooflens.records import Case
from rooflens.report.case_names import differing, name_of
from rooflens.report.charts import Dot, Series
from rooflens.report.figures.palette import Symbol, device_colour

SYMBOLS: tuple[Symbol, ...] = get_args(Symbol)
"""Of devices, beside their colours."""
CasePoint = tuple[Case, Dot]
"""A case, and its mark in a plot without its name."""


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


def device_series(points: Sequence[CasePoint]) -> tuple[Series, ...]:
    """Points of cases as one series per device, each with a colour and a symbol."""
    named = naming([case for case, _ in points])
    by_device: dict[str, list[Dot]] = {}
    for case, dot in points:
        by_device.setdefault(case.device or "", []).append(replace(dot, tip=(named(case), *dot.tip)))
    return tuple(
        replace(device_style(number, len(by_device)), name=device, dots=tuple(dots))
        for number, (device, dots) in enumerate(by_device.items())
    )


def device_style(number: int, devices: int) -> Series:
    """A series without points that has the colour and the symbol of a device among some."""
    return Series(name="", colour=device_colour(number, max(2, devices)), shape=SYMBOLS[number % len(SYMBOLS)])


def count(number: int, what: str) -> str:
    """A number of things: ``2 errors``; what has no plural (info) stays as it is."""
    return f"{number} {what}" if number == 1 or what == "info" else f"{number} {what}s"


def spread(values: Sequence[float]) -> str:
    """``, 3 to 5`` behind a median; nothing where all values read alike."""
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return "" if low == high else f", {low} to {high}"
