"""The formats: what people and programs get, and that no text can break out of any of them."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion
from tests.table_samples import (
    HOSTILE,
    INFERENCE,
    both,
    conv_net,
    demo,
    estimated,
    hostile,
    trained,
    uncounted,
)

from rooflens.errors import InvalidValue
from rooflens.records import Case, Failure
from rooflens.report.escape import printable
from rooflens.report.html_tables import as_html
from rooflens.report.memory_table import memory
from rooflens.report.module_tables import module_tree
from rooflens.report.part_tables import families, operations
from rooflens.report.render import FORMATS, Format, render
from rooflens.report.summary import failures, summary
from rooflens.report.table import COUNT, Column, Entries, Entry, Table, Value, build, for_people
from rooflens.results import RecordSet

VIEWS = {
    "one case": summary(both()),
    "demo": summary(demo()),
    "training": summary(trained()),
    "no device": summary(RecordSet(conv_net(replace(INFERENCE, device=None)))),
    "uncounted": summary(uncounted()),
    "tree": module_tree(estimated()),
    "tree of a training step": module_tree(trained(), depth=1),
    "families": families(estimated()),
    "operations": operations(trained(), "backward"),
    "memory": memory(both()),
    "memory of training": memory(trained()),
    "failed": failures(
        RecordSet([], failures=[Failure(case=INFERENCE, source="measure", stage="forward", kind="crash", message="no")])
    ),
    "nothing": summary(RecordSet([])),
}
HOSTILE_VIEWS = [
    summary(hostile()),
    failures(hostile()),
    memory(hostile()),
    *(view(hostile().where(model=HOSTILE)) for view in (module_tree, families, operations)),
]


@pytest.mark.parametrize("name", VIEWS)
def test_terminal_of_80_columns(name: str, snapshot: SnapshotAssertion) -> None:
    assert render(VIEWS[name], "table", width=80) == snapshot


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "table"])
@pytest.mark.parametrize("name", ["uncounted", "families", "tree"])
def test_files(name: str, format: Format, snapshot: SnapshotAssertion) -> None:
    assert render(VIEWS[name], format) == snapshot


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 120, 200])
@pytest.mark.parametrize("name", VIEWS)
def test_a_terminal_is_never_wider_than_it_is(name: str, width: int) -> None:
    lines = render(VIEWS[name], "table", width=width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all(line == line.rstrip() and line.isprintable() for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_number_is_cut_off(width: int) -> None:
    shown = render(VIEWS["demo"], "table", width=width)
    assert "…" not in shown
    for value in ("172", "862", "1.03", "47.3 %", "matmul.fp32", "samples"):
        assert value in shown


def test_columns_without_room_are_named() -> None:
    assert "hidden (terminal too narrow): whole-model" in render(VIEWS["demo"], "table", width=80)
    wide = render(VIEWS["demo"], "table", width=200)
    assert "hidden" not in wide
    assert "roofline" in wide


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert render(VIEWS["demo"], "table") == render(VIEWS["demo"], "table", width=60)


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"])
def test_colour_is_asked_for_and_never_guessed(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in render(VIEWS["demo"], "table", width=80)
    coloured = render(VIEWS["demo"], "table", width=80, color=True)
    assert "\x1b[1m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == render(VIEWS["demo"], "table", width=80).split()


def test_several_tables() -> None:
    views = [VIEWS["demo"], VIEWS["families"]]
    for format in ("table", "md", "tex"):
        shown = render(views, format, width=80)
        assert shown.index("Summary") < shown.index("Operation families")
    assert render(views, "csv") == render(views[0], "csv")
    first, second = json.loads(render(views, "json"))
    assert (first["title"], second["title"]) == ("Summary", "Operation families")
    assert first["rows"] == json.loads(render(views[0], "json"))
    assert first["notes"] == list(views[0].notes)


def test_every_format_ends_with_a_line_break() -> None:
    assert all(render(view, format).endswith("\n") for view in VIEWS.values() for format in FORMATS)


def test_what_cannot_be_rendered() -> None:
    with pytest.raises(InvalidValue, match=r"unknown format 'yaml'; known: table, md, csv, tex, json"):
        render(VIEWS["demo"], "yaml")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="no table to show: a table needs a record or a failure"):
        render([], "md")


def test_csv_holds_raw_numbers_and_plain_line_ends() -> None:
    shown = render(VIEWS["demo"], "csv")
    assert (shown.count("\r"), shown.count("\n")) == (0, 7)
    first = next(csv.DictReader(io.StringIO(shown, newline=""), strict=True))
    assert (first["matmul_flops"], first["parameters"], first["options"]) == ("3628000000", "11689512", "")
    assert float(first["measured_seconds"]) == 0.0083
    assert first["lower_bound"] == "false"


def test_csv_leaves_out_sums() -> None:
    rows = list(csv.DictReader(io.StringIO(render(VIEWS["families"], "csv"), newline="")))
    assert sum(int(row["flops"]) for row in rows) == 76_800


def test_amounts_that_all_rows_share_are_told_once_in_every_format() -> None:
    name = Column("device", "device", align="left")
    peak, flops = Column("peak", "peak", "B", group="memory"), Column("flops", "FLOP", group="work")
    time = Column("time", "time", "s", group="time")
    rows: list[Entries] = [{"device": n, "peak": 2e6, "flops": 3e9, "time": s} for n, s in (("one", 1), ("two", 2))]
    table = build("T", [name, peak, flops, time], rows)
    told = "in all rows: peak 2.000 MB, FLOP 3.000 G"
    for shown in (*(render(table, wanted) for wanted in ("table", "md", "tex")), as_html([table])):
        assert shown.count(told) == 1
        assert shown.count("2.000 MB") == 1
    assert for_people(for_people(table)).alike == told
    # Where names alone would be left, the amounts stay columns.
    assert as_html([build("T", [name, peak], rows)]).count("2.000 MB") == 2


def test_a_column_of_dashes_is_left_out_whatever_it_holds() -> None:
    """A price that nobody gave, and a rate that is not shown of what does not fit."""
    name, price, rate = Column("device", "device"), Column("price", "price", "s"), Column("rate", "rate", "s")
    rows: list[Entries] = [{"device": n, "price": Entry(None, label="-"), "rate": Entry(2.0, label="-")} for n in "ab"]
    assert [column.key for column in for_people(build("T", [name, price, rate], rows)).columns] == ["device"]
    rows[0]["rate"] = 2.0
    assert [column.key for column in for_people(build("T", [name, price, rate], rows)).columns] == ["device", "rate"]


def test_bounds_are_marked_for_people_in_every_format() -> None:
    for format in ("table", "md"):
        assert ">= 1.005 k" in render(VIEWS["uncounted"], format)
    assert r"\textgreater{}= 1.005 k" in render(VIEWS["uncounted"], "tex")


def check_terminal(view: Table) -> None:
    lines = render(view, "table", width=80).split("\n")
    assert all(line.isprintable() and cell_len(line) <= 80 for line in lines)


def check_csv(view: Table) -> None:
    shown = render(view, "csv")
    rows = list(csv.reader(io.StringIO(shown, newline=""), strict=True))
    assert {len(row) for row in rows} == {len(view.columns)}
    assert len(rows) == len(view.rows) + 1
    for row, cells in zip(rows[1:], view.rows, strict=True):
        for written, cell in zip(row, cells, strict=True):
            assert written.isprintable()
            if isinstance(cell.value, str):
                assert written.lstrip()[:1] not in ("=", "+", "-", "@")
                assert written in (printable(cell.value), "'" + printable(cell.value))


def check_markdown(view: Table) -> None:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(render(view, "md"))
    kinds = [token.type for token in tokens]
    assert kinds.count("table_open") == kinds.count("heading_open") == 1
    assert kinds.count("tr_open") == 1 + len(view.rows) + (view.total is not None)
    assert kinds.count("td_open") % kinds.count("th_open") == 0
    assert kinds.count("list_item_open") == len(for_people(view).remarks)
    assert kinds.count("bullet_list_open") == bool(for_people(view).remarks)
    assert not {"html_block", "fence", "code_block", "hr", "blockquote_open", "ordered_list_open"} & set(kinds)
    inline = {child.type for token in tokens for child in token.children or ()}
    assert inline <= {"text", "text_special", "strong_open", "strong_close"}


def test_long_words_of_a_latex_table_are_paragraphs_that_share_the_line() -> None:
    claim, why = (Column(key=name, header=name, align="left") for name in ("claim", "why"))
    columns = [claim, why, Column(key="n", header="n", unit=COUNT)]
    row: dict[str, Value | Entry] = {"claim": "c" * 60, "why": "w" * 30, "n": 1}
    # 85 characters a line: less one of the number and three gaps of two, 78 are left, which 60 and 30 share as 2 to 1.
    long = build("Claims", columns, [row, row | {"claim": "short"}])
    assert r"\begin{tabular}{p{0.61\linewidth}p{0.31\linewidth}r}" in render(long, "tex")
    assert r"\begin{tabular}{llr}" in render(build("Claims", columns, [row | {"why": "short"}]), "tex")


ESCAPED = re.compile(
    r"\\text(?:backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\\[{}$&#%_]|\{\[\}|\{\*\}|-\{\}-|\\quad |''"
)


def check_latex(view: Table) -> None:
    lines = render(view, "tex").splitlines()
    assert all(line.isprintable() for line in lines)
    start, end = lines.index(r"    \midrule"), lines.index(r"    \bottomrule")
    begin = re.fullmatch(r"  \\begin\{tabular\}\{((?:[lr]|p\{0\.\d\d\\linewidth\})+)\}", lines[3])
    assert begin is not None
    columns = re.findall("[lr]|p", re.sub(r"\{.*?\}", "", begin[1]))
    rows = [line for line in lines[start + 1 : end] if line != r"    \midrule"]
    assert len(rows) == len(view.rows) + (view.total is not None)
    for line in rows:
        bare = ESCAPED.sub("", line.removesuffix(r" \\"))
        assert bare.count("&") == len(columns) - 1
        assert not set('\\{}$#%_^~<>|[*"') & set(bare)
    caption = re.fullmatch(r"  \\caption\{(.*)\}", lines[2])
    assert caption is not None
    notes = [line.removeprefix(r"  \par\footnotesize ") for line in lines if line.startswith(r"  \par")]
    assert len(notes) == len(for_people(view).remarks)
    for sentence in (caption[1], *notes):
        assert not set('\\{}$&#%_^~<>|[*"') & set(ESCAPED.sub("", sentence))


def check_json(view: Table) -> None:
    for read, row in zip(json.loads(render(view, "json")), view.rows, strict=True):
        assert list(read.values()) == [cell.value for cell in row]


CHECKS = [check_terminal, check_csv, check_markdown, check_latex, check_json]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("view", HOSTILE_VIEWS, ids=lambda view: view.title)
def test_hostile_text_breaks_no_format(check: object, view: Table) -> None:
    assert callable(check)
    check(view)


COLUMNS = (
    Column(key="name", header="name", align="left", title="{}"),
    Column(key="other", header="other", align="left"),
    Column(key="n", header="n", unit="B", group="numbers"),
)
pieces = st.sampled_from(
    [*"=+-@|*_`<>[]()#~&%$\\{}^\"'!.:/ \t\n\r\x1b\u202e", "--", "1.", "---", "<b>", "\\\\", "http://a.b", "&amp;"]
)
words = st.one_of(st.text(max_size=12), st.lists(pieces, max_size=8).map("".join))


@given(words, words, words)
def test_no_text_breaks_any_format(first: str, second: str, note: str) -> None:
    rows: list[Entries] = [
        {"name": first, "other": second, "n": 1},
        {"name": second, "other": Entry(first, indent=2), "n": None},
    ]
    view = build("Title", COLUMNS, rows, notes=[f"x {note}"], total={"name": second})
    for check in CHECKS:
        check(view)


@given(words)
def test_no_note_is_more_than_a_list_item(note: str) -> None:
    view = build("Title", COLUMNS, [{"name": "a"}], notes=[note or "-"])
    check_markdown(view)


@given(words)
def test_any_model_name_can_be_summarised(name: str) -> None:
    view = summary(RecordSet(conv_net(Case(model=name, device=name))))
    for check in CHECKS:
        check(view)
