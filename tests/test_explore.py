"""The page of `explore` as data: its numbers are those of tables, its places follow by hand, its text is harmless."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.explored_page import cells, parsed
from tests.figure_samples import device as toy
from tests.level_samples import CASE, cached, kernel
from tests.ranked_steps import a_card, relu_on, steps
from tests.report_samples import SMALL, studied
from tests.table_samples import HOSTILE, both, hostile, times, trained

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.compare import DeviceComparison
from rooflens.errors import InvalidValue
from rooflens.records import Case, Failure, Record, Work
from rooflens.report.explorer.document import SCRIPTS, as_text
from rooflens.report.explorer.explored import explored
from rooflens.report.memory_table import memory
from rooflens.results import RecordSet

SOURCES = Path(rl.__file__).parent / "report" / "explorer" / "page"
ESCAPE = "</script><script>alert(1)</script><!-- &amp; \u2028 ' \""


def by_key(records: RecordSet, part: str = "columns") -> dict[str, list[object]]:
    """The values of each column of the page."""
    data = parsed(rl.explore(records)).data
    held = data["memory"]
    columns, rows = (data["columns"], data["count"]) if part == "columns" else (held["columns"], len(held["row"]))
    return {each["key"]: [value for value, _ in cells(each, rows)] for each in columns}


@pytest.mark.parametrize("records", [both, trained, hostile])
def test_its_numbers_are_those_of_read(records: object) -> None:
    assert callable(records)
    made = records()
    rows = list(csv.DictReader(StringIO(rl.table(made, format="csv"))))
    page = by_key(made)
    assert list(page) == list(rows[0])
    for number, row in enumerate(rows):
        for key, text in row.items():
            value = page[key][number]
            if isinstance(value, bool):
                value = str(value).lower()
            assert text == ("" if value is None else str(value)), key


def test_numbers_of_a_study_are_those_of_its_table(tmp_path: Path) -> None:
    records = studied(tmp_path, SMALL).records()
    rows = list(csv.DictReader(StringIO(rl.table(records, format="csv"))))
    page = by_key(records)
    assert [str(seconds or "") for seconds in page["measured_seconds"]] == [row["measured_seconds"] for row in rows]
    assert [str(seconds or "") for seconds in page["seconds"]] == [row["seconds"] for row in rows]
    assert page["failed"].count("out of memory") == [row["failed"] for row in rows].count("out of memory")


def test_marks_stand_where_a_pencil_puts_them() -> None:
    """76,800 FLOP and 39,384 bytes; the bound is 55.296 + 10.24 + 24.696 us, the measured median 200 us."""
    marks = parsed(rl.explore(both())).data["marks"]
    assert marks["source"] == ["estimate", "measure"]
    assert marks["level"] == ["dram", "dram"]
    assert marks["x"] == pytest.approx([76_800 / 39_384] * 2)
    assert marks["y"] == pytest.approx([76_800 / 90.232e-6, 76_800 / 200e-6])
    assert marks["above_roof"] == [False, False]
    assert marks["told"][1] == ["200.0 us", "1.950 FLOP/B", "384.0 MFLOP/s"]


def test_counted_work_stands_at_every_level() -> None:
    """1 GFLOP in 1 ms over 400, 100 and 10 MB; at l1 of 100 GB/s it is quicker than its roof: 4 ms."""
    data = parsed(rl.explore(RecordSet([kernel()], devices={"toy-100": cached(l1=1e11)}))).data
    assert data["levels"] == ["l1", "l2", "dram"]
    marks = data["marks"]
    assert dict(zip(marks["level"], marks["x"], strict=True)) == {"l1": 2.5, "l2": 10.0, "dram": 100.0}
    assert marks["y"] == [1e12] * 3
    assert marks["above_roof"] == [True, False, False]
    (device,) = data["devices"]
    # 10 TFLOP/s over 100 GB/s, 4 TB/s and 1 TB/s
    assert device["ridges"] == {"vector.fp32 l1": 100.0, "vector.fp32 l2": 2.5, "vector.fp32 dram": 10.0}


def test_memory_is_that_of_tables() -> None:
    table = memory(both())
    (row,) = (dict(zip([c.key for c in table.columns], r, strict=True)) for r in table.rows if r[6].value == "estimate")
    held = by_key(both(), "memory")
    for key in ("peak", "parameters", "buffers", "inputs", "temporaries"):
        assert held[key] == [row[key].value]
    assert held["measured_peak"] == [40_960]


def test_what_the_bound_is_spent_on_adds_up() -> None:
    """Of 90.232 us the convolution's arithmetic takes 55.296; the others wait for lanes and for bytes of any kind."""
    spent = parsed(rl.explore(both())).data["spent"]
    shares = dict(zip(spent["causes"], spent["shares"][0], strict=True))
    assert {cause: share for cause, share in shares.items() if share} == {
        "products": 0.6128, "element-wise": 0.1135, "other": 0.2737,
    }  # fmt: skip
    assert (spent["row"], spent["text"]) == ([0], ["products 61.3 %, element-wise 11.3 %, other 27.4 %"])


def test_it_begins_with_a_ranking_by_a_time_that_most_steps_have() -> None:
    sets = [relu_on(a_card(f"card{n}", n * 1e12)) for n in (1, 2, 3)]
    one = [times(step.cases[0], "forward", 2e-3, 2e-3) for step in sets]
    for measured, first in ((1, "predicted_seconds"), (2, "measured_seconds")):
        data = explored(steps(*sets, RecordSet(one[:measured])))
        assert data["columns"][data["ranks"][0]["column"]]["key"] == "measured_seconds"
        assert data["firstRank"] == first


def test_its_times_are_those_of_compare(tmp_path: Path) -> None:
    records = studied(tmp_path, SMALL).records()
    compared = rl.compare(records, question="devices")
    assert isinstance(compared, DeviceComparison)
    page = by_key(records)
    keys = ("model", "batch", "mode", "device", "measured_seconds")
    rows = set(zip(*(page[key] for key in keys), page["phase"], strict=True))
    assert len(compared.rows) > 30
    for row in compared.rows:
        case = row.case
        whole = "step" if case.mode == "train" else "forward"
        assert (case.model, case.batch, case.mode, case.device, row.seconds, whole) in rows


def test_a_rate_that_nobody_asks_for_has_no_sign() -> None:
    """A decoding step is answered in tokens: its samples per second are in files alone."""
    case = Case(model="m", device="toy-100", batch=2, mode="decode")
    step = Record(case=case, source="estimate", scope="op", work=Work(flops={"vector.fp32": 8}, bytes={"dram": 8}))
    data = parsed(rl.explore(RecordSet([step], devices={"toy-100": toy()}) + both())).data
    column = next(each for each in data["columns"] if each["key"] == "throughput")
    assert [text for _, text in cells(column, 2)] == ["-", "10.00 k"]


@pytest.mark.parametrize("others", [(), ("xeon-9-measured",)])
def test_a_device_has_a_short_name_where_it_is_its_own(others: tuple[str, ...]) -> None:
    long = "xeon-9-cpu-2-00ghz-measured"
    names = (long, *others)
    steps = [replace(operation, case=replace(operation.case, device=name)) for name in names for operation in both()]
    page = rl.explore(RecordSet(steps, devices={name: replace(toy(), name=name) for name in names}))
    data = parsed(page).data
    expected = ["xeon-9-measured"] if not others else [*names]
    assert next(facet["values"] for facet in data["facets"] if facet["key"] == "device") == expected
    assert [device["name"] for device in data["devices"]] == expected


def test_phases_are_rows_and_the_whole_step_comes_first() -> None:
    data = parsed(rl.explore(trained())).data
    part = next(facet for facet in data["facets"] if facet["key"] == "part")
    assert part["values"] == ["whole step", "forward", "backward", "optimizer"]
    assert part["of"] == [1, 2, 3, 0]
    assert part["first"] == ["whole step"]


def test_what_has_no_mark_says_why() -> None:
    copy = Record(
        case=Case(model="copy", device="toy-100"), source="estimate", scope="op", work=Work(bytes={"dram": 8.0})
    )
    bare = Record(case=Case(model="bare"), source="estimate", scope="op", work=Work(flops={"vector.fp32": 8.0}))
    why = Failure(case=Case(model="large"), source="measure", stage="forward", kind="out of memory", message="no room")
    page = rl.explore(RecordSet([copy, bare], devices={"toy-100": toy()}, failures=[why]))
    without = parsed(page).data["without"]
    assert without["cells"] == [
        "it does no FLOP, or they are not known",
        "an estimate has no time without a known device",
        "failed: out of memory",
    ]
    assert without["cells"][0] in page.without_marks


def test_a_count_beyond_what_javascript_holds_keeps_its_digits() -> None:
    large = 2**53 + 1
    record = Record(case=CASE, source="estimate", scope="op", work=Work(flops={"matmul.fp32": large}, bytes={}))
    assert by_key(RecordSet([record]))["flops"] == [str(large)]
    assert by_key(both())["flops"] == [76_800]


@pytest.mark.parametrize("name", [ESCAPE, HOSTILE, "]]>--><svg onload=alert(1)>"])
def test_no_text_of_a_file_gets_out_of_its_place(name: str) -> None:
    case = Case(model=name, device=name, options=((name, name),))
    failure = Failure(case=case, source="measure", stage=name, kind="error", message=name)
    record = Record(case=case, source="estimate", scope="op", work=Work(flops={"vector.fp32": 8}, bytes={"dram": 8}))
    page = rl.explore(RecordSet([record], failures=[failure]), title=name)
    found, harmless = parsed(page), parsed(rl.explore(both()))
    assert found.elements == harmless.elements
    assert [len(texts) for texts in found.inside.values()] == [len(texts) for texts in harmless.inside.values()]
    assert found.inside["script"] == harmless.inside["script"]
    shown = found.data["facets"][0]["values"][0]
    assert shown.isprintable()
    assert [line for line in page.drawn().decode().splitlines() if "alert(1)" in line and "<script>alert" in line] == []


def test_data_inside_of_a_page_stays_data() -> None:
    text = as_text({"</script>": ["<!--", "&lt;", "\u2028\u2029", "é"]})
    assert not set(text) & set("<>&")
    assert text.isascii()
    assert json.loads(text) == {"</script>": ["<!--", "&lt;", "\u2028\u2029", "é"]}


def test_the_policy_lets_nothing_run_but_the_script_of_the_page() -> None:
    found = parsed(rl.explore(both()))
    hashes = {
        kind: "sha256-" + base64.b64encode(hashlib.sha256(found.inside[kind][0].encode()).digest()).decode()
        for kind in ("script", "style")
    }
    rules = dict(rule.strip().split(" ", 1) for rule in found.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'{hashes['script']}'"
    assert rules["style-src"] == f"'{hashes['style']}'"
    assert "unsafe" not in found.policy
    assert (len(found.inside["script"]), len(found.inside["style"])) == (1, 1)


def test_its_script_makes_no_code_and_no_markup_of_text() -> None:
    files = sorted(path.stem for path in SOURCES.glob("*.js"))
    assert files == sorted(SCRIPTS)
    for name in files:
        text = (SOURCES / f"{name}.js").read_text(encoding="utf-8")
        assert (
            re.findall(r"\beval\b|\bFunction\(|innerHTML|outerHTML|insertAdjacent|document\.write|fetch\(", text) == []
        )
        assert "</" not in text
        assert len(text.splitlines()) < 400


def test_it_saves_itself_whole_and_equal(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    assert rl.explore(both()).save(path) == path
    assert path.read_bytes() == rl.explore(both()).drawn()
    with pytest.raises(InvalidValue, match=r"cannot draw .*page\.png.*known are \.html"):
        rl.explore(both()).save(tmp_path / "page.png")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new"]


def test_nothing_is_a_page_too() -> None:
    page = rl.explore()
    assert parsed(page).data["count"] == 0
    assert parsed(page).inside["title"] == ["Nothing to explore"]
    assert page.without_marks == "there are no records"


def test_a_notebook_shows_the_page_in_a_frame_and_no_picture() -> None:
    page = rl.explore(both())
    shown = page._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert shown.count("<") == 2
    assert not hasattr(page, "_repr_png_")


def test_the_command_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def launch(path: str) -> int:
        opened.append(path)
        return 0

    monkeypatch.setattr("click.launch", launch)
    both().save(tmp_path / "run.jsonl")
    page = tmp_path / "page.html"
    arguments = ["explore", str(tmp_path / "run.jsonl"), "-o", str(page), "--title", "Mine", "--open"]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"wrote {page}" in done.stderr
    assert "<title>Mine</title>" in page.read_text(encoding="utf-8")
    assert opened == [str(page)]
    wrong = CliRunner().invoke(cli, ["explore", str(tmp_path / "run.jsonl"), "-o", str(tmp_path / "page.png")])
    assert wrong.exit_code == 2
    assert "known: .html" in wrong.stderr


def test_the_page_begins_with_the_setting_that_most_steps_share() -> None:
    def first(*settings: tuple[str, int, str]) -> dict[str, list[str]]:
        records = [kernel(case=Case(model=m, batch=b, dtype=d, device="toy-100")) for m, b, d in settings]
        data = parsed(rl.explore(RecordSet(records, devices={"toy-100": cached()}))).data
        return {facet["key"]: facet["first"] for facet in data["facets"] if facet["first"]}

    # Two models share batch 8 in fp32, and nothing else; of settings that are shared by as many the last one counts.
    assert first(("a", 8, "fp32"), ("b", 8, "fp32"), ("a", 16, "bf16")) == {"batch": ["8"], "dtype": ["fp32"]}
    assert first(*((m, b, "fp32") for b in (1, 8) for m in "ab")) == {"batch": ["8"]}
    # One model: its batches are what compares.
    assert first(("a", 1, "fp32"), ("a", 8, "fp32"), ("a", 8, "bf16")) == {"dtype": ["fp32"]}
    assert first(("a", 1, "fp32"), ("b", 8, "bf16")) == {}
