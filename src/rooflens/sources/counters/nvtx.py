"""Where in the model a kernel ran, by its NVTX ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rooflens.costs.profiler_names import is_engine, is_known, short
from rooflens.records import Phase
from rooflens.sources.range_names import OPTIMIZER_PATH, call_of, emitted, is_detour, is_optimizer, module_of, phase_of

_RANGE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r'\\(["\\])')
"""What would end a range early, behind a backslash."""
_ATTRIBUTES = 6
"""What follows the name of a range: payload type and value, colour type and value, message type and message."""
_RENAMED = re.compile(r"([^<>()/ ]+)/(?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePlace:
    """Where a kernel ran; None is unknown.

    Attributes:
        path: module path.
        operation: as an estimate names it: the outermost one within the module that has a formula, else the outermost;
            "" where ranges name none.
        sequence: autograd number of the node that it made in forward, or runs in backward.
        backward: whether the autograd engine ran it.
    """

    path: str | None = None
    phase: Phase | None = None
    operation: str = ""
    sequence: int | None = None
    backward: bool = False


@lru_cache(maxsize=65536)
def ranges_of(cell: str) -> tuple[str, ...]:
    """Return the names of the ranges in a cell, from outside in; started ones, which do not nest, come first.

    >>> ranges_of('1  "<default domain>:forward:none:none:none:none:none:none"  "<default domain>:layer1:none" ')
    ('forward', 'layer1')
    """
    texts = [_ESCAPED.sub(r"\1", text).split(":") for text in _RANGE.findall(cell)]
    return tuple(_name(words) for words in sorted(texts, key=_is_started, reverse=True))


@lru_cache(maxsize=65536)
def place_of(ranges: tuple[str, ...]) -> RangePlace:
    """Return what the names of the ranges around a launch tell by themselves.

    The path is the innermost range that is neither a phase nor an operation. An operation has a namespace (``aten::``)
    or the number of an autograd node. Where no range tells the phase, what the autograd engine runs is backward, and
    what else runs in a call of a module that rooflens marked is forward.
    """
    path: str | None = None
    phase: Phase | None = None
    operation, sequence, backward, called = "", None, False, False
    for text in ranges:
        name, number = emitted(text)
        if call_of(name) is not None or is_detour(name):
            continue
        if is_engine(name):
            backward, operation = True, ""
        elif (its := phase_of(name, plain=True)) is not None:
            phase = its
        elif is_optimizer(name):
            path, phase, operation = OPTIMIZER_PATH, phase or "optimizer", ""
        elif (module := module_of(name, None)) is not None:
            path, operation, called = module, "", True
        elif "::" in name or number is not None:
            operation = name if not operation or (is_known(name) and not is_known(operation)) else operation
            sequence = sequence if number is None else number
        else:
            path, operation = name, ""
    if phase is None and (backward or called):
        phase = "backward" if backward else "forward"
    return RangePlace(path=path, phase=phase, operation=short(operation), sequence=sequence, backward=backward)


class RangePlaces:
    """The places of launches that come one after the other: what runs in backward lies where its node was made."""

    def __init__(self) -> None:
        self._made: dict[int, str | None] = {}

    def of(self, ranges: tuple[str, ...]) -> RangePlace:
        """Return the place of the next launch."""
        place = place_of(ranges)
        if place.sequence is None:
            return place
        if not place.backward:
            self._made[place.sequence] = place.path
            return place
        made = self._made.get(place.sequence)
        return place if place.path is not None or made is None else replace(place, path=made)


def renamed(kernel: str) -> tuple[str, str | None]:
    """Return a kernel name without the range that ``--print-nvtx-rename kernel`` puts before it, and that range.

    >>> renamed("features.0/void relu(float *)")
    ('void relu(float *)', 'features.0')
    """
    match = _RENAMED.match(kernel)
    return (kernel[match.end() :], match[1]) if match else (kernel, None)


def _name(words: Sequence[str]) -> str:
    """A range is ``domain:name:attributes``, a started one has a number before that; names may hold colons, ours do."""
    before = 2 if _is_started(words) else 1
    if len(words) > _ATTRIBUTES + 1:
        return ":".join(words[before:-_ATTRIBUTES])
    return words[1] if len(words) > 1 else words[0]


def _is_started(words: Sequence[str]) -> bool:
    return words[0].isdecimal() and len(words) > _ATTRIBUTES + 2
