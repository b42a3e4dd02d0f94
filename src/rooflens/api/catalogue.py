"""The devices that rooflens knows, from Python."""

from __future__ import annotations

from rooflens.devices import catalogue
from rooflens.errors import InvalidValue
from rooflens.machine import find
from rooflens.records import Device


def devices(*, vendor: str | None = None, kind: str | None = None) -> tuple[Device, ...]:
    """Every device of the catalogue, by canonical name; twin of ``rooflens devices list``.

    >>> [d.name for d in devices(vendor="aws")]
    ['graviton3']

    Args:
        vendor: only devices of this maker; case does not matter.
        kind: only gpu, cpu, tpu, soc or accelerator.

    Raises:
        InvalidValue: no device has this vendor or kind; those that exist are listed.
    """
    found = catalogue()
    if vendor is not None:
        maker = _known("vendor", vendor, {device.vendor for device in found})
        found = tuple(device for device in found if device.vendor == maker)
    if kind is not None:
        wanted = _known("kind", kind, {device.kind for device in catalogue()})
        found = tuple(device for device in found if device.kind == wanted)
    return found


def _known(what: str, wanted: str, known: set[str]) -> str:
    """`wanted` as the catalogue spells it."""
    spelled = next((value for value in known if value.lower() == wanted.lower()), None)
    if spelled is None:
        listed = ", ".join(sorted(known, key=str.lower))
        raise InvalidValue(f"unknown {what} {wanted!r}; the catalogue has {listed}")
    return spelled


def device(name: str) -> Device:
    """The device of this name; twin of ``rooflens devices show``.

    >>> device("t4").require("matmul.fp16").rate
    65000000000000.0

    Args:
        name: a canonical name, an alias, a name that drivers report, ``2x NAME`` for two of them, ``measured``
            for this machine as :func:`calibrate` found it, or the path of a device file that ends in ``.toml``. Case
            and separators do not matter.

    Raises:
        UnknownDevice: no device has this name; near names are listed.
        AmbiguousDevice: several have it; they are listed.
        DeviceFileError: the file cannot be read or holds a wrong key or value.
    """
    return find(name)
