"""The device catalogue: one reviewed TOML file per device, every number with its origin and reference.

A device has names that people use and names that drivers report, or it is a file of the user::

    find("t4"), find("NVIDIA A100-SXM4-40GB"), find("2x v100-sxm2-16gb"), find("my-board.toml")

A name that fits no device, or several, is an error: it never gives another device's numbers. Rates are dense, per torch
device, one multiply-add is two FLOP. The keys of a file and the rules for derived rates are described in
docs/devices.md.
"""

from rooflens.devices.files import load_file, stored_path
from rooflens.devices.names import (
    as_meant,
    by_title,
    catalogue,
    catalogued,
    catalogued_or_none,
    find,
    usual_devices,
    which_of,
)
from rooflens.devices.rules import memory_seen, times
from rooflens.devices.writing import device_text
