"""A name that was read from a file never opens a file, whatever the name ends in and whoever reads it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from tests.report_samples import TINY, studied

import rooflens as rl
from rooflens.api.studies import study_figures
from rooflens.devices import catalogued, catalogued_or_none
from rooflens.errors import AmbiguousDevice, InvalidValue, UnknownDevice
from rooflens.records import Case, Record, Timing

NAMES = ("evil.toml", "evil.json", "evil.txt", "EVIL.TOML", "2x evil.toml", "below/evil.toml", "./evil.toml", "evil")
MODELS = ("evil.json", "hf:evil.json", "evil.onnx", "EVIL.ONNX", "evil.py:build", "below/evil.py:build", "evil.py")
FILES = ("evil", "evil.toml", "evil.json", "evil.txt", "EVIL.TOML", "evil.onnx", "EVIL.ONNX", "evil.py")

_opened: list[str] = []


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | os.PathLike):
        _opened.append(os.fspath(arguments[0]))


sys.addaudithook(_listen)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The files that are opened meanwhile and are called evil."""
    before, evil = len(_opened), list[str]()
    yield evil
    evil += [path for path in _opened[before:] if "evil" in Path(path).name.lower()]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which all of these names exist: as files of a device where a device is meant."""
    device = (files("rooflens.devices") / "catalogue" / "tesla-t4.toml").read_text()
    (tmp_path / "below").mkdir()
    for folder in (tmp_path, tmp_path / "below"):
        for name in FILES:
            (folder / name).write_text(device if name.lower().endswith(".toml") else "{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_listener_hears_a_file_that_is_opened_on_purpose(here: Path) -> None:
    with opened() as evil:
        assert rl.device("evil.toml").title
    assert evil == ["evil.toml"]


def table(path: Path, *, devices: tuple[str, ...] = ("t4",), models: tuple[str, ...] = ("resnet18",)) -> Path:
    rows = [f"{model},{device},8,fp32,forward,time,1,ms" for model in models for device in devices]
    rows += [f",{device},,fp32,,peak,8,TFLOP/s" for device in devices]
    path.write_text("\n".join(["model,device,batch,dtype,phase,quantity,value,unit", *rows]) + "\n")
    return path


def test_devices_of_figures_that_are_checked(here: Path) -> None:
    path = table(here / "figures.csv", devices=(*NAMES, str(here / "evil.toml")))
    with opened() as evil:
        found = rl.check(path)
    assert evil == []
    (note,) = (note for note in found.notes if note.startswith("devices without right values"))
    assert all(name in note for name in NAMES)


def test_models_of_figures_that_are_checked(here: Path) -> None:
    with opened() as evil:
        rl.check(table(here / "figures.csv", models=MODELS))
    assert evil == []


@pytest.mark.parametrize("name", NAMES)
def test_devices_of_records_that_are_checked(here: Path, name: str) -> None:
    case = Case(model="resnet18", device=name, batch=8)
    timed = Record(
        case=case, source="measure", scope="model", phase="forward", timing=Timing(samples=(1.0,), origin="monotonic")
    )
    with opened() as evil:
        found = rl.check(rl.RecordSet([timed]))
    assert evil == []
    assert any(name in note for note in found.notes)


def test_devices_of_the_figures_of_a_study(here: Path) -> None:
    table(here / "figures.csv", devices=NAMES, models=("resnet18", *MODELS))
    folder = studied(here, f'figures = "figures.csv"\n{TINY}')
    with opened() as evil:
        rows = study_figures(folder.path)
        rl.study_report(folder.path, here / "report.html")
    assert evil == []
    peaks = [row for row in rows if row.figure.quantity == "peak"]
    assert [row.why for row in peaks] == [f"no source gives {name} such a rate" for name in NAMES]
    assert all(row.ours is None for row in peaks)


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_alone_answers(here: Path, name: str) -> None:
    with opened() as evil, pytest.raises(UnknownDevice):
        catalogued(name)
    assert evil == []
    assert catalogued_or_none(name) is None


def test_names_of_the_catalogue_are_found_as_elsewhere() -> None:
    assert catalogued("2x Tesla T4") == rl.device("2x t4")
    with pytest.raises(AmbiguousDevice):
        catalogued("a100")
    with pytest.raises(InvalidValue):
        catalogued("0x t4")
    assert catalogued_or_none("a100") is None
    assert catalogued_or_none("") is None
