"""Colours of charts that depend on a value or on the paper."""

from __future__ import annotations

_DARK = "#14181d"
"""The ground of a dark page, as in the style sheet."""
_CONTRAST = 4.5
_BLUE, _WHITE, _RED = (5, 80, 150), (250, 250, 250), (178, 62, 10)


def diverging(value: float) -> str:
    """Return a colour for -1 to 1: orange, white, blue, which people with any common colour vision tell apart."""
    end = _BLUE if value > 0 else _RED
    share = min(1.0, abs(value))
    return _hex(tuple(round(w + (e - w) * share) for w, e in zip(_WHITE, end, strict=True)))


def ink_on(colour: str) -> str:
    """Return black or white, whichever is easier to read on a colour."""
    ground = _luminance(_rgb(colour)) + 0.05
    return "#ffffff" if 1.05 / ground > ground / 0.05 else "#000000"


def on_dark(colour: str) -> str:
    """Return the colour on a dark page: mixed with white until its contrast is high enough."""
    rgb, ground = _rgb(colour), _luminance(_rgb(_DARK))
    for tenth in range(11):
        mixed = tuple(round(c + (255 - c) * tenth / 10) for c in rgb)
        if (_luminance(mixed) + 0.05) / (ground + 0.05) >= _CONTRAST:
            return _hex(mixed)
    return "#ffffff"


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[n : n + 2], 16) for n in (1, 3, 5))


def _hex(rgb: tuple[int, ...]) -> str:
    return "#" + "".join(f"{c:02x}" for c in rgb)


def _luminance(rgb: tuple[int, ...]) -> float:
    """Return the relative luminance, as WCAG defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
