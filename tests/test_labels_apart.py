"""On the page of any roofline, no label lies on a roof, on a mark or on another label, at any width of the window."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.figure_samples import chain, device, measured, operation, records

import rooflens as rl
from rooflens.records import Case
from rooflens.report.figures.label_places import Box, Segment, Stretch
from rooflens.report.figures.page_layout import (
    LEAST_WIDTH,
    PAPER,
    PHONE,
    PHONE_WIDTH,
    SCREEN,
    Page,
    Plane,
    TextBox,
    arrange,
)

NEAR = 1e-6
magnitudes = st.floats(min_value=-2.0, max_value=2.0)


def boxes_at(page: Page, scale: float) -> list[Box]:
    """The labels in the plane where it is `scale` times as wide: each keeps its distance to the point it names."""
    plane = Plane(page.figure, page.plane)
    return [text.box.moved((scale - 1) * (plane.at(text.anchor)[0] - page.plane.left)) for text in page.within]


def wide(page: Page, segment: Segment, scale: float) -> Segment:
    left = page.plane.left
    return (left + scale * (segment[0] - left), segment[1], left + scale * (segment[2] - left), segment[3])


def roofs(page: Page) -> list[Segment]:
    plane = Plane(page.figure, page.plane)
    return [(*plane.at(line.start), *plane.at(line.end)) for line in page.figure.ceilings]


def marks_at(page: Page, scale: float) -> list[Box]:
    plane, found = Plane(page.figure, page.plane), []
    for drawn in page.marks:
        x, y = plane.at((drawn.mark.x, drawn.mark.y))
        x = page.plane.left + scale * (x - page.plane.left)
        found.append(Box(x - drawn.reach, y - drawn.reach, x + drawn.reach, y + drawn.reach))
    return found


def assert_apart(page: Page, stretch: Stretch) -> None:
    for scale in sorted({*stretch, sum(stretch) / 2}):
        boxes = boxes_at(page, scale)
        assert not any(box.crossed_by(wide(page, roof, scale)) for box in boxes for roof in roofs(page))
        assert not any(box.meets(mark) for box in boxes for mark in marks_at(page, scale))
        assert not any(a.meets(b) for a, b in itertools.combinations(boxes, 2))
    beside: Sequence[TextBox] = (*page.beside, *page.title, *page.notes)
    assert not any(a.box.meets(b.box, -NEAR) for a, b in itertools.combinations(beside, 2))
    assert not any(text.box.meets(page.plane) for text in beside)


@settings(deadline=None, max_examples=12)
@given(
    st.lists(st.tuples(magnitudes, magnitudes, st.floats(min_value=0.05, max_value=50.0)), min_size=1, max_size=14),
    st.lists(st.tuples(magnitudes, magnitudes), min_size=1, max_size=4),
    st.sampled_from([(PAPER, None), (SCREEN, None), (PHONE, PHONE_WIDTH), (PAPER, 241.0), (PAPER, 600.0)]),
)
def test_labels_keep_off_roofs_marks_and_each_other(
    models: list[tuple[float, float, float]], devices: list[tuple[float, float]], paper: tuple[Stretch, float | None]
) -> None:
    roofed = [
        device(
            f"toy-{n}",
            f"Toy {n}",
            dram=1e12 * 10**memory,
            compute={"matmul.fp32": 1e14 * 10**peak, "vector.fp32": 1e13},
        )
        for n, (memory, peak) in enumerate(devices)
    ]
    items = []
    for n, (scale, traffic, slow) in enumerate(models):
        case = Case(model=f"network-{n}", device=roofed[n % len(roofed)].name, batch=1 + n // 2, mode="inference")
        items += [*chain(case, 1, scale=10**scale, traffic=10**traffic), measured(case, slow * 1e-3)]
    stretch, width = paper
    page = arrange(rl.roofline(records(items, roofed), by="model"), stretch, width)
    assert_apart(page, stretch)
    assert width is None or page.width == pytest.approx(max(width, page.width - page.plane.width + LEAST_WIDTH))
    for text in (*page.title, *page.notes, *(() if not page.below else page.beside)):
        assert text.box.right <= page.width


@pytest.mark.parametrize("small", [1, 20])
def test_few_marks_all_have_names_and_of_many_those_that_take_time(small: int) -> None:
    case = Case(model="net", device="toy-100", batch=1)
    items = [operation(case, "large", "matmul", matmul=1e15, dram=1e9)]
    items += [operation(case, f"small{n}", "matmul", matmul=1e9 * 2**n, dram=1e9) for n in range(small)]
    page = arrange(rl.roofline(records(items, [device()]), by="module"), PAPER)
    told = {row.text for text in page.within for row in text.rows}
    assert "large" in told
    assert ("small0" in told) is (small == 1)
