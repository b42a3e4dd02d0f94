"""Colours, dashes and shapes, the same in every backend.

Groups take the colours of Okabe and Ito (Color Universal Design, 2008), which people with any common colour vision can
tell apart, then darker ones after Paul Tol's muted scheme; devices take the darker ones. Nothing is told by colour
alone: devices also differ by dash and by label, sources by shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rooflens.records import Source
from rooflens.report.pieces import MIXED, WHOLE

INK = "#1b1f24"
GREY = "#57606a"
FAINT = "#e3e7eb"
STRIP = "#f1f3f5"
"""Ground of the rug."""
FLAG = "#c2003d"
"""Ring around a point above its roof."""

OTHER = "other"
"""The group of everything for which no colour is left, and of operations without a formula."""

# A family has its colour in every figure; the names are those of rooflens.costs.
_FAMILIES: Mapping[str, str] = {
    "convolution": "#0072b2",
    "matmul": "#d55e00",
    "attention": "#cc79a7",
    "elementwise": "#009e73",
    "normalization": "#e69f00",
    "pooling": "#56b4e9",
    "softmax": "#f0e442",
    "reduction": "#882255",
    "copy": "#6b705c",
    "gather": "#332288",
    "loss": "#44aa99",
    "recurrent": "#8c4a1e",
    "interpolation": "#7f9a1a",
    "dropout": "#7e57c2",
    "fill": "#c49c94",
    "fourier": "#117733",
}
_RESERVED: Mapping[str, str] = {OTHER: "#9aa2ab", MIXED: "#9aa2ab", WHOLE: INK}
MOST_GROUPS = len(_FAMILIES)

ONE_DEVICE = "#2b3440"
_DEVICES = (
    "#332288",
    "#117733",
    "#882255",
    "#0b7a9e",
    "#b35900",
    "#7b3fa0",
    "#6e6e00",
    "#a03030",
    "#2f4f4f",
    "#1a1a1a",
)
# Lengths of ink and gap, in line widths.
_DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 2.2),
    (1.4, 1.8),
    (7, 2, 1.4, 2),
    (10, 3),
    (4, 1.6, 1.4, 1.6, 1.4, 1.6),
)

SHAPES: Mapping[Source, str] = {
    "estimate": "circle",
    "measure": "diamond",
    "counters": "square",
    "profile": "triangle-up",
}


def group_colours(groups: Sequence[str]) -> dict[str, str]:
    """A colour for each group: a family its own, others the colours that are left, in order."""
    fixed = {group: colour for group in groups if (colour := {**_FAMILIES, **_RESERVED}.get(group)) is not None}
    left = [colour for colour in _FAMILIES.values() if colour not in fixed.values()] or list(_FAMILIES.values())
    free = [group for group in groups if group not in fixed]
    return {group: left[i % len(left)] for i, group in enumerate(free)} | fixed


def device_colour(device: int, devices: int) -> str:
    """The colour of a device's ceilings; a single device is drawn in ink."""
    return ONE_DEVICE if devices <= 1 else _DEVICES[device % len(_DEVICES)]


def ceiling_dash(device: int, devices: int, resource: str) -> tuple[float, ...]:
    """The dash of a ceiling: several devices have each their own, of a single one the general lanes are dashed.

    With ten colours and six dashes the pairs repeat after thirty devices.
    """
    if devices > 1:
        return _DASHES[device % len(_DASHES)]
    return _DASHES[1] if resource.startswith("vector.") else ()


def mark_rim(device: int | None, devices: int, colour: str, *, whole: bool, small: bool) -> tuple[str, float]:
    """Colour and width of a mark's rim: of several devices it tells which; a hollow mark is nothing but its rim."""
    several = device is not None and devices > 1
    rim = device_colour(device, devices) if several and device is not None else colour if whole else "#ffffff"
    return rim, 1.6 if whole else 0.6 if small or not several else 1.2
