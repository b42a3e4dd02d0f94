"""The option for prices of devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rooflens.cli.completion import usual_name
from rooflens.cli.parameter_types import OptionType


class Price(OptionType):
    """A device and its price, or a file of them."""

    name = "device=price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float] | Path:
        if isinstance(value, tuple | Path):
            return value
        if str(value).lower().endswith(".toml"):
            return Path(value)
        device, _, price = str(value).rpartition("=")
        try:
            amount = float(price) if device else None
        except ValueError:
            amount = None
        if amount is None:
            self.fail(f"{value!r} is no price; write h200=3.5, or name a .toml file of such lines", param, ctx)
        return usual_name(device), amount


def _together(
    ctx: click.Context, param: click.Parameter, given: Sequence[tuple[str, float] | Path]
) -> dict[str, float] | Path | None:
    """All prices, or the one file of them."""
    files = [one for one in given if isinstance(one, Path)]
    if files and len(given) > 1:
        raise click.BadParameter(f"{str(files[0])!r} is a file of prices; write all of them there", ctx, param)
    return files[0] if files else dict(one for one in given if not isinstance(one, Path)) or None


price_option = click.option(
    "--price",
    "prices",
    type=Price(),
    multiple=True,
    callback=_together,
    help="Price of a device for an hour, in a currency of yours; or a .toml file of them: lines like l4 = 0.71."
    " Repeatable.",
)
