"""Leases: files that say who runs a cell now, so that runners on any number of nodes need no server between them.

A lease is a file that only one runner can create. Its holder touches it while it works. A runner on the same machine
knows at once that a holder is dead; one on another machine waits until the file has not been touched for `STALE`
seconds of the file system's own clock. Who finds a stale lease does not remove it, which two could do in turn and both
believe it to be theirs: the next generation of the lease is created, which again only one runner can do.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

BEAT = 20.0
"""Seconds between two touches of a lease."""
STALE = 180.0
"""Seconds without a touch after which a lease is stale: NFS may show a touch of another node a minute late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process, with what identifies it among all others.

    Attributes:
        place: a hash of the machine's boot and the space of its process numbers; empty where the system tells neither.
        started: when the process began, in ticks since the boot: process numbers are used again.
    """

    place: str
    pid: int
    started: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex)


@contextmanager
def lease(folder: Path, key: str) -> Iterator[Lease | None]:
    """The lease of a cell while the block runs, or None where another runner holds it."""
    taken = _take(folder, key)
    try:
        yield taken
    finally:
        if taken is not None:
            taken.release()


def is_leased(folder: Path, key: str) -> bool:
    """True if a living runner holds the lease of a cell."""
    number = 1
    while (holder := _holder(path := _path(folder, key, number))) is not None:
        if _alive(holder, path, folder):
            return True
        number += 1
    return False


class Lease:
    """A lease that is held: touched by a thread of its own until it is released."""

    def __init__(self, folder: Path, key: str, number: int, holder: Holder) -> None:
        self._folder, self._key, self._number, self._holder = folder, key, number, holder
        self._over = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    @property
    def took_over(self) -> bool:
        """True if an earlier runner died while it ran the cell."""
        return self._number > 1

    def is_held(self) -> bool:
        """True if it is still ours: a process that stood still for minutes may have lost it to another."""
        return (
            _holder(_path(self._folder, self._key, self._number)) == self._holder
            and _holder(_path(self._folder, self._key, self._number + 1)) is None
        )

    def release(self) -> None:
        """Free the cell; stale leases go too, the oldest first."""
        self._over.set()
        if self.is_held():
            for number in range(1, self._number + 1):
                _path(self._folder, self._key, number).unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(OSError):  # the disk of a cluster may be away for a while; the next beat tells again
                os.utime(_path(self._folder, self._key, self._number))


def _take(folder: Path, key: str) -> Lease | None:
    me, number = _myself(), 1
    while not _created(path := _path(folder, key, number), me):
        holder = _holder(path)
        if holder is not None and _alive(holder, path, folder):
            return None
        if holder is not None:
            number += 1
    taken = Lease(folder, key, number, me)
    if taken.is_held():
        return taken
    # Somebody holds a later generation: the ones before it were just being cleared away.
    taken._over.set()
    path.unlink(missing_ok=True)
    return None


def _path(folder: Path, key: str, number: int) -> Path:
    # Beside the record files: creating a file makes an NFS client look again at what the folder holds.
    return folder / f".{key}.lease-{number}"


def _created(path: Path, holder: Holder) -> bool:
    """Write a lease, whole, and return True; False if it exists."""
    text = json.dumps(asdict(holder))
    whole = path.with_name(f"{path.name}.{holder.token}")
    whole.write_text(text)
    try:
        os.link(whole, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: exclusive creation is then as sure, but not whole at once
        try:
            with path.open("x") as file:
                file.write(text)
        except FileExistsError:
            return False
    finally:
        whole.unlink(missing_ok=True)
    return True


def _holder(path: Path) -> Holder | None:
    """Who wrote a lease; None where there is none."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):  # being written
        return Holder(place="", pid=0, started="", token="")


def _alive(holder: Holder, path: Path, folder: Path) -> bool:
    """True if the holder of a lease still works on its cell."""
    here = _myself()
    if here.place and holder.place == here.place:
        return _started(holder.pid) == holder.started
    with suppress(FileNotFoundError):
        return _now(folder) - path.stat().st_mtime < STALE
    return False


def _now(folder: Path) -> float:
    """The time by the clock that dates the files of a folder."""
    probe = folder / f".clock-{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:  # somebody who may only read the folder asks how far it is
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def _myself() -> Holder:
    pid = os.getpid()
    started = _started(pid)
    return Holder(place=_place() if started else "", pid=pid, started=started)


@cache
def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.sha256(f"{boot} {space}".encode()).hexdigest()[:16]


def _started(pid: int) -> str:
    """When a process began, by /proc; "" for one that has ended."""
    try:
        # The name of the program, in parentheses, may hold anything.
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else rest[18]
