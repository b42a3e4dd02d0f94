"""Study files: TOML, read strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rooflens.devices import as_meant, catalogued_or_none, find
from rooflens.errors import InvalidValue, RooflensError, StudyFileError, checked
from rooflens.opening import parsed_toml, read_text
from rooflens.records import MODES, Scalar
from rooflens.study.clusters import clusters
from rooflens.study.conditions import as_named, check_condition, dtype_kind
from rooflens.study.grid import cells, excluding_nothing
from rooflens.study.hypotheses import hypotheses
from rooflens.study.study import HERE, MEASURED, OPTIONS, Exclusion, Grid, Recorded, Settings, SourceName, Study
from rooflens.study.toml_table import (
    COUNT,
    COUNTS,
    FLAG,
    FLAGS,
    NUMBERS,
    SCALARS,
    SECONDS,
    TEXT,
    TEXTS,
    KeyKind,
    TomlTable,
    one_of,
)

_RUN: tuple[SourceName, ...] = ("estimate", "measure", "counters")
_TABLES = (*_RUN, "grid", "exclude", "recorded", "hypothesis", "cluster")
_AXES: Mapping[str, KeyKind] = {
    "models": TEXTS,
    "batches": COUNTS,
    "dtypes": dtype_kind(many=True),
    "modes": one_of(MODES, many=True),
    "seq_lens": COUNTS,
    "img_sizes": COUNTS,
    "sources": one_of(_RUN, many=True),
}
_FIELDS: Mapping[str, KeyKind] = {
    "model": TEXT,
    "device": replace(TEXT, make=lambda name: find(as_meant(name)[0]).name),
    "batch": COUNT,
    "dtype": dtype_kind(),
    "mode": one_of(MODES),
}
_KINDS: Mapping[type, KeyKind] = {int: COUNTS, float: NUMBERS, str: TEXTS}
_OPTIONS: Mapping[str, KeyKind] = {
    name: one_of(line.choices, many=True) if line.choices else _KINDS.get(line.kind, FLAGS)
    for name, line in OPTIONS.items()
}
_CONDITIONS = dict.fromkeys(("source", *_FIELDS, "seq_len", "img_size", *OPTIONS), SCALARS)

_PATTERN = re.compile(r"[*?\[]")
MOST_CELLS = 100_000
"""Each becomes a file, before any is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """A study, and the file that it came from.

    Attributes:
        home: the folder that its paths are relative to.
    """

    study: Study
    text: str
    home: Path


def read_study(path: str | Path, *, home: Path | None = None) -> StudyFile:
    """Read a study file; docs/study.md describes the keys.

    Args:
        home: the folder that its paths are relative to; default is where the file lies.

    Raises:
        StudyFileError: the file cannot be read, or holds an unknown key or a value that cannot be used; the message
            names file, line, key and value, what is allowed, and near names.
    """
    path = Path(path)
    home = path.parent if home is None else home
    text = read_text(path, error=StudyFileError, what="study ")
    study = _study(TomlTable(str(path), text, parsed_toml(text, str(path), StudyFileError)), home)
    return StudyFile(study=study, text=text, home=home)


def device_notes(path: Path) -> tuple[str, ...]:
    """Return what is said of names in a study file that fit several devices: which of them is taken.

    Raises:
        StudyFileError: the file cannot be read.
    """
    values = parsed_toml(read_text(path, error=StudyFileError, what="study "), str(path), StudyFileError)
    words = dict.fromkeys(word for word in _device_words(values) if word not in HERE and not _PATTERN.search(word))
    return tuple(filter(None, (as_meant(word)[1] for word in words)))


def _device_words(value: object, key: str = "") -> Iterator[str]:
    """Yield what stands under the keys for devices, at any depth; keys of their tables are devices too."""
    if isinstance(value, str) and key in ("device", "devices", "roof"):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _device_words(item, key)
    elif isinstance(value, dict):
        yield from value if key == "devices" else ()
        for name, item in value.items():
            yield from _device_words(item, name)


def _study(top: TomlTable, home: Path) -> Study:
    texts = dict.fromkeys(("title", "question", "method", "figures"), TEXT)
    axes = {**_AXES, "devices": _devices(home)}
    given, (settings, devices_of), *_ = checked(  # so that wrong names everywhere are told together
        partial(top.read, {**texts, **axes, "budget": SECONDS}, ("options", *_TABLES)),
        partial(_settings, top, home),
        *(partial(table.read, axes, ("options",)) for table in top.tables("grid")),
    )
    if not given.get("title"):
        top.fail("title", "is missing; every study has a title")
    top_axes = {name: given[name] for name in axes if name in given}
    base = replace(Grid(models=()), **top_axes, options=top.table("options").read(_OPTIONS), devices_of=devices_of)
    grids = tuple(_grids(top, base, axes)) or ((base,) if base.models else ())
    if (size := sum(grid.size for grid in grids)) > MOST_CELLS:
        top.fail("models", f"and the other axes have {size:,} cells; a study has at most {MOST_CELLS:,}")
    recorded = tuple(_recorded(top, home))
    if not grids and not recorded:
        top.fail("models", "is missing, and nothing is recorded: there is nothing to study")
    if (figures := given.get("figures")) and not (home / figures).is_file():
        top.fail("figures", f"is {figures!r}, and there is no such file in {str(home)!r}")
    study = Study(
        title=given["title"],
        question=given.get("question", ""),
        method=given.get("method", ""),
        grids=grids,
        excluded=tuple(map(_exclusion, top.tables("exclude"))),
        recorded=recorded,
        settings=settings,
        budget=given.get("budget"),
        figures=figures or None,
        clusters=clusters(top.table("cluster")),
    )
    idle = excluding_nothing(study)
    for number, exclusion in enumerate(study.excluded):
        if exclusion in idle:
            top.fail("exclude", "leaves nothing out: no cell of the study meets all of its conditions", number)
    if not cells(study, home):
        top.fail("exclude", "leaves nothing of the study")
    return replace(study, hypotheses=tuple(hypotheses(top, study)))


def _grids(top: TomlTable, base: Grid, axes: Mapping[str, KeyKind]) -> Iterator[Grid]:
    """The grids under [[grid]], which take what they do not say from the top of the file."""
    for table in top.tables("grid"):
        given = table.read(axes, ("options",))
        # Devices of its own are for all of its sources.
        devices_of = {} if "devices" in given else base.devices_of
        options = {**base.options, **table.table("options").read(_OPTIONS)}
        grid = replace(base, **given, options=options, devices_of=devices_of)
        if not grid.models:
            table.fail("models", "is missing, here and at the top of the file")
        yield grid


def _devices(home: Path, words: Sequence[str] = HERE, *, many: bool = True) -> KeyKind:
    """Devices by the catalogue's names; the names of files and `words` for this machine stay as they are."""

    def known(value: str) -> str:
        if value in words:
            return value
        try:
            is_file = value.lower().endswith(".toml")
            device = find(str(home / value) if is_file else as_meant(value)[0])
        except RooflensError as error:
            raise InvalidValue(f"{error}; for this machine write {' or '.join(words)}") from error
        return value if is_file else device.name

    return replace(TEXT, needs="it has to be the name of a device", make=known, many=many)


def _settings(top: TomlTable, home: Path) -> tuple[Settings, dict[str, tuple[str, ...]]]:
    """How the sources work, and the devices of those that have their own."""
    common = {"devices": _devices(home), "limit": SECONDS}
    roof = {"roof": _devices(home, (MEASURED,), many=False)}
    estimate = top.table("estimate").read(common)
    measure = top.table("measure").read({**common, **roof, "budget": SECONDS, "fresh": FLAG})
    counting = top.table("counters").read({**common, **roof, "cache": one_of(("all", "none"))})
    tables = {"estimate": estimate, "measure": measure, "counters": counting}
    usual = Settings()
    settings = Settings(
        budget=measure.get("budget", usual.budget),
        limits={source: given.get("limit", usual.limits[source]) for source, given in tables.items()},
        fresh=measure.get("fresh", False),
        roofs={source: given["roof"] for source, given in tables.items() if "roof" in given},
        cache=counting.get("cache", usual.cache),
    )
    return settings, {source: given["devices"] for source, given in tables.items() if "devices" in given}


def _exclusion(table: TomlTable) -> Exclusion:
    conditions = table.read({**_CONDITIONS, "why": TEXT})
    why = conditions.pop("why", "")
    if not conditions:
        table.fail("", f"names no condition; known: {', '.join(_CONDITIONS)}")
    conditions = {name: tuple(as_named(name, value) for value in values) for name, values in conditions.items()}
    for name, values in conditions.items():
        for value in values:
            check_condition(table, name, value)
    if "device" in conditions:
        conditions["device"] = tuple(map(canonical, conditions["device"]))
    return Exclusion(conditions=conditions, why=why)


def canonical(device: Scalar) -> Scalar:
    """A device by the catalogue's name; a pattern, or what the catalogue does not know, as it is."""
    is_name = isinstance(device, str) and device not in HERE and not _PATTERN.search(device)
    known = catalogued_or_none(as_meant(str(device))[0]) if is_name else None
    return device if known is None else known.name


def _recorded(top: TomlTable, home: Path) -> Iterator[Recorded]:
    for table in top.tables("recorded"):
        case = table.read({"files": TEXTS, **_FIELDS})
        files = case.pop("files", ())
        if not files:
            table.fail("files", "is missing: patterns of record files, counters or traces")
        for n, pattern in enumerate(files):
            if Path(pattern).is_absolute():
                table.fail("files", f"is {pattern!r}; name files from the folder of the study", n)
            if not any(path.is_file() for path in home.glob(pattern)):
                table.fail("files", f"is {pattern!r}, and no such file is in {str(home)!r}", n)
        yield Recorded(files=files, case=case)
