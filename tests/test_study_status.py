"""What is told of how far a study is: counts, how long the rest takes, what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.study_samples import SMALL, begun, failing, found

from rooflens.records import Failure, RecordFile
from rooflens.study import StudyFolder, run_each
from rooflens.study.lease import lease
from rooflens.study.status_text import duration, status_json, status_text, too_few_models


class TestStatus:
    def note(self, folder: StudyFolder, seconds: dict[int, float]) -> None:
        for number in seconds:
            folder.keep(folder.cells[number], found(folder.cells[number]))
        lines = [json.dumps({"cell": folder.cells[n].key, "seconds": s}) for n, s in seconds.items()]
        (folder.path / "journal").mkdir()
        (folder.path / "journal" / "one.jsonl").write_text("\n".join([*lines, '{"cell": "killed amid a li']))

    def test_cells_take_as_long_as_those_like_them(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)  # six cells of resnet18, then six of alexnet
        self.note(folder, {0: 1.0, 1: 3.0, 6: 10.0})
        status = folder.status()
        assert status.seconds == 14.0
        # Four of resnet18 at 2 s on average, five of alexnet at 10 s.
        assert status.expected == 4 * 2.0 + 5 * 10.0
        assert status.unlike == 0
        assert status_text(status) == (
            "12 cells: 3 done, 0 failed, 0 running, 9 left\n"
            "  estimate  3 done, 9 left\n"
            "done so far in 14 s of work\n"
            "left: 9 cells, about 58 s one after another\n"
        )

    def test_models_without_an_example_take_as_long_as_others(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        self.note(folder, {0: 1.0, 1: 3.0})
        assert folder.status().expected == 10 * 2.0

    def test_a_source_without_an_example_is_not_guessed(self, tmp_path: Path) -> None:
        folder = begun(tmp_path, SMALL + 'sources = ["estimate", "measure"]\n[measure]\ndevices = "cuda"\n')
        assert folder.status().expected is None
        assert "nothing like that is done yet" in status_text(folder.status())
        self.note(folder, {0: 2.0})
        status = folder.status()
        assert (status.expected, status.unlike) == (22.0, 6)
        assert (
            "left: 17 cells; 11 of them take about 22 s one after another, and how long the other 6 take is unknown:"
            " nothing like them is done yet\n"
        ) in status_text(status)
        assert "  6 of them need cuda\n" in status_text(status)

    def test_of_one_cell(self, tmp_path: Path) -> None:
        folder = begun(tmp_path, 'title = "T"\nmodels = "alexnet"\nsources = ["estimate", "measure"]\n')
        self.note(folder, {})
        folder.keep(folder.cells[1], found(folder.cells[1]))
        assert status_text(folder.status()).startswith("2 cells: 1 done")
        assert "left: 1 cell; nothing like that is done yet" in status_text(folder.status())

    def test_what_a_model_says_does_not_steer_the_terminal(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        case = folder.cells[0].case
        failure = Failure(case=case, source="estimate", stage="start", kind="error", message="a\x1b[31m\n b\x07")
        folder.keep(folder.cells[0], RecordFile(records=(), failures=(failure,)))
        assert "error at start: a\N{REPLACEMENT CHARACTER}[31m b\N{REPLACEMENT CHARACTER}\n" in (
            status_text(folder.status())
        )

    def test_without_the_folder_of_the_cells(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)  # git and others leave out what is empty
        folder.files.rmdir()
        opened = StudyFolder.open(folder.path)
        assert (opened.status().count("left"), opened.has_any(), opened.records().records) == (12, False, ())
        run_each(opened, opened.cells[:1], found)
        assert opened.status().count("done") == 1

    def test_what_runs_is_running(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        with lease(folder.files, folder.cells[0].key):
            assert folder.status().cells("running") == folder.cells[:1]
        assert folder.status().count("running") == 0

    def test_as_json(self, tmp_path: Path) -> None:
        folder = begun(tmp_path)
        run_each(folder, folder.cells[:2], found)
        run_each(folder, folder.cells[2:3], failing)
        told = json.loads(status_json(folder.status()))
        assert {key: told[key] for key in ("format", "cells", "done", "failed", "running", "left", "complete")} == {
            "format": 1, "cells": 12, "done": 2, "failed": 1, "running": 0, "left": 9, "complete": False,
        }  # fmt: skip
        assert told["sources"] == {"estimate": {"done": 2, "skipped": 0, "failed": 1, "running": 0, "left": 9}}
        assert told["left_by_device"] == {"any": 9}
        assert told["failures"] == [
            {
                "key": folder.cells[2].key,
                "cell": "estimate resnet18 batch 2 fp32 inference on tesla-t4",
                "stage": "start",
                "kind": "error",
                "message": "resnet18 cannot be built",
            }
        ]

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [(0.04, "0.0 s"), (9.94, "9.9 s"), (89.4, "89 s"), (91, "2 min"), (5399, "90 min"), (5400, "1.5 h")],
    )
    def test_durations(self, seconds: float, words: str) -> None:
        assert duration(seconds) == words


@pytest.mark.parametrize(("names", "told"), [(3, True), (5, False)])
def test_a_correlation_over_few_models_is_told_at_the_start(tmp_path: Path, names: int, told: bool) -> None:
    models = [f"resnet{depth}" for depth in (18, 34, 50, 101, 152)][:names]
    claim = 'left = {of = "flops"}\nquantity = "spearman"\nrelation = ">"\nright = 0.5'
    text = (
        f"{SMALL.splitlines()[0]}\nmodels = {models}\ndevices = ['t4']\n[[hypothesis]]\ntext = 'FLOP tell'\n{claim}\n"
    )
    folder = begun(tmp_path, text)
    lines = list(too_few_models(folder.study, folder.cells))
    assert bool(lines) == told
    if told:
        assert "".join(lines) == (
            "no result can decide “FLOP tell”: it is on a correlation, which takes 5 models to be told from chance, and"
            " the study holds 3"
        )
