"""Steps of decode whose cache takes in an entry for every so many tokens: together on no line, but each kind is on one.

With a rate of 4, a step with n tokens in the cache finds nothing begun if 4 divides n, and completes an entry if 4
divides n + 1. Steps that are alike in this, for every rate, are of one kind. Within a kind, work grows with the entries
and with the tokens that wait for the next one: along a line in each of the digits of n, where rates stand for tens and
hundreds. Then few steps stand for all: as many, and with the same sums of each digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

Digits = tuple[int, ...]
"""The digits of a step, the largest first: (n,) without rates, (n // 128, n % 128 // 4, n % 4) with rates 4 and 128."""


class Stairs:
    """Rates of a cache, each of which divides the next one; others are not told apart."""

    def __init__(self, rates: Iterable[int]) -> None:
        """Note tokens for which an entry stands."""
        found = sorted({rate for rate in rates if rate > 1})
        nested = all(larger % smaller == 0 for smaller, larger in pairwise(found))
        self._rates = tuple(found) if nested else ()
        self._units = (*reversed(self._rates), 1)

    def place(self, step: int) -> Digits:
        """Return the digits of a step."""
        digits = []
        for unit in self._units:
            digit, step = divmod(step, unit)
            digits.append(digit)
        return tuple(digits)

    def kinds(self, first: int, last: int) -> list[list[int]]:
        """Return the steps from the first to the last, those of each kind together."""
        found: dict[Digits, list[int]] = {}
        for step in range(first, last + 1):
            kind = tuple(0 if step % rate == 0 else 2 if step % rate == rate - 1 else 1 for rate in self._rates)
            found.setdefault(kind, []).append(step)
        return list(found.values())

    def middle(self, first: int, last: int) -> int:
        """Return the step behind which steps are halved: it completes an entry of the largest rate if one does."""
        middle, largest = (first + last - 1) // 2, self._units[0]
        whole = (middle + 1 + largest // 2) // largest * largest - 1
        return whole if first <= whole < last else middle

    def stand_ins(self, steps: Sequence[int]) -> dict[int, int] | None:
        """Return steps, and for how many of one kind each stands; None where one of them would not be of these.

        They lie around the mean, each one digit higher than the one before. One that stands for none tells how work
        grows with its digit.
        """
        places, count = list(map(self.place, steps)), len(steps)
        sums = list(map(sum, zip(*places, strict=True)))
        digits = [n for n, values in enumerate(zip(*places, strict=True)) if len(set(values)) > 1]
        rest = {n: sums[n] % count for n in digits}
        place, left, found = [one // count for one in sums], count, dict[int, int]()
        for n in sorted(digits, key=lambda n: -rest[n]):
            found[self._step(place)] = left - rest[n]
            place[n], left = place[n] + 1, rest[n]
        found[self._step(place)] = left
        return found if set(found) <= set(steps) else None

    def ends(self, steps: Sequence[int]) -> tuple[int, int]:
        """Return the last step with the largest digit of the first one, and the first step with that of the last one.

        What bends there is on no line with these, though it may be with all others that are looked at.
        """
        first, last = (step // self._units[0] for step in (steps[0], steps[-1]))
        begun = [step for step in steps if step // self._units[0] == first]
        return begun[-1], next(step for step in steps if step // self._units[0] == last)

    def _step(self, place: Sequence[int]) -> int:
        return sum(digit * unit for digit, unit in zip(place, self._units, strict=True))


def on_a_line(places: Sequence[Digits], values: Sequence[float], near: float, slack: float) -> bool:
    """True if values grow along a line in each digit.

    Args:
        places: the first one, others, among them one that is higher by one than the one before for each digit that
            differs, and the last one.
        near: by how much values may be off; slack: the same, as a share of them.
    """
    first, last = places[0], places[-1]
    rise = [0.0] * len(first)
    for (here, value), (there, next_value) in pairwise(zip(places, values, strict=True)):
        apart_by = {n: b - a for n, (a, b) in enumerate(zip(here, there, strict=True)) if a != b}
        if list(apart_by.values()) == [1]:
            rise[next(iter(apart_by))] = next_value - value
    leading = next((n for n, (a, b) in enumerate(zip(first, last, strict=True)) if a != b), None)

    def apart(place: Digits, *without: int | None) -> float:
        return sum(rise[n] * (place[n] - first[n]) for n in range(len(first)) if n not in without)

    if leading is not None:  # told by the first and the last, so that no error of one digit counts many times
        rise[leading] = (values[-1] - values[0] - apart(last, leading)) / (last[leading] - first[leading])
    expected = [values[0] + apart(place) for place in places]
    return all(abs(value - line) <= near + slack * abs(line) for value, line in zip(values, expected, strict=True))
