"""Seconds that a batch may take."""

from __future__ import annotations

from rooflens.errors import InvalidValue

LIMIT = 600.0
"""Those of one batch, after which it is given up."""
BUDGET = 3.0
"""Those of sampling."""


def check_limit(limit: float) -> None:
    """Raise InvalidValue for what is no limit of time in seconds."""
    check_seconds("limit", limit)
    if not limit > 0:
        raise InvalidValue(f"a time limit of {limit} s leaves no time for a batch; give more than 0")


def check_seconds(what: str, seconds: object) -> None:
    """Raise InvalidValue for what is not a number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidValue(f"{what} is {seconds!r}; give a number of seconds")
