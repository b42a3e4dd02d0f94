"""What a counter file lacks is in no total, and what is too much is not kept."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.test_counters_layouts import HEADER, read, row

from rooflens.errors import FileError


@pytest.mark.parametrize("value", ["n/a", None])
def test_a_launch_without_any_work_is_never_left_out_of_a_total(tmp_path: Path, value: str | None) -> None:
    lanes = "".join(
        row(f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum", "inst", "4") for op in ("add", "mul", "fma")
    )
    whole = HEADER + row("dram__bytes.sum", "byte", "64") + lanes
    total = read(tmp_path, whole).total()
    # Tensor work of "k" was not collected, so its FLOP are a lower bound.
    assert (total.flops, total.bytes, total.missing) == (4 + 4 + 2 * 4, {"dram": 64}, frozenset({"k"}))
    bare = row("gpu__time_duration.sum", "ns", "5", number=1, kernel="bare")
    bare += "" if value is None else row("dram__bytes.sum", "byte", value, number=1, kernel="bare")
    lower = read(tmp_path, whole + bare).total()
    assert (lower.flops, lower.bytes, lower.missing) == (16, {}, frozenset({"k", "bare"}))
    assert lower.coverage.operations == 2
    alone = read(tmp_path, HEADER + bare).total()  # a file of nothing but times tells of no work
    assert (alone.flops, alone.bytes, alone.missing) == (None, {}, frozenset({"bare"}))


def test_a_value_below_zero_is_unknown_and_said(tmp_path: Path) -> None:
    rows = [row("dram__bytes.sum", "byte", text, number=n) for n, text in enumerate(("-64", "32", "-1.5"))]
    found = read(tmp_path, HEADER + "".join(rows))
    assert [record.work and dict(record.work.bytes) for record in found] == [{}, {"dram": 32}, {}]
    notes = [note for record in found for note in record.notes] + list(found.notes)
    said = "2 of them are below zero in the file, which no counter can be: dram__bytes.sum (2); its parts were counted"
    assert any(note.startswith(said) for note in notes)


def test_a_line_without_an_end_is_an_error_and_not_kept(tmp_path: Path) -> None:
    """A megabyte of gzip may hold a gigabyte."""
    good = HEADER + row("gpu__time_duration.sum", "ns", "5")
    for text in ("a" * 2**25, good + '"0","9","' + "p" * 2**25):
        with pytest.raises(FileError, match=r"line [13]: it has 16777216 characters and more"):
            read(tmp_path, gzip.compress(text.encode(), compresslevel=1), "report.csv.gz")
