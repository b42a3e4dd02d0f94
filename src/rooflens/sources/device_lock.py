"""A device of this machine for one measurement at a time: two runners wait for each other.

The lock is the system's own, on a file in the user's cache, and ends with the process that holds it, however it ends.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from rooflens.devices.files import cache_folder
from rooflens.host_limits import text
from rooflens.progress import WAITING

if sys.platform != "win32":
    import fcntl


UNTOLD = 1.0
"""Seconds for which somebody waits without a word."""


@contextmanager
def alone_on(
    where: str, tell: Callable[[str], None] = lambda _: None, *, cards: Sequence[str] | None = None
) -> Iterator[None]:
    """Hold devices of this machine while the block runs; wait for whoever holds them.

    Without a folder to write in, or on a system without such locks, nobody waits.

    Args:
        where: torch's device type.
        tell: takes a sentence if there is somebody to wait for.
        cards: what tells those apart that are held, from :func:`card_names` of whoever runs on them; by default the
            first that torch finds, which is imported for that.
    """
    if sys.platform == "win32":
        yield
        return
    with ExitStack() as stack:
        for name in _names(where, cards):  # all take them in the same order, so that no two wait for each other
            file = _opened(name)
            if file is not None:
                stack.enter_context(file)  # closing it frees the lock
                _lock(file, where, tell)
        yield


def _lock(file: IO[str], where: str, tell: Callable[[str], None]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = re.fullmatch(r"[0-9]{1,9}", file.read(10).strip())
        who = f"process {holder[0]}" if holder else "another process"
        if not _freed(file):
            tell(f"{WAITING} until {who} has measured on {where} of this machine")
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # the file system has no locks
        return
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()


def _freed(file: IO[str]) -> bool:
    """True if the lock is held now, since its holder gave it back in the second in which nobody need be told."""
    end = time.monotonic() + UNTOLD
    while time.monotonic() < end:
        time.sleep(UNTOLD / 20)
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _opened(name: str) -> IO[str] | None:
    """Open the file of a lock; None if there is no place for it."""
    for folder in (cache_folder(), Path(tempfile.gettempdir()) / f"rooflens-{os.getuid()}"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / f"measuring-{_machine()}-{name}.lock").open("a+")
        except OSError:
            continue
    return None


def _names(where: str, cards: Sequence[str] | None) -> list[str]:
    return sorted(card_names()[:1] if cards is None else cards) if where == "cuda" else [where]


def card_names() -> tuple[str, ...]:
    """Return what tells the cards apart that torch finds, whatever a process sees of this machine."""
    import torch

    cards = (torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count()))
    return tuple(re.sub(r"[^\w-]", "", str(getattr(card, "uuid", None) or card.name)) for card in cards)


@cache
def _machine() -> str:
    """Return what tells machines apart that share a home folder."""
    boot = text("/proc/sys/kernel/random/boot_id") or os.uname().nodename
    return hashlib.sha256(boot.encode()).hexdigest()[:12]
