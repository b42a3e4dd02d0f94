"""Colours of charts that depend on a value or on the paper."""

from __future__ import annotations

from rooflens.report.figures.palette import ON_DARK

_DARK = "#14181d"
"""The ground of a dark page, as in the style sheet."""
_CONTRAST = 3.0
"""Of graphics with their ground, as WCAG asks."""
_BLUE, _WHITE, _RED = (5, 80, 150), (250, 250, 250), (178, 62, 10)


def diverging(value: float) -> str:
    """Return a colour for -1 to 1: orange, white, blue, which people with any common colour vision tell apart."""
    end = _BLUE if value > 0 else _RED
    share = min(1.0, abs(value))
    return f"#{bytes(round(w + (e - w) * share) for w, e in zip(_WHITE, end, strict=True)).hex()}"


def ink_on(colour: str) -> str:
    """Return black or white, whichever is easier to read on a colour."""
    ground = _luminance(colour) + 0.05
    return "#ffffff" if 1.05 / ground > ground / 0.05 else "#000000"


def on_dark(colour: str) -> str:
    """Return the colour on a dark page: the palette's own, else mixed with white until its contrast is high enough."""
    if colour in ON_DARK:
        return ON_DARK[colour]
    ground = _luminance(_DARK)
    for tenth in range(11):
        mixed = f"#{bytes(round(c + (255 - c) * tenth / 10) for c in bytes.fromhex(colour[1:])).hex()}"
        if (_luminance(mixed) + 0.05) / (ground + 0.05) >= _CONTRAST:
            return mixed
    return "#ffffff"


def _luminance(colour: str) -> float:
    """Return the relative luminance, as WCAG defines it."""
    parts = (part / 255 for part in bytes.fromhex(colour[1:]))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
