"""Cells that a spreadsheet would run are written so that it does not, and are read as they were."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.report.escape import printable, spreadsheet
from rooflens.report.table import Column, Entry, Table
from rooflens.report.text_formats import as_csv
from rooflens.reported.csv_file import as_typed, read_figures

RUN = ["=1+1", "+1", "-net", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", "'=1", "''-x"]


@pytest.mark.parametrize("text", RUN)
def test_no_cell_and_no_header_is_run(text: str) -> None:
    column = Column(key=text, header="x")
    table = Table(title="T", columns=(column,), rows=((Entry(text),),))
    for (cell,) in csv.reader(StringIO(as_csv(table))):
        assert cell.lstrip()[0] not in "=+-@\t\r\uff1d"
        assert as_typed(cell) == printable(text)


@given(st.text(st.sampled_from("'=+-@ ab"), max_size=6))
def test_every_text_comes_back(text: str) -> None:
    assert as_typed(spreadsheet(text)) == text


def test_reported_figures_are_read_as_they_were_before_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text(f"quantity,value,model\nlatency,1,{spreadsheet('-net')}\nlatency,2,{spreadsheet('net')}\n")
    assert [figure.model for figure in read_figures(path)] == ["-net", "net"]
