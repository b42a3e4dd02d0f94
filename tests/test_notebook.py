"""What results show of themselves in a notebook: the tables of the command line, and no text as markup."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scripts.notebook_docs import NOTEBOOK, shown_by, shown_by_cells
from tests.report_samples import TINY, studied
from tests.table_samples import both, demo, hostile, trained

import rooflens as rl
from rooflens.errors import InvalidValue, MissingDependency
from rooflens.notebook import Displayed, Listed
from rooflens.records import Case, Record, Timing, Work
from rooflens.report.html_tables import ROWS, as_html
from rooflens.report.table import Column, build
from rooflens.results import RecordSet


class Cells(HTMLParser):
    """The captions, rows and notes of tables, and every element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.captions: list[str] = []
        self.rows: list[list[str]] = []
        self.notes: list[str] = []
        self._open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self._open = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in ("th", "td"):
            self.rows[-1][-1] += data
        elif self._open in ("caption", "li"):
            (self.captions if self._open == "caption" else self.notes).append(data)


def shown(value: Any) -> Cells:
    html = value._repr_html_()
    assert isinstance(html, str)
    return Cells(html)


def measured_twice(factor: float) -> RecordSet:
    """Ten quiet samples around a millisecond, times a factor."""
    timing = Timing(samples=tuple(factor * 1e-3 * (1 + n / 1000) for n in range(10)), origin="monotonic")
    return RecordSet([Record(case=Case(model="net", batch=1), source="measure", scope="model", timing=timing)])


def test_records_show_the_tables_of_read() -> None:
    cells = shown(both())
    assert cells.captions[0] == "Summary: toynet, batch 2, fp32, inference, on toy, estimate + measure, forward"
    assert ["bound", "90.23 us"] in cells.rows  # 55.296 + 10.24 + 24.696 us
    assert ["measured", "200.0 us"] in cells.rows
    assert any(note.startswith("bound: operation by operation") for note in cells.notes)
    several = shown(demo())
    assert several.rows[0][:2] == ["model", "batch"]
    assert several.rows[1][:2] == ["resnet18", "1"]


def test_a_total_stands_upright_with_its_notes() -> None:
    cells = shown(trained().total("forward"))
    assert cells.captions == ["Total: toynet batch 2 fp32 train optimizer=sgd on toy"]
    assert ["FLOP", "76.86 k"] in cells.rows  # 76,800 and 60 of the loss
    assert "counted 4 of 4 operations (100 % of bytes)" in cells.notes
    bare = RecordSet(
        Record(case=Case(model="m"), source="estimate", scope="op", work=Work(flops={"vector.fp32": 8})) for _ in "a"
    )
    assert "no device is named: bounds are unknown" in shown(bare.total()).notes


@pytest.mark.parametrize(
    ("value", "caption", "said"),
    [
        (lambda: rl.device("t4"), "tesla-t4: Tesla T4", "65.00 TFLOP/s"),
        (lambda: rl.devices(vendor="aws"), "AWS", "graviton3"),
        (lambda: rl.models("llama", "405b"), "", "llama-3.1-405b"),
        (lambda: rl.check(both()), "Findings", ""),
        (lambda: rl.compare(measured_twice(1), measured_twice(2)), "Runs", "2.000"),
        (lambda: rl.compare(demo(), question="correlation"), "Correlation", "matmul flop"),
        (lambda: build("A", [Column("b", "c")], [{"b": 1}, {"b": 2}]), "A", "2"),
    ],
)
def test_other_results_show_their_tables(value: Callable[[], Any], caption: str, said: str) -> None:
    cells = shown(value())
    assert caption.lower() in " ".join(cells.captions).lower()
    assert said.lower() in " ".join(text for row in cells.rows for text in row).lower()


def test_studies_show_how_far_they_are_and_what_came_of_them(tmp_path: Path) -> None:
    folder = studied(tmp_path, TINY).path
    status = shown(rl.study_status(folder))
    assert status.captions == ["Study: 12 cells"]
    assert status.rows == [
        ["source", "done", "running", "left"],
        ["estimate", "6", "0", "0"],
        ["measure", "6", "0", "0"],
    ]
    page = rl.study_report(folder)._repr_html_()
    assert page is not None
    assert page.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert page.count("<") == 2


def test_an_explanation_is_text_that_keeps_its_lines() -> None:
    explanation = rl.explain("mm", shapes=[(8, 4), (4, 2)], device="t4")
    html = explanation._repr_html_()
    assert html.startswith("<pre")
    assert "-&gt; result=8x2:fp32" in html
    assert html.count("\n") == explanation.text.count("\n")


@pytest.mark.parametrize("records", [hostile(), hostile() + both()])
def test_no_text_is_markup(records: RecordSet) -> None:
    ours = {"div", "style", "table", "caption", "tbody", "thead", "tr", "th", "td", "ul", "li"}
    assert shown(records).elements <= ours
    assert "\x1b" not in str(records._repr_html_())
    note = build("<b>", [Column("<i>", "<i>")], [{"<i>": "<script>"}], notes=["<img onerror=x>"])
    assert shown(note).elements <= ours


def test_a_long_table_says_how_much_it_hides() -> None:
    table = build("T", [Column("n", "n")], [{"n": n} for n in range(ROWS + 5)])
    cells = Cells(as_html([table]))
    assert len(cells.rows) == 1 + ROWS
    assert cells.notes == ["5 more rows are not shown; rooflens.table and rooflens.explore show all"]


def test_a_wide_table_names_the_columns_that_it_leaves_out() -> None:
    columns = [Column(f"c{n}", f"c{n}", show="room" if n % 2 else "always") for n in range(12)]
    rows = [{column.key: n for column in columns} for n in (1, 2)]
    cells = shown(build("T", columns, rows))
    assert cells.rows[0] == ["c0", "c2", "c4", "c6", "c8", "c10"]
    assert cells.notes == ["more columns in rooflens.table: c1, c3, c5, c7, c9, c11"]
    assert shown(build("T", columns[1:], rows)).rows[0] == [column.key for column in columns[1:]]


def test_nothing_is_shown_as_text() -> None:
    assert RecordSet([])._repr_html_() is None
    assert Listed[str]()._repr_html_() is None
    assert Displayed()._repr_html_() is None  # no result of which there are tables


def test_records_read_without_another_function_show_themselves(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    both().save(path)
    code = f"from rooflens.results import RecordSet; print(RecordSet.load({str(path)!r})._repr_html_()[:5])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "<div \n"


def test_frames_have_a_row_per_record_and_nothing_where_nothing_is_known() -> None:
    frame = trained().to_polars()
    assert frame.shape[0] == len(trained())
    assert frame["options"].to_list() == ["optimizer=sgd"] * len(trained())
    assert frame["flops"].to_list()[:2] == [None, 55_296]


@pytest.mark.parametrize("mode", ["inference", "train"])
def test_frames_have_the_bound_and_the_expected_time_of_each_record(mode: str) -> None:
    estimate = rl.estimate("alexnet", batch=2, device=["t4", "h100-sxm"], mode=mode)
    frame = estimate.to_polars()
    for device in ("tesla-t4", "h100-sxm5-80gb"):
        total = estimate.where(device=device).total()
        whole, calls = (
            frame.filter((frame["device"] == device) & (frame["scope"] == scope)) for scope in ("model", "op")
        )
        for key in ("predicted_seconds", "predicted_low", "predicted_high"):
            assert whole[key].to_list() == [getattr(total, key)]
        assert whole["bound_seconds"].to_list() == [total.seconds]
        assert float((calls["bound_seconds"] * calls["calls"]).sum()) == pytest.approx(total.seconds)
        assert calls["predicted_seconds"].null_count() == 0
        assert calls["seconds"].null_count() == len(calls)  # nothing was measured


def test_frames_expect_nothing_of_what_was_only_measured() -> None:
    frame = both().to_polars()
    measured = frame.filter(frame["source"] == "measure")
    assert measured["seconds"].drop_nulls().to_list() == [0.0002]
    assert measured["predicted_seconds"].null_count() == len(measured)


def test_frames_of_pandas_keep_whole_numbers() -> None:
    pandas = pytest.importorskip("pandas", reason="no pandas here: it comes with the extra 'pandas'")
    large = 2**53 + 1
    record = Record(case=Case(model="m"), source="estimate", scope="op", work=Work(flops={"matmul.fp32": large}))
    frame = RecordSet([record, *both()]).to_pandas()
    assert list(frame["flops"])[:1] == [large]
    assert frame["flops"][1] is pandas.NA
    assert frame.shape == both().to_polars().vstack(both().to_polars()[:1]).shape
    assert RecordSet([]).to_pandas().empty


def test_frames_of_modules_have_leaves_that_add_up() -> None:
    estimate = rl.estimate("alexnet", batch=[1, 2], device="t4")
    frame = estimate.to_polars(by="module", depth=1)
    for (batch,), rows in frame.group_by("batch"):
        whole = estimate.where(batch=batch)
        leaves = rows.filter(rows["leaf"])
        assert leaves["seconds"].sum() == pytest.approx(whole.total().seconds)
        assert leaves["flops"].sum() == whole.total().flops
        assert leaves["parameters"].sum() == 61_100_840
        assert leaves["predicted_seconds"].null_count() == 0
        assert float(rows["seconds"].sum()) > 1.5 * float(leaves["seconds"].sum()), "modules hold those below them"
    families = estimate.to_polars(by="family").filter(estimate.to_polars(by="family")["batch"] == 1)
    assert families["seconds"].sum() == pytest.approx(estimate.where(batch=1).total().seconds)
    with pytest.raises(InvalidValue, match="hold no kernels"):
        estimate.to_polars(by="kernel")


def test_frames_of_pandas_tell_units() -> None:
    pytest.importorskip("pandas", reason="no pandas here: it comes with the extra 'pandas'")
    frame = both().to_pandas(by="op")
    assert frame.attrs["units"]["seconds"] == "s"
    assert frame.attrs["units"]["dram_bytes"] == "B"


def test_without_pandas_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    remedy = r"pip install 'rooflens\[pandas\]' \(in a clone: pip install '\.\[pandas\]'\)"
    with pytest.raises(MissingDependency, match=f"a data frame of pandas needs pandas: {remedy}"):
        both().to_pandas()


def test_the_cells_of_the_notebook_show_what_is_kept_of_them() -> None:
    shown = 0
    for cell, now in shown_by_cells(json.loads(NOTEBOOK.read_text(encoding="utf-8"))):
        kept = {media: "".join(lines) for output in cell["outputs"] for media, lines in output["data"].items()}
        pictures = {media for media in now if media.startswith("image/")}  # whose bytes depend on the version of zlib
        assert kept.keys() == now.keys()
        for media in now.keys() - pictures:
            assert kept[media] == now[media], "run scripts/notebook_docs.py"
        shown += len(now)
    assert shown == 8


def test_the_last_expression_of_a_cell_is_what_it_shows() -> None:
    names: dict[str, Any] = {}
    assert shown_by("a = 1\nb = 2", names) == {}
    assert shown_by("a + b", names) == {"text/plain": "3"}
    assert shown_by("None", names) == {}
    assert shown_by("import rooflens as rl\nrl.device('t4')", names).keys() == {"text/html"}


def test_a_total_tells_itself_in_a_line() -> None:
    assert repr(both().where(source="estimate").total()) == "Total(76.80 kFLOP, 39.38 kB, bound 90.23 us)"
