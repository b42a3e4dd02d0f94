"""``roofline.json`` of the Empirical Roofline Tool: the best that its micro-kernels reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rooflens.errors import FileError
from rooflens.opening import parsed_json
from rooflens.records import Device
from rooflens.sources.roofs.ceilings import NamedRoof, Roofs, device_of, named_roof, rate, unit_of

_DRAM = "dram"


def from_json(text: str, path: Path, _: str, told: Device | None) -> Roofs:
    """Return the empirical ceilings; the user of the tool typed in what ``spec`` holds, which is no measurement.

    Raises:
        FileError: it is no such file; the message names the key.
    """
    where = repr(str(path))
    # Numbers stay as they are written, so that one check serves every form of the tool's output.
    whole = parsed_json(text, where, parse_float=str, parse_int=str, parse_constant=str)
    empirical = _table(whole, "empirical", where)
    roofs = [named_roof(*each, computes=True) for each in _pairs(empirical, "gflops", where)]
    memory = [named_roof(*each, computes=False) for each in _pairs(empirical, "gbytes", where)]
    settings = [empirical.get("metadata"), *(empirical[key].get("metadata") for key in ("gflops", "gbytes"))]
    gpu = any(isinstance(its, dict) and "GPU_BLOCKS" in its for its in settings)
    return measured(roofs, memory, gpu=gpu, title=_title(settings) or path.stem, told=told, where=where)


def measured(
    compute: Sequence[NamedRoof], memory: Sequence[NamedRoof], *, gpu: bool, title: str, told: Device | None, where: str
) -> Roofs:
    """Return what the tool measured, as a device.

    Its levels are the steps in a curve: it calls the first L1. On a GPU loads of its kernel bypass L1: this step is L2.
    """
    notes = ["Measured by the Empirical Roofline Tool"]
    if any(not unit_of(roof.name)[1] for roof in compute):
        notes.append("Its kernels compute in double precision unless its output names another")
    if gpu:
        caches = sorted((roof for roof in memory if roof.resource != _DRAM), key=lambda roof: -roof.rate)
        memory = [roof for roof in memory if roof.resource == _DRAM]
        memory += [replace(roof, resource=None if n else "l2") for n, roof in enumerate(caches)]
        notes.append("The tool calls the first cache that it sees L1; on a GPU that is L2")
    device = device_of(
        [*compute, *memory],
        title=title,
        told=told,
        suffix="ERT",
        kind="gpu" if gpu else "cpu",
        origin="measured",
        notes=notes,
    )
    if device is None:
        raise FileError(f"{where} holds no roof; run the tool's post-processing (ert --post-only) again")
    return Roofs(device=device)


def _pairs(table: Mapping[str, Any], key: str, where: str) -> Iterable[tuple[str, str, float]]:
    """Name, place and rate of each roof of a kind."""
    data = _table(table, key, f"{where}: empirical").get("data")
    if not isinstance(data, list):
        raise FileError(f"{where}: empirical.{key}.data is {_shown(data)}; it must be a list of pairs")
    names: set[str] = set()
    for n, pair in enumerate(data):
        place = f"empirical.{key}.data[{n}]"
        match pair:
            case [str(name), str(value)] if name not in names:
                names.add(name)
                yield name, place, rate(value, f"{where}: {place}")
            case _:
                raise FileError(f"{where}: {place} is {_shown(pair)}; it must be a name of its own and a number")


def _table(table: Any, key: str, where: str) -> dict[str, Any]:
    value = table.get(key) if isinstance(table, dict) else None
    if not isinstance(value, dict):
        raise FileError(f"{where}: {key!r} is {_shown(value)}; it must be an object")
    return value


def _title(settings: Iterable[Any]) -> str | None:
    """The folder of the results, which its user named after the machine."""
    for its in settings:
        match its:
            case {"CONFIG": {"ERT_RESULTS": [str(folder), *_]}}:
                return folder.removeprefix("Results.")
            case _:
                continue
    return None


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:60]
