"""Every error that rooflens raises on purpose.

::

    RooflensError                 base class; the command line prints it without a traceback
    ├── InvalidValue              an argument that cannot be used (batch 0, an unknown mode)
    │   └── UnitError             a quantity that cannot be parsed, or in the wrong unit
    ├── UnknownName               a name that is not known; near names are listed
    │   ├── UnknownModel
    │   ├── UnknownOption         a function was given an option that it has not; its options are listed
    │   └── UnknownDevice
    │       └── AmbiguousDevice   a name that fits several devices
    ├── MissingDependency         an optional package that this call needs
    ├── MissingCeiling            a device has no rate for a unit that the work needs
    ├── CountersUnavailable       hardware counters cannot be read here; the message says who can change that
    ├── ModelError                the model could not be built or run
    │   └── DataDependent         shapes or control flow depend on values
    ├── AmbiguousResult           a total was asked of a set with several cases or sources
    ├── Incomparable              a comparison would mislead: nothing in common, or environments differ
    ├── ClusterError              a cluster that is not there, refuses jobs, or loses them
    └── FileError
        ├── UnknownFormat         a file that no reader reads
        ├── RecordFileError       a record file that is damaged or from a newer version
        ├── DeviceFileError       a device file with a wrong key or value
        ├── FiguresError          a table of figures with a damaged cell
        ├── StudyFileError        a study file with a wrong key or value; line and key are named
        └── OutputError           a result that cannot be written
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

LONGEST = 1000
"""Characters that are told of what a user's code says."""
LONGEST_MESSAGE = 4 * LONGEST
"""Characters of a whole message, into which some of the former may enter."""


def cut(text: str, most: int = LONGEST) -> str:
    """Return a text, cut in the middle where it is longer than `most`; it says how much was cut.

    >>> cut("abcdefghij", 4)
    'ab [... 6 characters are cut here ...] ij'
    """
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} [... {len(text) - 2 * half:,} characters are cut here ...] {text[-half:]}"


def message_of(error: BaseException) -> str:
    """Return the message of an error that anybody's code raised, cut where it is long."""
    try:
        return cut(str(error).strip()) or "no message"
    except Exception as another:  # noqa: BLE001 - the code of a stranger may raise anything
        return f"no message, since making it raised {class_of(another)}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message: the rest of torch's messages is about its internals."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - the code of a stranger may raise anything
        lines = []
    return cut(lines[0]) if lines else message_of(error)


def exit_code(error: SystemExit) -> str:
    """Return the code, or the message, with which a program ends itself."""
    return "0" if error.code is None else message_of(error)


def class_of(value: object) -> str:
    """Return the name of a value's class, cut where it is long."""
    return cut(type(value).__name__, 100)


def meant(name: str, known: Iterable[str]) -> str:
    """Return which known names are near one that is not, for the end of a message; "" where none is.

    >>> meant("gren", ["green", "red"])
    '; did you mean green?'
    """
    near = get_close_matches(name.lower(), sorted(known), n=5, cutoff=0.5)
    return f"; did you mean {', '.join(near)}?" if near else ""


class RooflensError(Exception):
    """Base of all errors that rooflens raises on purpose."""


def as_told(kind: str, message: str, notes: Iterable[str] = ()) -> RooflensError:
    """Return an error that another process raised, of the class of this name."""
    cls: type[RooflensError] = globals()[kind]
    error = cls.__new__(cls, message)  # without the arguments from which the class makes its message
    for note in notes:
        error.add_note(note)
    return error


class InvalidValue(RooflensError, ValueError):
    """An argument has a value that cannot be used."""


class UnitError(InvalidValue):
    """A quantity cannot be parsed, or its unit is not the one expected."""


class UnknownName(RooflensError, LookupError):
    """A name is not known; the message lists near names, and ends with `remedy` as it is given.

    >>> str(UnknownName("color", "gren", ["green", "red"]))
    "unknown color 'gren'; did you mean green?"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str = "") -> None:
        super().__init__(f"unknown {kind} {name!r}{meant(name, known)}{remedy}")


class UnknownModel(UnknownName):
    """No provider knows a model of this name."""


class UnknownDevice(UnknownName):
    """The catalogue holds no device of this name."""


class UnknownOption(UnknownName, TypeError):
    """A function has no option of this name; the message lists its options."""

    def __init__(self, function: str, name: str, known: Collection[str]) -> None:
        super().__init__("option", name, known, f" ({function} has {', '.join(known)})")


class AmbiguousDevice(UnknownDevice):
    """The name fits several devices; the message lists them.

    Attributes:
        name: what was asked for.
        fits: canonical names of the devices that fit.
        usual: the one of them that people mostly mean; None where there is none.
    """

    def __init__(self, name: str, fits: Iterable[str], usual: str | None = None) -> None:
        self.name, self.fits, self.usual = name, tuple(sorted(fits)), usual
        most = f" (most people mean {usual})" if usual else ""
        RooflensError.__init__(
            self, f"device {name!r} fits several devices: {', '.join(self.fits)}; name one of them{most}"
        )


def installing(extra: str) -> str:
    """Return how to get an extra, of a release and in a clone."""
    return f"pip install 'rooflens[{extra}]' (in a clone: pip install '.[{extra}]')"


class MissingDependency(RooflensError, ImportError):
    """An optional package is not installed; the message says how to get it."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(f"{purpose} needs {package}: {installing(extra)}")


class MissingCeiling(RooflensError):
    """A device has no rate for a unit that the work needs; the message begins with what it lacks, like "no bf16"."""


class CountersUnavailable(RooflensError):
    """Hardware counters cannot be read on this machine."""


class ModelError(RooflensError):
    """The model could not be built, or raised while it ran."""


class DataDependent(ModelError):
    """A shape or a branch depends on values that an estimate does not have."""


class AmbiguousResult(RooflensError):
    """A total was asked of a set that holds several cases or sources."""


class Incomparable(RooflensError):
    """What is to be compared has nothing in common, or differs in what would decide the result."""


class ClusterError(RooflensError):
    """There is no cluster here, it refuses jobs, or jobs end without a result."""


class FileError(RooflensError):
    """A file cannot be used."""


class UnknownFormat(FileError):
    """A file is of none of the formats that are read, or not of the one that was expected."""


class RecordFileError(FileError):
    """A record file is damaged or was written by a newer rooflens."""


class DeviceFileError(FileError):
    """A device file holds a wrong key or value."""


class FiguresError(FileError):
    """A table of reported figures cannot be read, or holds a damaged cell."""


class StudyFileError(FileError):
    """A study file holds a wrong key or value."""


class OutputError(FileError):
    """A result cannot be written where it was asked for."""


def told_together(errors: Iterable[RooflensError]) -> RooflensError:
    """Return one error that tells all: the only one, or one of the kind that all are of."""
    each = list({str(error): error for error in errors}.values())
    if len(each) == 1:
        return each[0]
    kind = next(kind for kind in type(each[0]).__mro__ if all(isinstance(error, kind) for error in each))
    return as_told(kind.__name__, "\n".join(map(str, each)))


def checked(*checks: Callable[[], Any]) -> list[Any]:
    """Return what each check returns; what they raise is told together, so that all mistakes are seen at once."""
    results: list[Any] = []
    errors: list[RooflensError] = []
    for check in checks:
        try:
            results.append(check())
        except RooflensError as error:
            errors.append(error)
    if errors:
        raise told_together(errors)
    return results


def check_torch() -> None:
    """Raise MissingDependency if torch is not installed."""
    if find_spec("torch") is None:
        raise MissingDependency("this", "torch", "torch")
