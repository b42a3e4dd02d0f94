"""Colours, dashes and symbols, the same on every picture.

The first six groups take colours of Okabe and Ito (Color Universal Design, 2008); the others, and those of devices,
were searched for: the largest smallest distance in OKLab for normal vision and three kinds of dichromacy
(tests/test_palette.py). Nothing is told by colour alone: devices also differ by dash and by label, sources by symbol.
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
    "reduction": "#660000",
    "gather": "#0000b2",
    "dropout": "#7c00f7",
    "fourier": "#8c0075",
    "loss": "#8dd9a6",
    "scan": "#ad63f7",
    "fill": "#293140",
    "interpolation": "#0f663b",
    "copy": "#8c5b7c",
    "recurrent": "#b21e00",
    "softmax": "#f0e442",
}
# Levels as on the usual hierarchical rooflines: blue, green and red, in Okabe and Ito's shades.
_LEVELS: Mapping[str, str] = {"l1": "#0072b2", "l2": "#009e73", "dram": "#d55e00"}
_FIXED: Mapping[str, str] = {**_FAMILIES, **_LEVELS, OTHER: "#b2b2b2", MIXED: "#b2b2b2", WHOLE: INK}
MOST_GROUPS = len(_FAMILIES)
MOST_MODELS = 12
"""Colours that people tell apart without looking them up; more models are coloured by their families."""

ONE_DEVICE = "#2b3440"
_DEVICES = (
    "#332288",
    "#117733",
    "#882255",
    "#256bf7",
    "#2900f7",
    "#991bb2",
    "#5e0000",
    "#7c5b8c",
    "#664400",
    "#d90048",
)
ON_DARK: Mapping[str, str] = {
    "#660000": "#8c5e00",
    "#0000b2": "#00f7f7",
    "#7c00f7": "#a500f7",
    "#8c0075": "#d900b5",
    "#293140": "#745b8c",
    "#0f663b": "#00d96c",
    "#8c5b7c": "#aff7a1",
    "#b21e00": "#b24759",
    **dict(
        zip(
            _DEVICES,
            (
                *("#745b8c", "#00d900", "#f763ad", "#00f7f7", "#a1a1f7"),
                *("#b500d9", "#388c62", "#f7bea1", "#f7f725", "#f70000"),
            ),
            strict=True,
        )
    ),
}
"""What a colour becomes on a dark page, where it would be too dark or too near to others; the others stay."""
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


def device_colour(device: int, devices: int) -> str:
    """Return the colour of a device, by its number among the devices of the figure."""
    return ONE_DEVICE if devices <= 1 else _DEVICES[device % len(_DEVICES)]


def ceiling_colour(device: int, devices: int, resource: str, *, by_level: bool) -> str:
    """Return the colour of a ceiling: that of its device, or of its level on a figure of one device."""
    return _LEVELS.get(resource, ONE_DEVICE) if by_level and devices <= 1 else device_colour(device, devices)


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
