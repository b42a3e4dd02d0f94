"""Finds a device by its name.

Case and separators never matter. The lookup has three steps:

1. Exact: a canonical name, an alias, or a name that drivers report.
2. By words: each device that has *all words* of the name, and whose model words are *all in* the name. Words that do
   not tell models apart (vendor, series, memory size, form factor) may be left out. ``rtx 2080`` is not a 2080 Ti, and
   a word that a device does not have (``rtx 3090 ti``, ``a100 64gb``) rules it out.
3. Several devices fit: an error that lists them, and names the usual one. None fits: an error with near names.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from rooflens.devices.files import DeviceFile, load_file, read_device, slug
from rooflens.devices.rules import times
from rooflens.errors import AmbiguousDevice, InvalidValue, RooflensError, UnknownDevice
from rooflens.records import Device

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# A name must follow: "3900x" is one name, and not 3900 of nothing. "7900xtx" is one too, and not 7900 "tx": the whole
# is looked up before its parts.
_COUNTED = re.compile(r"\s*([0-9]{1,6})\s*[xX×*]\s*(?=.*[^\W_])(\S.*)", re.DOTALL)
_TRADEMARK = re.compile(r"\((?:r|tm|c)\)|[®™©]", re.IGNORECASE)
_NEAR = 5
_NEAR_ENOUGH = 0.6
"""Similarity of two names, 0 to 1, by difflib."""


def find(name: str, special: Mapping[str, Callable[[], Device]] | None = None) -> Device:
    """The device of this name: from the catalogue, or from a file if the name ends in ``.toml``.

    ``2x NAME`` is two of them as one device, see :func:`rooflens.devices.times`.

    Args:
        special: functions for names outside the catalogue, in lower case, like ``measured``.

    Raises:
        UnknownDevice: no device has this name; near names are listed.
        AmbiguousDevice: several have it; they are listed.
        DeviceFileError: the file cannot be read or holds a wrong key or value.
        InvalidValue: none of a device (``0x t4``).
    """
    special = special or {}

    def one(name: str) -> Device:
        if (lowered := name.strip().lower()) in special:
            return special[lowered]()
        return load_file(name.strip()) if lowered.endswith(".toml") else _one(name)

    return _counted(name, one)


def catalogued(name: str) -> Device:
    """The catalogue's device of a name that was read from a file. Such a name never opens a file.

    Raises:
        UnknownDevice, AmbiguousDevice, InvalidValue: as :func:`find`.
    """
    return _counted(name, _one)


@cache
def catalogued_or_none(name: str) -> Device | None:
    """As :func:`catalogued`; None for a name that no device has, or several."""
    try:
        return catalogued(name) if name else None
    except RooflensError:
        return None


def by_title(title: str, kind: str | None = None) -> Device | None:
    """The device that software reports by this name, None if there is none, or several.

    Args:
        title: a name from ``torch.cuda.get_device_name()``, ``nvidia-smi`` or ``/proc/cpuinfo``.
        kind: gpu, cpu, tpu, soc or accelerator, if only devices of one kind are meant.

    Only exact names of one device count: a package of two dies, or a card that has different memories under one name,
    is not found. A CPU entry is one socket with all of its cores.
    """
    fits = [file.device for file in _titles().get(_compact(title), ()) if kind in (None, file.device.kind)]
    return fits[0] if len(fits) == 1 else None


def as_meant(name: str) -> tuple[str, str]:
    """Return the name of the device that people mostly mean where a name fits several, and a note that says so.

    Any other name comes back as it is, without a note: whoever looks it up tells what is wrong with it.
    """
    try:
        catalogued(name)
    except AmbiguousDevice as several:
        if several.usual is not None:
            others = ", ".join(fit for fit in several.fits if fit != several.usual)
            note = f"{several.name} is taken for {several.usual}; there are also {others}"
            return name.removesuffix(several.name) + several.usual, note
    except RooflensError:
        return name, ""
    return name, ""


def which_of(here: Collection[str], name: str, look: Callable[[str], Device] = find) -> str:
    """Return which device of a set a typed name means: the only one of them that it fits, else whatever it is."""
    if name in here:
        return name
    try:
        return catalogued(name).name
    except AmbiguousDevice as several:
        known = [fit for fit in several.fits if fit in here]
        return known[0] if len(known) == 1 else look(name).name
    except RooflensError:
        return look(name).name


@cache
def catalogue() -> tuple[Device, ...]:
    """Every device of the catalogue, by canonical name."""
    return tuple(file.device for file in _files())


@cache
def usual_names() -> tuple[str, ...]:
    """Canonical names of the cards that people mostly mean and rent."""
    text = (files("rooflens.devices") / "usual.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["devices"])


def usual_devices() -> tuple[Device, ...]:
    """The cards of :func:`usual_names`."""
    return tuple(map(catalogued, usual_names()))


def _counted(name: str, one: Callable[[str], Device]) -> Device:
    """A device, or several of it as one."""
    counted = _COUNTED.fullmatch(name)
    if counted is None:
        return one(name)
    count = int(counted[1])
    if count == 0:
        raise InvalidValue(f"device {name!r} is none at all; write at least '1x {counted[2]}'")
    if whole := _fitting(_compact(name)):
        return _only(name, whole)
    return times(one(counted[2]), count)


def _one(name: str) -> Device:
    canonical = _read(slug(name))
    return _only(name, _fitting(_compact(name))) if canonical is None else canonical.device


def _only(name: str, fits: tuple[DeviceFile, ...]) -> Device:
    if not fits:
        raise _unknown(name)
    if len(fits) > 1:
        names = [file.device.name for file in fits]
        usual = [known for known in names if known in usual_names()]
        raise AmbiguousDevice(name, names, usual[0] if len(usual) == 1 else None)
    return fits[0].device


def _fitting(compact: str) -> tuple[DeviceFile, ...]:
    return _exact().get(compact) or tuple(file for file in _files() if _fits(compact, _words(file), _model(file)))


@cache
def _read(canonical: str) -> DeviceFile | None:
    """One file of the catalogue: a canonical name must not cost reading all of them."""
    file = _paths().get(canonical)
    return None if file is None else read_device(file.read_text(encoding="utf-8"), file.name)


@cache
def _files() -> tuple[DeviceFile, ...]:
    return tuple(file for file in map(_read, _paths()) if file is not None)


@cache
def _paths() -> Mapping[str, Traversable]:
    """The files of the catalogue by canonical name, in the order of names."""
    entries = (files("rooflens.devices") / "catalogue").iterdir()
    paths = {entry.name.removesuffix(".toml"): entry for entry in entries if entry.name.endswith(".toml")}
    return dict(sorted(paths.items()))


@cache
def _exact() -> Mapping[str, tuple[DeviceFile, ...]]:
    return _index((file, (file.device.name, file.device.title, *file.device.aliases)) for file in _files())


@cache
def _titles() -> Mapping[str, tuple[DeviceFile, ...]]:
    return _index((file, (file.device.title, *file.reported)) for file in _files())


def _index(names: Iterable[tuple[DeviceFile, Iterable[str]]]) -> Mapping[str, tuple[DeviceFile, ...]]:
    index: dict[str, tuple[DeviceFile, ...]] = {}
    for file, spellings in names:
        for spelling in {_compact(spelling) for spelling in spellings}:
            index[spelling] = (*index.get(spelling, ()), file)
    return index


def _compact(text: str) -> str:
    """A name without case, separators and trademark signs."""
    return "".join(filter(str.isalnum, _TRADEMARK.sub("", text).casefold()))


def _split(text: str) -> frozenset[str]:
    return frozenset(slug(text).split("-")) - {""}


def _model(file: DeviceFile) -> frozenset[str]:
    """The words that a name must have."""
    return _split(file.model or file.device.title)


def _words(file: DeviceFile) -> frozenset[str]:
    """The words that a name may have."""
    device = file.device
    return _split(" ".join((device.title, device.vendor, file.model, *file.words)))


def _fits(compact: str, words: frozenset[str], model: frozenset[str]) -> bool:
    """True if `compact` is made of distinct `words` in any order, with all words of the `model` among them.

    It need not be split at separators, since people leave them out: ``a100pcie40gb``, ``RTX3090``.
    """
    if not compact:
        return not model
    return any(
        compact.startswith(word) and _fits(compact[len(word) :], words - {word}, model - {word}) for word in words
    )


def _unknown(name: str) -> UnknownDevice:
    near = _near(name)
    hint = f"; did you mean {', '.join(near)}?" if near else ";"
    remedy = "'rooflens devices list' shows all names, and a name that ends in .toml is read as a device file"
    return UnknownDevice("device", name, (), f"{hint} {remedy}")


def _near(name: str) -> list[str]:
    """Canonical names of the devices that `name` may have meant, the nearest first."""
    compact, words = _compact(name), _split(name)

    def similarity(spelling: str) -> float:
        return SequenceMatcher(None, compact, _compact(spelling), autojunk=False).ratio()

    nearness: dict[str, float] = {}
    for file in _files():
        best = max(map(similarity, (file.device.name, file.model, *file.device.aliases)))
        # Too few words to tell the model: "gaudi", "rtx 2080".
        nearness[file.device.name] = best + 1 if words and words <= _words(file) else best
    enough = sorted((name for name in nearness if nearness[name] >= _NEAR_ENOUGH), key=lambda name: -nearness[name])
    return enough[:_NEAR]
