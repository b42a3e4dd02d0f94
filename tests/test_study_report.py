"""Reports of studies as data and as files: sentences by hand, every table and figure where it is promised."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.figure_samples import device, measured, operation
from tests.ranked_steps import TERA, a_card, relu_on, steps
from tests.report_samples import HERE, HOSTILE, SMALL, TINY, studied
from tests.study_samples import begun

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import InvalidValue
from rooflens.records import Case, Environment, Failure, Memory, Record, Work
from rooflens.report.charts import Bars, HeatMap, Plot
from rooflens.report.comparison import devices_tables
from rooflens.report.study import Report, StudyView, compose
from rooflens.report.study.agreement import BoundAndTime, against_measured, pairs
from rooflens.report.study.breakdown import breakdown, shares
from rooflens.report.study.content import Code, Facts, Sentences, TableBlock
from rooflens.report.study.html import render
from rooflens.report.study.settings import environment
from rooflens.results import RecordSet, join
from rooflens.study import STATES, Cell, Claim, Hypothesis, Pair, Side, Status, Study, Verdict

QUICK, SLOW = device("quick", "Quick"), device("slow", "Slow", dram=1e11, compute={"matmul.fp32": 1e13})


def case(model: str = "m", batch: int = 1, on: str = "quick", mode: str = "inference") -> Case:
    return Case(model=model, batch=batch, device=on, mode=mode)


def view(*records: Record, failures: tuple[Failure, ...] = (), **more: object) -> StudyView:
    held = RecordSet(records, devices={"quick": QUICK, "slow": SLOW}, failures=failures)
    return StudyView(study=Study(title="T", question="Q?", method="M"), records=held, **more)  # type: ignore[arg-type]


def status(**counts: int) -> Status:
    """So many cells in each state."""
    states = [state for state in STATES for _ in range(counts.get(state, 0))]
    return Status(states={Cell(case=case(batch=n), source="measure"): state for n, state in enumerate(states, 1)})


def product(of: Case, matmul: float = 1e11) -> Record:
    """A product of 100 GFLOP: a millisecond on the quick device, ten on the slow one."""
    return operation(of, "fc", "matmul", matmul=matmul, dram=1e6)


def said(report: Report) -> tuple[str, ...]:
    """The key findings."""
    found = [block.items for section in report.sections for block in section.blocks if isinstance(block, Sentences)]
    return found[0] if found else ()


def sentence(report: Report, beginning: str) -> str:
    (found,) = (each for each in said(report) if each.startswith(beginning))
    return found


# Sentences -----------------------------------------------------------------------------------------------------------


def test_devices_are_compared_by_expected_times_where_all_have_one() -> None:
    # 0.8 GB at 0.8 of 1 and of 2 TB/s: half the time; the table says which time it is.
    first, second = a_card("first"), a_card("second", 2 * TERA)
    records = steps(relu_on(first), relu_on(second))
    found = StudyView(study=Study(title="T", question="Q?", method="M"), records=records).devices
    assert found is not None
    assert [row.time for row in found.rows] == ["predicted"] * 2
    assert [column.header for column in devices_tables(found)[0].columns if column.key == "seconds"] == ["expected"]
    (note, _) = devices_tables(found)[0].notes
    assert note == "speed-up: seconds on first over those on the device, as expected"
    pair = replace(second, name="pair", count=2)  # no time can be expected of it
    mixed = steps(relu_on(first), relu_on(second), relu_on(pair))
    bounds = StudyView(study=Study(title="T", question="Q?", method="M"), records=mixed).devices
    assert bounds is not None
    assert [row.time for row in bounds.rows] == ["bound"] * 3


def test_a_device_that_is_no_faster_is_as_fast() -> None:
    records = steps(relu_on(a_card("first")), relu_on(a_card("second", 1.001 * TERA)))
    report = compose(StudyView(study=Study(title="T", question="Q?", method="M"), records=records))
    assert sentence(report, "second is") == ("second is as fast as first (1.00x, by expected times; median of 1 step).")


def test_efficiency_and_devices_in_sentences() -> None:
    one, two = case("one"), case("two")
    slow = [replace(each, device="slow") for each in (one, two)]
    report = compose(
        view(
            *(product(each) for each in (one, two, *slow)),
            measured(one, 2e-3),  # 1 ms of bound: 50 %
            measured(two, 4e-3),  # 25 %
            measured(slow[0], 20e-3),  # 10 ms of bound: 50 %, ten times slower
            measured(slow[1], 20e-3),  # 50 %, five times slower
        )
    )
    assert sentence(report, "Measured steps") == (
        "Measured steps reach 50.0 % of what their bound allows (median of 4), from 25.0 % (two batch 1 fp32 inference"
        " on quick) to 50.0 % (slow batch 1 fp32 inference on slow).".replace("(slow batch", "(two batch")
    )
    # Speed-ups over the quick device: 2/20 and 4/20, whose median is 0.15.
    assert sentence(report, "slow is") == (
        "slow is 0.15 times as fast as quick by measured time (median of 2 steps, 0.1 to 0.2)."
    )
    assert sentence(report, "The largest part of the bound") == (
        "The largest part of the bound is that of matmul.fp32 in 2 of 2 steps on quick, in 2 of 2 steps on slow."
    )


def test_measured_steps_without_an_estimate_are_named() -> None:
    # One of two measured steps has its work beside it.
    alone = case("two")
    report = compose(view(product(case("one")), measured(case("one"), 2e-3), measured(alone, 2e-3)))
    assert sentence(report, "No estimate") == (
        "No estimate stands beside 1 of 2 measured steps, so that bound and efficiency are unknown"
        " (two batch 1 fp32 inference on quick); write “estimate” among the sources of the study."
    )
    both = compose(view(product(case("one")), measured(case("one"), 2e-3)))
    assert not any(each.startswith("No estimate") for each in said(both))


def test_doubts_of_those_who_measured_are_key_findings() -> None:
    busy = "the processor was busy: other processes used more than 10 % of its cores meanwhile"
    steps = [case("one"), case("two"), case("three")]
    notes = {0: (busy, "noisy: the interval is wide"), 1: (busy, "memory: the peak since the program began"), 2: ()}
    told = [Record(case=steps[n], source="measure", scope="model", notes=its) for n, its in notes.items()]
    report = compose(view(*(measured(step, 2e-3) for step in steps), *told))
    assert sentence(report, "The times of") == (
        "The times of 2 of 3 steps are doubtful by their own notes: the processor was busy (2), noisy (1)."
    )


def test_of_as_many_steps_of_each_kind_neither_is_left_out() -> None:
    report = compose(view(product(case("one")), operation(case("two"), "copy", "elementwise", dram=1e12)))
    largest = [each for each in said(report) if each.startswith("The largest part of the bound")]
    assert largest == [
        f"The largest part of the bound is that of {resource} in 1 of 2 steps on quick."
        for resource in ("matmul.fp32", "dram")
    ]


def test_training_knees_memory_and_state_in_sentences() -> None:
    train = case(mode="train")
    rates = {1: 1e-3, 2: 1.1e-3, 4: 2e-3, 8: 4e-3}  # 1000, 1818, 2000 and 2000 per second: 95 % is 1900, at batch 4
    sweep = [case(batch=batch) for batch in rates]
    out = Failure(case=case(batch=16), source="measure", stage="forward", kind="out of memory", message="full")
    memory = Memory(peak=100, parameters=25, activations=75)
    report = compose(
        view(
            operation(train, "fc", "matmul", matmul=1e11),
            operation(train, "fc", "matmul", matmul=3e11, phase="backward"),
            *(product(each) for each in sweep),
            *(measured(each, seconds) for each, seconds in zip(sweep, rates.values(), strict=True)),
            Record(case=train, source="estimate", scope="model", parameters=7, memory=memory),
            failures=(out,),
            status=status(done=9, failed=1, left=2),
        )
    )
    assert sentence(report, "Measured throughput") == (
        "Measured throughput reaches 95 % of its highest at batch 4 (median of 1 sweep)."
    )
    assert sentence(report, "Backward").startswith("Backward takes 3 times as long as forward, at the bound")
    assert sentence(report, "The most memory").endswith("100.0 B, 75.0 % of it activations.")
    assert sentence(report, "The study is not complete") == "The study is not complete: 2 of 12 cells are not run yet."
    assert sentence(report, "1 of 12") == "1 of 12 cells failed: out of memory (1)."


def rising(models: int) -> list[Record]:
    """Models whose FLOP rise with time in every step, a correlation of 1, and whose parameters fall: -1."""
    records: list[Record] = []
    for n in range(1, models + 1):
        its = case(f"m{n}")
        records += [
            product(its, n * 1e11),
            Record(case=its, source="estimate", scope="model", parameters=100 - n),
            measured(its, n * 2e-3),
        ]
    return records


def test_what_goes_with_latency_in_a_sentence() -> None:
    report = compose(view(*rising(5)))
    found = sentence(report, "Rank correlation")
    assert found.startswith("Rank correlation with latency, by measured time, over 5 models: FLOP 1.00")
    assert "parameters -1.00" in found
    (heat,) = (drawn.chart for drawn in report.charts if isinstance(drawn.chart, HeatMap))
    ((_, cells),) = heat.rows
    assert dict(zip(heat.columns, (cell.text for cell in cells), strict=True))["parameters"] == "-1.00"


@pytest.mark.parametrize("models", [3, 4])
def test_few_models_cannot_tell_what_goes_with_latency(models: int) -> None:
    # Of 3! pairings one is as high and one as low: p is 2/6 at best, and 2/24 of four models.
    report = compose(view(*rising(models)))
    assert not any(each.startswith("Rank correlation") for each in said(report))
    assert sentence(report, "What goes with latency") == (
        f"What goes with latency over {models} models is not told from chance: so few cannot give a p below 0.05."
    )
    assert not [drawn for drawn in report.charts if isinstance(drawn.chart, HeatMap)]
    (section,) = (its for its in report.sections if its.key == "latency")
    assert "correlations" not in [block.key for block in section.blocks if isinstance(block, TableBlock)]
    assert any(str(block).startswith("Correlations with latency are left out") for block in section.blocks)


def test_hypotheses_come_first_and_comparisons_against_them_first() -> None:
    pair = Pair(group="m", left="a", right="b", left_value=2.0, right_value=1.0, holds=True)
    claim = Claim(quantity="time", left=Side(), relation="<", right=Side())
    verdict = Verdict(
        hypothesis=Hypothesis(text="a is less", claim=claim),
        outcome="rejected",
        sentence="Rejected: 1 of 2.",
        pairs=(pair, replace(pair, holds=False, group="n")),
    )
    report = compose(view(product(case()), verdicts=(verdict,)))
    assert said(report)[0] == "“a is less”: Rejected: 1 of 2."
    (table,) = (listed.table for listed in report.tables if listed.key == "hypothesis-1")
    keys = [column.key for column in table.columns]
    assert [row[keys.index("holds")].value for row in table.rows] == ["no", "yes"]
    assert table.rows[0][keys.index("left_value")].label == "2.000 s"


# Figures -------------------------------------------------------------------------------------------------------------


def test_bound_stands_against_measured_until_there_is_a_prediction() -> None:
    found = pairs(join(view(product(case()), measured(case(), 2e-3)).records))
    plot = against_measured(found)
    assert plot.key == "bound-measured"
    (dot,) = plot.series[-1].dots
    assert (dot.x, dot.y) == pytest.approx((1e-3, 2e-3))
    assert dot.bar is None


def test_an_expected_time_brings_its_band() -> None:
    (item,) = join(view(product(case()), measured(case(), 2e-3)).records)

    def pair(predicted: float, low: float, high: float) -> BoundAndTime:
        return BoundAndTime(item=item, bound=1e-3, seconds=2e-3, flops=1e11, predicted=predicted, low=low, high=high)

    plot = against_measured([pair(2e-3, 1e-3, 3e-3), pair(4e-3, 3e-3, 8e-3)])
    assert plot.key == "predicted-measured"
    assert [dot.bar for dot in plot.series[-1].dots] == [((1e-3, 2e-3), (3e-3, 2e-3)), ((3e-3, 2e-3), (8e-3, 2e-3))]
    assert plot.x.low < 1e-3
    assert plot.x.high > 8e-3
    assert "bars: the band of the expected time, which should hold 8 of 10 measured ones" in plot.notes


def test_shares_by_family_and_phase() -> None:
    its = case(mode="train")
    section = breakdown(
        view(
            operation(its, "a", "matmul", matmul=3e9, dram=1e6),
            operation(its, "b", "elementwise", vector=1e9, dram=3e6),
            operation(its, "a", "matmul", matmul=4e9, dram=4e6, phase="backward"),
        )
    )
    assert section is not None
    charts = {block.chart.key: block.chart for block in section.blocks if hasattr(block, "chart")}
    shares = {
        key: {part.group: part.value for part in chart.bars[0].parts}
        for key, chart in charts.items()
        if isinstance(chart, Bars)
    }
    assert shares["flops-by-family"] == pytest.approx({"matmul": 7 / 8, "elementwise": 1 / 8})
    assert shares["bytes-by-family"] == pytest.approx({"matmul": 5 / 8, "elementwise": 3 / 8})
    assert shares["flops-by-phase"] == pytest.approx({"forward": 0.5, "backward": 0.5})
    # Nobody knows what these operations write, and nothing was timed: no chart claims it.
    assert not {"memory-by-family", "time-by-family", "time-by-phase"} & charts.keys()


def test_a_share_of_what_is_not_all_known_says_so() -> None:
    """Of one family no DRAM bytes are known, and FLOP of an operation of the other: both may hold more."""
    its = case()
    items = [operation(its, "a", "matmul", matmul=3e9, dram=1e6), operation(its, "b", "copy", vector=1e9)]
    works = [
        Work(flops={"matmul.fp32": 3e9}, bytes={"dram": 1e6}, missing=frozenset({"mylib::gemm"})),
        Work(flops={"vector.fp32": 1e9}, bytes={}),
    ]
    found = view(*(replace(item, work=work) for item, work in zip(items, works, strict=True)))
    notes = {key: chart.notes for key in ("bytes", "flops") if (chart := shares(found.evidence, key, "family"))}
    assert [note for note in notes["bytes"] if "not all" in note] == ["m: DRAM bytes not all known of copy"]
    assert [note for note in notes["flops"] if "not all" in note] == ["m: FLOP not all known of matmul"]


def test_every_figure_of_the_issue_is_there(tmp_path: Path) -> None:
    report = rl.study_report(studied(tmp_path).path)
    assert {drawn.chart.key for drawn in report.charts} == {
        *("roofline", "roofline-tesla-t4", "roofline-a100-sxm4-40gb"),
        *("bound-measured", "achieved-attainable", "latency-flops", "latency-parameters", "correlation"),
        *("throughput-batch", "memory-by-cause"),
        *(f"{what}-by-family" for what in ("flops", "bytes", "bound", "memory")),
        *(f"{what}-by-phase" for what in ("flops", "bytes", "bound", "time", "memory")),
    }
    # Each of them can be had by its name from the same records.
    records = rl.study_records(tmp_path / "out")
    for drawn in report.charts:
        assert type(rl.chart(drawn.chart.key, records).chart) is type(drawn.chart)
    with pytest.raises(InvalidValue, match=r"unknown chart 'roofline-h100'; did you mean .*: .*, roofline-tesla-t4"):
        rl.chart("roofline-h100", records)
    # Each plot holds each of its cases once: 40 were measured (44 estimates less 4 excluded ... on two devices).
    (plot,) = (d.chart for d in report.charts if d.chart.key == "bound-measured")
    assert isinstance(plot, Plot)
    assert sum(len(series.dots) for series in plot.series) == 2 * (5 * 4 - 1 - 1 + 2)


# Tables --------------------------------------------------------------------------------------------------------------


def test_the_figures_of_a_study_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text(
        "report,quantity,value,unit,model,device,batch,dtype,phase\n"
        "A,time,4.02,ms,resnet18,t4,1,fp32,forward\n"
        "A,peak,8.1,TFLOP/s,,t4,,fp32,\n"
    )
    report = rl.study_report(studied(tmp_path, f'figures = "seen.csv"\n{TINY}').path)
    (table,) = (listed.table for listed in report.tables if listed.key == "reported")
    keys = [column.key for column in table.columns]
    rows = [{key: cell.value for key, cell in zip(keys, row, strict=True)} for row in table.rows]
    # A row of the catalogue, and the bound of the first model, which was measured at 2.01 ms.
    assert [row["quantity"] for row in rows] == ["time", "peak"]
    assert rows[1]["ours"] == 8.1e12
    assert rows[1]["ratio"] == 1.0
    assert rows[0]["measured"] == pytest.approx(2.01e-3)


def test_environments_are_told_once_where_they_agree() -> None:
    other = Environment(rooflens="0.1.0", created="2026-02-02T00:00:00+00:00", machine={"cpu": "another"})
    section = environment(view(product(case()), environments=((HERE, 3), (other, 2))))
    assert section is not None
    (listed,) = section.blocks
    assert isinstance(listed, TableBlock)
    rows = {(row[1].value, row[2].value): row[3].value for row in listed.table.rows}
    assert rows["rooflens", "0.1.0"] == 5
    assert rows["cpu", "made up"] == 3
    assert rows["cpu", "another"] == 2


# Whole reports and files ---------------------------------------------------------------------------------------------


def test_a_study_of_which_nothing_is_done_has_a_report(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    report = rl.study_report(folder.path, tmp_path / "report.html")
    assert [section.key for section in report.sections] == ["question", "key-findings", "repeat"]
    assert said(report) == ("The study is not complete: 12 of 12 cells are not run yet.",)


def test_the_setting_tells_what_was_left_out_and_why(tmp_path: Path) -> None:
    report = rl.study_report(studied(tmp_path).path)
    facts = [fact for block in report.sections[0].blocks if isinstance(block, Facts) for fact in block.items]
    assert ("model alexnet, batch 16", "it is left out to see a gap") in facts
    assert ("cells", "82 done, 2 failed") in facts
    code = {block.title: block.text for block in report.sections[-1].blocks if isinstance(block, Code)}
    assert code["Study file"] == SMALL


def test_the_page_is_the_same_each_time_and_escapes_what_others_wrote(tmp_path: Path) -> None:
    report = rl.study_report(studied(tmp_path, SMALL.replace("A made-up study", "<script>x()</script>")).path)
    page = render(report)
    assert page == render(report)
    assert "<script>x()" not in page
    assert HOSTILE not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_every_form_is_written(tmp_path: Path) -> None:
    folder = studied(tmp_path, TINY).path
    result = CliRunner().invoke(
        cli,
        ["study", "report", str(folder)]
        + [word for suffix in ("html", "md", "tex", "csv") for word in ("-o", str(tmp_path / f"r.{suffix}"))]
        + ["--tables", str(tmp_path / "tables"), "--figures", str(tmp_path / "figures")],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    report = rl.study_report(folder)
    keys = {drawn.chart.key for drawn in report.charts}
    text = (tmp_path / "r.md").read_text()
    images = re.findall(r"^!\[.*\]\((.*)\)$", text, flags=re.MULTILINE)
    assert {Path(image).stem for image in images} == keys
    assert all((tmp_path / image).read_bytes().startswith(b"<?xml") for image in images)
    alone = {path.name for path in (tmp_path / "figures").iterdir()}
    assert alone == {f"{key}.{suffix}" for key in keys for suffix in ("svg", "pdf")}
    assert all(path.read_bytes().startswith(b"%PDF") for path in (tmp_path / "figures").glob("*.pdf"))
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == {listed.key for listed in report.tables}
    latex = (tmp_path / "r.tex").read_text()
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == len(report.tables)
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert len(rows) == 3 * 2
    assert float(rows[0]["seconds"]) < float(rows[0]["measured_seconds"])


def test_what_cannot_be_written_is_told_before_anything_is_made(tmp_path: Path) -> None:
    folder = begun(tmp_path).path
    with pytest.raises(InvalidValue, match=r"its suffix is '.docx', known are .html, .md, .tex, .csv"):
        rl.study_report(folder, [tmp_path / "r.html", tmp_path / "r.docx"])
    assert not (tmp_path / "r.html").exists()
    with pytest.raises(InvalidValue, match="no results yet"):
        rl.study_report(folder, tmp_path / "r.csv")
    with pytest.raises(InvalidValue, match="holds no study"):
        rl.study_report(tmp_path / "nowhere", tmp_path / "r.html")
