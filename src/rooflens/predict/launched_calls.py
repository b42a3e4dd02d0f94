"""What a host launches for one call: operations, and views of tensors."""

from __future__ import annotations

from typing import NamedTuple

from rooflens.costs import code_work
from rooflens.records import Call


class CodeCalls(NamedTuple):
    """What a host launches in one call."""

    operations: int
    views: int


ITSELF = CodeCalls(operations=1, views=0)
SCAN = "scan"
"""The family of calls that may stand for code: a loop over tokens."""


def launched(call: Call, family: str) -> CodeCalls:
    """Return what a host launches in one call: all that Python code runs which the call stands for, else itself."""
    if family != SCAN:
        return ITSELF
    written = code_work(call)
    return CodeCalls(written.get("host/operations") or 1, written.get("host/views", 0))
