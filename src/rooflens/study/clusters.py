"""The ``[cluster.NAME]`` tables of a study file."""

from __future__ import annotations

import re

from rooflens.devices import find
from rooflens.errors import RooflensError
from rooflens.records import Scalar
from rooflens.study.study import HERE, Cluster
from rooflens.study.toml_table import TomlTable

_TEXTS = ("partition", "gres", "account", "memory", "prefix", "python")
_COUNTS = ("cpus", "parallel")
_KEYS = (*_TEXTS, *_COUNTS, "time", "setup", "options")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)")


def clusters(top: TomlTable) -> dict[str, Cluster]:
    """Every cluster that a study may run on, by the name in its table."""
    for name, value in top.values.items():
        if not isinstance(value, dict):
            top.fail(name, "belongs to a cluster with a name; put it under [cluster.NAME]")
    return {name: _cluster(name, top.table(name), whole=True) for name in top.values}


def _cluster(name: str, table: TomlTable, *, whole: bool) -> Cluster:
    known = (*_KEYS, "devices") if whole else _KEYS
    table.refuse_others(known, "; further options of sbatch go under [cluster.NAME.options]")
    texts = {key: table.text_of(key) or None for key in _TEXTS}
    devices = table.table("devices")
    return Cluster(
        name=name,
        partition=texts["partition"],
        gres=texts["gres"],
        account=texts["account"],
        time=_minutes(table),
        cpus=table.count("cpus"),
        memory=texts["memory"],
        parallel=table.count("parallel"),
        setup=table.texts("setup"),
        prefix=texts["prefix"] or "",
        python=texts["python"],
        options=_options(table.table("options")),
        devices={_device(devices, key): _cluster(name, devices.table(key), whole=False) for key in devices.values},
    )


def _options(table: TomlTable) -> dict[str, Scalar]:
    options: dict[str, Scalar] = {}
    for name, value in table.values.items():
        if isinstance(value, list):
            table.fail(name, "is a list; sbatch takes one value")
        if name.startswith("-"):
            table.fail(name, f"is the name of an option with its dashes; write {name.lstrip('-')!r}")
        (options[name],) = table.scalars(name)
    return options


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
    return table.count("time")


def _device(table: TomlTable, key: str) -> str:
    if key in HERE:
        return key
    try:
        return find(key).name
    except RooflensError as error:
        table.fail(key, f"names a device: {error}")
