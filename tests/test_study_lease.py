"""Leases: one holder, found dead at once on its own machine and after a while on another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rooflens.study import lease as leases
from rooflens.study.lease import is_leased, lease

TAKES = """
import sys, time
from pathlib import Path
from rooflens.study.lease import lease
with lease(Path(sys.argv[1]), "cell") as held:
    print(held is not None, flush=True)
    time.sleep(60)
"""


def other_process(folder: Path) -> subprocess.Popen[bytes]:
    """A process that has taken the lease."""
    process = subprocess.Popen([sys.executable, "-c", TAKES, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"True\n"
    return process


def test_one_holds_it_and_gives_it_free(tmp_path: Path) -> None:
    with lease(tmp_path, "cell") as first:
        assert first is not None
        assert not first.took_over
        assert is_leased(tmp_path, "cell")
        assert not is_leased(tmp_path, "other")
        with lease(tmp_path, "cell") as second:
            assert second is None
        assert first.is_held()
    assert not is_leased(tmp_path, "cell")
    assert list(tmp_path.iterdir()) == []


def test_an_error_gives_it_free(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), lease(tmp_path, "cell"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_of_many_threads_one_gets_it(tmp_path: Path) -> None:
    barrier, done, got = threading.Barrier(8), threading.Barrier(8), []

    def take() -> None:
        barrier.wait()
        with lease(tmp_path, "cell") as held:
            got.append(held is not None)
            done.wait()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 7 + [True]


def test_a_killed_process_loses_it_at_once(tmp_path: Path) -> None:
    process = other_process(tmp_path)
    assert is_leased(tmp_path, "cell")
    with lease(tmp_path, "cell") as held:
        assert held is None
    process.kill()
    # Nobody waits for it, so it stays in the table of processes, as a zombie.
    while ") Z " not in Path(f"/proc/{process.pid}/stat").read_text():
        time.sleep(0.01)
    assert not is_leased(tmp_path, "cell")
    with lease(tmp_path, "cell") as held:
        assert held is not None
        assert held.took_over
    assert list(tmp_path.iterdir()) == []
    process.communicate()


def test_a_stale_lease_goes_to_one_of_many(tmp_path: Path) -> None:
    for _ in range(3):  # generations of runners that died
        process = other_process(tmp_path)
        process.kill()
        process.communicate()
    barrier, done, got = threading.Barrier(8), threading.Barrier(8), []

    def take() -> None:
        barrier.wait()
        with lease(tmp_path, "cell") as held:
            got.append(held is not None)
            done.wait()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 7 + [True]
    assert list(tmp_path.iterdir()) == []


def test_another_process_of_the_same_number_is_another(tmp_path: Path) -> None:
    with lease(tmp_path, "cell"):
        (path,) = tmp_path.iterdir()
        holder = json.loads(path.read_text())
        path.write_text(json.dumps(holder | {"started": str(int(holder["started"]) - 1)}))
        assert not is_leased(tmp_path, "cell")


class TestOtherMachine:
    """A holder whose processes cannot be seen."""

    @pytest.fixture(autouse=True)
    def _elsewhere(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        process = other_process(tmp_path)
        process.kill()
        process.communicate()
        monkeypatch.setattr(leases, "_place", lambda: "another machine")

    def test_it_is_alive_while_its_lease_is_touched(self, tmp_path: Path) -> None:
        (path,) = tmp_path.iterdir()
        assert is_leased(tmp_path, "cell")
        old = time.time() - leases.STALE + 10
        os.utime(path, (old, old))
        assert is_leased(tmp_path, "cell")

    def test_it_is_dead_when_it_was_not_touched_for_long(self, tmp_path: Path) -> None:
        (path,) = tmp_path.iterdir()
        old = time.time() - leases.STALE - 1
        os.utime(path, (old, old))
        assert not is_leased(tmp_path, "cell")
        with lease(tmp_path, "cell") as held:
            assert held is not None
            assert held.took_over

    def test_who_may_only_read_goes_by_the_clock_of_the_machine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "touch", refused)
        assert is_leased(tmp_path, "cell")
        monkeypatch.setattr(time, "time", lambda: tmp_path.stat().st_mtime + leases.STALE + 10)
        assert not is_leased(tmp_path, "cell")

    def test_the_clock_is_that_of_the_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "time", lambda: 0.0)
        assert is_leased(tmp_path, "cell")


def test_a_holder_touches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT", 0.01)
    with lease(tmp_path, "cell"):
        (path,) = tmp_path.iterdir()
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 10
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0


def test_who_was_stopped_too_long_knows_that_it_lost_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease(tmp_path, "cell") as first:
        assert first is not None
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(leases, "_place", lambda: "another machine")
            elsewhere.setattr(leases, "STALE", -1.0)
            taking = lease(tmp_path, "cell")
            second = taking.__enter__()
        assert second is not None
        assert not first.is_held()
        assert second.is_held()
    assert second.is_held()  # the first one, ending, left it alone
    assert is_leased(tmp_path, "cell")
    taking.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with lease(tmp_path, "cell") as first, lease(tmp_path, "cell") as second:
        assert first is not None
        assert second is None
    assert list(tmp_path.iterdir()) == []
