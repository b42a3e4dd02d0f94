"""Studies on a cluster: how jobs are made, and what runs in them; no Slurm is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.docs_blocks import ROOT, blocks
from tests.slurm_samples import DO, STUDY, study_folder, write_program

from rooflens.api.studies import run_study_on_cluster
from rooflens.cli.cluster import progress_text
from rooflens.cli.main import cli
from rooflens.errors import ClusterError, InvalidValue, UnknownName
from rooflens.records import Case, Failure, RecordFile
from rooflens.study import Cell, Cluster, Settings, Status, StudyFolder, read_study, slurm
from rooflens.study.lease import lease

pytest.importorskip("submitit")


def cell(batch: int = 1, *, device: str | None, source: str = "estimate") -> Cell:
    return Cell(case=Case(model="m", device=device, batch=batch), source=source)  # type: ignore[arg-type]


class TestJobs:
    @given(st.integers(1, 40), st.integers(1, 12))
    def test_shares_hold_every_cell_once_and_are_even(self, cells: int, number: int) -> None:
        every = [cell(n, device="t4") for n in range(1, cells + 1)]
        parts = slurm.shares(every, number)
        assert sorted(key for part in parts for key in part) == sorted(each.key for each in every)
        assert len(parts) == min(number, cells)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1

    def test_an_array_per_kind_of_device(self) -> None:
        # An estimate for a T4 needs none, so it goes where any machine will do; what is measured needs its device.
        estimate, on_cpu = cell(device="t4"), cell(device="cpu", source="measure")
        on_t4, on_any_gpu = cell(device="t4", source="measure"), cell(device="cuda", source="measure")
        kinds = slurm.by_kind([estimate, on_t4, on_cpu, on_any_gpu])
        assert kinds == {"cpu": [estimate, on_cpu], "t4": [on_t4], "cuda": [on_any_gpu]}

    def test_the_name_of_the_jobs_is_that_of_the_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert slurm.job_name(Path("a")) == slurm.job_name(tmp_path / "a") != slurm.job_name(tmp_path / "b")

    def test_options_reach_sbatch(self) -> None:
        cluster = Cluster(
            name="big", partition="p", gres="gpu:1", account="acc", time=30, cpus=4, memory="8G",
            setup=("module load x",), options={"qos": "low", "exclusive": True, "requeue": False, "mail_user": "me"},
        )  # fmt: skip
        options = slurm.sbatch_options(cluster, "name", "t4", 3)
        text = slurm_text(options)
        for line in (
            "--partition=p", "--gres=gpu:1", "--account=acc", "--time=30", "--cpus-per-task=4", "--mem=8G",
            "--qos=low", "--exclusive", "--mail-user=me", "--no-requeue", "--signal=USR2@90", "--job-name=name",
        ):  # fmt: skip
            assert f"#SBATCH {line}\n" in text
        assert text.index("module load x\n") < text.index("\nsrun ")
        assert "--requeue" not in text

    def test_jobs_are_queued_again_unless_told_otherwise(self) -> None:
        assert "#SBATCH --requeue\n" in slurm_text(slurm.sbatch_options(Cluster(name="c"), "n", "cpu", 1))


class TestCommand:
    """``rooflens study run --cluster``, as far as it goes without Slurm."""

    def test_options_of_jobs_are_for_a_cluster(self, tmp_path: Path) -> None:
        study_folder(tmp_path)
        found = CliRunner().invoke(cli, ["study", "run", str(tmp_path / "jobs.toml"), "--gres", "gpu:1"])
        assert found.exit_code == 2
        assert "--gres is for jobs of a cluster; add --cluster NAME" in found.output

    def test_an_unknown_cluster(self, tmp_path: Path) -> None:
        folder = study_folder(tmp_path, f"{STUDY}\n[cluster.big]\npartition = 'p'\n")
        with pytest.raises(UnknownName, match=r"unknown cluster 'bug'; did you mean big\?; it has big; write a table"):
            run_study_on_cluster(folder.path, cluster="bug")

    @pytest.mark.usefixtures("programs")
    def test_what_is_said_replaces_the_table_but_not_what_it_says_of_a_device(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = "[cluster.big]\npartition = 'p'\ncpus = 2\n[cluster.big.devices.t4]\npartition = 'q'\n"
        (tmp_path / "study.toml").write_text(f"{STUDY}\n{table}")
        used: list[Cluster] = []
        monkeypatch.setattr(slurm, "run", lambda folder, cells, cluster, words, tell: used.append(cluster))
        words = ["study", "run", str(tmp_path / "study.toml"), "-d", str(tmp_path / "out"), "--cluster", "big"]
        CliRunner().invoke(cli, [*words, "--partition", "r", "--time", "90"], catch_exceptions=False)
        (cluster,) = used
        assert (cluster.partition, cluster.time, cluster.cpus) == ("r", 90, 2)
        assert cluster.on("tesla-t4").partition == "q"

    def test_retry_forgets_failures(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = study_folder(tmp_path)
        first, second, *_ = folder.cells
        for each in (first, second):
            fail(folder, each, "error")
        ran: list[tuple[Cell, ...]] = []
        monkeypatch.setattr(slurm, "run", lambda folder, cells, *_, **__: ran.append(folder.status().cells("left")))
        run_study_on_cluster(folder.path, sources=["estimate"], devices=["cpu"], retry=True)
        assert (first.case.device, second.case.device) == ("tesla-t4", "cpu")
        assert len(ran[0]) == 11  # the one that failed for a T4 was not asked for
        assert first not in ran[0]

    def test_progress_in_words(self) -> None:
        one, two, three = (cell(n, device="t4") for n in (1, 2, 3))
        status = Status(states={one: "done", two: "failed", three: "running"})
        jobs = ["PENDING Priority", "RUNNING", "PENDING Priority"]
        assert progress_text(status, jobs) == "1 of 3 cells done, 1 failed; jobs: 2 pending (Priority), 1 running"
        assert progress_text(Status(states={one: "done"}), []) == "1 of 1 cells done; jobs: none"

    def test_the_table_on_the_page_can_be_read(self, tmp_path: Path) -> None:
        (block,) = blocks(ROOT / "docs" / "slurm.md", "toml")
        (tmp_path / "study.toml").write_text(f"{STUDY}\n{block.text}")
        cluster = read_study(tmp_path / "study.toml").study.clusters["big"]
        assert cluster.time == 240
        assert cluster.on("h100-sxm5-80gb").gres == "gpu:h100:1"
        assert cluster.on("cpu").partition == "cpu"
        assert cluster.on("cpu").memory == "32G"


def fail(folder: StudyFolder, cell: Cell, kind: str) -> None:
    failure = Failure(case=cell.case, source="estimate", stage="start", kind=kind, message="m")  # type: ignore[arg-type]
    folder.keep(cell, RecordFile(records=(), failures=(failure,)))


def slurm_text(options: dict[str, object]) -> str:
    """The batch file that submitit makes of options."""
    from submitit.slurm.slurm import _make_sbatch_string

    return _make_sbatch_string(command="run", folder="jobs", **options)  # type: ignore[arg-type]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs that stand for Slurm's, alone on the path beside the system's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "srun", "squeue"):
        write_program(folder / name, "exit 1")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


class TestRefusals:
    def test_no_slurm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = study_folder(tmp_path)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ClusterError, match=r"no sbatch, srun, squeue on this machine.*login node"):
            slurm.run(folder, folder.cells, Cluster(name="here"), ("-c", DO))

    @pytest.mark.usefixtures("programs")
    def test_jobs_too_short_for_a_cell(self, tmp_path: Path) -> None:
        # 60 s for the cell, 60 s to start and 90 s of notice are 210 s: 3 minutes are too short, 4 are enough.
        folder = study_folder(tmp_path)
        with pytest.raises(InvalidValue, match=r"3 minutes are too short for cpu.*60 s.*raise 'time'"):
            slurm.run(folder, folder.cells, Cluster(name="here", time=3), ("-c", DO))
        own = Cluster(name="here", time=3, devices={"cpu": Cluster(name="cpu", time=4)})
        slurm._check(own, folder.cells, folder.study.settings)

    def test_the_longest_limit_counts(self, programs: Path) -> None:
        cells = [cell(device="cpu"), cell(device="cpu", source="measure")]
        settings = Settings(limits={"estimate": 10.0, "measure": 100.0})
        slurm._check(Cluster(name="here", time=5), cells, settings)  # 100 + 60 + 90 s are 4 min 10 s
        with pytest.raises(InvalidValue, match="a cell may take 100 s"):
            slurm._check(Cluster(name="here", time=4), cells, settings)

    def test_a_queue_that_fails_for_a_while(self, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(slurm, "POLLS", (0.0, 0.0))
        state = programs / "asked"
        write_program(
            programs / "squeue",
            f'echo >> {state}; test $(wc -l < {state}) -ge 3 || {{ echo "no answer" >&2; exit 1; }}\n'
            "echo 'PENDING Priority'; echo 'RUNNING None'",
        )
        assert slurm._queued("name") == ["PENDING Priority", "RUNNING"]
        write_program(programs / "squeue", 'echo "no answer" >&2; exit 1')
        with pytest.raises(ClusterError, match="squeue fails: no answer; jobs of this study, if there are any, go on"):
            slurm._queued("name")

    def test_a_slurm_that_never_answers(self, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # The programs are there, and no controller: told after a few looks, before anything is submitted.
        monkeypatch.setattr(slurm, "POLLS", (0.0, 0.0))
        asked = tmp_path / "asked"
        write_program(programs / "squeue", f"echo >> {asked}; printf 'no\\ncontroller\\n' >&2; exit 1")
        folder = study_folder(tmp_path)
        with pytest.raises(ClusterError, match="squeue fails: no controller; jobs of this study"):
            slurm.run(folder, folder.cells, Cluster(name="here"), ("-c", DO))
        assert asked.read_text().count("\n") == slurm.FIRST < slurm.PATIENCE


class TestLeft:
    """Which cells are submitted again."""

    def test_a_crash_is_tried_twice_and_other_failures_are_not(self, tmp_path: Path) -> None:
        folder = study_folder(tmp_path)
        first, second, *rest = folder.cells
        crashed: set[Cell] = set()
        fail(folder, first, "crash")
        fail(folder, second, "error")
        assert slurm._left(folder, folder.cells, folder.status(), crashed) == [first, *rest]
        assert folder.has(first) is None
        fail(folder, first, "crash")
        assert slurm._left(folder, folder.cells, folder.status(), crashed) == rest
        assert folder.has(first) == "failed"

    def test_it_waits_for_cells_that_run_elsewhere_if_nothing_is_left(
        self, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(slurm, "POLLS", (0.0, 0.0))
        write_program(programs / "squeue", "exit 0")
        folder = study_folder(tmp_path)
        one, two = folder.cells[:2]
        looks: list[int] = []

        def tell(status: Status, jobs: object) -> None:
            looks.append(status.count("running"))
            if len(looks) == 3 and held is not None:
                held.release()

        with lease(folder.files, one.key) as held:
            assert held is not None
            assert slurm._when_idle(folder, [one, two], "name", tell).states[two] == "left"
            assert looks == [1]  # the other one can begin
            slurm._when_idle(folder, [one], "name", tell)
        assert looks == [1, 1, 1, 0]

    def test_only_the_cells_asked_for(self, tmp_path: Path) -> None:
        folder = study_folder(tmp_path)
        assert slurm._left(folder, folder.cells[:2], folder.status(), set()) == list(folder.cells[:2])


class TestPart:
    """What runs in a job, without Slurm."""

    def test_all_that_it_starts_is_deaf_to_what_slurm_sends(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        tells = (
            "import signal; print([signal.getsignal(s) == signal.SIG_IGN for s in (signal.SIGTERM, signal.SIGUSR2)])"
        )
        inner = (
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {tells!r}], stdout=open({str(out)!r}, 'w'))"
        )
        self.call(("-c", inner))
        assert out.read_text().strip() == "[True, True]"

    @pytest.mark.parametrize("end", ["sys.exit(7)", "os.kill(os.getpid(), 9)"])
    def test_a_process_that_ends_badly_takes_the_job_with_it(self, end: str) -> None:
        words = ("-c", f"import os, sys; {end}")
        found = subprocess.run([sys.executable, "-c", self.code(words)], capture_output=True, text=True, check=False)
        said = {
            "sys.exit(7)": (7, ""),
            "os.kill(os.getpid(), 9)": (1, "the process that runs the cells was killed by signal 9\n"),
        }
        assert (found.returncode, found.stderr) == said[end]

    def test_it_kills_what_runs_when_told_to_end(self, tmp_path: Path) -> None:
        started = tmp_path / "started"
        inside = (
            f"import os, pathlib, time; pathlib.Path({str(started)!r}).write_text(str(os.getpid())); time.sleep(60)"
        )
        process = subprocess.Popen([sys.executable, "-c", self.code(("-c", inside))])
        pid = int(self.wait_for(started))
        process.terminate()
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{pid}").exists()  # the process that runs cells is gone before Slurm kills its workers
        assert process.poll() is None  # and this one waits for what the cluster does next
        process.kill()
        process.wait()

    @staticmethod
    def wait_for(path: Path) -> str:
        deadline = time.monotonic() + 20
        while not (path.exists() and path.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return path.read_text()

    @staticmethod
    def code(words: tuple[str, ...]) -> str:
        return f"from rooflens.study.slurm import ArrayJob; ArrayJob({words!r}, ())()"

    def call(self, words: tuple[str, ...]) -> None:
        subprocess.run([sys.executable, "-c", self.code(words)], check=True)
