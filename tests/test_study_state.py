"""The folder of a study: what is done and left, killed runs, runs side by side, changed files, expected times."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.study_samples import SMALL, begun, failing, found, timed, written

from rooflens.errors import InvalidValue, RecordFileError, StudyFileError
from rooflens.progress import Progress
from rooflens.records import Case, Failure, RecordFile, read_records, write_records
from rooflens.study import Cell, CellNews, StudyChange, StudyFolder, run_each
from rooflens.study.lease import lease
from rooflens.study.status_text import change_text, status_text

ROOT = Path(__file__).parents[1]
WORKER = """
import sys, time
from rooflens.progress import Progress
from rooflens.study import StudyFolder, run_each
from tests.study_samples import found

folder, seconds = StudyFolder.open(sys.argv[1]), float(sys.argv[2])

def run(cell, share):
    print(cell.key, flush=True)
    time.sleep(seconds)
    return found(cell)

run_each(folder, folder.cells, run)
folder.sweep()
"""
LARGE = f'title = "Large"\nmodels = ["a", "b"]\nbatches = {list(range(1, 26))}\nmodes = ["inference", "train"]\n'
LARGE += 'dtypes = ["fp32", "bf16"]\n'


def started(folder: StudyFolder, seconds: float) -> subprocess.Popen[str]:
    """A process that works through a study and prints the key of each cell that it begins."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder.path), str(seconds)],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )


def noted(folder: StudyFolder) -> list[str]:
    lines = [line for path in (folder.path / "journal").iterdir() for line in path.read_text().splitlines()]
    return [json.loads(line)["cell"] for line in lines]


def test_a_run_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    folder, rng = begun(tmp_path, LARGE), random.Random(7)
    assert len(folder.cells) == 200
    for _ in range(10):
        process = started(folder, 0.004)
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 25)):
            process.stdout.readline()
        time.sleep(rng.uniform(0, 0.008))  # before, while and after a file is written
        process.kill()
        process.communicate()
    assert 0 < folder.status().count("done") < 200
    last = started(folder, 0.0)
    last.communicate()
    assert last.returncode == 0
    assert folder.status().complete
    assert sorted(os.listdir(folder.files)) == sorted(f"{cell.key}.jsonl" for cell in folder.cells)
    assert [(cell, contents.records) for cell, contents in folder.contents().cells] == [
        (cell, found(cell).records) for cell in folder.cells
    ]
    assert max(Counter(noted(folder)).values()) == 1


def test_runs_side_by_side_share_the_cells(tmp_path: Path) -> None:
    folder = begun(tmp_path, LARGE)
    processes = [started(folder, 0.004) for _ in range(3)]
    runs = [process.communicate()[0].split() for process in processes]
    assert sorted(key for keys in runs for key in keys) == sorted(cell.key for cell in folder.cells)
    assert all(process.returncode == 0 for process in processes)
    assert sum(len(keys) > 10 for keys in runs) > 1
    assert folder.status().complete


def test_what_is_told_of_each_cell(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    first, second, third = folder.cells[:3]
    steps: list[CellNews] = []
    with lease(folder.files, second.key):
        run_each(folder, (first, second), found, tell=steps.append)
    run_each(folder, (first,), found, tell=steps.append)  # it is done
    run_each(folder, (third,), failing, tell=steps.append)
    assert [(step.cell, step.what, step.share, step.text) for step in steps] == [
        (first, "running", 0.0, ""),
        (first, "running", 0.5, "half of it"),
        (first, "done", 1.0, ""),
        (second, "elsewhere", 0.0, ""),
        (third, "running", 0.0, ""),
        (third, "failed", 1.0, "resnet18 cannot be built"),
    ]
    assert [step.seconds is not None for step in steps] == [False, False, True, False, False, True]


def test_what_failed_is_run_again_when_asked_for(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    run_each(folder, folder.cells, failing)
    status = folder.status()
    assert status.count("failed") == 12
    assert status.failures[folder.cells[0].key] == Failure(
        case=folder.cells[0].case, source="estimate", stage="start", kind="error", message="resnet18 cannot be built"
    )
    run_each(folder, folder.cells, found)
    assert folder.status().count("failed") == 12
    run_each(folder, folder.cells[:5], found, retry=True)
    assert (folder.status().count("failed"), folder.status().count("done")) == (7, 5)
    run_each(folder, folder.cells[:6], failing, retry=True)  # what is done stays
    assert folder.status().count("done") == 5
    assert len(os.listdir(folder.files)) == 12


def test_a_killed_retry_leaves_one_of_both(tmp_path: Path) -> None:
    # Killed between writing the records and removing the failure.
    folder = begun(tmp_path)
    cell = folder.cells[0]
    run_each(folder, [cell], failing)
    write_records(folder.files / f"{cell.key}.jsonl", found(cell))
    assert folder.status().count("failed") == 0
    assert [contents.records for _, contents in folder.contents().cells] == [found(cell).records]


def test_a_cell_that_was_lost_to_another_run_is_not_kept_twice(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    steps: list[CellNews] = []

    def loses(cell: Cell, share: Progress) -> RecordFile:
        # Another one found the lease stale, and took it over.
        (path,) = folder.files.glob(".*lease-1")
        path.with_name(path.name.replace("lease-1", "lease-2")).write_text(path.read_text())
        return found(cell, share)

    run_each(folder, folder.cells[:1], loses, tell=steps.append)
    assert steps[-1].what == "elsewhere"
    assert noted(folder) == []
    assert folder.has(folder.cells[0]) is None


def test_nothing_begins_after_the_time_is_over(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    run_each(folder, folder.cells, found, until=time.monotonic())
    assert folder.status().count("left") == 12
    run_each(folder, folder.cells, found, until=time.monotonic() + 60)
    assert folder.status().complete


def test_what_killed_runs_left_goes_once_the_cell_is_done(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    done, left = folder.cells[:2]
    run_each(folder, [done], found)
    litter = [f".{done.key}.lease-1", f".{done.key}.lease-1.0abc", f".{done.key}.jsonl.x1.tmp"]
    litter += [f".{done.key}.failed.jsonl.x2.tmp", f".{left.key}.jsonl.x3.tmp"]
    for name in litter:
        (folder.files / name).write_text('{"place": "", "pid": 0, "started": "", "token": ""}')
        os.utime(folder.files / name, (0, 0))
    folder.sweep()
    assert sorted(os.listdir(folder.files)) == sorted([f"{done.key}.jsonl", litter[-1]])


class TestChanges:
    def test_the_same_file_again(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        run_each(folder, folder.cells, found)
        again, change = StudyFolder.begin(folder.path, tmp_path / "study.toml")
        assert change is None
        assert again.status().complete

    def test_a_study_that_grows_keeps_what_it_has(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        run_each(folder, folder.cells, found)
        (again, change) = StudyFolder.begin(folder.path, written(tmp_path, SMALL.replace("1, 2, 4", "2, 4, 8")))
        assert change is not None
        assert (len(change.added), len(change.dropped)) == (4, 4)  # two models on two devices
        status = again.status()
        assert (status.count("done"), status.count("left"), status.strangers) == (8, 4, change.dropped)
        assert StudyFolder.open(folder.path).study == again.study
        assert "4 record files belong to no cell of the study" in status_text(status)

    def test_a_change_of_words(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        _, change = StudyFolder.begin(folder.path, written(tmp_path, SMALL.replace("Small", "Little")))
        assert change == StudyChange()

    def test_a_file_that_can_no_longer_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "old.csv").touch()
        folder = begun(tmp_path, SMALL + '[[recorded]]\nfiles = ["old.csv"]\n')
        run_each(folder, folder.cells[:2], found)
        (tmp_path / "old.csv").unlink()
        again, change = StudyFolder.begin(folder.path, written(tmp_path))
        assert change is not None
        assert (len(change.added), change.dropped) == (10, ())
        assert again.status().count("done") == 2

    def test_in_words(self) -> None:
        both = change_text(StudyChange(added=("a", "b"), dropped=("c",)))
        assert both == (
            "the study file changed since: it asks for 2 more cells and no longer asks for 1 cell, whose files stay"
        )
        assert change_text(StudyChange()).endswith("it asks for the same cells")


class TestFolder:
    def test_it_can_be_opened_from_anywhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "figures.csv").write_text("quantity,value\n")
        written(tmp_path / "home", 'figures = "figures.csv"\n' + SMALL)
        monkeypatch.chdir(tmp_path / "home")
        folder, _ = StudyFolder.begin("../out", "study.toml")
        assert folder.figures is not None
        monkeypatch.chdir(tmp_path)
        again = StudyFolder.open("out")
        assert again.home.resolve() == tmp_path / "home"
        assert again.cells == folder.cells
        assert again.figures is not None
        assert again.figures.read_text() == "quantity,value\n"

    def test_it_moves_with_its_study(self, tmp_path: Path) -> None:
        (tmp_path / "here").mkdir()
        begun(tmp_path / "here")
        (tmp_path / "here").rename(tmp_path / "there")
        assert StudyFolder.open(tmp_path / "there" / "out").home == tmp_path / "there"

    def test_it_does_not_tell_the_home_of_who_began_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ann = tmp_path / "users" / "ann"
        (ann / "project").mkdir(parents=True)
        written(ann / "project", SMALL)
        monkeypatch.setenv("HOME", str(ann))
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        folder, _ = StudyFolder.begin(tmp_path / "scratch" / "out", ann / "project" / "study.toml")
        assert not [path for path in folder.path.rglob("*") if path.is_file() and "ann" in path.read_text()]
        again = StudyFolder.open(folder.path)
        assert (again.home, again.cells) == (ann / "project", folder.cells)
        monkeypatch.setenv("HOME", str(tmp_path / "users" / "bob"))
        with pytest.raises(InvalidValue, match=r"known only to who began the study.*rooflens study run STUDY\.toml -d"):
            StudyFolder.open(folder.path)

    def test_one_that_holds_no_study(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidValue, match="holds no study; begin one with 'rooflens study run"):
            StudyFolder.open(tmp_path)

    def test_one_of_another_version(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        (folder.path / "study.json").write_text('{"format": 99}')
        with pytest.raises(InvalidValue, match="was not written by this version of rooflens; it reads format 1"):
            StudyFolder.open(folder.path)

    def test_cells_by_their_keys(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        keys = [cell.key for cell in folder.cells]
        assert folder.named([keys[3], keys[1]]) == (folder.cells[1], folder.cells[3])
        with pytest.raises(InvalidValue, match="has no cell 'no'"):
            folder.named(["no"])

    def test_a_damaged_file_is_named(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        run_each(folder, folder.cells, found)
        damaged = folder.files / f"{folder.cells[0].key}.jsonl"
        damaged.write_text(damaged.read_text()[:-20])
        with pytest.raises(RecordFileError, match=damaged.name) as caught:
            folder.records()
        assert caught.value.__notes__ == [
            f"remove the file, and 'rooflens study resume {folder.path}' runs its cell again"
        ]

    def test_records_of_all_cells(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        run_each(folder, folder.cells[:11], found)
        run_each(folder, folder.cells[11:], failing)
        records = folder.records()
        assert [record.case for record in records] == [cell.case for cell in folder.cells[:11]]
        assert [failure.case for failure in records.failures] == [folder.cells[11].case]
        assert len(records.failures) == 1

    def test_what_words_for_this_machine_turned_out_to_be(self, tmp_path: Path) -> None:
        folder = begun(tmp_path, SMALL.replace('"t4", "a100-sxm4-40gb"', '"cuda", "t4"'))

        def on_a_card(cell: Cell, _: Progress) -> RecordFile:
            device = "h200-sxm-141gb" if cell.case.device == "cuda" else cell.case.device
            return RecordFile(records=(timed(Case(model=cell.case.model, device=device)),))

        run_each(folder, folder.cells, on_a_card)
        assert folder.contents().aliases == {"cuda": frozenset({"h200-sxm-141gb"})}


class TestRecorded:
    STUDY = SMALL + '[[recorded]]\nfiles = ["old/*.jsonl"]\n'

    def test_files_stand_for_the_cells_that_they_are_named_for(self, tmp_path: Path) -> None:
        before = begun(tmp_path)
        run_each(before, before.cells[:3], found)
        run_each(before, before.cells[3:4], failing)
        before.files.rename(tmp_path / "old")
        folder, _ = StudyFolder.begin(tmp_path / "new", written(tmp_path, self.STUDY))
        assert folder.cells == before.cells
        assert folder.take_recorded() == 4
        assert folder.take_recorded() == 0
        status = folder.status()
        assert (status.count("done"), status.count("failed"), status.count("left")) == (3, 1, 8)
        name = f"{folder.cells[0].key}.jsonl"
        assert read_records(folder.files / name) == read_records(tmp_path / "old" / name)

    def test_what_is_done_here_stays(self, tmp_path: Path) -> None:
        before = begun(tmp_path)
        run_each(before, before.cells[:1], failing)
        before.files.rename(tmp_path / "old")
        folder, _ = StudyFolder.begin(tmp_path / "new", written(tmp_path, self.STUDY))
        run_each(folder, folder.cells[:1], found)
        assert folder.take_recorded() == 0
        assert folder.status().count("done") == 1

    def test_a_file_that_has_gone_since(self, tmp_path: Path) -> None:
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "a.jsonl").touch()
        folder = begun(tmp_path, self.STUDY)
        (tmp_path / "old" / "a.jsonl").unlink()
        with pytest.raises(StudyFileError, match=r"recorded\[1\].files\[1\] is 'old/\*.jsonl', and no such file"):
            StudyFolder.open(folder.path)
