"""The ``[cluster.NAME]`` tables of a study file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rooflens.devices import as_meant, find
from rooflens.errors import RooflensError
from rooflens.records import Scalar
from rooflens.study.study import HERE, Cluster
from rooflens.study.toml_table import COUNT, SCALAR, TEXT, TEXTS, KeyKind, TomlTable

_KINDS: Mapping[str, KeyKind] = {
    **dict.fromkeys(("partition", "gres", "account", "memory", "prefix", "python"), TEXT),
    **dict.fromkeys(("cpus", "parallel"), COUNT),
    "setup": TEXTS,
}
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)")


def clusters(top: TomlTable) -> dict[str, Cluster]:
    """Every cluster that a study may run on, by the name in its table."""
    for name, value in top.values.items():
        if not isinstance(value, dict):
            top.fail(name, "belongs to a cluster with a name; put it under [cluster.NAME]")
    return {name: _cluster(name, top.table(name), whole=True) for name in top.values}


def _cluster(name: str, table: TomlTable, *, whole: bool) -> Cluster:
    others = ("time", "options", *(("devices",) if whole else ()))
    given = table.read(_KINDS, others, "; further options of sbatch go under [cluster.NAME.options]")
    devices = table.table("devices")
    return Cluster(
        name=name,
        **{key: value for key, value in given.items() if value != ""},
        time=_minutes(table),
        options=_options(table.table("options")),
        devices={_device(devices, key): _cluster(name, devices.table(key), whole=False) for key in devices.values},
    )


def _options(table: TomlTable) -> dict[str, Scalar]:
    for name, value in table.values.items():
        if isinstance(value, list):
            table.fail(name, "is a list; sbatch takes one value")
        if name.startswith("-"):
            table.fail(name, f"is the name of an option with its dashes; write {name.lstrip('-')!r}")
    return table.read(dict.fromkeys(table.values, SCALAR))


def _minutes(table: TomlTable) -> int | None:
    """The limit of a job: minutes, or a time as Slurm writes it."""
    value = table.values.get("time")
    if isinstance(value, str):
        time = _TIME.fullmatch(value.strip())
        if time is None:
            table.fail("time", f"is {value!r}; write minutes, 'hh:mm:ss' or 'd-hh:mm:ss'")
        parts = {unit: int(number or 0) for unit, number in time.groupdict().items()}
        minutes = (parts["days"] * 24 + parts["hours"]) * 60 + parts["minutes"] + (parts["seconds"] > 0)
        return minutes or table.fail("time", f"is {value!r}, which leaves no time")
    return None if value is None else int(table.read({"time": COUNT}, table.values)["time"])


def _device(table: TomlTable, key: str) -> str:
    if key in HERE:
        return key
    try:
        return find(as_meant(key)[0]).name
    except RooflensError as error:
        table.fail(key, f"names a device: {error}")
