"""The largest batch that fits, found with as few traces as that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

CAP = 2**20
"""Larger batches are not looked at: beyond it the answer is "at least"."""
SECOND = 32
"""The batch that gives the first slope: small ones are bent by rounding and by what does not depend on the batch."""


def largest(needed: Callable[[int], int], limit: int, known: Iterable[int] = (), cap: int = CAP) -> int:
    """The largest batch that needs at most `limit` bytes: 0 if not even 1 does, `cap` if that still does.

    What a step needs hardly ever falls when the batch grows, and is nearly a straight line: rounding to blocks, a peak
    that moves to another operation, and other algorithms bend it. So lines through known points only propose batches.
    The answer is one that fits itself, while one more does not.

    Args:
        needed: from a batch to bytes; asked once for each batch.
        known: batches for which it costs nothing to ask.
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
    """The largest batch known to fit (`low`), the smallest beyond it known not to (`high`), and how it narrows down."""

    def __init__(self, needed: Callable[[int], int], limit: int, cap: int) -> None:
        self._needed = needed
        self._limit = limit
        self._cap = cap
        self._bytes: dict[int, int] = {}
        self.low = 0
        self.high: int | None = None

    def fits(self, batch: int) -> bool:
        if batch not in self._bytes:
            self._bytes[batch] = self._needed(batch)
        fitting = [known for known, nbytes in self._bytes.items() if nbytes <= self._limit and known <= self._cap]
        self.low = max(fitting, default=0)
        self.high = min((known for known in self._bytes if known > self.low), default=None)
        return self._bytes[batch] <= self._limit

    def find_one_too_many(self) -> None:
        """Go up along a line until a batch does not fit, or to the cap."""
        reach = 1
        while self.high is None and self.low < self._cap:
            step = self._steps_beyond()
            # Where the need rises in stairs, a line through two points of a stair leads nowhere.
            reach, step = (2 * reach, reach) if step <= reach else (1, step)
            self.fits(min(self._cap, self.low + step))

    def _steps_beyond(self) -> int:
        """How far a line through the two largest known batches stays within the limit."""
        *_, before, last = (0, *sorted(self._bytes))
        if before == 0:
            return SECOND - last
        slope = (self._bytes[last] - self._bytes[before]) / (last - before)
        return int((self._limit - self._bytes[last]) / slope) if slope > 0 else 3 * last

    def narrow(self) -> None:
        """Between a batch that fits and one that does not, along the line through both; halve where that is slow."""
        slow = 0
        while self.high is not None and self.high - self.low > 1:
            low, width = self.low, self.high - self.low
            rise = self._bytes[self.high] - self._bytes[low]
            share = 0.5 if slow == 2 else (self._limit - self._bytes[low]) / rise
            self.fits(min(self.high - 1, low + max(1, int(share * width))))
            slow = slow + 1 if slow < 2 and self.high - self.low > width / 2 else 0
