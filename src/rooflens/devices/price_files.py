"""Prices of devices from a TOML file of the user's: ``l4 = 0.71``, for an hour, in any currency."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from rooflens.devices.names import catalogued, which_of
from rooflens.errors import FileError, RooflensError
from rooflens.opening import parsed_toml, read_text
from rooflens.records import Device


def prices_of(
    prices: Mapping[str, float] | str | Path | None, devices: Collection[str], find: Callable[[str], Device]
) -> dict[str, float]:
    """Return prices by canonical name; a file may hold those of other devices than the `devices` that are asked about.

    Args:
        find: gives the device of a name that a user typed; one in a file never opens another file.

    Raises:
        FileError: the file cannot be read, or a line of it is no price of a device that is known.
        UnknownDevice, AmbiguousDevice: a name of a mapping is none of one device.
    """
    if prices is None or isinstance(prices, Mapping):
        return {which_of(devices, device, find): price for device, price in (prices or {}).items()}
    where, found = repr(str(prices)), dict[str, float]()
    for device, price in parsed_toml(read_text(Path(prices)), where).items():
        if isinstance(price, bool) or not isinstance(price, int | float) or not price > 0:
            raise FileError(f"{where}: {device} = {price!r} is no price for an hour; write lines like l4 = 0.71")
        try:
            name = which_of(devices, device, catalogued)
        except RooflensError as error:
            raise FileError(f"{where}: {error}") from error
        if found.setdefault(name, price) != price:
            raise FileError(f"{where} has two prices of {name}: {found[name]} and {price}; leave one out")
    return {name: price for name, price in found.items() if name in devices}
