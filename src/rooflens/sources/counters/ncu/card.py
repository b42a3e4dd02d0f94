"""The card of this machine, through the driver alone: torch takes seconds to import."""

from __future__ import annotations

import ctypes

DRIVER = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and MINOR of cuda.h."""


def capability() -> str | None:
    """Return the compute capability of the first card that this process may use, like ``9.0``; None without a card."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return None
    card, parts = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(card), 0):
        return None
    for value, attribute in zip(parts, (_MAJOR, _MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, card):
            return None
    return ".".join(str(value.value) for value in parts)
