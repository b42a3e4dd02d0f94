"""How far apart two colours look, with normal and with other colour vision.

Colour visions by the matrices of Machado, Oliveira and Fernandes (2009) for full dichromacy, on linear RGB; distances
are Euclidean in OKLab times 100 (Ottosson, 2020), where about 2 is the smallest difference that is seen side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

Triple = tuple[float, float, float]
Matrix = tuple[Triple, Triple, Triple]

VISIONS: Mapping[str, Matrix] = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
_TO_LMS: Matrix = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_LAB: Matrix = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def _times(matrix: Matrix, vector: Triple) -> Triple:
    a, b, c = (sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix)
    return a, b, c


def seen(colour: str, vision: str) -> Triple:
    """Lightness, green to red and blue to yellow of ``#rrggbb`` for somebody with this vision."""
    parts = [part / 255 for part in bytes.fromhex(colour.removeprefix("#"))]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    seen_red, seen_green, seen_blue = _times(VISIONS[vision], (red, green, blue))
    clipped = (min(1.0, max(0.0, seen_red)), min(1.0, max(0.0, seen_green)), min(1.0, max(0.0, seen_blue)))
    long, middle, short = _times(_TO_LMS, clipped)
    return _times(_TO_LAB, (long ** (1 / 3), middle ** (1 / 3), short ** (1 / 3)))


def distance(one: str, other: str, vision: str) -> float:
    """How different two colours look."""
    pairs = zip(seen(one, vision), seen(other, vision), strict=True)
    return 100 * math.sqrt(sum((a - b) ** 2 for a, b in pairs))


def nearest(colours: Sequence[str], vision: str) -> tuple[float, str, str]:
    """The smallest distance between any two, and these two."""
    return min((distance(a, b, vision), a, b) for a, b in combinations(colours, 2))
