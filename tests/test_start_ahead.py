"""Processes that a command starts before it imports the rest are those that serve it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tests.study_samples import begun

from rooflens.running import process
from rooflens.running.process import SERVER, MarkedProcess, ahead, start_ahead, start_for, started
from rooflens.running.studies import workers_ahead


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool, str]]:
    """What was started, instead of processes."""
    asked: list[tuple[str, bool, str]] = []

    def new(program: str, apart: bool, kind: str) -> MarkedProcess:
        asked.append((program, apart, kind))
        return MarkedProcess(MagicMock(), f"mark {len(asked)}")

    monkeypatch.setattr(process, "_new", new)
    monkeypatch.setattr(process, "_ahead", {})
    return asked


def test_a_process_that_was_started_ahead_is_handed_out_once(made: list[tuple[str, bool, str]]) -> None:
    start_ahead("measure cuda", "estimate cpu")
    assert started(SERVER, True, "estimate cpu").mark == "mark 2"
    assert started(SERVER, True, "measure cuda").mark == "mark 1"
    assert started(SERVER, True, "measure cuda").mark == "mark 3"
    assert made == [(SERVER, True, kind) for kind in ("measure cuda", "estimate cpu", "measure cuda")]


def test_it_serves_no_other_program_kind_or_device(made: list[tuple[str, bool, str]]) -> None:
    start_ahead("measure cuda")
    for program, apart, kind in (
        ("another", True, "measure cuda"),
        (SERVER, False, "measure cuda"),
        (SERVER, True, "measure cpu"),
    ):
        assert started(program, apart, kind).mark != "mark 1"
    assert len(made) == 4


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("measure resnet18 -b 1,8", ["measure anywhere", "estimate cpu"]),
        ("--debug measure resnet18 --device cuda --no-estimate", ["measure cuda"]),
        ("measure resnet18 --device=cpu", ["measure cpu", "estimate cpu"]),
        ("counters resnet18 -b 4", ["profile anywhere", "estimate cpu"]),
        ("counters -- python train.py", []),
        ("measure --help", []),
        ("estimate resnet18", []),
        ("", []),
    ],
)
def test_a_command_line_starts_what_it_will_need(
    made: list[tuple[str, bool, str]], line: str, kinds: list[str]
) -> None:
    start_for(line.split())
    assert [kind for _, _, kind in made] == kinds


def test_what_nobody_took_is_ended_with_the_block(made: list[tuple[str, bool, str]]) -> None:
    with suppress(ValueError), ahead("measure cpu", "estimate cpu"):
        taken = started(SERVER, True, "estimate cpu").process
        waiting = process._ahead["measure cpu"].process
        raise ValueError
    assert waiting.kill.call_count == waiting.wait.call_count == 1  # type: ignore[attr-defined]
    assert taken.kill.call_count == 0  # type: ignore[attr-defined]
    assert started(SERVER, True, "measure cpu").process is not waiting


@pytest.mark.parametrize(
    ("batches", "sources", "device", "jobs", "kinds"),
    [
        (12, ["estimate", "measure"], "cuda", 1, ["estimate cpu", "measure cuda"]),
        (13, ["estimate", "measure"], "cuda", 1, ["estimate cpu"]),
        (2, ["estimate", "measure"], "cpu", 0, ["measure cpu"]),
        (2, ["estimate", "measure"], "t4", 1, ["estimate cpu"]),  # is it in this machine? That takes torch
        (2, ["measure"], "cpu", 1, ["measure cpu"]),
    ],
)
def test_a_study_starts_what_its_cells_will_need(
    made: list[tuple[str, bool, str]],
    tmp_path: Path,
    batches: int,
    sources: list[str],
    device: str,
    jobs: int,
    kinds: list[str],
) -> None:
    sizes = [*range(1, batches + 1)]
    text = f"title = 'T'\nmodels = ['resnet18']\nbatches = {sizes}\nsources = {sources}\ndevices = ['{device}']\n"
    folder = begun(tmp_path, text)
    with workers_ahead(folder, folder.cells, jobs=jobs, retry=False):
        assert [kind for _, _, kind in made] == kinds
    with workers_ahead(folder, (), jobs=jobs, retry=False):  # all is done
        assert len(made) == len(kinds)


def test_a_command_looks_for_garbage_rarely_and_not_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    program = import_module("rooflens.__main__")
    monkeypatch.setattr(program, "start_for", seen.append)
    monkeypatch.setattr(import_module("rooflens.cli"), "main", lambda: seen.append(gc.get_threshold()))
    before = gc.get_threshold()
    try:
        program.main()
        assert seen == [sys.argv[1:], program.RARELY]
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_a_program_that_is_told_to_end_leaves_its_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` and batch systems send SIGTERM: what was started must end too."""
    left: list[int] = []

    def command(**_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            left.append(1)

    program = import_module("rooflens.cli.main")
    monkeypatch.setattr(program, "compiler_on_demand", lambda: None)
    monkeypatch.setattr(program.cli, "main", command)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            program.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (ended.value.code, left) == (128 + signal.SIGTERM, [1])
