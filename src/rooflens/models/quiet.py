"""What libraries log while a step is only traced, and what means nothing there."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

_REPEATS = logging.getLogger("torch._subclasses.fake_tensor")
"""Logs errors that are raised too."""
_TRANSFORMERS = logging.getLogger("transformers")
_HINT = re.compile(
    r"fast path is not available|falling back to (its reference|a) Py|CUDA xIELU"
    r"|kernels? .*(not found|not installed|disabled|could not be loaded)|(load|loading) (the custom )?kernel",
    re.IGNORECASE,
)
"""That a faster kernel is missing here: a trace runs none. transformers 4.50 to 5.24 say it in these words."""


def _is_said(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or not _HINT.search(record.getMessage())


@contextmanager
def no_hints_of_kernels() -> Iterator[None]:
    """Keep back that kernels are missing, and what torch logs beside raising it; errors and other warnings come."""
    disabled, handlers = _REPEATS.disabled, list(_TRANSFORMERS.handlers)
    _REPEATS.disabled = True
    for handler in handlers:
        handler.addFilter(_is_said)
    try:
        yield
    finally:
        _REPEATS.disabled = disabled
        for handler in handlers:
            handler.removeFilter(_is_said)
