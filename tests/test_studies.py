"""The five studies of the repository: their files, what is recorded for them, and numbers that are derived by hand."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from scripts import studies

import rooflens as rl
from rooflens.api.studies import study_figures
from rooflens.errors import InvalidValue
from rooflens.records import read_records
from rooflens.reported import ComparedFigure, read_figures
from rooflens.running.studies import open_study, run_cells
from rooflens.study import StudyFolder, cells, read_study

SHARED = studies.ROOT.parent / "shared" / "reports" / "reported.csv"
REPORTS = {"forward-pass": 1, "training-step": 2, "operation-counter": 3, "memory-and-traffic": 4, "ten-devices": 5}
EVERY_STUDY = pytest.mark.parametrize("name", REPORTS)

ALEXNET_CONVOLUTIONS = (  # output channels, height and width of the output, input channels, kernel
    (64, 55, 3, 11),
    (192, 27, 64, 5),
    (384, 13, 192, 3),
    (256, 13, 384, 3),
    (256, 13, 256, 3),
)
ALEXNET_LINEAR = ((9216, 4096), (4096, 4096), (4096, 1000))
FORWARD = sum(2 * out * size**2 * channels * kernel**2 for out, size, channels, kernel in ALEXNET_CONVOLUTIONS) + sum(
    2 * wide * narrow for wide, narrow in ALEXNET_LINEAR
)
FIRST_LAYER = 2 * 64 * 55**2 * 3 * 11**2
BACKWARD = 2 * FORWARD - FIRST_LAYER  # two products for each layer; the first one needs no gradient of its input


def file_of(name: str) -> Path:
    return studies.STUDIES / name / "study.toml"


def test_there_are_five() -> None:
    assert set(studies.names()) == set(REPORTS)


@EVERY_STUDY
def test_a_study_states_question_method_and_claims(name: str) -> None:
    study = read_study(file_of(name)).study
    assert study.question
    assert study.method
    assert study.figures == "reported.csv"
    assert len(study.hypotheses) >= 5
    assert all(hypothesis.claim is not None for hypothesis in study.hypotheses)


@EVERY_STUDY
def test_a_study_runs_anywhere_on_this_processor_and_on_a_gpu(name: str) -> None:
    file = read_study(file_of(name))
    asked = {(cell.source, cell.case.device) for cell in cells(file.study, file.home)}
    assert {("measure", "cpu"), ("measure", "cuda")} <= asked
    assert any(source == "estimate" for source, _ in asked)


MACHINES = {"cuda": ("card", "NVIDIA H200", "h200-sxm-141gb"), "cpu": ("cpu", "AMD EPYC", "amd-epyc")}
"""What the recorded files call the machines of a study: the fact, its value, and the device of the records."""


@EVERY_STUDY
def test_each_recorded_file_stands_for_a_cell_and_says_machine_and_device(name: str) -> None:
    file = read_study(file_of(name))
    asked = {cell.key: cell for cell in cells(file.study, file.home)}
    recorded = sorted(file.home.glob("recorded/*.jsonl"))
    assert recorded
    for path in recorded:
        cell, found = asked[path.stem], read_records(path)
        assert found.environment is not None
        what, name_of_it, device = MACHINES[cell.case.device or ""]
        assert found.environment.machine[what] == name_of_it
        for record in found.records:
            assert record.source == cell.source
            assert (record.case.model, record.case.batch, record.case.options) == (
                cell.case.model,
                cell.case.batch,
                cell.case.options,
            )
            assert record.case.device == device


@EVERY_STUDY
def test_all_that_needs_a_gpu_is_recorded(name: str) -> None:
    file = read_study(file_of(name))
    recorded = {path.stem for path in file.home.glob("recorded/*.jsonl")}
    asked = {cell.key: cell.case.device for cell in cells(file.study, file.home)}
    assert {key for key, device in asked.items() if device == "cuda"} == {k for k in recorded if asked[k] != "cpu"}


@pytest.mark.skipif(not SHARED.exists(), reason="the reports are not here")
@EVERY_STUDY
def test_reported_figures_are_those_of_the_report(name: str) -> None:
    def rows(path: Path) -> list[list[str]]:
        with path.open(newline="") as file:
            return [row for row in csv.reader(file) if row[0] == str(REPORTS[name])]

    assert rows(studies.STUDIES / name / "reported.csv") == rows(SHARED)


@EVERY_STUDY
def test_a_page_has_its_tables(name: str) -> None:
    page = (studies.STUDIES / name / "README.md").read_text()
    figures = read_figures(studies.STUDIES / name / "reported.csv")
    tables = re.findall(r"<!-- (figures|not computed) -->(.*?)<!-- end of \1 -->", page, re.DOTALL)
    rows = [line for _, text in tables for line in text.splitlines() if line.startswith("| ")]
    heads = sum(text.count("### ") for _, text in tables)
    assert len(rows) - 2 * heads == len(figures)  # a header and a rule above each table
    for hypothesis in read_study(file_of(name)).study.hypotheses:
        assert f"- **{hypothesis.text}**: " in page


def part(name: str, folder: Path, **wanted: object) -> StudyFolder:
    """A study of which only some estimates are run, and all that is recorded taken."""
    opened, _ = open_study(file_of(name), folder)
    opened.take_recorded()
    keys = [
        cell.key
        for cell in opened.cells
        if cell.source == "estimate" and all(getattr(cell.case, field) == value for field, value in wanted.items())
    ]
    assert keys
    assert run_cells(folder, keys, jobs=0)["done"] == len(keys)
    return opened


def row(found: tuple[ComparedFigure, ...], quantity: str, phase: str, **wanted: object) -> ComparedFigure:
    (one,) = (
        each
        for each in found
        if (each.figure.quantity, each.figure.phase) == (quantity, phase)
        and all(getattr(each.figure, field) == value for field, value in wanted.items())
    )
    return one


def test_one_image_of_alexnet_beside_the_figures_of_two_reports(tmp_path: Path) -> None:
    part("training-step", tmp_path / "step", model="alexnet", batch=1, dtype="default")
    found = study_figures(tmp_path / "step")
    assert (FORWARD, BACKWARD) == (1_428_376_960, 2_716_200_320)
    for phase, flops, reported in (
        ("forward", FORWARD, 1_428_386_152),
        ("backward", BACKWARD, 2_268_321_104),
        ("forward+backward", FORWARD + BACKWARD, 4_144_604_856),
    ):
        one = row(found, "flops", phase, model="alexnet")
        assert one.ours is not None
        assert one.ours.value == flops
        assert one.ratio == pytest.approx(reported / flops)
    assert row(found, "flops", "backward", model="alexnet").codes == ("flops-off",)
    assert row(found, "flops", "forward+backward", model="alexnet").codes == ("total-off",)
    counted = row(found, "counted_flops", "forward+backward", model="alexnet", device="a100-sxm4-40gb")
    assert counted.ratio == pytest.approx(1_392_806_057 / (FORWARD + BACKWARD))
    assert "flops-uncounted" in counted.codes
    # fadd + fmul + 2 ffma of the recorded counters, whose sums stand beside the file.
    assert counted.measured is not None
    assert counted.measured.value == 10_238_449 + 76_067_336 + 2 * 2_781_202_933
    ridge = row(found, "ridge", "", device="v100-sxm2-16gb")
    assert ridge.ours is not None
    assert ridge.ours.value == pytest.approx(15.7e12 / 900e9)
    assert row(found, "flops", "forward", model="resnet18").why == "the study holds no such case"  # not run here


def test_an_operation_counter_that_printed_multiply_adds(tmp_path: Path) -> None:
    part("operation-counter", tmp_path / "out", model="alexnet", batch=1, dtype="default")
    found = row(study_figures(tmp_path / "out"), "flops", "forward", model="alexnet")
    assert found.ratio == pytest.approx(714_206_912 / FORWARD)
    assert found.ratio == pytest.approx(0.5, rel=1e-4)
    assert found.codes == ("macs-as-flops",)


def test_256_images_on_an_a100(tmp_path: Path) -> None:
    part("forward-pass", tmp_path / "out", model="alexnet", batch=256, dtype="default", mode="inference")
    found = study_figures(tmp_path / "out")
    flops = row(found, "flops", "forward", model="alexnet")
    assert flops.ours is not None
    assert flops.ours.value == 256 * FORWARD
    time = row(found, "time", "forward", model="alexnet", device="a100-sxm4-40gb")
    # Convolutions alone, in TF32 at 156 TFLOP/s, and linear layers in FP32 at 19.5: no pass can be quicker.
    linear = 256 * 2 * sum(wide * narrow for wide, narrow in ALEXNET_LINEAR)
    least = (256 * FORWARD - linear) / 156e12 + linear / 19.5e12
    assert time.ours is not None
    assert least < time.ours.value < 3 * least
    assert time.measured is not None
    assert time.measured.value == pytest.approx(4.822e-3, rel=1e-3)  # the recorded median, in TF32
    ridge = row(found, "ridge", "", device="a100-sxm4-40gb")
    assert ridge.ratio == pytest.approx(186.96 / (312e12 / 1555e9))
    assert ridge.codes == ("ridge-off",)


def test_claims_are_judged_by_what_is_there(tmp_path: Path) -> None:
    part("forward-pass", tmp_path / "out", model="vgg16", batch=256)
    verdicts = {v.hypothesis.text: v for v in rl.study_verdicts(tmp_path / "out")}
    fits, does_not = (
        next(v for text, v in verdicts.items() if words in text) for words in ("fits into", "does not fit")
    )
    assert (fits.outcome, does_not.outcome) == ("supported", "supported")
    # The steady pass of VGG-16 is recorded: 196.2 ms with 256 images and 51.53 ms with 64, in FP32. Its ratio is shown.
    steady = next(v for text, v in verdicts.items() if text.startswith("A steady pass"))
    ratios = {pair.left: pair.ratio for pair in steady.pairs}
    vgg = next(ratio for label, ratio in ratios.items() if label.startswith("vgg16 batch 256 fp32"))
    assert vgg == pytest.approx(196.235 / 51.529, rel=1e-3)


@EVERY_STUDY
def test_a_small_part_runs_and_every_claim_is_judged(name: str, tmp_path: Path) -> None:
    model, batch = ("squeezenet1_0", 64) if name == "ten-devices" else ("resnet18", 64)
    mode = "inference" if name in ("forward-pass", "ten-devices") else "train"
    opened = part(name, tmp_path / "out", model=model, batch=batch, mode=mode)
    verdicts = rl.study_verdicts(tmp_path / "out")
    assert len(verdicts) == len(opened.study.hypotheses)
    assert {verdict.outcome for verdict in verdicts} <= {"supported", "rejected", "not decidable"}
    assert any(verdict.pairs for verdict in verdicts)


def test_a_study_without_figures_says_so(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('title = "Bare"\nmodels = ["alexnet"]\n')
    StudyFolder.begin(tmp_path / "out", path)
    with pytest.raises(InvalidValue, match="no reported figures"):
        study_figures(tmp_path / "out")


def test_a_page_is_filled_where_it_is_marked_and_else_refused() -> None:
    page = "a\n<!-- figures -->\nold\n<!-- end of figures -->\nb\n"
    now = studies.filled(page, {"figures": "new \\1\n"})
    assert now == "a\n<!-- figures -->\n\nnew \\1\n\n<!-- end of figures -->\nb\n"
    assert studies.filled(now, {"figures": "new \\1\n"}) == now
    with pytest.raises(ValueError, match="no place for verdicts"):
        studies.filled(page, {"verdicts": ""})
