"""The arithmetic that an explanation prints, computed: what is shown is what is counted."""

from __future__ import annotations

import re

_LABEL = re.compile(r"(?<=\d) \([^()]*\)")
_UNIT = re.compile(r"(?<=\d) B\b")


def value_of(expression: str) -> int:
    """The value of an expression like ``2 x 8 (m) x 4 (n) + 3 x 4 B``: names of sizes and units left out."""
    bare = _UNIT.sub("", _LABEL.sub("", expression)).replace("floor(", "(")
    assert re.fullmatch(r"[\d\s()x/+-]+", bare), expression
    result: int = eval(bare.replace("x", "*").replace("/", "//"))
    return result
