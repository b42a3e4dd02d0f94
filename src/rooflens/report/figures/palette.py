"""Colours, dashes and symbols, the same on every picture.

Groups take the colours of Okabe and Ito (Color Universal Design, 2008), which people with any common colour vision can
tell apart, then darker ones after Paul Tol's muted scheme; devices take the darker ones. Nothing is told by colour
alone: devices also differ by dash and by label, sources by symbol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rooflens.records import Source

Symbol = Literal["circle", "diamond", "square", "triangle-up", "triangle-down", "cross"]

INK = "#1b1f24"
GREY = "#57606a"
FAINT = "#e3e7eb"
STRIP = "#f1f3f5"
"""Ground of the rug."""
SIGN = "#b8c0c8"
"""A symbol of the legend that belongs to no group."""
FLAG = "#c2003d"
"""Ring around a point above its roof."""

WHOLE = "whole model"
"""The group of whole cases beside their own parts."""
MIXED = "several families"
"""The group of a part with operations of several families."""
OTHER = "other"
"""The group of everything without a colour of its own, and of operations without a formula."""

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
    "scan": "#1c5d99",
}
# Levels as on the usual hierarchical rooflines: blue, green and red, in Okabe and Ito's shades.
_LEVELS: Mapping[str, str] = {"l1": "#0072b2", "l2": "#009e73", "dram": "#d55e00"}
_FIXED: Mapping[str, str] = {**_FAMILIES, **_LEVELS, OTHER: "#9aa2ab", MIXED: "#9aa2ab", WHOLE: INK}
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
# Lengths of line and gap, in line widths.
_DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 2.2),
    (1.4, 1.8),
    (7, 2, 1.4, 2),
    (10, 3),
    (4, 1.6, 1.4, 1.6, 1.4, 1.6),
)
_LEVEL_DASHES: Mapping[str, tuple[float, ...]] = {"l1": _DASHES[2], "l2": _DASHES[3], "dram": ()}

SHAPES: Mapping[Source, Symbol] = {
    "estimate": "circle",
    "measure": "diamond",
    "counters": "square",
    "profile": "triangle-up",
    "replay": "triangle-down",
}
LEVEL_SHAPES: Mapping[str, Symbol] = {"l1": "triangle-down", "l2": "cross", "dram": "square"}
"""Symbols of counted work on a figure of several levels. Estimates and measurements know dram and keep theirs."""
REACH: Mapping[Symbol, float] = {"diamond": 1.26, "triangle-up": 1.56, "triangle-down": 1.56, "cross": 1.2}
"""From the middle of a symbol to its tip, in radii of the circle of the same area; 1 for the others."""


def group_colours(groups: Sequence[str]) -> dict[str, str]:
    """Return a colour for each group: a family its own, others the colours that are left, in order."""
    fixed = {group: _FIXED[group] for group in groups if group in _FIXED}
    left = [colour for colour in _FAMILIES.values() if colour not in fixed.values()] or list(_FAMILIES.values())
    free = [group for group in groups if group not in fixed]
    return {group: left[i % len(left)] for i, group in enumerate(free)} | fixed


def mark_shape(source: Source, level: str, *, hierarchical: bool) -> Symbol:
    """Return the symbol of a mark: that of its source, or of its level if it was counted and there are several."""
    return LEVEL_SHAPES.get(level, SHAPES[source]) if hierarchical and source == "counters" else SHAPES[source]


def device_colour(device: int, devices: int) -> str:
    """Return the colour of a device, by its number among the devices of the figure."""
    return ONE_DEVICE if devices <= 1 else _DEVICES[device % len(_DEVICES)]


def ceiling_colour(device: int, devices: int, resource: str, *, hierarchical: bool) -> str:
    """Return the colour of a ceiling: that of its device, or of its level on a figure of one device."""
    return _LEVELS.get(resource, ONE_DEVICE) if hierarchical and devices <= 1 else device_colour(device, devices)


def ceiling_dash(device: int, devices: int, resource: str, *, hierarchical: bool = False) -> tuple[float, ...]:
    """Return the dash of a ceiling: that of its device; of a single device the general lanes are dashed.

    Ten colours and six dashes give thirty different pairs. On a figure of several levels the dash of a diagonal tells
    its level.
    """
    if hierarchical and resource in _LEVEL_DASHES:
        return _LEVEL_DASHES[resource]
    if devices > 1:
        return _DASHES[device % len(_DASHES)]
    return _DASHES[1] if resource.startswith("vector.") else ()
