"""A look at the card before this process touches it, and the card woken while torch is imported."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from rooflens.sources.conditions import Observer

DRIVER = "libcuda.so.1"


def first_look(where: str) -> Callable[[], Observer | None]:
    """Look at the card, then wake it, in a thread: importing torch takes as long.

    Args:
        where: torch's device type; another word may become the card.

    Returns:
        What waits for the observer of the card; it gives None where a processor is to run.
    """
    if where == "cpu":
        return lambda: None
    seen: list[Observer] = []

    def look() -> None:
        seen.append(Observer("cuda", untouched=True))
        wake_card()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()

    def observer() -> Observer | None:
        thread.join()
        return seen[0] if seen else None

    return observer


def wake_card() -> None:
    """Make the context of the first card, which torch then finds there; nothing without a driver or a card."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return
    card, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(card), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), card)
