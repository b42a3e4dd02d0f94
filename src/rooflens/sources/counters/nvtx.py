"""Where in the model a kernel ran, as its NVTX ranges tell."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

from rooflens.records import PHASES, Phase

_RANGE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ATTRIBUTES = 6
"""What follows the name of a range: payload type and value, colour type and value, message type and message."""
_MODULE, _PHASE = "rooflens:module:", "rooflens:phase:"
"""How rooflens itself names its ranges."""
_RENAMED = re.compile(r"([^<>()/ ]+)/(?=\S)")
_FOREIGN = ("::", ", seq = ")
"""In the ranges of torch.autograd.profiler.emit_nvtx, one per operation: not modules."""


@lru_cache(maxsize=4096)
def ranges_of(cell: str) -> tuple[str, ...]:
    """The names of the ranges in a cell, from outside in.

    >>> ranges_of('1  "<default domain>:forward:none:none:none:none:none:none"  "<default domain>:layer1:none" ')
    ('forward', 'layer1')
    """
    return tuple(_name(text) for text in _RANGE.findall(cell))


@lru_cache(maxsize=4096)
def place_of(cell: str) -> tuple[str | None, Phase | None]:
    """Module path and phase that a cell names; None is unknown.

    The path is the innermost range that is neither a phase nor an operation.
    """
    names = ranges_of(cell)
    phases = [phase for name in names if (phase := _phase(name)) is not None]
    paths = [_path(name) for name in names if _phase(name) is None and not any(sign in name for sign in _FOREIGN)]
    return (paths[-1] if paths else None), (phases[-1] if phases else None)


def renamed(kernel: str) -> tuple[str, str | None]:
    """A kernel name without the range that ``--print-nvtx-rename kernel`` puts before it, and that range.

    >>> renamed("features.0/void relu(float *)")
    ('void relu(float *)', 'features.0')
    """
    match = _RENAMED.match(kernel)
    return (kernel[match.end() :], match[1]) if match else (kernel, None)


def _name(text: str) -> str:
    """A range is ``domain:name:attributes``; names may hold colons, ours do."""
    words = text.split(":")
    if len(words) > _ATTRIBUTES + 1:
        return ":".join(words[1:-_ATTRIBUTES])
    return words[1] if len(words) > 1 else text


def _phase(name: str) -> Phase | None:
    return next((phase for phase in PHASES if name.lower().removeprefix(_PHASE) == phase), None)


def _path(name: str) -> str:
    return unquote(name.removeprefix(_MODULE)) if name.startswith(_MODULE) else name
