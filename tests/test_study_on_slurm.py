"""Studies on a real Slurm, started by scripts/slurm_here.py: what jobs get, and what a study survives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import killed_study, slurm_here
from tests.slurm_samples import DO, STUDY, seen, study_folder, write_program

from rooflens.errors import ClusterError
from rooflens.study import Cluster, Status, slurm

pytest.importorskip("submitit")


@pytest.fixture(scope="module")
def real() -> Iterator[dict[str, str]]:
    """A Slurm that runs."""
    with slurm_here.running() as environment:
        yield environment


@pytest.fixture
def on_slurm(real: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Slurm for this process; returns where a call of sacct would show, which nothing may need."""
    called = tmp_path / "sacct-was-called"
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "bin" / "sacct", f"touch {called}; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "POLLS", (0.2, 0.2))
    for name, value in real.items():
        monkeypatch.setenv(name, value)
    return called


@pytest.mark.slurm
class TestReal:
    def test_every_cell_is_run_by_jobs_of_an_array(self, on_slurm: Path, tmp_path: Path) -> None:
        folder = study_folder(tmp_path)
        looks: list[tuple[int, int]] = []

        def tell(status: Status, jobs: object) -> None:
            assert isinstance(jobs, list)
            looks.append((status.count("done"), len(jobs)))

        cluster = Cluster(
            name="here", partition="urgent", cpus=2, time=5, parallel=3, prefix="env PREFIXED=yes",
            setup=("export SAID=hello",), options={"comment": "ours"},
        )  # fmt: skip
        slurm.run(folder, folder.cells, cluster, ("-c", DO, str(folder.path)), tell=tell)
        assert seen(folder) == 12 * [
            {"SAID": "hello", "PREFIXED": "yes", "SLURM_JOB_PARTITION": "urgent", "SRUN_CPUS_PER_TASK": "2"}
        ]
        assert looks[0] == (0, 0)
        assert looks[-1] == (12, 0)
        assert max(jobs for _, jobs in looks) == 3
        assert len(list((folder.path / slurm.JOBS).glob("*_log.out"))) == 3
        assert not on_slurm.exists()

    @pytest.mark.usefixtures("on_slurm")
    def test_a_killed_run_goes_on_with_the_jobs_that_are_there(self, tmp_path: Path) -> None:
        folder = study_folder(tmp_path)
        waits = f"import time; time.sleep(2)\n{DO}"
        submits = (
            "from rooflens.study import Cluster, StudyFolder, slurm\n"
            f"folder = StudyFolder.open({str(folder.path)!r})\n"
            f"words = ('-c', {waits!r}, {str(folder.path)!r})\n"
            "slurm.run(folder, folder.cells, Cluster(name='here', parallel=2), words)\n"
        )
        with subprocess.Popen([sys.executable, "-c", submits]) as process:
            while len(slurm._queued(slurm.job_name(folder.path))) < 2:
                assert process.poll() is None
                time.sleep(0.05)
            time.sleep(0.5)  # submitit still has to tell the jobs what they are to do
            process.kill()
        slurm.run(folder, folder.cells, Cluster(name="here", parallel=2), ("-c", "raise SystemExit('submitted twice')"))
        assert len(seen(folder)) == 12

    @pytest.mark.usefixtures("on_slurm")
    @pytest.mark.parametrize(
        "words",
        [
            pytest.param("scancel --signal=USR2 --name={name}", id="time is over"),
            pytest.param("srun --partition=urgent --exclusive true", id="preempted"),
        ],
    )
    def test_a_job_that_has_to_end_is_queued_again(self, tmp_path: Path, words: str) -> None:
        folder = study_folder(tmp_path)
        first = tmp_path / "first"
        # The first time it hangs.
        code = (
            f"import pathlib, time\nif not (p := pathlib.Path({str(first)!r})).exists():\n"
            f"    p.touch(); time.sleep(60)\n{DO}"
        )
        signalled = False

        def tell(status: Status, jobs: object) -> None:
            nonlocal signalled
            if first.exists() and not signalled:
                signalled = True
                subprocess.run(words.format(name=slurm.job_name(folder.path)).split(), check=True)

        slurm.run(folder, folder.cells, Cluster(name="here", parallel=1), ("-c", code, str(folder.path)), tell=tell)
        assert signalled
        assert len(seen(folder)) == 12
        assert len(list((folder.path / slurm.JOBS).glob("*_submitted.pkl"))) == 1  # the same job, and no second one

    @pytest.mark.usefixtures("on_slurm")
    def test_a_cell_that_takes_its_job_with_it_takes_no_other(self, tmp_path: Path) -> None:
        folder = study_folder(tmp_path, STUDY.replace("1, 2, 4, 8, 16, 32", "1, 2"))
        bad = folder.cells[1].key
        dies = "if key == BAD: os.kill(os.getppid(), 9), os.kill(os.getpid(), 9)"
        code = f"BAD = {bad!r}\n" + DO.replace("for key in keys:\n", f"for key in keys:\n    {dies}\n")
        with pytest.raises(ClusterError, match="1 cells are left whose jobs end without a result"):
            slurm.run(folder, folder.cells, Cluster(name="here", parallel=1), ("-c", code, str(folder.path)))
        assert [each.key for each in folder.status().cells("left")] == [bad]

    @pytest.mark.usefixtures("on_slurm")
    def test_what_no_job_can_do_is_told_with_its_last_words(self, tmp_path: Path) -> None:
        folder = study_folder(tmp_path)
        with pytest.raises(ClusterError, match=r"12 cells are left.*; the last one says: no such card"):
            slurm.run(
                folder, folder.cells, Cluster(name="here", parallel=2), ("-c", "raise SystemExit('no such card')")
            )
        arrays = {path.name.split("_")[0] for path in (folder.path / slurm.JOBS).glob("*_submitted.pkl")}
        assert len(arrays) == 1  # nothing came of it, so nothing is tried again

    @pytest.mark.usefixtures("on_slurm")
    def test_what_slurm_refuses_is_told_in_its_words(self, tmp_path: Path) -> None:
        folder = study_folder(tmp_path)
        with pytest.raises(ClusterError, match=r"refuses the jobs for cpu of \[cluster.here\].*invalid partition"):
            slurm.run(folder, folder.cells, Cluster(name="here", partition="nowhere"), ("-c", DO))

    @pytest.mark.usefixtures("on_slurm")
    def test_with_a_budget_nothing_is_submitted_twice(self, tmp_path: Path) -> None:
        folder = study_folder(tmp_path, f"budget = 1\n{STUDY}")
        only_the_first = DO.replace("for key in keys:", "for key in keys[:1]:")
        words = ("-c", only_the_first, str(folder.path))
        slurm.run(folder, folder.cells, Cluster(name="here", parallel=2), words)
        assert folder.status().count("done") == 2

    @pytest.mark.usefixtures("on_slurm")
    def test_from_a_login_node_without_torch(self, tmp_path: Path) -> None:
        (tmp_path / "study.toml").write_text(STUDY.replace("1, 2, 4, 8, 16, 32", "1").replace(', "cpu"', ""))
        program = (
            "import sys; sys.modules['torch'] = None\n"
            "from rooflens.api.studies import run_study_on_cluster\n"
            f"found = run_study_on_cluster({str(tmp_path / 'study.toml')!r}, {str(tmp_path / 'out')!r}, time=10)\n"
            "loaded = {name for name, module in sys.modules.items() if module}\n"
            "print(found.complete, loaded & {'torch', 'polars', 'scipy', 'matplotlib'})"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == "True set()\n"
        (records,) = (tmp_path / "out" / "cells").glob("*.jsonl")
        assert '"model":"resnet18"' in records.read_text()

    @pytest.mark.parametrize("seed", [1])
    def test_a_study_that_is_killed_finds_what_one_in_peace_finds(self, tmp_path: Path, seed: int) -> None:
        # scripts/killed_study.py does the same with 200 cells and 25 kills.
        happened, different = killed_study.trial(tmp_path, cells=16, kills=3, seed=seed)
        assert happened.total() == 3
        assert different == []
