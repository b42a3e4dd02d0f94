"""How results show themselves in a notebook: as HTML, made by the layer that draws tables."""

from __future__ import annotations

from typing import TypeVar

from rooflens.on_demand import notebook_html

T = TypeVar("T")


class Displayed:
    """What shows itself in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows; None leaves it with the text."""
        return notebook_html(self)


class Listed(tuple[T, ...], Displayed):
    """A tuple that shows itself in a notebook."""

    __slots__ = ()
