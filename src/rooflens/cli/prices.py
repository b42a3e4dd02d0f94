"""The option for prices of devices."""

from __future__ import annotations

from typing import Any

import click

from rooflens.cli.completion import usual_name


class Price(click.ParamType):  # type: ignore[type-arg]
    """A device and its price."""

    name = "device=price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        device, _, price = str(value).rpartition("=")
        try:
            amount = float(price) if device else None
        except ValueError:
            amount = None
        if amount is None:
            self.fail(f"{value!r} is no price; write h200=3.5", param, ctx)
        return usual_name(device), amount


price_option = click.option(
    "--price",
    "prices",
    type=Price(),
    multiple=True,
    help="Price of a device for an hour, in a currency of yours. Repeatable.",
)
