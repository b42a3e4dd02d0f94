"""Places for labels: what may never happen, on any input."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rooflens.errors import InvalidValue
from rooflens.report.figures.label_places import Box, Segment, Spot, around, beside, first_free, spread

GAP = 3.0
FRAME = Box(50.0, 40.0, 520.0, 410.0)
NEAR = 1e-6


class TestSpread:
    def test_labels_that_are_apart_stay_where_they_are_wanted(self) -> None:
        assert spread([10.0, 50.0, 90.0], [8.0, 8.0, 8.0], 0.0, 100.0, 2.0) == pytest.approx([10.0, 50.0, 90.0])

    def test_two_wanted_at_one_place_move_apart_by_half_each(self) -> None:
        # Each 10 high and 2 apart: centres 12 apart, half of it on either side of 50.
        assert spread([50.0, 50.0], [10.0, 10.0], 0.0, 100.0, 2.0) == pytest.approx([44.0, 56.0])

    def test_a_crowd_shares_the_way_and_leaves_the_others_alone(self) -> None:
        # The three upper ones are wanted at 60, 61 and 65 (mean 62) and set 12 apart around it; 20 is free.
        found = spread([60.0, 20.0, 65.0, 61.0], [10.0] * 4, 0.0, 100.0, 2.0)
        assert found == pytest.approx([50.0, 20.0, 74.0, 62.0])

    def test_the_ends_hold(self) -> None:
        assert spread([99.0, 100.0], [10.0, 10.0], 0.0, 100.0, 2.0) == pytest.approx([83.0, 95.0])
        assert spread([-5.0], [10.0], 0.0, 100.0, 2.0) == pytest.approx([5.0])

    def test_nothing_is_nothing(self) -> None:
        assert spread([], [], 0.0, 1.0, 2.0) == []

    def test_what_does_not_fit_is_an_error(self) -> None:
        with pytest.raises(InvalidValue, match="3 labels of 34 points do not fit into 30"):
            spread([1.0, 2.0, 3.0], [10.0, 10.0, 10.0], 0.0, 30.0, 2.0)

    @given(
        st.lists(
            st.tuples(st.floats(min_value=-1e3, max_value=1e3), st.floats(min_value=1.0, max_value=40.0)),
            min_size=1,
            max_size=12,
        )
    )
    def test_no_two_meet_and_none_leaves(self, items: list[tuple[float, float]]) -> None:
        wanted, heights = [w for w, _ in items], [h for _, h in items]
        low, high = 0.0, 700.0
        assume(sum(heights) + GAP * (len(items) - 1) <= high - low)
        centres = spread(wanted, heights, low, high, GAP)
        edges = sorted((c - h / 2, c + h / 2) for c, h in zip(centres, heights, strict=True))
        assert edges[0][0] >= low - NEAR
        assert edges[-1][1] <= high + NEAR
        assert all(above[0] - below[1] >= GAP - NEAR for below, above in itertools.pairwise(edges))
        ordered = [centre for _, centre in sorted(zip(wanted, centres, strict=True), key=lambda item: item[0])]
        assert all(
            later >= earlier or wanted.count(want) > 1
            for want, (earlier, later) in zip(sorted(wanted), itertools.pairwise(ordered), strict=False)
        )


class TestBox:
    def test_touching_is_not_meeting_but_coming_near_is(self) -> None:
        box, right = Box(0, 0, 10, 10), Box(10, 0, 20, 10)
        assert not box.meets(right)
        assert box.meets(right, 1.0)
        assert not box.meets(right.moved(1.0), 1.0)

    @pytest.mark.parametrize(
        ("segment", "crosses"),
        [
            ((-5, 5, 15, 5), True),  # straight through
            ((-5, -5, 15, 15), True),  # along the diagonal
            ((2, 2, 3, 3), True),  # inside
            ((-5, 12, 15, 12), False),  # above
            ((-5, 8, -1, 12), False),  # ends before
            ((-5, 9, 5, 19), False),  # past the corner
            ((11, -5, 11, 15), False),  # upright, beside
        ],
    )
    def test_a_segment_crosses_or_not(self, segment: Segment, crosses: bool) -> None:
        assert Box(0, 0, 10, 10).crossed_by(segment) is crosses


class TestStretching:
    def test_labels_that_pass_each_other_meet_on_the_way(self) -> None:
        # A belongs to the point at 100 and reaches 60 to the right of it, B to the point at 110 but stands left of A.
        # At twice the width B has moved 10 more than A: from 12 left of A to 2 left of it, which is too near.
        a = Spot(Box(100, 0, 160, 10), 100.0)
        b = Spot(Box(58, 0, 88, 10), 110.0)
        assert not a.meets(b, GAP)
        assert a.meets(b, GAP, (1.0, 2.0))
        assert not a.meets(b, GAP, (1.0, 1.8))  # 12 - 8 = 4 apart

    def test_a_narrow_frame_pushes_a_label_out(self) -> None:
        # Its point is 100 from the left edge, its text begins 20 before the point.
        spot = Spot(Box(130, 50, 200, 60), 150.0)
        assert spot.inside(FRAME, (0.5, 1.0))
        assert not spot.inside(FRAME, (0.1, 1.0))  # the point comes to 10, the text to -10

    @given(st.data())
    def test_the_verdict_holds_at_every_width(self, data: st.DataObject) -> None:
        numbers = st.floats(min_value=50.0, max_value=500.0)
        a, b = (
            Spot(Box(left, bottom, left + 40.0, bottom + 10.0), anchor)
            for left, bottom, anchor in data.draw(st.tuples(*[st.tuples(numbers, numbers, numbers)] * 2))
        )
        scale = data.draw(st.floats(min_value=0.75, max_value=2.0))
        moved = [spot.box.moved((scale - 1) * (spot.anchor - FRAME.left)) for spot in (a, b)]
        if moved[0].meets(moved[1], GAP - NEAR):
            assert a.meets(b, GAP, (0.75, 2.0))


points = st.tuples(st.floats(min_value=60, max_value=510), st.floats(min_value=50, max_value=400))
marks = st.lists(
    st.tuples(points, st.floats(min_value=2, max_value=15), st.floats(min_value=10, max_value=150)), max_size=25
)


@given(marks, st.sampled_from([(1.0, 1.0), (0.75, 2.0)]))
def test_no_label_of_a_mark_covers_a_label_or_a_mark_or_leaves_the_frame(
    items: list[tuple[tuple[float, float], float, float]], stretch: tuple[float, float]
) -> None:
    taken = [Spot(Box(x - r, y - r, x + r, y + r), x) for (x, y), r, _ in items]
    wishes = [around(point, radius, (width, 10.0)) for point, radius, width in items]
    chosen = [spot for spot in first_free(wishes, taken, FRAME, GAP, stretch) if spot is not None]
    for scale in {*stretch, sum(stretch) / 2}:
        frame = Box(FRAME.left, FRAME.bottom, FRAME.left + scale * FRAME.width, FRAME.top)
        boxes = [spot.box.moved((scale - 1) * (spot.anchor - FRAME.left)) for spot in chosen]
        others = [spot.box.moved((scale - 1) * (spot.anchor - FRAME.left)) for spot in taken]
        assert all(Spot(box, box.left).inside(frame) for box in boxes)
        assert not any(a.meets(b, GAP - NEAR) for a, b in itertools.combinations(boxes, 2))
        assert not any(box.meets(other, GAP - NEAR) for box in boxes for other in others)


def test_a_lone_mark_is_named_beside_it_without_a_leader() -> None:
    (spot,) = first_free(
        [around((200.0, 200.0), 5.0, (40.0, 10.0))], [Spot(Box(195, 195, 205, 205), 200.0)], FRAME, GAP
    )
    assert spot is not None
    assert spot.leader is None
    assert spot.box.left == pytest.approx(200 + 5 + 4.5)
    assert (spot.box.bottom + spot.box.top) / 2 == pytest.approx(200)


def test_a_leader_never_runs_through_a_text() -> None:
    # Nine marks in a row, 12 apart, all with long names: most names need a leader.
    row = [(200.0 + 12.0 * i, 200.0) for i in range(9)]
    taken = [Spot(Box(x - 5, y - 5, x + 5, y + 5), x) for x, y in row]
    chosen = [s for s in first_free([around(p, 5.0, (60.0, 10.0)) for p in row], taken, FRAME, GAP) if s is not None]
    assert len(chosen) >= 3
    for a, b in itertools.permutations(chosen, 2):
        assert a.leader is None or not b.box.crossed_by(a.leader)


def test_an_earlier_label_chooses_first() -> None:
    place = Spot(Box(100, 100, 140, 110), 100.0)
    other = Spot(Box(200, 100, 240, 110), 200.0)
    assert first_free([[place], [place, other], [place]], [], FRAME, GAP) == [place, other, None]


def test_the_upper_of_two_diagonals_is_named_on_its_left_and_the_lower_on_its_right() -> None:
    upper, lower = (60.0, 60.0, 300.0, 400.0), (100.0, 60.0, 340.0, 400.0)
    left, right = first_free(
        [beside(line, [upper, lower], (60.0, 20.0), [upper, lower]) for line in (upper, lower)], [], FRAME, GAP
    )
    assert left is not None
    assert right is not None
    assert not any(spot.box.crossed_by(line) for spot in (left, right) for line in (upper, lower))
    assert left.leader is not None
    assert right.leader is not None
    assert left.box.right < left.leader[2]
    assert right.box.left > right.leader[2]


def test_a_diagonal_between_two_others_is_named_beside_all_of_them_at_any_width() -> None:
    lines = [(60.0 + shift, 60.0, 300.0 + shift, 400.0) for shift in (0.0, 40.0, 80.0)]
    (spot,) = first_free([beside(lines[1], lines, (60.0, 20.0), lines, (0.75, 2.0))], [], FRAME, GAP)
    assert spot is not None
    assert spot.leader is not None
    assert spot.bridge is not None
    assert spot.leader[2:] == spot.bridge[:2]
    # The bridge spans the 40 points to the middle line; the rest moves with the outer line to which it leads.
    assert abs(spot.bridge[2] - spot.bridge[0]) == pytest.approx(40.0)
    assert spot.anchor == spot.bridge[0]
    for scale in (0.75, 1.0, 2.0):
        box = spot.box.moved((scale - 1) * (spot.anchor - FRAME.left))
        wide = [
            tuple(FRAME.left + scale * (v - FRAME.left) if i % 2 == 0 else v for i, v in enumerate(x)) for x in lines
        ]
        assert not any(box.crossed_by(line) for line in wide)  # type: ignore[arg-type]


def test_a_flat_line_has_no_side() -> None:
    assert beside((0.0, 5.0, 10.0, 5.0), [], (10.0, 10.0)) == []
