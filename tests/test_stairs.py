"""Steps of decode in stairs: few stand for all, and no number of their sum is off."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rooflens.running.stairs import Stairs, on_a_line

CSA, HCA = 4, 128
"""Tokens for an entry of the two kinds of layers of DeepSeek V4."""


def work(step: int) -> tuple[int, ...]:
    """What a step does: it reads entries and tokens that wait for the next one, and some steps complete an entry."""
    read = 700 * (step // CSA) + 900 * (step // HCA) + 30 * (step % CSA) + 20 * (step % HCA) + 5 * step + 11
    return read, *((step % rate == 0) * 3 + (step % rate == rate - 1) * (50 + step // rate) for rate in (CSA, HCA))


@pytest.mark.parametrize(("first", "last"), [(1000, 1900), (1024, 1535), (2047, 9000)])
def test_the_steps_that_stand_for_a_kind_do_as_much_together(first: int, last: int) -> None:
    stairs, seen = Stairs([CSA, HCA, HCA, 1]), 0
    for steps in stairs.kinds(first, last):
        found = stairs.stand_ins(steps)
        assert found is not None
        assert len(found) <= 4  # three digits
        assert sum(found.values()) == len(steps)
        for n in range(3):
            assert sum(times * work(step)[n] for step, times in found.items()) == sum(work(step)[n] for step in steps)
        seen += len(steps)
    assert seen == last - first + 1


def test_digits_by_hand() -> None:
    assert Stairs([HCA, CSA]).place(2 * 128 + 5 * 4 + 3) == (2, 5, 3)
    assert Stairs([]).place(2054) == (2054,)
    assert Stairs([]).stand_ins(range(10, 17)) == {13: 7, 14: 0}  # the middle one, and how work grows
    assert Stairs([]).stand_ins(range(10, 18)) == {13: 4, 14: 4}
    # 0 to 11 with a rate of 4: the steps 1, 2, 5, 6, 9, 10 are neither begun on nothing nor complete an entry.
    assert Stairs([4]).kinds(0, 11) == [[0, 4, 8], [1, 2, 5, 6, 9, 10], [3, 7, 11]]
    assert Stairs([4]).stand_ins([1, 2, 5, 6, 9, 10]) == {5: 3, 6: 3, 10: 0}  # mean digits: 1 and 1.5
    assert Stairs([4, 6]).kinds(0, 11) == [[*range(12)]]  # no digits for rates that do not divide each other


def test_halves_end_with_a_complete_entry() -> None:
    assert Stairs([CSA, HCA]).middle(1000, 1900) == 11 * HCA - 1  # 1450 is nearer to 1408 than to 1536
    assert Stairs([CSA, HCA]).middle(1025, 1100) == 1062  # there is none
    assert Stairs([]).middle(9, 19) == 13


def test_what_bends_within_a_kind_is_seen() -> None:
    stairs = Stairs([CSA, HCA])
    assert Stairs([4]).ends([9, 10, 13, 14, 17, 18]) == (10, 17)
    (steps,) = (kind for kind in stairs.kinds(1024, 6000) if 1025 in kind)
    found = stairs.stand_ins(steps)
    assert found is not None
    looked_at = [steps[0], *found, *stairs.ends(steps), steps[-1]]

    def seen(values: Sequence[float]) -> bool:
        return on_a_line(list(map(stairs.place, looked_at)), values, 2, 1e-9)

    assert seen([work(step)[0] for step in looked_at])
    assert not seen([work(min(step, 2048))[0] for step in looked_at])  # at most 512 entries are read
    assert not seen([work(step)[0] + 9 * (step == looked_at[2]) for step in looked_at])
    # Only the end of the first 128 tokens is told: all others see 285 entries.
    assert not seen([min(step // CSA, 285) for step in looked_at])
    assert not seen([max(step // CSA, 1487) for step in looked_at])
