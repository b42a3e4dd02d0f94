"""Conditions on cases in a study file, and claims that could not be judged: told before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.study_samples import written

from rooflens.errors import StudyFileError
from rooflens.study import Side, cells, read_study

STUDY = """\
title = "S"
models = ["resnet18", "alexnet", "vgg11"]
devices = ["t4", "a100-sxm4-40gb"]
batches = [1, 64]
modes = ["inference", "train"]
sources = ["estimate", "measure"]
[measure]
devices = ["cpu"]
[options]
optimizer = ["sgd", "adam"]
fusion = ["none", "pointwise"]
gpus = [1, 2]
compile = [false, true]
"""
CLAIM = """
[[hypothesis]]
text = "a"
quantity = "{quantity}"
left = {left}
relation = "{relation}"
right = {right}
"""


def told(tmp_path: Path, text: str) -> str:
    with pytest.raises(StudyFileError) as caught:
        read_study(written(tmp_path, STUDY + text))
    return str(caught.value)


def claim(left: str, right: str, quantity: str = "time", relation: str = "<", more: str = "") -> str:
    return CLAIM.format(quantity=quantity, left=left, relation=relation, right=right) + more


class TestExclusions:
    def left_out(self, tmp_path: Path, text: str) -> set[tuple[str, str, tuple[tuple[str, object], ...]]]:
        """Source, mode and options of the cells that an exclusion takes from one model, device and batch."""
        small = re.sub(r"\[\"resnet18\".*\]", '["resnet18"]', STUDY).replace("[1, 64]", "[1]").replace('"t4", ', "")

        def kinds(more: str) -> set[tuple[str, str, tuple[tuple[str, object], ...]]]:
            study = read_study(written(tmp_path, small + more)).study
            return {(cell.source, cell.case.mode, cell.case.options) for cell in cells(study, tmp_path)}

        return kinds("") - kinds(f"[[exclude]]\n{text}\n")

    def test_by_what_holds_anyway(self, tmp_path: Path) -> None:
        assert {mode for _, mode, _ in self.left_out(tmp_path, 'optimizer = "sgd"')} == {"train"}
        plain = self.left_out(tmp_path, 'optimizer = "sgd"')
        assert not any("optimizer" in dict(options) for _, _, options in plain)
        # Two of compile, times two of fusion for estimates and two of gpus for measurements.
        assert len(plain) == 8

    def test_of_an_option_that_a_source_does_not_have(self, tmp_path: Path) -> None:
        assert {source for source, _, _ in self.left_out(tmp_path, 'fusion = "none"')} == {"estimate"}
        assert {source for source, _, _ in self.left_out(tmp_path, "gpus = 1")} == {"measure"}
        assert {source for source, _, _ in self.left_out(tmp_path, "compile = false")} == {"estimate", "measure"}
        assert all(dict(options)["gpus"] == 2 for _, _, options in self.left_out(tmp_path, 'gpus = "> 1"'))

    @pytest.mark.parametrize("condition", ['batch = " >= 64 "', 'dtype = "fp*"', 'batch = [64, "< 2"]', 'model = "v*"'])
    def test_patterns_and_comparisons(self, tmp_path: Path, condition: str) -> None:
        text = STUDY + f'[[exclude]]\nsource = "measure"\n{condition}\n'
        study = read_study(written(tmp_path, text)).study
        assert len(study.excluded) == 1

    @pytest.mark.parametrize(
        ("condition", "words"),
        [
            ('batch = "64"', "batch is '64'; it has to be a whole number, or a comparison"),
            ('batch = "== 64"', "batch is '== 64'; it has to be a whole number, or a comparison (<, <=, >, >=)"),
            ('batch = ">= 6.5"', "batch is '>= 6.5'; it has to be a whole number"),
            ("batch = 1.0", "batch is 1.0; it has to be a whole number"),
            ("batch = true", "batch is True; it has to be a whole number"),
            ('gpus = "many"', "gpus is 'many'; it has to be a whole number"),
            ('compile = "yes"', "compile is 'yes'; allowed: true, false"),
            ("compile = 1", "compile is 1; allowed: true, false"),
            ('optimizer = "adma"', "optimizer is 'adma' (did you mean adam"),
            ('mode = "training"', "mode is 'training' (did you mean train?)"),
            ("model = 18", "model is 18; it has to be text, or a pattern"),
            ("device = [4]", "device is 4; it has to be text, or a pattern"),
        ],
    )
    def test_what_no_case_could_meet(self, tmp_path: Path, condition: str, words: str) -> None:
        message = told(tmp_path, f"[[exclude]]\n{condition}\n")
        assert f"line 15: exclude[1].{words}" in message


class TestClaims:
    @pytest.mark.parametrize(
        ("left", "right", "quantity", "value"),
        [
            ("{}", '"50 %"', "efficiency", 0.5), ("{}", '"12.5%"', "efficiency", 0.125),
            ("{}", '"2 GFLOP"', "flops", 2e9), ("{}", "1e6", "parameters", 1e6),
            ('{of = "flops"}', "-0.5", "kendall", -0.5),
        ],
    )  # fmt: skip
    def test_a_number(self, tmp_path: Path, left: str, right: str, quantity: str, value: float) -> None:
        study = read_study(written(tmp_path, STUDY + claim(left, right, quantity))).study
        found = study.hypotheses[0].claim
        assert found is not None
        assert found.right == Side(value=value)

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            (claim("{}", "nan"), 20, "right is nan; it has to be a number"),
            (claim("-inf", "{}"), 18, "left is -inf; it has to be a number"),
            (claim("{}", "true"), 20, "right is True; it has to be a number, a quantity like '10 ms', or cases"),
            (claim("{}", '["10 ms"]'), 20, "right is ['10 ms']; it has to be a number"),
            (claim("{}", '"9 images/s"', "throughput"), 20, "throughput has no unit, so write a plain number"),
            (claim("{}", '"25 M"', "parameters"), 20, "parameters has no unit"),
            (claim("1", '"10 ms"'), 20, "right is a number, and so is left"),
            (claim('{device = "t4"}', '{device = "t4", times = 2}'), 20, "right is about the same cases as left"),
            (claim("{}", '{quantity = "time"}'), 20, "right is about the same cases as left"),
            (claim('{of = "flops"}', "1"), 18, "left says 'of', which time does not have"),
            (claim("{}", "0.5", "pearson"), 18, "left does not say of what the correlation is: of = flops or"),
            (claim('{of = "flops", model = "vgg11"}', "0.5", "pearson"), 18, "left names a model, and a correlation"),
            (claim('{of = "flops"}', "0", "pearson", more='for = "every model"\n'), 21, "for is 'model', and a corr"),
            (
                claim("{batch = 1}", "{batch = 64}", more="margin = 5\n"),
                21,
                "margin is 500%; with it '<' can never hold",
            ),
            (claim("{batch = 1}", "{batch = 64}", relation=">=", more='margin = "100 %"\n'), 21, "'>=' always holds"),
            (
                claim('{fusion = "attention"}', "{batch = 1}"),
                18,
                "left.fusion is 'attention', which the study does not",
            ),
            (
                claim('{fusion = "pointwiese"}', "{batch = 1}"),
                18,
                "left.fusion is 'pointwiese' (did you mean pointwise",
            ),
            (claim("{gpus = 4}", "{gpus = 1}"), 18, "left.gpus is 4, which the study does not hold; it holds: 1, 2"),
            (claim('{compile = "yes"}', "{}"), 18, "left.compile is 'yes'; allowed: true, false"),
            (claim('{batch = "64"}', "{}"), 18, "left.batch is '64'; it has to be a whole number"),
        ],
    )
    def test_what_could_not_be_judged(self, tmp_path: Path, text: str, line: int, words: str) -> None:
        message = told(tmp_path, text)
        assert f"line {line}: hypothesis[1]." in message
        assert words in message

    @pytest.mark.parametrize(
        "text",
        [
            claim('"10 ms"', "{batch = 1}", relation=">"),
            claim("{gpus = 2}", "{gpus = false, times = 1.8}", "throughput", ">="),
            claim('{optimizer = "sgd"}', '{optimizer = "adam"}', "memory"),
            claim('{batch = ">= 2"}', "{batch = 1}", relation=">", more="margin = 2\n"),
            claim('{of = "flops"}', '{of = "bytes"}', "spearman", more='for = "every device"\n'),
            claim("{batch = 1}", "{batch = 64}", "spearman", more='where = {of = "flops"}\n'),
            claim('{source = "counters"}', "1", more='where = {phase = "backward"}\n'),
        ],
    )
    def test_what_can(self, tmp_path: Path, text: str) -> None:
        assert read_study(written(tmp_path, STUDY + text)).study.hypotheses[0].claim is not None


class TestRoofs:
    def test_each_source_has_its_own(self, tmp_path: Path) -> None:
        text = 'title = "S"\nmodels = "alexnet"\n[measure]\nroof = "t4"\n[counters]\nroof = "measured"\n'
        assert read_study(written(tmp_path, text)).study.settings.roofs == {
            "measure": "tesla-t4",
            "counters": "measured",
        }

    @pytest.mark.parametrize(
        ("roof", "words"),
        [
            ("h2000", "unknown device 'h2000'"),
            ("no.toml", "cannot read device file"),
            ("cuda", "unknown device 'cuda'"),
        ],
    )
    def test_one_that_nobody_knows(self, tmp_path: Path, roof: str, words: str) -> None:
        text = f'title = "S"\nmodels = "alexnet"\n[measure]\nroof = "{roof}"\n'
        with pytest.raises(StudyFileError, match=rf"line 4: measure.roof is '{roof}': {words}.*write measured"):
            read_study(written(tmp_path, text))


def test_the_second_of_two_equal_items_is_told_with_its_own_line(tmp_path: Path) -> None:
    text = 'title = "S"\nmodels = [\n  "alexnet",\n  "vgg11", # "alexnet"\n  "alexnet",\n]\n'
    with pytest.raises(StudyFileError, match=r"line 5: models\[3\] names 'alexnet' twice"):
        read_study(written(tmp_path, text))


def test_a_mark_at_the_beginning_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('title = "S"\nmodels = "alexnet"\n', encoding="utf-8-sig")
    assert read_study(path).study.title == "S"


def test_a_cluster_without_a_name(tmp_path: Path) -> None:
    text = 'title = "S"\nmodels = "alexnet"\n[cluster]\npartition = "gpu"\n'
    with pytest.raises(StudyFileError, match=r"line 4: cluster.partition belongs to a cluster with a name"):
        read_study(written(tmp_path, text))
