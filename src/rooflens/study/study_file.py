"""Study files: TOML, read strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rooflens.devices import catalogued_or_none, find
from rooflens.errors import RooflensError, StudyFileError
from rooflens.opening import parsed_toml, read_text
from rooflens.records import AS_IS, DTYPES, MODES, Scalar
from rooflens.study.clusters import clusters
from rooflens.study.conditions import check_condition
from rooflens.study.grid import cells, excluding_nothing
from rooflens.study.hypotheses import hypotheses
from rooflens.study.study import HERE, MEASURED, OPTIONS, Exclusion, Grid, Recorded, Settings, SourceName, Study
from rooflens.study.toml_table import TomlTable

AXES = ("models", "devices", "batches", "dtypes", "modes", "seq_lens", "img_sizes", "sources", "options")
TEXTS = ("title", "question", "method")
_RUN: tuple[SourceName, ...] = ("estimate", "measure", "counters")
TABLES = (*_RUN, "grid", "exclude", "recorded", "hypothesis", "cluster")
SETTINGS: Mapping[SourceName, tuple[str, ...]] = {
    "estimate": ("devices", "limit"),
    "measure": ("devices", "budget", "limit", "fresh", "roof"),
    "counters": ("devices", "limit", "roof", "cache"),
}
FIELDS = ("model", "device", "batch", "dtype", "mode")
CONDITIONS = ("source", *FIELDS, "seq_len", "img_size", *OPTIONS)


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


def _study(top: TomlTable, home: Path) -> Study:
    top.refuse_others((*TEXTS, *AXES, "budget", "figures", *TABLES))
    if not top.text_of("title"):
        top.fail("title", "is missing; every study has a title")
    settings = {source: top.table(source) for source in _RUN}
    for source, table in settings.items():
        table.refuse_others(SETTINGS[source])
    grids = tuple(_grids(top, settings, home))
    recorded = tuple(_recorded(top, home))
    if not grids and not recorded:
        top.fail("models", "is missing, and nothing is recorded: there is nothing to study")
    figures = top.text_of("figures") or None
    if figures is not None and not (home / figures).is_file():
        top.fail("figures", f"is {figures!r}, and there is no such file in {str(home)!r}")
    study = Study(
        title=top.text_of("title"),
        question=top.text_of("question"),
        method=top.text_of("method"),
        grids=grids,
        excluded=tuple(_exclusion(table) for table in top.tables("exclude")),
        recorded=recorded,
        settings=_settings(settings, home),
        budget=top.seconds("budget", None),
        figures=figures,
        clusters=clusters(top.table("cluster")),
    )
    idle = excluding_nothing(study)
    for number, exclusion in enumerate(study.excluded):
        if exclusion in idle:
            top.fail("exclude", "leaves nothing out: no cell of the study meets all of its conditions", number)
    if not cells(study, home):
        top.fail("exclude", "leaves nothing of the study")
    return replace(study, hypotheses=tuple(hypotheses(top, study)))


def _grids(top: TomlTable, settings: Mapping[SourceName, TomlTable], home: Path) -> Iterator[Grid]:
    """The grid of the file, or those under [[grid]], which take what they do not say from the top."""
    of_sources: dict[str, tuple[str, ...]] = {
        source: _devices(table, home) for source, table in settings.items() if table.has("devices")
    }
    base = replace(_axes(top, Grid(models=()), home), devices_of=of_sources)
    tables = list(top.tables("grid"))
    for table in tables:
        table.refuse_others(AXES)
        # Devices of its own are for all of its sources.
        grid = _axes(table, replace(base, devices_of={}) if table.has("devices") else base, home)
        if not grid.models:
            table.fail("models", "is missing, here and at the top of the file")
        yield grid
    if not tables and base.models:
        yield base


def _axes(table: TomlTable, base: Grid, home: Path) -> Grid:
    return Grid(
        models=table.texts("models") or base.models,
        devices=_devices(table, home) or base.devices,
        batches=table.counts("batches") or base.batches,
        dtypes=table.chosen("dtypes", (*DTYPES, AS_IS)) or base.dtypes,
        modes=table.chosen("modes", MODES) or base.modes,
        seq_lens=table.counts("seq_lens") or base.seq_lens,
        img_sizes=table.counts("img_sizes") or base.img_sizes,
        options={**base.options, **_options(table.table("options"))},
        sources=table.chosen("sources", _RUN) or base.sources,
        devices_of=base.devices_of,
    )


def _devices(table: TomlTable, home: Path) -> tuple[str, ...]:
    """Devices by the catalogue's names; files and words for this machine stay as they are."""

    def one(key: str, value: object, at: tuple[int, ...]) -> str:
        if not isinstance(value, str):
            table.fail(key, f"is {value!r}; it has to be the name of a device", *at)
        return _known(table, value, home, HERE, key, *at)

    return table.list_of("devices", one)


def _known(table: TomlTable, value: str, home: Path, here: Sequence[str], key: str, *at: int) -> str:
    """A device by the catalogue's name; the name of a file and words for this machine as they are."""
    if value in here:
        return value
    try:
        if value.lower().endswith(".toml"):
            find(str(home / value))
            return value
        return find(value).name
    except RooflensError as error:
        table.fail(key, f"is {value!r}: {error}; for this machine write {' or '.join(here)}", *at)


def _options(table: TomlTable) -> dict[str, tuple[Scalar, ...]]:
    table.refuse_others(OPTIONS)
    values: dict[str, tuple[Scalar, ...]] = {}
    for name in table.values:
        option = OPTIONS[name]
        if option.choices:
            values[name] = table.chosen(name, option.choices)
        else:
            values[name] = table.counts(name) if option.kind is int else table.flags(name)
    return values


def _settings(tables: Mapping[SourceName, TomlTable], home: Path) -> Settings:
    measure, counting = tables["measure"], tables["counters"]
    usual = Settings()
    limits: dict[str, float] = {s: table.seconds("limit", usual.limits[s]) for s, table in tables.items()}
    return Settings(
        budget=measure.seconds("budget", usual.budget),
        limits=limits,
        fresh=measure.flag("fresh"),
        roofs={
            source: _known(table, table.text_of("roof"), home, (MEASURED,), "roof")
            for source, table in tables.items()
            if table.has("roof")
        },
        cache=counting.word("cache", ("all", "none")) or usual.cache,
    )


def _exclusion(table: TomlTable) -> Exclusion:
    table.refuse_others((*CONDITIONS, "why"))
    conditions = {name: table.scalars(name) for name in table.values if name != "why"}
    if not conditions:
        table.fail("", f"names no condition; known: {', '.join(CONDITIONS)}")
    for name, values in conditions.items():
        for value in values:
            check_condition(table, name, value)
    if "device" in conditions:
        conditions["device"] = tuple(canonical(value) for value in conditions["device"])
    return Exclusion(conditions=conditions, why=table.text_of("why"), line=table.line())


def canonical(device: Scalar) -> Scalar:
    """A device by the catalogue's name; a pattern, or what the catalogue does not know, as it is."""
    is_name = isinstance(device, str) and device not in HERE and not re.search(r"[*?\[]", device)
    known = catalogued_or_none(str(device)) if is_name else None
    return device if known is None else known.name


def _recorded(top: TomlTable, home: Path) -> Iterator[Recorded]:
    for table in top.tables("recorded"):
        table.refuse_others(("files", *FIELDS))
        files = table.texts("files")
        if not files:
            table.fail("files", "is missing: patterns of record files, counters or traces")
        for n, pattern in enumerate(files):
            if Path(pattern).is_absolute():
                table.fail("files", f"is {pattern!r}; name files from the folder of the study", n)
            if not any(path.is_file() for path in home.glob(pattern)):
                table.fail("files", f"is {pattern!r}, and no such file is in {str(home)!r}", n)
        given: dict[str, Scalar | None] = {
            "model": table.text_of("model") if table.has("model") else None,
            "dtype": table.word("dtype", (*DTYPES, AS_IS)),
            "mode": table.word("mode", MODES),
            "batch": table.count("batch"),
        }
        if table.has("device"):
            try:
                given["device"] = find(table.text_of("device")).name
            except RooflensError as error:
                table.fail("device", f"is {table.text_of('device')!r}: {error}")
        yield Recorded(files=files, case={key: value for key, value in given.items() if value is not None})
