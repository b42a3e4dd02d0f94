"""Which cards' steps an expected time was ever checked on, by mode and generation."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files


@cache
def checked_cards() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the cards of which whole steps were timed and judged, by mode and generation."""
    text = files(__package__).joinpath("checked.toml").read_text(encoding="utf-8")
    table: Mapping[str, Mapping[str, Sequence[str]]] = tomllib.loads(text)
    return table
