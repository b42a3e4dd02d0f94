"""Searches for the largest batch that fits, with as few traces as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rooflens.results.fits import CAP

SECOND = 32
"""The batch that gives the first slope: rounding bends small ones, and what does not depend on the batch."""


def largest(needed: Callable[[int], float], limit: float, known: Iterable[int] = (), cap: int = CAP) -> int:
    """The largest batch that needs at most `limit`, bytes or time: 0 if not even 1 does, `cap` if that still does.

    The memory of a step over the batch hardly ever falls and is nearly a straight line; rounding to blocks, a peak that
    moves to another operation, and other algorithms bend it. So lines through known points only propose batches. The
    answer itself fits, and one more does not.

    Args:
        needed: gives the bytes of a batch, or its time; called once for each.
        known: batches whose bytes cost nothing.
    """
    search = _Search(needed, limit, cap)
    if not search.fits(1):
        return 0
    for batch in known:
        search.fits(batch)
    search.find_one_too_many()
    search.narrow()
    return search.low


class _Search:
    """Narrows the gap between the largest batch known to fit (`low`) and the smallest known not to (`high`)."""

    def __init__(self, needed: Callable[[int], float], limit: float, cap: int) -> None:
        self._needed = needed
        self._limit = limit
        self._cap = cap
        self._needs: dict[int, float] = {}
        self.low = 0
        self.high: int | None = None

    def fits(self, batch: int) -> bool:
        if batch not in self._needs:
            self._needs[batch] = self._needed(batch)
        fitting = [known for known, needs in self._needs.items() if needs <= self._limit and known <= self._cap]
        self.low = max(fitting, default=0)
        self.high = min((known for known in self._needs if known > self.low), default=None)
        return self._needs[batch] <= self._limit

    def find_one_too_many(self) -> None:
        """Raise the batch along a line until one does not fit, or to the cap."""
        reach = 1
        while self.high is None and self.low < self._cap:
            step = self._steps_beyond()
            # Where memory rises in stairs, a line through two points of one stair leads nowhere.
            reach, step = (2 * reach, reach) if step <= reach else (1, step)
            self.fits(min(self._cap, self.low + step))

    def _steps_beyond(self) -> int:
        """How far beyond the last batch a line through the two largest known ones stays within the limit."""
        *_, before, last = (0, *sorted(self._needs))
        if before == 0:
            return SECOND - last
        slope = (self._needs[last] - self._needs[before]) / (last - before)
        return int((self._limit - self._needs[last]) / slope) if slope > 0 else 3 * last

    def narrow(self) -> None:
        """Close the gap along the line through both ends; halve it where that is slow."""
        slow = 0
        while self.high is not None and self.high - self.low > 1:
            low, width = self.low, self.high - self.low
            rise = self._needs[self.high] - self._needs[low]
            share = 0.5 if slow == 2 else (self._limit - self._needs[low]) / rise
            self.fits(min(self.high - 1, low + max(1, int(share * width))))
            slow = slow + 1 if slow < 2 and self.high - self.low > width / 2 else 0
