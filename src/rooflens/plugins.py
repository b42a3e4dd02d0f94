"""What other packages add to rooflens, through entry points."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

from rooflens.errors import class_of, message_of

T = TypeVar("T")

READERS, OPERATIONS = "rooflens.readers", "rooflens.operations"
"""Groups of entry points."""


def plugins(group: str, use: Callable[[object], T]) -> Iterator[T]:
    """Load the entry points of a group and give what `use` makes of each; a broken one warns and is skipped."""
    from importlib.metadata import entry_points  # takes longer than all of rooflens' own light imports

    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            yield use(point.load())
        except Exception as error:  # noqa: BLE001 - the code of a stranger may raise anything
            warnings.warn(
                f"the plug-in {point.name!r} ({group}: {point.value}) is left out: {class_of(error)}:"
                f" {message_of(error)}",
                stacklevel=2,
            )
