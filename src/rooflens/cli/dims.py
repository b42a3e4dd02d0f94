"""``--dim``: sizes that an ONNX file leaves open."""

from __future__ import annotations

from typing import Any

import click


class NamedSize(click.ParamType):  # type: ignore[type-arg]
    """A name and a whole number; the name may be anything, and is cut off at the last ``=``."""

    name = "name=n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, _, size = str(value).rpartition("=")
        if not name or not size.isdecimal():
            self.fail(f"{value!r} is no name with a size; write past_sequence_length=128", param, ctx)
        return name, int(size)


def _as_sizes(ctx: click.Context, param: click.Parameter, given: tuple[tuple[str, int], ...]) -> dict[str, int] | None:
    return dict(given) or None


dim_option = click.option(
    "--dim",
    "dims",
    type=NamedSize(),
    multiple=True,
    callback=_as_sizes,
    help="Size that an ONNX file leaves open, by its name there. Repeatable.",
)
