"""`rooflens check`: whole files, right values, the table that people type, and what comes out."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from scripts import check_docs
from tests.reported import reported
from tests.test_check_typed import HEADER
from tests.test_light_imports import TORCH, loaded_by

import rooflens as rl
from rooflens.checks import CHECKS, SEVERITIES, examine
from rooflens.cli import check as command
from rooflens.cli.main import cli
from rooflens.errors import FiguresError, InvalidValue
from rooflens.records import PHASES, Phase
from rooflens.reported import QUANTITIES, ReportedFigure, RightValues, csv_file, read_figures

ROOT = Path(__file__).parents[1]
OWN = ROOT / "tests" / "data" / "figures.csv"
REPORTED = reported()
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.jsonl"))

# The faults of the five reports that leave evidence: what is wrong, the code, and words of the figure.
FAULTS = [
    ("1: 3 s are the first call", "first-call", "resnet18 batch 256 fp32 forward on a100"),
    ("1: time does not scale with the batch", "fixed-time", "batch 256 fp32 forward on a100"),
    ("1: tensor-core work is not counted on the A100", "flops-uncounted", "resnet18 batch 256 fp32 forward on a100"),
    ("1: the T4 shows 43 %", "flops-low", "resnet18 batch 256 fp32 forward on t4"),
    ("1: the fp16 roof for fp32 work", "wrong-roof", "vgg16 batch 256 fp32 forward on a100"),
    ("1: the T4's fp32 peak is labelled fp16", "peak-of-other-dtype", "fp16 t4"),
    ("1: the ridge is not peak over bandwidth", "ridge-off", "fp16 a100"),
    ("1: FLOP over allocated memory", "footprint-as-traffic", "vgg16 batch 256 fp32 forward on a100"),
    ("1: AlexNet's time is equal on both", "identical-measurements", "alexnet batch 256 fp32 forward on t4"),
    ("2: TF32 is not counted on the A100", "flops-uncounted", "resnet18 batch 1 fp32 forward+backward on a100"),
    ("2: V100 and A100 are not comparable", "counts-differ", "resnet18 batch 1 fp32 forward+backward on v100"),
    ("2: a total that is no sum", "total-off", "alexnet batch 1 fp32 forward+backward flops"),
    ("2: backward bytes are the forward ones", "backward-is-forward", "alexnet batch 1 fp32 backward bytes"),
    ("3: multiply-adds are printed as FLOP", "macs-as-flops", "alexnet batch 1 fp32 forward flops"),
    ("3: bytes are the parameters", "weights-as-traffic", "resnet18 batch 1 fp32 forward+backward bytes"),
    ("4: a monitor's memory", "memory-above-capacity", "resnet50 fp32 train on v100"),
    ("4: replicas are not more parameters", "parameters-off", "resnet18 fp32 train on 2x v100"),
    ("4: only Kbyte rows are summed", "bytes-low", "resnet18 batch 10 fp32 train on a100"),
    ("4: the time is that of a script", "fixed-time", "resnet18 batch 10 fp32 train on v100"),
    ("4: tensor cores are not counted", "flops-uncounted", "resnet50 batch 10 fp32 train on a100"),
    ("4: ten images, a count of two", "flops-uncounted", "resnet18 batch 10 fp32 train on v100"),
    ("5: no formula of convolution backward", "flop-ratio", "squeezenet1_0 batch 1 fp32 forward:backward"),
    ("5: two models have one ratio", "identical-measurements", "mobilenet_v3_large batch 1 fp32 forward:backward"),
    ("5: GeForce 256 has no FLOP/s", "peak-without-source", "geforce-256"),
    ("5: a TPU board is not a chip", "rate-off", "tpu-v3"),
    ("5: MACs, or other images", "macs-as-flops", "inception_v3"),
]


@pytest.mark.parametrize(("fault", "code", "words"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_the_faults_of_the_reports_are_found(fault: str, code: str, words: str) -> None:
    assert any(words in finding.subject for finding in rl.check(REPORTED) if finding.code == code), fault


DEVICES = ("t4", "v100-sxm2-16gb", "a100-sxm4-40gb", "2x v100-sxm2-16gb")
"""Those of the rows: a step is traced once for all."""


@cache
def estimated(model: str, batch: int, mode: str) -> rl.RecordSet:
    return rl.estimate(model, batch=batch, mode=mode, device=DEVICES)


def right_value(row: Mapping[str, str]) -> float | None:
    """What rooflens itself says in place of a reported figure; None where it says nothing."""
    quantity, device = row["quantity"], rl.device(row["device"]) if row["device"] not in ("", "cpu") else None
    if quantity in ("peak", "bandwidth", "ridge"):
        assert device is not None
        compute, bandwidth = device.ceiling(f"matmul.{row['dtype']}"), device.require("dram").rate
        if quantity == "bandwidth" or compute is None:
            return bandwidth if quantity == "bandwidth" else None
        return compute.rate if quantity == "peak" else compute.rate / bandwidth
    batch = row["batch"].split(" ")[0] or "1"
    if not batch.isdigit():
        return None
    words = row["phase"].replace(":", "+").replace("train", "forward+backward").split("+")
    phases: list[Phase] = [phase for phase in ("forward", "backward") if phase in words]
    mode = "inference" if phases == ["forward"] else "train"
    est = estimated(row["model"], int(batch), mode).where(device=DEVICES[0] if device is None else device.name)
    flops = [est.total(phase).matmul_flops or 0 for phase in phases]
    nbytes = sum(est.total(phase).bytes["dram"] for phase in phases)
    seconds = 0 if device is None else sum(est.total(phase).seconds or 0 for phase in phases)
    memory_peak = None if est.memory is None else est.memory.peak
    values: dict[str, float | None] = {
        "flops": sum(flops),
        "counted_flops": sum(flops),
        "bytes": nbytes,
        "intensity": sum(flops) / nbytes,
        "memory": memory_peak,
        "allocated_memory": memory_peak,
        "parameters": est.parameters,
        "estimated_time": seconds,
        "time": seconds,
        "performance": sum(flops) / seconds if seconds else None,
        "flop_ratio": flops[0] / flops[-1],
    }
    return values.get(quantity)


@pytest.mark.parametrize("source", [REPORTED, OWN], ids=["reports", "own"])
def test_right_values_of_the_same_quantities_have_no_finding(source: Path, tmp_path: Path) -> None:
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    values = [right_value(row) for row in rows]
    # Where rooflens has no value (a rate that no source gives, a correlation) the cell is empty: unknown.
    path = tmp_path / "right.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        for row, value in zip(rows, values, strict=True):
            unit = QUANTITIES.get(row["quantity"], "")
            writer.writerow(row | {"value": "" if value is None else repr(value), "unit": unit})
    assert sum(value is not None for value in values) > 0.7 * len(rows)
    assert [*rl.check(path)] == []


def test_each_kind_of_fault_is_found_in_our_own_table() -> None:
    assert set(rl.check(OWN).codes) == {
        "macs-as-flops",
        "flops-uncounted",
        "flops-low",
        "counts-differ",
        "first-call",
        "fixed-time",
        "identical-measurements",
        "footprint-as-traffic",
        "wrong-roof",
        "estimate-below-bound",
        "ridge-off",
        "peak-of-other-dtype",
        "total-off",
        "weights-as-traffic",
        "bytes-low",
        "parameters-off",
        "memory-above-capacity",
        "flop-ratio",
        "sparse-peak",
        "link-as-memory",
        "peak-without-source",
    }


@pytest.mark.parametrize("path", [*RESULTS, ROOT / "docs" / "images" / "roofline.jsonl"], ids=lambda path: path.name)
def test_measurements_of_our_own_raise_no_alarm(path: Path) -> None:
    assert [*rl.check(path)] == []


def test_an_estimate_and_a_measurement_made_here_raise_no_alarm() -> None:
    est = rl.estimate("resnet18", batch=[1, 2], img_size=64, device="t4", mode="train")
    time = rl.measure("squeezenet1_0", batch=1, img_size=64, device="cpu")
    assert [*rl.check(est, time)] == []


# Right values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["alexnet", "googlenet", "mobilenet_v3_large", "vit_b_32"])
@pytest.mark.parametrize("mode", ["inference", "train"])
def test_the_table_is_what_an_estimate_says(model: str, mode: str) -> None:
    est = rl.estimate(model, batch=7, mode=mode)
    table, fresh = RightValues(rl.RecordSet(())), RightValues(est)
    words: tuple[Phase, ...] = ("forward",) if mode == "inference" else PHASES
    figure = ReportedFigure(quantity="flops", value=None, model=model, batch=7, dtype="fp32")
    mine, right = table.of(figure, words), fresh.of(figure, words)
    assert mine is not None
    assert right is not None
    for what in ("matmul", "flops", "nbytes", "operations", "parameters"):
        assert getattr(mine, what) == getattr(right, what), what
    assert mine.fewest == pytest.approx(right.fewest, rel=1e-3)
    # The memory of an estimate is rounded up as an allocator does, tensor by tensor.
    assert mine.compulsory == pytest.approx(right.compulsory, rel=2e-3)


def test_other_models_are_estimated(tmp_path: Path) -> None:
    # A timm model: 1.82 GMAC are 3.64 GFLOP, as many as torchvision's twin has.
    path = tmp_path / "figures.csv"
    right = rl.estimate("timm:resnet18", batch=2).total().matmul_flops
    assert right is not None
    path.write_text(f"{HEADER}\ntimm:resnet18,,2,fp32,forward,flops,{right / 2},,\n")
    assert rl.check(path).codes == ("macs-as-flops",)


@pytest.mark.parametrize("name", ["{folder}/model.py:build", "model.py:build", "model.onnx", "hf:config.json"])
def test_a_name_in_a_table_opens_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("open('ran', 'w').close()\ndef build(): ...\n")
    (tmp_path / "figures.csv").write_text(f"{HEADER}\n{name.format(folder=tmp_path)},,2,fp32,forward,flops,1e9,,\n")
    assert [*rl.check("figures.csv")] == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["mine.toml", "{folder}/mine.toml", "roofline.json"])
def test_a_device_in_a_table_opens_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("mine.toml", "roofline.json"):
        os.mkfifo(tmp_path / file)  # who opens it waits for ever
    row = f",{name.format(folder=tmp_path)},,fp32,,peak,8.1,TFLOP/s,"
    (tmp_path / "figures.csv").write_text(f"{HEADER}\n{row}\n")
    found = rl.check("figures.csv")
    assert [*found] == []
    assert any("devices without right values" in note for note in found.notes)


# The table that people type ------------------------------------------------------------------------------------------


def read(tmp_path: Path, text: str | bytes) -> tuple[ReportedFigure, ...]:
    path = tmp_path / "figures.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_figures(path)


def test_cells_become_figures_in_base_units(tmp_path: Path) -> None:
    (figure,) = read(
        tmp_path, f"\ufeff{HEADER}\r\nvgg16,T4,10 images,FP32, forward ,time,12.50,ms,112 x 112 px\r\n\r\n"
    )
    assert figure == ReportedFigure(
        quantity="time",
        value=0.0125,
        model="vgg16",
        device="T4",
        batch=10,
        dtype="fp32",
        phase="forward",
        image=112,
        digits=4,
        precision=0.005 / 12.5,
        unit="ms",
        how="112 x 112 px",
        place="figures.csv, line 2",
    )


def test_two_columns_are_enough_and_empty_cells_are_unknown(tmp_path: Path) -> None:
    known, unknown = read(tmp_path, "quantity,value\ntime,1e-3\ntime,\n")
    assert (known.value, unknown.value, known.batch) == (1e-3, None, None)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("m,t4,1,fp32,forward,time,1.234.5,s,", "line 2: '1.234.5' is no number"),
        ("m,t4,1,fp32,forward,time,nan,s,", "line 2: 'nan' is no number"),
        ("m,t4,1,fp32,forward,time,1e999,s,", "line 2: 1e999 is beyond"),
        ("m,t4,1,fp32,forward,time,12,GFLOP,", "line 2: time '12 GFLOP' is not in s"),
        ("m,,,,,parameters,12,GB,", "line 2: parameters cannot have the unit 'GB'; known: 1, k, M, G, T, or none"),
        ("m,t4,1,fp32,forward:backward,time_ratio,50,%,", "line 2: time_ratio cannot have the unit '%'; known: 1,"),
        ("m,t4,zwei,fp32,forward,time,1,s,", "line 2: 'zwei' is no batch"),
        ("m,t4,0,fp32,forward,time,1,s,", "line 2: '0' is no batch"),
        ("m,t4,1,fp33,forward,time,1,s,", "line 2: unknown dtype 'fp33'; known: default, fp32"),
        ("m,t4,1,fp32,sideways,time,1,s,", "line 2: unknown phase 'sideways'; known: forward"),
        ("m,t4,1,fp32,forward,,1,s,", "line 2: the quantity is missing; known: flops"),
        ("m,t4,1,fp32,forward,time,1", "line 2: 7 cells below 9 columns"),
        ('m,t4,1,fp32,forward,time,1,s,"open', "line 2: unexpected end of data"),
    ],
)
def test_a_damaged_cell_is_an_error_with_its_line(row: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FiguresError, match=message):
        read(tmp_path, f"{HEADER}\n{row}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantity,value,vendor\n", "line 1: unknown column 'vendor'; known: report, model"),
        ("quantity,value,value\n", "line 1: column 'value' stands twice"),
        ("quantity,unit\n", "line 1: there is no column 'value'"),
        (b"quantity,value\n\xff\xfe,1\n", "is no text in UTF-8"),
    ],
)
def test_a_damaged_table_is_an_error(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(FiguresError, match=message):
        read(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FiguresError, match="No such file"):
        rl.check(tmp_path / "none.csv")


CELLS = st.sampled_from(["", "alexnet", "t4", "1", "256", "fp32", "forward", "0", "-1", "1e308", "1e-320", "3.5", "B"])
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["alexnet", "mine", ""]),
        st.sampled_from(["t4", "a100-sxm4-40gb", "geforce-256", ""]),
        st.sampled_from(["", "1", "256", "999999999999"]),
        st.sampled_from(["", "fp32", "bf16", "int8"]),
        st.sampled_from(["", "forward", "backward", "forward+backward", "train", "forward:backward"]),
        st.sampled_from([*QUANTITIES, "correlation a-b", "watts"]),
        st.one_of(st.floats(allow_nan=False, allow_infinity=False).map(repr), CELLS, st.text(max_size=5)),
    ),
    max_size=6,
)


@given(rows=ROWS)
def test_any_table_has_findings_or_an_error(rows: list[tuple[str, ...]]) -> None:
    lines = [HEADER, *(",".join((*(cell.replace(",", ";") for cell in row), "", "")) for row in rows)]
    with suppress(FiguresError):
        figures = tuple(csv_file._figures("t.csv", [f"{line}\n" for line in "\n".join(lines).split("\n")]))
        for finding in examine(figures):
            assert finding.code in CHECKS
            assert finding.message


# What comes out ------------------------------------------------------------------------------------------------------


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, words)])


def test_the_exit_code_tells_how_grave_it_is(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text(f"{HEADER}\n,v100-sxm2-16gb,,fp32,,peak,12e12,,\n")  # a warning
    codes = [run(path, *words).exit_code for words in ([], ["--fail-on", "warning"], ["--fail-on", "info"])]
    assert codes == [0, 3, 3]
    assert run(OWN).exit_code == 3
    assert run(tmp_path / "none.csv").exit_code == 1
    assert run().exit_code == 2


def test_json_has_the_promised_shape() -> None:
    result = run(OWN, "--format", "json")
    (key,) = (shape := json.loads(result.stdout))
    assert key == "findings"
    for finding in shape["findings"]:
        assert list(finding) == ["code", "severity", "subject", "message", "evidence", "remedy"]
        assert finding["severity"] in SEVERITIES
        assert isinstance(finding["evidence"], dict)
    assert "cpu" in result.stderr


@pytest.mark.parametrize("format_", ["table", "md", "tex", "csv"])
def test_every_format_names_codes_and_subjects(format_: str) -> None:
    text = run(OWN, "--format", format_).stdout
    for word in ("macs-as-flops", "sparse-peak", "line"):
        assert word in text


def test_no_finding_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text("quantity,value\nperformance,5e12\n")
    assert run(path).stdout == "Findings\n\nnone\n"
    assert json.loads(run(path, "--format", "json").stdout) == {"findings": []}


def test_text_of_a_file_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text(f"{HEADER}\n=cmd|\x1b[31m,t4,1,fp32,forward,time,0,,\n")
    for format_ in ("table", "md", "tex", "csv"):
        assert "\x1b" not in run(path, "--format", format_).stdout


def test_the_command_line_knows_the_same_severities() -> None:
    assert command.SEVERITIES == SEVERITIES


def test_something_must_be_given() -> None:
    with pytest.raises(InvalidValue, match="check needs something"):
        rl.check()
    with pytest.raises(InvalidValue, match="unknown severity 'fatal'"):
        rl.check(OWN).at_least("fatal")


def test_every_code_and_quantity_is_explained() -> None:
    page = (ROOT / "docs" / "check.md").read_text()
    assert check_docs.table() in page, "run scripts/check_docs.py"
    assert len({check.means for check in CHECKS.values()}) == len(CHECKS)
    for quantity in QUANTITIES:
        assert f"`{quantity}`" in page


def test_checking_a_table_needs_no_torch() -> None:
    assert loaded_by(f"import rooflens as rl; assert rl.check({str(OWN)!r})").isdisjoint(TORCH)
