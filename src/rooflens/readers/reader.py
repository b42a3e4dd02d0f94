"""What a reader is, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rooflens.devices import by_title
from rooflens.devices.files import slug
from rooflens.devices.reserves import one_of
from rooflens.records import AS_IS, Case, Device, Scalar
from rooflens.results import RecordSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """What the user says of a file.

    Attributes:
        name: the model of the cases.
        device: where it was taken, None where the file has to tell.
    """

    name: str
    device: Device | None = None

    def device_of(self, title: str | None) -> Device | None:
        """Return the user's device, else the GPU of the catalogue that drivers report by this title.

        Of a board with several devices, as an MI250X is, a kernel runs on one.
        """
        device = self.device or (by_title(title, "gpu") if title else None)
        return device if device is None or device.count > 1 else one_of(device)[0]

    def device_name(self, title: str | None) -> str | None:
        """Return the name of that device in cases: one that the catalogue lacks is called by its title."""
        device = self.device_of(title)
        return device.name if device is not None else slug(title) if title else None


class FoundCases:
    """The cases of a file of another tool, and the devices that they name.

    Attributes:
        devices: those of the cases so far, by name.
    """

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self.devices: dict[str, Device] = {}

    def of(self, title: str | None, gpu: Scalar | None = None) -> Case:
        """Return the case of what ran on a device.

        Args:
            title: of the device, as drivers report it.
            gpu: its number, where the file has several.
        """
        device = self._context.device_of(title)
        if device is not None:
            self.devices[device.name] = device
        return Case(
            model=self._context.name,
            device=self._context.device_name(title),
            dtype=AS_IS,
            options=() if gpu is None else (("gpu", gpu),),
        )


def numbered(gpu: int | None, *, several: bool) -> int | None:
    """Return the number of a GPU by which cases are told apart; -1 of one that has none; None of the only GPU."""
    if not several:
        return None
    return -1 if gpu is None else gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A format of files.

    Attributes:
        name: the format, in a word or two.
        reads: the files in words, as errors list them: ``"traces of PyTorch's profiler (.json)"``.
        recognises: True if a file begins like this, by its first 64 KiB, unpacked.
        read: gives the records of a file. It raises FileError for a damaged one, and UnknownFormat for one that is of
            another format after all. :mod:`rooflens.opening` opens files within bounds.
    """

    name: str
    reads: str
    recognises: Callable[[bytes], bool]
    read: Callable[[Path, ReadContext], RecordSet]
