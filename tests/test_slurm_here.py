"""The Slurm that tests start: it says what is missing, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripts import slurm_here

SCRIPT = Path(slurm_here.__file__)


def left(folder: Path) -> list[int]:
    """The processes of a Slurm that are still there after a while: what was killed takes a moment to end."""
    deadline = time.monotonic() + 20
    while (found := slurm_here.processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_what_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_here, "_found", lambda name: None if name in ("munged", "sbatch") else name)
    assert slurm_here.missing() == "no munged, sbatch here; install with: python3 scripts/slurm_here.py install"
    with pytest.raises(slurm_here.Unavailable, match="no munged, sbatch here"), slurm_here.running():
        pass


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_here, "_found", lambda name: name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "runs as root" in slurm_here.missing()
    assert slurm_here.install() == "nothing to install: Slurm and munge are here"
    monkeypatch.setattr(slurm_here, "_found", lambda name: None if name == "munged" else name)
    assert slurm_here.install().startswith("cannot install munge without ")


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert slurm_here.main(["start"]) == 2
    assert "slurm_here.py run COMMAND" in capsys.readouterr().err


@pytest.mark.slurm
class TestRuns:
    def test_it_runs_a_command_and_is_gone(self) -> None:
        command = 'echo $SLURM_CONF; srun sh -c "echo job; exit 5"'
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "run", "sh", "-c", command], capture_output=True, text=True, check=False
        )
        configuration, said = done.stdout.split()
        assert (done.returncode, said) == (5, "job")
        folder = Path(configuration).parent
        assert not folder.exists()
        assert left(folder) == []

    def test_jobs_that_are_left_are_ended(self) -> None:
        with slurm_here.running() as environment:
            sees = os.environ | environment
            subprocess.run(["sbatch", "--output=/dev/null", "--wrap", "sleep 100"], env=sees, check=True)
            while not subprocess.run(["squeue", "-h", "-t", "R"], env=sees, capture_output=True, check=True).stdout:
                time.sleep(0.05)
        assert left(Path(environment["SLURM_CONF"]).parent) == []  # 100 s would be longer

    def test_a_process_that_slurm_lost_is_killed(self) -> None:
        with slurm_here.running() as environment:
            lost = subprocess.Popen(["sleep", "100"], env=os.environ | environment, start_new_session=True)
        assert lost.wait(timeout=20) == -signal.SIGKILL

    def test_no_accounting_is_kept(self) -> None:
        # So what passes here passes on a cluster that has none.
        with slurm_here.running() as environment:
            asked = subprocess.run(["sacct"], env=os.environ | environment, capture_output=True, check=False)
        assert asked.returncode != 0

    def test_it_ends_with_who_started_it(self) -> None:
        with subprocess.Popen(
            [sys.executable, str(SCRIPT), "run", "sh", "-c", "echo $SLURM_CONF; exec sleep 3"],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            folder = Path(process.stdout.readline().strip()).parent
            assert slurm_here.processes_of(folder / "munge.socket")
            process.kill()
        assert left(folder) == []
        for path in sorted(folder.rglob("*"), reverse=True):  # killed, it could not remove its files
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
