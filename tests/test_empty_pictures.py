"""A picture that shows nothing says why, instead of being blank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import InvalidValue, RooflensError


def trace(folder: Path, card: str) -> Path:
    entry = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "pid": 0, "tid": 7, "args": {}}
    path = folder / "trace.json"
    path.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": card}], "traceEvents": [entry]}))
    return path


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "html"])
def test_a_trace_of_an_unknown_card_has_no_picture(tmp_path: Path, suffix: str) -> None:
    """No roof is known, and a time without work has no place."""
    picture = tmp_path / f"x.{suffix}"
    figure = rl.roofline(rl.read(trace(tmp_path, "NVIDIA Q9000")))
    with pytest.raises(InvalidValue, match=r"nvidia-q9000 is in no catalogue.*Name a known device.*--device") as error:
        figure.save(picture)
    assert "a time without known work has no place" in str(error.value)
    assert not picture.exists()


@pytest.mark.parametrize("command", ["read", "plot"])
def test_the_commands_say_so_and_fail(tmp_path: Path, command: str) -> None:
    output = tmp_path / "x.svg"
    arguments = [command, str(trace(tmp_path, "NVIDIA Q9000")), "-o", str(output)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code != 0
    assert not output.exists()


def test_an_estimate_without_a_device_has_no_picture_and_keeps_its_records(tmp_path: Path) -> None:
    picture, records = tmp_path / "x.svg", tmp_path / "x.jsonl"
    done = CliRunner().invoke(cli, ["estimate", "alexnet", "-o", str(picture), "-o", str(records)])
    assert isinstance(done.exception, InvalidValue)
    assert "an estimate has no time without a device" in str(done.exception)
    assert (picture.exists(), records.exists()) == (False, True)


def test_roofs_without_a_mark_are_drawn_with_a_word(tmp_path: Path) -> None:
    path, output = trace(tmp_path, "Tesla T4"), tmp_path / "x.svg"
    done = CliRunner().invoke(cli, ["read", str(path), "-o", str(output)])
    assert done.exit_code == 0
    assert "without a mark: " in done.stderr
    assert "estimate the same case too" in done.stderr
    assert output.exists()


@pytest.mark.parametrize("arguments", [("read",), ("plot", "-o", "x.svg")])
def test_a_file_without_a_record_is_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    rl.RecordSet(()).save("none.jsonl")
    done = CliRunner().invoke(cli, [*arguments, "none.jsonl"])
    assert isinstance(done.exception, RooflensError)
    assert not Path("x.svg").exists()


def test_roofs_that_were_asked_for_need_no_mark(tmp_path: Path) -> None:
    figure = rl.roofline(device="t4")
    assert figure.without_marks == ""
    assert figure.save(tmp_path / "x.svg").exists()
