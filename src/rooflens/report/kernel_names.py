"""Names of kernels, which a compiler makes long, in text for people."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BRACKET = re.compile(r"[<()]|(?<!-)>")
_MANGLED = re.compile(r"\b(_Z\w{38})\w+")
_NAMESPACE = re.compile(r"\b\w+::|<?\bunnamed>::|\(anonymous namespace\)::")
_KEPT = 16
"""So many characters between brackets stay."""


def with_short_names(text: str) -> str:
    """Return text in which names of C++ have no namespaces, and dots for long arguments.

    >>> with_short_names("resnet18 b=4: void at::native::vectorized_kernel<4, at::native::Add<float>, x>(int, float)")
    'resnet18 b=4: void vectorized_kernel<...>(int, float)'

    Nsight Compute leaves out the first bracket of a name that begins without a namespace:

    >>> with_short_names("unnamed>::saxpy_kernel(float)")
    'saxpy_kernel(float)'
    """
    parts, end = list[str](), 0
    for first, last in sorted(_arguments(text)):
        if first >= end and last - first > _KEPT:  # not within what is left out
            parts.append(text[end:first])
            end = last
    return _MANGLED.sub(r"\1...", _NAMESPACE.sub("", "...".join([*parts, text[end:]])))


def _arguments(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the arguments of a template or function begin and end; in prose a space is before a bracket."""
    open_ones = list[re.Match[str]]()
    for found in _BRACKET.finditer(text):
        if found[0] in "<(":
            open_ones.append(found)
        elif open_ones and open_ones[-1][0] + found[0] in ("<>", "()"):
            opening = open_ones.pop()
            if opening.start() and not text[opening.start() - 1].isspace():
                yield opening.end(), found.start()
        else:
            open_ones.clear()
