"""Two runners that measure on one device of a machine wait for each other, and say so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rooflens as rl
from rooflens.devices.files import cache_folder
from rooflens.progress import waiting, within
from rooflens.sources import device_lock
from rooflens.sources.device_lock import alone_on

HOLDER = """
from rooflens.sources.device_lock import alone_on
with alone_on("cpu"):
    print("held", flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(device_lock, "cache_folder", cache_folder)


@contextmanager
def holder() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the processor until a line is sent to it, or it is killed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_runner_waits_until_the_first_is_over_or_dead(killed: bool) -> None:
    told: list[str] = []
    with holder() as process:

        def end(text: str) -> None:
            told.append(text)
            if killed:
                process.send_signal(signal.SIGKILL)
            else:
                print(file=process.stdin, flush=True)

        with alone_on("cpu", end):  # would wait for ever if the other did not end when this says that it waits
            process.wait()
        with alone_on("cpu", end):  # nobody is there any more
            pass
    assert told == [f"waiting until process {process.pid} has measured on cpu of this machine"]


def test_a_measurement_waits_and_tells(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    told: list[str] = []
    over = threading.Event()

    def hold() -> None:
        with alone_on("cpu"):
            taken.set()
            over.wait()

    taken = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()

    def tell(share: float, text: str) -> None:
        told.append(text)
        over.set()

    found = rl.measure(torch.nn.Linear(2, 2), inputs=torch.ones(1, 2), device="cpu", budget=0.01, progress=tell)
    thread.join()
    assert told[0] == f"waiting until process {os.getpid()} has measured on cpu of this machine"
    assert found.total().seconds is None
    assert [record.phase for record in found if record.timing is not None] == ["forward"]


def test_two_devices_do_not_wait_for_each_other() -> None:
    with alone_on("cpu", pytest.fail), alone_on("other", pytest.fail):
        pass


def test_without_a_place_for_the_lock_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(device_lock, "cache_folder", lambda: tmp_path / "file")
    monkeypatch.setattr(device_lock.tempfile, "gettempdir", lambda: str(tmp_path / "file"))
    with alone_on("cpu", pytest.fail), alone_on("cpu", pytest.fail):
        pass


def test_cards_are_told_apart_by_their_identifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    class Card:
        def __init__(self, number: int) -> None:
            self.uuid = f"GPU-{9 - number}"

    monkeypatch.setattr(torch.cuda, "get_device_properties", Card)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert device_lock.card_names() == ("GPU-9", "GPU-8", "GPU-7", "GPU-6")
    assert device_lock._names("cuda", None) == ["GPU-9"]
    assert device_lock._names("cuda", device_lock.card_names()[:3]) == ["GPU-7", "GPU-8", "GPU-9"]  # in one order


def test_who_knows_the_cards_of_its_worker_holds_them_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    told: list[str] = []
    waits = threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        waits.set()

    def hold() -> None:
        with alone_on("cuda", tell, cards=("GPU-2", "GPU-3")):
            pass

    thread = threading.Thread(target=hold)
    with alone_on("cuda", pytest.fail, cards=("GPU-1", "GPU-2")):
        thread.start()
        assert waits.wait(20)
    thread.join()
    assert told == [f"waiting until process {os.getpid()} has measured on cuda of this machine"]


def test_without_a_listener_a_wait_is_a_warning_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    waiting(None)("waiting until process 3 has measured on cpu of this machine")
    within(None, 1, 2, "part: ")(0.5, "waiting until process 3 has measured on cpu of this machine")
    within(None, 1, 2)(0.5, "resnet18")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    told: list[tuple[float, str]] = []
    tell = within(lambda *what: told.append(what), 1, 2, "part: ")
    tell(0.5, "waiting until somebody")
    tell(0.5, "one")
    assert told == [(0.75, "waiting until somebody"), (0.75, "part: one")]


def test_a_short_wait_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with alone_on("cpu"):
            taken.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        over.set()
        thread.join()

    monkeypatch.setattr(device_lock.time, "sleep", pause)
    with alone_on("cpu", told.append):
        pass
    assert (len(pauses), told) == (1, [])
