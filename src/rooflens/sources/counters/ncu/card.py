"""The card of this machine, through the driver alone: torch takes seconds to import."""

from __future__ import annotations

import ctypes

DRIVER = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and MINOR of cuda.h."""


WAKING = "rooflens_wakes_ncu"
"""The name of a kernel that does nothing."""
_KERNEL = f"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry {WAKING}()
{{
    ret;
}}
""".encode()


def wake() -> None:
    """Let ncu look at a kernel that does nothing: over the first one it takes a second.

    From then on it leaves the card to no other ncu before this process ends. Where the driver cannot, nothing happens.
    """
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return
    card, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    ready = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(card), 0)
        or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), card)
        or driver.cuCtxSetCurrent(context)
        or driver.cuModuleLoadData(ctypes.byref(module), _KERNEL)
        or driver.cuModuleGetFunction(ctypes.byref(kernel), module, WAKING.encode())
        or driver.cuProfilerStart()
    ) == 0
    if ready:
        ones = (ctypes.c_uint(1),) * 6
        driver.cuLaunchKernel(kernel, *ones, ctypes.c_uint(0), None, None, None)
        driver.cuCtxSynchronize()
        driver.cuProfilerStop()


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
