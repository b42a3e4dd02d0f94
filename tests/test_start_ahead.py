"""Processes that a command starts before it imports the rest are those that serve it."""

from __future__ import annotations

import os
import signal
import time
from importlib import import_module

import pytest

from rooflens.running import process
from rooflens.running.process import SERVER, MarkedProcess, start_ahead, start_for, started


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool, str]]:
    """What was started, instead of processes."""
    asked: list[tuple[str, bool, str]] = []

    def new(program: str, apart: bool, kind: str) -> MarkedProcess:
        asked.append((program, apart, kind))
        return MarkedProcess(None, f"mark {len(asked)}")  # type: ignore[arg-type]

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
