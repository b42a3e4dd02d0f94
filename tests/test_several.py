"""Several devices, batches, lengths and sizes: what cannot answer vetoes nothing; all wrong names are told at once."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from tests.study_samples import written
from torch import nn

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import (
    InvalidValue,
    MissingCeiling,
    ModelError,
    RooflensError,
    StudyFileError,
    UnknownDevice,
    UnknownName,
    checked,
    told_together,
)
from rooflens.models import Workload

H100, T4 = "h100-sxm5-80gb", "tesla-t4"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["estimate", *words])


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def half() -> tuple[nn.Module, torch.Tensor]:
    return nn.Linear(8, 4), torch.randn(2, 8)


def test_a_device_without_the_dtype_has_a_row_that_says_so(half: tuple[nn.Module, torch.Tensor]) -> None:
    module, inputs = half
    records = rl.estimate(module, inputs=inputs, dtype="bf16", device=["t4", "h100-sxm"])
    assert {case.device for case in records.cases} == {H100}
    assert records.total().matmul_flops == 2 * 2 * 8 * 4
    (failure,) = records.failures
    assert (failure.case.device, failure.kind, failure.reason) == (T4, "unsupported", "no bf16")
    by_device = {row["device"]: row for row in rows(rl.table(records, format="csv"))}
    assert (by_device[T4]["failed"], by_device[T4]["seconds"], by_device[T4]["phase"]) == ("no bf16", "", "forward")
    assert (by_device[H100]["failed"], float(by_device[H100]["seconds"]) > 0) == ("", True)
    fine, failed = json.loads(rl.table(records, format="json"))
    assert (fine["case"]["device"], fine["failed"]) == (H100, None)
    assert (failed["case"]["device"], failed["step"], failed["memory"]["peak"]) == (T4, None, None)
    assert failed["failed"]["message"].startswith("no bf16: device 'tesla-t4' has no ceiling for 'matmul.bf16'")


def test_a_device_that_is_alone_or_none_of_which_can_answer_is_an_error(half: tuple[nn.Module, torch.Tensor]) -> None:
    module, inputs = half
    for devices in (["t4"], ["t4", "k80"]):
        with pytest.raises(MissingCeiling) as caught:
            rl.estimate(module, inputs=inputs, dtype="bf16", device=devices)
        assert str(caught.value).count("no bf16: device") == len(devices)


def test_the_largest_batch_of_several_devices(half: tuple[nn.Module, torch.Tensor]) -> None:
    module, _ = half
    fits = rl.largest_batch(module, inputs=lambda n: torch.randn(n, 8), dtype="bf16", device=["t4", "h100-sxm"])
    assert [(fit.name, fit.batch is None, fit.reason) for fit in fits] == [
        (T4, True, "no rate for matmul.bf16"),
        (H100, False, ""),
    ]


def test_all_names_are_checked_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "untouched_steps", lambda *_: pytest.fail("something was built"))
    with pytest.raises(UnknownName) as caught:
        rl.estimate("resnet500", device=["t44", "t4", "h1000"])
    assert [f"'{name}'" in str(caught.value) for name in ("resnet500", "t44", "h1000")] == [True] * 3
    with pytest.raises(UnknownDevice) as both:
        rl.largest_batch("resnet18", device=["t44", "h1000", "all"])
    assert [f"'{name}'" in str(both.value) for name in ("t44", "h1000")] == [True] * 2
    done = run("resnet500", "--device", "t44", "--device", "h1000")
    assert [f"'{name}'" in str(done.exception) for name in ("resnet500", "t44", "h1000")] == [True] * 3


def test_a_size_that_a_model_cannot_have_is_a_row() -> None:
    done = run("vit_b_16", "--img-size", "224,225,256", "--format", "csv")
    assert done.exit_code == 3
    failed = {row["options"]: row["failed"] for row in rows(done.stdout)}
    assert failed == {"img_size=224": "", "img_size=225": "error", "img_size=256": ""}  # patches of 16


def test_lengths_are_a_sweep_like_batches() -> None:
    done = run("hf:gpt2", "--seq-len", "8,16", "-b", "1,2", "--format", "csv")
    assert done.exit_code == 0
    sweep = [(row["options"], row["batch"], int(row["matmul_flops"])) for row in rows(done.stdout)]
    alone = [
        (f"seq_len={tokens}", str(batch), rl.estimate("hf:gpt2", seq_len=tokens, batch=batch).total().matmul_flops)
        for tokens in (8, 16)
        for batch in (1, 2)
    ]
    assert sweep == alone


def test_lengths_in_python_and_what_cannot_be_asked() -> None:
    records = rl.estimate("hf:gpt2", seq_len=[8, 16])
    assert [dict(case.options) for case in records.cases] == [{"seq_len": 8}, {"seq_len": 16}]
    for wrong in ([], [8, None], [8, 0], "8", [True, 8]):
        with pytest.raises(InvalidValue, match="seq_len"):
            rl.estimate("hf:gpt2", seq_len=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="inputs of a module that is handed in have one"):
        rl.estimate(nn.Linear(8, 4), inputs=torch.randn(2, 8), seq_len=[8, 16])
    with pytest.raises(InvalidValue, match="one dtype, length and size"):
        rl.largest_batch("hf:gpt2", device="t4", seq_len=[8, 16])  # type: ignore[arg-type]


def test_sizes_are_measured_each() -> None:
    sizes = [64, 96]
    times = rl.measure("squeezenet1_1", img_size=sizes, device="cpu", budget=0.01, estimate=True, isolated=False)
    assert [dict(case.options)["img_size"] for case in times.where(source="measure").cases] == sizes
    estimates = times.where(source="estimate")
    flops = [estimates.where(case=case).total().matmul_flops for case in estimates.cases]
    assert flops == [rl.estimate("squeezenet1_1", img_size=size).total().matmul_flops for size in sizes]


def test_dtypes_are_a_sweep_like_batches() -> None:
    """The T4 of the catalogue has no bf16: its rows say so, and the others are there."""
    layer, x = nn.Linear(8, 4), torch.randn(2, 8)
    found = rl.estimate(layer, inputs=x, dtype=["fp32", "bf16", "fp32"], device=["t4", "a100-sxm4-40gb"])
    kinds = [(case.dtype, case.device) for case in found.cases]
    assert kinds == [("fp32", "tesla-t4"), ("fp32", "a100-sxm4-40gb"), ("bf16", "a100-sxm4-40gb")]
    assert [(f.case.dtype, f.case.device, f.kind) for f in found.failures] == [("bf16", "tesla-t4", "unsupported")]
    nbytes = {case.dtype: found.where(case=case).total().bytes["dram"] for case in found.cases}
    assert nbytes == {"fp32": 4 * (16 + 32 + 4 + 8), "bf16": 2 * (16 + 32 + 4 + 8)}
    with pytest.raises(RooflensError, match=r"unknown dtype 'fp3'.*\nunknown dtype 'b16'.*\nunknown device 't44'"):
        rl.estimate(layer, inputs=x, dtype=["fp3", "fp32", "b16"], device="t44")
    wrong: list[Any] = [[], [None, "fp32"]]
    for each in wrong:
        with pytest.raises(InvalidValue, match="give names of dtypes"):
            rl.estimate(layer, inputs=x, dtype=each)
    several: Any = ["fp32", "bf16"]
    with pytest.raises(InvalidValue, match="one dtype, length and size"):
        rl.largest_batch(layer, inputs=lambda n: torch.randn(n, 8), device="t4", dtype=several)


def test_a_dtype_that_cannot_run_here_is_a_row_and_a_measurement_needs_no_rate() -> None:
    layer, x = nn.Linear(8, 4), torch.randn(2, 8)
    here: dict[str, Any] = {"device": "cpu", "budget": 0.01, "roof": "t4", "estimate": True}
    found = rl.measure(layer, inputs=x, dtype=["fp32", "tf32", "bf16"], **here)
    assert {record.case.dtype for record in found if record.source == "measure"} == {"fp32", "bf16"}
    why = {(f.source, f.case.dtype): f.message for f in found.failures}
    assert why.keys() == {("estimate", "tf32"), ("estimate", "bf16"), ("measure", "tf32")}
    assert why["measure", "tf32"] == "a CPU has no TF32; measure fp32 or bf16"
    assert why["estimate", "bf16"].startswith("no bf16: device 'tesla-t4' has no ceiling")
    alone = rl.measure(layer, inputs=x, dtype="bf16", **here)
    assert [(f.source, f.case.dtype) for f in alone.failures] == [("estimate", "bf16")]
    assert "no bf16" in rl.table(alone)


def test_dtypes_on_the_command_line() -> None:
    done = run("squeezenet1_1", "--dtype", "fp32,bf16", "--format", "csv")
    assert [row["dtype"] for row in rows(done.stdout)] == ["fp32", "bf16"]
    wrong = run("squeezenet1_1", "--dtype", "fp33,bf16,x")
    assert (wrong.exit_code, "'fp33', 'x': not known; known: default, fp32" in wrong.stderr) == (2, True)


def test_errors_told_together_are_of_the_kind_that_all_are() -> None:
    unknown, wrong = UnknownDevice("device", "x", ()), InvalidValue("batch 0")
    assert told_together([unknown]) is unknown
    assert told_together([wrong, InvalidValue("batch 0")]).args == ("batch 0",)
    assert type(told_together([unknown, UnknownName("color", "y", ())])) is UnknownName
    assert type(told_together([ModelError("a"), wrong])) is RooflensError

    def fail(error: RooflensError) -> None:
        raise error

    with pytest.raises(RooflensError, match="unknown device 'x'\nbatch 0"):
        checked(lambda: fail(unknown), lambda: 1, lambda: fail(wrong))
    assert checked(lambda: 1, lambda: 2) == [1, 2]


def test_a_study_file_tells_all_wrong_names_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, 'title = "T"\nmodels = ["alexnet"]\ndtypes = ["bf17"]\ndevices = ["t44", "t4", "h1000"]\n')
    with pytest.raises(StudyFileError) as caught:
        rl.run_study(path, tmp_path / "out")
    assert [name in str(caught.value) for name in ("'bf17'", "'t44'", "'h1000'")] == [True] * 3
    assert "line 3" in str(caught.value)
    # Models, devices and their own grids: one error.
    text = 'title = "T"\nmodels = ["alexnett"]\ndevices = ["t44"]\n[measure]\nroof = "h1000"\n'
    text += '[[grid]]\nmodels = ["vgg166"]\ndevices = ["a1000"]\n'
    with pytest.raises(StudyFileError) as caught:
        rl.run_study(written(tmp_path, text), tmp_path / "out")
    names = ("'alexnett'", "'t44'", "'vgg166'", "'h1000'", "'a1000'")
    assert [name for name in names if name not in str(caught.value)] == []
    assert not (tmp_path / "out").exists()
    path = written(tmp_path, 'title = "T"\nmodels = ["alexnett", "alexnet", "resnet500"]\n')
    with pytest.raises(StudyFileError) as models:
        rl.run_study(path, tmp_path / "out")
    assert [name in str(models.value) for name in ("'alexnett'", "'resnet500'")] == [True] * 2
    path = written(tmp_path, 'title = "T"\nmodels = ["alexnet"]\n')
    with pytest.raises(InvalidValue, match="the study has no device 't44', 'h1000'; it has: none"):
        rl.run_study(path, tmp_path / "out", devices=["t44", "h1000"])
    with pytest.raises(UnknownDevice) as both:
        rl.roofline(rl.RecordSet(()), device=["t44", "h1000"])
    assert [f"'{name}'" in str(both.value) for name in ("t44", "h1000")] == [True] * 2
