"""What a report says of its study and where its files are: units, names, links, commands; files read once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.report_samples import SMALL, TINY, studied

import rooflens as rl
from rooflens.api.studies import study_view
from rooflens.records import RecordFile, read_records
from rooflens.report.study import compose
from rooflens.report.study.content import Code
from rooflens.study import StudyFolder
from rooflens.study import folder as state

CARDS = """\
title = "One card and two"
devices = ["t4", "2x t4"]
models = ["resnet18", "alexnet"]
batches = [1]
"""
PARAMETERS = """
[[hypothesis]]
text = "The weights are less than half of what a step needs"
quantity = "memory"
left = { quantity = "parameters", times = 4 }
relation = "<"
right = { times = 0.5 }
where = { source = "estimate", model = "resnet18", batch = 1 }
"""


def test_every_record_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = studied(tmp_path, SMALL)
    seen: Counter[str] = Counter()

    def counted(path: Path) -> RecordFile:
        seen[path.name] += 1
        return read_records(path)

    monkeypatch.setattr(state, "read_records", counted)
    study_view(StudyFolder.open(folder.path))
    assert set(seen.values()) == {1}
    assert len(seen) == len(folder.cells)
    seen.clear()
    rl.study_verdicts(folder.path)
    assert set(seen.values()) == {1}


def test_each_side_of_a_comparison_has_its_own_unit(tmp_path: Path) -> None:
    # The first model has 2 M parameters in 8 MB, and needs 3 MB more with one image: 5.5 MB are half of it.
    report = compose(study_view(studied(tmp_path, TINY + PARAMETERS)))
    (table,) = (listed.table for listed in report.tables if listed.key == "hypothesis-1")
    columns = [column.key for column in table.columns]
    row = dict(zip(columns, table.rows[0], strict=True))
    assert (row["left_value"].label, row["right_value"].label) == ("8.000 M", "5.500 MB")


def test_figures_are_where_markdown_says(tmp_path: Path) -> None:
    folder = studied(tmp_path, CARDS)
    page = tmp_path / "my report.md"
    rl.study_report(folder.path, page, figures=tmp_path / "alone")
    links = re.findall(r"!\[.*\]\((.*)\)", page.read_text())
    assert "my%20report-figures/roofline-2x-tesla-t4.svg" in links
    assert all((tmp_path / unquote(link)).is_file() for link in links)
    assert not any(" " in path.name for path in (tmp_path / "alone").iterdir())


def test_no_place_on_the_page_has_a_space_in_its_name(tmp_path: Path) -> None:
    rl.study_report(studied(tmp_path, CARDS).path, tmp_path / "report.html")
    places = re.findall(r'\bid="([^"]*)"', (tmp_path / "report.html").read_text())
    assert "figure-roofline-2x-tesla-t4" in places
    assert not [place for place in places if re.search(r"\s", place)]


def test_one_step_on_one_device(tmp_path: Path) -> None:
    text = 'title = "T"\nmodels = "alexnet"\ndevices = "t4"\nbatches = 1\n'
    assert compose(study_view(studied(tmp_path, text))).subtitle == "1 step on 1 device"


def test_the_commands_work_on_one_folder(tmp_path: Path) -> None:
    folder = studied(tmp_path, TINY)
    named = folder.path.rename(tmp_path / "a b")
    report = compose(study_view(StudyFolder.open(named)))
    (commands,) = (
        block.text
        for section in report.sections
        for block in section.blocks
        if isinstance(block, Code) and block.title == "Commands"
    )
    assert commands.splitlines() == [
        "rooflens study run study.toml -d 'out/a b'",
        "rooflens study status 'out/a b'",
        "rooflens study report 'out/a b' -o report.html",
    ]
