"""The colours of pictures are told apart by people with any common colour vision, on white and on dark paper."""

from __future__ import annotations

import pytest
from tests.colour_vision import VISIONS, distance, nearest

from rooflens.report.charts.colours import on_dark
from rooflens.report.figures.palette import MOST_GROUPS, OTHER, ceiling_colour, device_colour, group_colours

EVERY_VISION = pytest.mark.parametrize("vision", VISIONS)
GROUPS = [f"model {n}" for n in range(MOST_GROUPS)]


def test_the_simulation_agrees_with_what_is_known() -> None:
    # Red and green are as far apart as can be for most people, and near each other for those without one cone.
    assert distance("#ff0000", "#00ff00", "normal") > 50
    assert distance("#a04000", "#6b6b00", "deuteranopia") < 0.5 * distance("#a04000", "#6b6b00", "normal")
    assert distance("#808080", "#808080", "protanopia") == 0
    # Grey has no hue to lose: all see it alike.
    assert distance("#404040", "#c0c0c0", "tritanopia") == pytest.approx(
        distance("#404040", "#c0c0c0", "normal"), rel=1e-2
    )


@EVERY_VISION
def test_groups_differ(vision: str) -> None:
    colours = group_colours([*GROUPS, OTHER])
    assert len(set(colours.values())) == MOST_GROUPS + 1
    apart, one, other = nearest(list(colours.values()), vision)
    assert apart > 5, (one, other)
    apart, one, other = nearest([colours[name] for name in GROUPS], vision)
    assert apart > 7.5, (one, other)
    apart, one, other = nearest([on_dark(colours[name]) for name in GROUPS], vision)
    assert apart > 5.5, (one, other)


@EVERY_VISION
def test_devices_differ(vision: str) -> None:
    colours = [device_colour(number, 10) for number in range(10)]
    assert nearest(colours, vision)[0] > 7.5
    assert nearest([on_dark(colour) for colour in colours], vision)[0] > 7.5


@EVERY_VISION
def test_memory_levels_differ(vision: str) -> None:
    colours = [ceiling_colour(0, 1, level, by_level=True) for level in ("l1", "l2", "dram")]
    assert nearest(colours, vision)[0] > 8
