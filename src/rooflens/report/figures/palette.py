"""Colours, dashes and shapes, the same in every backend.

Groups take the colours of Okabe and Ito (Color Universal Design, 2008), which people with any common colour vision can
tell apart, then darker ones after Paul Tol's muted scheme; devices take the darker ones. Nothing is told by colour
alone: devices also differ by dash and by label, sources by shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rooflens.records import Source
from rooflens.report.figures.case_pieces import MIXED, WHOLE

INK = "#1b1f24"
GREY = "#57606a"
FAINT = "#e3e7eb"
STRIP = "#f1f3f5"
"""Ground of the rug."""
SIGN = "#b8c0c8"
"""A sign of the legend that stands for no group."""
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
# Levels as in the figures of hierarchical rooflines that people know: blue, green and red, in Okabe and Ito's shades.
_LEVELS: Mapping[str, str] = {"l1": "#0072b2", "l2": "#009e73", "dram": "#d55e00"}
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

REACH: Mapping[str, float] = {"diamond": 1.26, "triangle-up": 1.56, "triangle-down": 1.56, "cross": 1.2}
"""How far a shape of the area of a circle reaches from its middle, in radii of that circle; others: not further."""

_LEVEL_DASHES: Mapping[str, tuple[float, ...]] = {"l1": _DASHES[2], "l2": _DASHES[3], "dram": ()}

LEVEL_SHAPES: Mapping[str, str] = {"l1": "triangle-down", "l2": "cross", "dram": "square"}
"""Shapes of what was counted at several levels. Estimates and measurements know dram and keep the shapes of theirs."""

SHAPES: Mapping[Source, str] = {
    "estimate": "circle",
    "measure": "diamond",
    "counters": "square",
    "profile": "triangle-up",
}


def group_colours(groups: Sequence[str]) -> dict[str, str]:
    """A colour for each group: a family its own, others the colours that are left, in order."""
    known = {**_FAMILIES, **_LEVELS, **_RESERVED}
    fixed = {group: colour for group in groups if (colour := known.get(group)) is not None}
    left = [colour for colour in _FAMILIES.values() if colour not in fixed.values()] or list(_FAMILIES.values())
    free = [group for group in groups if group not in fixed]
    return {group: left[i % len(left)] for i, group in enumerate(free)} | fixed


def mark_shape(source: Source, level: str, *, hierarchical: bool) -> str:
    """What a mark looks like: its source, and where a figure has several levels, its level."""
    return LEVEL_SHAPES.get(level, SHAPES[source]) if hierarchical and source == "counters" else SHAPES[source]


def group_shape(group: str, *, hierarchical: bool) -> str:
    """The shape beside a group in the legend."""
    return LEVEL_SHAPES.get(group, "circle") if hierarchical else "circle"


def ceiling_colour(device: int, devices: int, resource: str, *, hierarchical: bool) -> str:
    """The colour of a ceiling: several devices have each their own, levels of a single one that of their marks."""
    if hierarchical and devices <= 1 and resource in _LEVELS:
        return _LEVELS[resource]
    return device_colour(device, devices)


def device_colour(device: int, devices: int) -> str:
    """The colour of a device's ceilings; a single device is drawn in ink."""
    return ONE_DEVICE if devices <= 1 else _DEVICES[device % len(_DEVICES)]


def ceiling_dash(device: int, devices: int, resource: str, *, hierarchical: bool = False) -> tuple[float, ...]:
    """The dash of a ceiling: several devices have each their own, of a single one the general lanes are dashed.

    With ten colours and six dashes the pairs repeat after thirty devices. Where a figure has several levels, the dash
    of a diagonal tells its level.
    """
    if hierarchical and resource in _LEVEL_DASHES:
        return _LEVEL_DASHES[resource]
    if devices > 1:
        return _DASHES[device % len(_DASHES)]
    return _DASHES[1] if resource.startswith("vector.") else ()


def mark_rim(device: int | None, devices: int, colour: str, *, whole: bool, small: bool) -> tuple[str, float]:
    """Colour and width of a mark's rim: of several devices it tells which; a hollow mark is nothing but its rim."""
    several = device is not None and devices > 1
    rim = device_colour(device, devices) if several and device is not None else colour if whole else "#ffffff"
    return rim, 1.6 if whole else 0.6 if small or not several else 1.2
