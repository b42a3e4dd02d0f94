"""`rooflens compare` and `rl.compare`: questions, formats, the gate, and errors."""

from __future__ import annotations

import csv
import json
from dataclasses import fields, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from tests.comparison_samples import STEP, environment, noisy, side, timed
from tests.table_samples import HOSTILE, TRAINING, both, estimated, measured, times, trained

import rooflens as rl
from rooflens.api.comparing import QUESTIONS, default_question
from rooflens.cli import compare as command
from rooflens.cli.main import cli
from rooflens.compare import Agreement, DeviceComparison, KernelComparison, RunComparison
from rooflens.compare.agreement import LEVELS
from rooflens.errors import FileError, Incomparable, InvalidValue
from rooflens.records import EVERY_PHASE, Case, Failure, Record
from rooflens.results import TIMES, RecordSet

DATA = Path(__file__).parent / "data" / "ncu"
SLOW = replace(STEP, batch=64)


def run(*words: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["compare", *map(str, words)])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two steps before and after: one is the same, the other 10 % slower."""
    before = side(timed(noisy(1)), timed(noisy(2), SLOW)).save(tmp_path / "before.jsonl")
    after = side(timed(noisy(3)), timed(noisy(4, 1.1e-3), SLOW)).save(tmp_path / "after.jsonl")
    return before, after


def test_words_of_the_command_line_are_those_of_the_package() -> None:
    assert command.QUESTIONS == QUESTIONS
    assert {*command.FIELDS} == {field.name for field in fields(Case)}
    assert (command.PIECES, command.TIMES, command.PHASES) == (LEVELS, TIMES, EVERY_PHASE)


def test_two_runs_as_a_table(files: tuple[Path, Path]) -> None:
    done = run(*files)
    assert done.exit_code == 0, done.output
    assert "no difference" in done.stdout
    assert "slower" in done.stdout
    assert "1.0" in done.stdout


def test_the_gate_ends_with_3_and_says_what_is_slower(files: tuple[Path, Path]) -> None:
    done = run(*files, "--fail-if-slower", "5%")
    assert done.exit_code == command.SLOWER == 3
    assert "slower by more than 5 %: toynet batch 64" in done.stderr
    assert "toynet batch 2" not in done.stderr


@pytest.mark.parametrize("threshold", ["20%", "20 %", "12.5%"])
def test_the_gate_lets_pass_what_is_within_the_threshold(files: tuple[Path, Path], threshold: str) -> None:
    done = run(*files, "--fail-if-slower", threshold)
    assert done.exit_code == 0
    limit = threshold.removesuffix("%").strip()
    assert f"none of 2 steps is shown to be slower by more than {limit} %" in done.stderr


def test_the_gate_lets_pass_what_is_not_significant(tmp_path: Path) -> None:
    # 10 % slower by its medians, in noise of 50 %.
    one = side(timed(noisy(1, noise=0.5, samples=12))).save(tmp_path / "one.jsonl")
    shifted = tuple(1.1 * value for value in noisy(1, noise=0.5, samples=12))
    other = side(timed(shifted)).save(tmp_path / "other.jsonl")
    assert run(one, other, "--fail-if-slower", "5%").exit_code == 0


@pytest.mark.parametrize("threshold", ["5", "-5%", "five%", "nan%", "inf%", ""])
def test_a_threshold_is_a_percentage(files: tuple[Path, Path], threshold: str) -> None:
    done = run(*files, "--fail-if-slower", threshold)
    assert done.exit_code == 2
    assert "is no percentage; write 5%" in done.stderr


def test_junit(files: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "new" / "gate.xml"
    done = run(*files, "--fail-if-slower", "5%", "--junit", target)
    assert done.exit_code == 3
    root = ElementTree.parse(target).getroot()
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("skipped")) == ("testsuites", "2", "1", "0")
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert [name for name, case in cases.items() if case.find("failure") is not None] == [SLOW.label()]
    failure = cases[SLOW.label()].find("failure")
    assert failure is not None
    assert "95 % interval" in (failure.get("message") or "")


def test_junit_fails_what_cannot_be_judged_and_takes_any_text(tmp_path: Path) -> None:
    hostile = replace(STEP, model=HOSTILE)
    before = side(timed((1.0,), hostile), timed(noisy(1), SLOW)).save(tmp_path / "a.jsonl")
    after = side(timed((2.0,), hostile)).save(tmp_path / "b.jsonl")
    target = tmp_path / "gate.xml"
    done = run(before, after, "--fail-if-slower", "5%", "--junit", target)
    assert done.exit_code == 4
    assert f"not on the second side, so not judged: {SLOW.label()}" in done.stderr
    root = ElementTree.parse(target).getroot()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("2", "1", "1")


def test_a_step_that_fails_on_the_second_side_closes_the_gate(tmp_path: Path) -> None:
    before = side(timed(noisy(1)), timed(noisy(2), SLOW)).save(tmp_path / "a.jsonl")
    failure = Failure(case=SLOW, source="measure", stage="forward", kind="out of memory", message="no room")
    after = RecordSet([timed(noisy(3))], failures=[failure], environment=environment()).save(tmp_path / "b.jsonl")
    done = run(before, after, "--fail-if-slower", "5%", "--junit", tmp_path / "gate.xml")
    assert done.exit_code == 3
    assert "failed on the second side: toynet batch 64 fp32 inference on toy: out of memory, no room" in done.stderr
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().get("errors") == "1"


BUSY = "the processor was busy: other processes used more than 10 % of its cores meanwhile"


def busy(case: Case = STEP) -> Record:
    """A note on the runs of a case."""
    return Record(case=case, source="measure", scope="model", notes=(BUSY, "memory: the peak since the program began"))


@pytest.fixture
def doubted(tmp_path: Path) -> tuple[Path, Path]:
    """Two steps before and after, of which one is half as slow, and the processor was busy with others during it."""
    before = side(timed(noisy(1)), busy(), timed(noisy(2), SLOW)).save(tmp_path / "before.jsonl")
    after = side(timed(noisy(3, 0.5e-3)), busy(), timed(noisy(4), SLOW)).save(tmp_path / "after.jsonl")
    return before, after


def test_a_comparison_repeats_the_doubts_of_what_it_compares(doubted: tuple[Path, Path]) -> None:
    compared = rl.compare(*doubted)
    assert isinstance(compared, RunComparison)
    assert [(row.direction, row.doubts) for row in compared.changes] == [("faster", (BUSY,)), ("no difference", ())]
    repeated = f"both sides: {BUSY} (toynet batch 2 fp32 inference on toy)"
    assert compared.doubts == (repeated,)
    done = run(*doubted, "--fail-if-slower", "5%")
    assert done.exit_code == 0
    assert "faster, doubtful" in done.stdout
    assert " ".join(done.stdout.split()).count(repeated) == 1
    assert "doubtful for 1 reason: see the notes" in done.stderr
    assert f"doubtful: {repeated}" in run(*doubted, "--fail-if-slower", "5%", "--format", "csv").stderr


def test_doubt_fails_where_that_is_asked_for(doubted: tuple[Path, Path], tmp_path: Path) -> None:
    assert run(*doubted, "--fail-if-doubtful").exit_code == command.DOUBTFUL == 4
    gate = tmp_path / "gate.xml"
    done = run(*doubted, "--fail-if-slower", "5%", "--fail-if-doubtful", "--junit", gate)
    assert done.exit_code == 4
    root = ElementTree.parse(gate).getroot()
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed == [STEP.label(), "doubts"]
    assert run(*reversed(doubted), "--fail-if-slower", "5%", "--fail-if-doubtful").exit_code == 3, "slower is graver"


def test_what_nobody_doubts_passes(files: tuple[Path, Path]) -> None:
    assert run(*files, "--fail-if-slower", "20%", "--fail-if-doubtful").exit_code == 0


def test_nothing_can_be_said_is_a_doubt_too(tmp_path: Path) -> None:
    # Five samples have no interval.
    before = side(timed(noisy(1, samples=5)), timed(noisy(2), SLOW)).save(tmp_path / "a.jsonl")
    after = side(timed(noisy(3, samples=5)), timed(noisy(4), SLOW)).save(tmp_path / "b.jsonl")
    gate = tmp_path / "gate.xml"
    done = run(before, after, "--fail-if-slower", "5%", "--fail-if-doubtful", "--junit", gate)
    assert done.exit_code == 4
    said = "nothing can be said of 1 of 2 steps, so the gate stays closed; none of the others is shown to be slower"
    assert said in done.stderr
    assert ElementTree.parse(gate).getroot().get("skipped") == "0"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ((0.0,) * 9, (0.0,) * 9, "a time of 0 s, which is below what the clock resolves"),
        (noisy(1), (0.0, *noisy(2)), "a time of 0 s, which is below what the clock resolves"),
        (noisy(1, samples=5), noisy(2, samples=5), "fewer than 6 samples that are independent of their neighbours"),
    ],
    ids=["zeros", "one zero", "five samples"],
)
def test_a_gate_that_cannot_decide_stays_closed_and_says_why(
    tmp_path: Path, before: tuple[float, ...], after: tuple[float, ...], why: str
) -> None:
    sides = (
        side(timed(before), timed(noisy(3), SLOW)).save(tmp_path / "a.jsonl"),
        side(timed(after), timed(noisy(4), SLOW)).save(tmp_path / "b.jsonl"),
    )
    done = run(*sides, "--fail-if-slower", "5%", "--junit", tmp_path / "gate.xml")
    assert done.exit_code == command.DOUBTFUL == 4
    assert "nothing can be said of 1 of 2 steps, so the gate stays closed" in done.stderr
    assert why in " ".join(done.stdout.split())
    failure = ElementTree.parse(tmp_path / "gate.xml").getroot().find(".//failure")
    assert failure is not None
    assert why in (failure.get("message") or "")
    assert run(*sides).exit_code == 0  # without a gate it is an answer like others


def test_findings_on_a_side_are_doubts_too(tmp_path: Path) -> None:
    # The first sample is 200 times the others: a first call.
    before = side(timed((0.2, *noisy(1)))).save(tmp_path / "a.jsonl")
    after = side(timed(noisy(3))).save(tmp_path / "b.jsonl")
    compared = rl.compare(before, after)
    assert isinstance(compared, RunComparison)
    (doubt,) = compared.doubts
    assert doubt.startswith("first side: toynet batch 2 fp32 inference on toy forward: the first sample of")
    assert run(before, after, "--fail-if-doubtful").exit_code == 4


@pytest.mark.parametrize("question", ["devices", "scaling", "throughput"])
def test_every_question_repeats_doubts(tmp_path: Path, question: str) -> None:
    records = grid()
    case = records.cases[0]
    path = RecordSet([*records, busy(case)]).save(tmp_path / "grid.jsonl")
    done = run(path, "--question", question, "--fail-if-doubtful")
    assert done.exit_code == 4
    assert f"doubtful: {BUSY} ({case.label()})" in " ".join(done.stdout.split())
    assert run(grid().save(tmp_path / "quiet.jsonl"), "--question", question, "--fail-if-doubtful").exit_code == 0


def test_junit_needs_a_threshold(files: tuple[Path, Path], tmp_path: Path) -> None:
    done = run(*files, "--junit", tmp_path / "gate.xml")
    assert done.exit_code == 2
    assert "--junit needs --fail-if-slower" in done.stderr


def test_the_gate_needs_two_measured_sides(tmp_path: Path) -> None:
    path = both().save(tmp_path / "both.jsonl")
    done = run(path, "--fail-if-slower", "5%")
    assert done.exit_code == 2
    assert "needs two measured sides" in done.stderr


def test_a_folder_is_one_side_of_several_runs(tmp_path: Path) -> None:
    for n in range(3):
        side(timed(noisy(n))).save(tmp_path / "a" / f"{n}.jsonl")
        side(timed(noisy(10 + n, 1.1e-3))).save(tmp_path / "b" / f"{n}.jsonl")
    done = run(tmp_path / "a", tmp_path / "b", "--format", "csv")
    (row,) = csv.DictReader(done.stdout.splitlines())
    assert (row["unit"], row["values_before"], row["verdict"]) == ("runs", "3", "slower")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="holds no record files"):
        rl.compare(tmp_path / "a", tmp_path / "empty")


def test_every_command_that_reads_files_reads_folders(tmp_path: Path) -> None:
    """All record files of a folder, and the cells of a study's folder."""
    for n in range(2):
        side(timed(noisy(n))).save(tmp_path / "a" / f"{n}.jsonl")
        side(timed(noisy(n))).save(tmp_path / "study" / "cells" / f"{n}.jsonl")
    one = rl.read(tmp_path / "a" / "0.jsonl")
    assert len(rl.read(tmp_path / "a")) == len(rl.read(tmp_path / "study")) == 2 * len(one)
    assert len(rl.read(tmp_path / "study", tmp_path / "a" / "0.jsonl")) == 3 * len(one)
    (tmp_path / "empty").mkdir()
    for words in (["read"], ["check"], ["plot", "-o", str(tmp_path / "a.svg")]):
        done = CliRunner().invoke(cli, [*words, str(tmp_path / "empty")])
        assert isinstance(done.exception, FileError)
        assert "holds no record files" in str(done.exception)


def test_a_list_is_one_side_too() -> None:
    runs = [side(timed(noisy(n))) for n in range(4)]
    found = rl.compare(runs[:2], runs[2:])
    assert isinstance(found, RunComparison)
    assert found.changes[0].change.values == (2, 2)
    with pytest.raises(InvalidValue, match="a side is an empty list"):
        rl.compare(runs, [])


def test_environments_that_forbid_it_are_refused_unless_forced(tmp_path: Path) -> None:
    before = side(timed(noisy(1))).save(tmp_path / "a.jsonl")
    after = side(timed(noisy(2)), where=environment({"card": "Toy 2"})).save(tmp_path / "b.jsonl")
    with pytest.raises(Incomparable, match="card: Toy 1 -> Toy 2"):
        rl.compare(before, after)
    done = run(before, after, "--force")
    assert done.exit_code == 0
    assert "What else differs" in done.stdout
    assert "Toy 2" in done.stdout


@pytest.mark.parametrize("format_", ["table", "json", "csv", "md", "tex"])
def test_every_format(files: tuple[Path, Path], format_: str) -> None:
    done = run(*files, "--format", format_)
    assert done.exit_code == 0
    if format_ == "json":
        (table, *_) = json.loads(done.stdout)
        assert [row["verdict"] for row in table["rows"]] == ["no difference", "slower"]
        assert table["rows"][1]["ratio"] == pytest.approx(1.1, rel=0.02)
    else:
        assert "toynet" in done.stdout


def test_outputs_are_written_by_their_suffix(files: tuple[Path, Path], tmp_path: Path) -> None:
    outputs = [tmp_path / f"out{suffix}" for suffix in (".json", ".csv", ".md", ".tex", ".txt")]
    done = run(*files, *(word for path in outputs for word in ("-o", path)))
    assert done.exit_code == 0
    assert all(path.read_text() for path in outputs)


def test_what_the_sources_ask_by_themselves() -> None:
    kernels = rl.read(DATA / "raw_alexnet_b4_fp16_nvtx.csv")
    assert default_question([measured(), measured()]) == "runs"
    assert default_question([both(), both()]) == "runs"
    assert default_question([kernels, kernels]) == "kernels"
    assert default_question([estimated(), kernels]) == "evidence"
    assert default_question([estimated() + kernels, estimated() + kernels]) == "runs"
    assert default_question([both()]) == "evidence"
    assert default_question([estimated(), measured(), kernels]) == "evidence"


def test_three_sources_join_evidence(tmp_path: Path) -> None:
    found = rl.compare(estimated(), measured(), rl.read(DATA / "raw_alexnet_b4_fp16_nvtx.csv"))
    assert isinstance(found, Agreement)
    assert [row.paired for row in found.rows] == [True, False]
    done = run(estimated().save(tmp_path / "a.jsonl"), measured().save(tmp_path / "b.jsonl"), "--by", "phase")
    assert "Errors of the estimates" in done.stdout


def test_two_files_of_kernels_compare_by_themselves() -> None:
    raw, long = DATA / "raw_alexnet_b4_fp16_nvtx.csv", DATA / "long_alexnet_b4_fp16_nvtx.csv"
    assert isinstance(rl.compare(raw, long), KernelComparison)
    other = run(raw, DATA / "raw_resnet18_b1_fp32.csv")
    assert "Launches without a partner" in other.stdout
    assert "only on" in other.stdout


def grid() -> RecordSet:
    """Three models, two devices, four batches."""
    records = [
        times(
            Case(model=model, device=device, batch=batch),
            "forward",
            *noisy(n + 10 * batch + 100 * scale, scale * batch * (n + 1) * 1e-3),
        )
        for n, model in enumerate(("a", "b", "c"))
        for device, scale in (("tesla-t4", 4), ("h200-sxm-141gb", 1))
        for batch in (1, 2, 4, 8)
    ]
    return RecordSet(records)


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (("--question", "devices", "--price", "t4=0.4", "--price", "h200=3.5", "--baseline", "t4"), "Devices"),
        (("--question", "scaling", "--over", "batch"), "Exponents of latency"),
        (("--question", "throughput"), "Throughput"),
    ],
)
def test_questions_to_one_file(tmp_path: Path, words: tuple[str, ...], title: str) -> None:
    done = run(grid().save(tmp_path / "grid.jsonl"), *words)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(title)


def test_devices_may_be_named_as_the_catalogue_knows_them() -> None:
    found = rl.compare(grid(), question="devices", baseline="t4", prices={"t4": 1, "h200": 2})
    assert isinstance(found, DeviceComparison)
    assert found.baseline == "tesla-t4"
    fast = [row for row in found.rows if row.case.device == "h200-sxm-141gb"]
    assert [row.speedup_per_price for row in fast] == pytest.approx([(row.speedup or 0) / 2 for row in fast])


def test_phases_and_correlation_of_estimates(tmp_path: Path) -> None:
    done = run(trained().save(tmp_path / "step.jsonl"), "--question", "phases")
    assert done.stdout.startswith("Forward to backward")
    models = RecordSet(
        [replace(r, case=replace(r.case, model=f"net{n}")) for n in range(3) for r in trained()],
        devices=trained().devices,
    )
    assert TRAINING.model not in {case.model for case in models.cases}
    done = run(models.save(tmp_path / "nets.jsonl"), "--question", "correlation", "--against", "flops")
    assert done.stdout.startswith("Correlation with FLOP")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"question": "colour"}, "unknown question 'colour'; known: runs, evidence"),
        ({"question": "runs"}, "the question 'runs' takes two sides, not 1"),
        (
            {"question": "throughput", "by": "op"},
            "'by' is no option of the question 'throughput'; its options: none; 'by' is for: evidence, ",
        ),
        ({"force": True}, "'force' is no option of the question 'evidence'; its options: by"),
    ],
)
def test_wrong_words(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        rl.compare(both(), **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_nothing_to_compare() -> None:
    with pytest.raises(InvalidValue, match="compare needs something to compare"):
        rl.compare()
    for question, words in (("correlation", "three models"), ("scaling", "no series has 4 different values")):
        with pytest.raises(Incomparable, match=words):
            rl.compare(both(), question=question)  # type: ignore[arg-type]


def test_a_comparison_is_shown_alone() -> None:
    found = rl.compare(both())
    assert rl.table(found).startswith("Evidence")
    with pytest.raises(InvalidValue, match="show each apart"):
        rl.table(found, both())


@pytest.mark.parametrize("price", ["t4", "t4=much", "=3"])
def test_a_price_has_a_device_and_a_number(tmp_path: Path, price: str) -> None:
    done = run(grid().save(tmp_path / "grid.jsonl"), "--question", "devices", "--price", price)
    assert done.exit_code == 2
    assert "is no price; write h200=3.5" in done.stderr


def test_the_folder_of_a_study_is_a_side(tmp_path: Path) -> None:
    for name, samples in (("one", noisy(1)), ("two", noisy(2, 1.1e-3))):
        (tmp_path / name / "cells").mkdir(parents=True)
        (tmp_path / name / "study.json").write_text("{}")
        side(timed(samples)).save(tmp_path / name / "cells" / "measure-toynet.jsonl")
    done = run(tmp_path / "one", tmp_path / "two", "--fail-if-slower", "5%")
    assert (done.exit_code, "slower by more than 5 %: toynet batch 2" in done.stderr) == (3, True)


def test_what_a_file_says_does_not_steer_the_terminal(tmp_path: Path) -> None:
    before = side(timed(noisy(1)), timed(noisy(2), SLOW)).save(tmp_path / "before.jsonl")
    failure = Failure(case=SLOW, source="measure", stage="forward", kind="crash", message="\x1b]0;title\x07 no\nmore")
    after = RecordSet([timed(noisy(3))], environment=environment(), failures=[failure]).save(tmp_path / "after.jsonl")
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        cli, ["compare", str(before), str(after), "--fail-if-slower", "5%"], color=True
    )
    assert done.exit_code == 3
    assert "crash, \\x1b]0;title\\x07 no\\nmore" in done.stderr


def test_a_chart_beside_the_tables(tmp_path: Path, files: tuple[Path, Path]) -> None:
    table, picture = tmp_path / "runs.csv", tmp_path / "latency.svg"
    both().save(tmp_path / "both.jsonl")
    found = run(tmp_path / "both.jsonl", "--chart", "agreement", "-o", table, "-o", picture)
    assert found.exit_code == 0, found.output
    assert picture.read_bytes()[:5] == b"<?xml"
    assert table.read_text().count("\n") > 1
    assert run(*files, "--chart", "latency").exit_code == 2
    assert run(*files, "-o", picture).exit_code == 2
