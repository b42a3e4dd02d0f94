"""Roofs and points of others: the Empirical Roofline Tool and NERSC's scripts; the files are made here."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.roof_samples import KEYWORDS, REPORT, ROCPROF, ROCPROF_ROW, SUM, TRY, VALID, as_csv, ert, table

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.devices import device_text, load_file
from rooflens.errors import DeviceFileError, FileError
from rooflens.roofline import bound


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def rates(device: rl.Device | None) -> dict[str, float]:
    assert device is not None
    return {c.resource: c.rate for c in device.ceilings if c.origin != "derived"}


def only_device(path: Path, **options: Any) -> rl.Device:
    (found,) = rl.read(path, **options).devices.values()
    return found


# ERT -----------------------------------------------------------------------------------------------------------------


def test_ert_gives_measured_ceilings(tmp_path: Path) -> None:
    """GB/s and GFLOP/s are decimal in that tool: it divides by 1000^3."""
    device = only_device(written(tmp_path, "roofline.json", json.dumps(ert())))
    assert (device.name, device.kind) == ("my-box-ert", "cpu")
    assert rates(device) == {"vector.fp64": 288.5e9, "l1": 1000.25e9, "l2": 500.5e9, "dram": 68.75e9}
    assert {c.origin for c in device.ceilings if c.resource in rates(device)} == {"measured"}
    assert device.require("dram").reference == "empirical.gbytes.data[3]: DRAM"
    assert "double precision" in device.notes
    assert "L3 290.0 GB/s" in device.notes


def test_on_a_gpu_the_first_cache_that_ert_sees_is_l2(tmp_path: Path) -> None:
    device = only_device(written(tmp_path, "roofline.json", json.dumps(ert(gpu=True))))
    assert device.kind == "gpu"
    assert rates(device) == {"vector.fp64": 288.5e9, "l2": 1000.25e9, "dram": 68.75e9}
    assert "L2 500.5 GB/s" in device.notes


def test_a_device_that_the_user_names_gives_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, "roofline.json", json.dumps(ert(gpu=True)))
    found = rl.read(path, device="v100-sxm2-16gb").devices
    assert list(found) == ["tesla-v100-sxm2-16gb", "tesla-v100-sxm2-16gb-ert"]
    assert found["tesla-v100-sxm2-16gb-ert"].vendor == "NVIDIA"


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("report", REPORT, {"vector.fp32": 288.5e9, "l1": 1000.25e9, "l2": 500.5e9, "dram": 68.75e9}),
        ("sum", SUM, {"vector.fp64": 11.03e9, "l1": 176.44e9, "dram": 18.3e9}),
        ("try.001", TRY, {"vector.fp64": 64e9, "l2": 128e9, "dram": 64e9}),
    ],
)
def test_what_ert_prints_is_read_too(tmp_path: Path, name: str, text: str, right: dict[str, float]) -> None:
    assert rates(only_device(written(tmp_path, name, text))) == pytest.approx(right)


def test_ert_serves_wherever_a_device_is_named(tmp_path: Path) -> None:
    """By its path, by a device file made of it, and on a figure."""
    path = written(tmp_path, "roofline.json", json.dumps(ert()))
    device = rl.device(str(path))
    assert rates(device)["dram"] == 68.75e9
    assert rates(load_file(written(tmp_path, "ert.toml", device_text(device)))) == rates(device)
    assert rl.roofline(device=str(path)).devices == ("my-box ERT",)
    figure = rl.roofline(rl.read(path))
    assert {line.rate for line in figure.ceilings} == {288.5e9, 1000.25e9, 500.5e9, 68.75e9}


def test_the_command_shows_roofs_and_writes_them(tmp_path: Path) -> None:
    path = written(tmp_path, "roofline.json", json.dumps(ert()))
    outputs = [tmp_path / "a.md", tmp_path / "a.png", tmp_path / "a.jsonl"]
    arguments = [word for output in outputs for word in ("-o", str(output))]
    done = CliRunner().invoke(cli, ["read", str(path), *arguments])
    assert done.exit_code == 0, done.output
    assert "68.75 GB/s" in done.output
    assert "68.75 GB/s" in outputs[0].read_text()
    assert outputs[1].read_bytes().startswith(b"\x89PNG")
    assert list(rl.read(outputs[2]).devices) == ["my-box-ert"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps({"empirical": {}, "spec": {}}), "'gflops' is missing; it must be an object"),
        (json.dumps(ert("fast")), "empirical.gflops.data[0] holds 'fast', which is no number"),
        (json.dumps(ert(-1)), "empirical.gflops.data[0] holds '-1', which is no rate"),
        (json.dumps(ert(math.inf)), "empirical.gflops.data[0] holds 'Infinity'"),
        (json.dumps(ert(None)), "empirical.gflops.data[0] is ['GFLOPs', None]; it must be a name of its own and a"),
        (json.dumps(ert())[:-40], "is no JSON"),
        (REPORT.replace("500.50 L2", "500.50 L1"), "lines 7 and 8 both tell 'L1'"),
        (REPORT.replace("500.50 L2", "5OO.50 L2"), "line 8: '5OO.50 L2 EMP' is no rate"),
        (TRY.replace("256000000", "256000001"), "line 4: 256000001 bytes and 128000000 FLOP do not belong to 2 x"),
        (TRY.replace("8000.000", "8O00.000"), "line 4"),
        (SUM.replace("11.03", "0.00"), "holds '0.00', which is no rate"),
    ],
)
def test_damage_of_ert_is_an_error_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileError, match=re.escape(message)):
        rl.read(written(tmp_path, "roofline.out", text))


# NERSC: keywords -----------------------------------------------------------------------------------------------------


def test_keywords_give_roofs_and_points(tmp_path: Path) -> None:
    """Bytes of a second are performance over intensity: 1800e9 / 2.5 = 720e9, and so on."""
    found = rl.read(written(tmp_path, "volta.txt", KEYWORDS))
    (device,) = found.devices.values()
    assert device.name == "volta-roofs"
    assert rates(device) == {"vector.fp64": 7000e9, "l1": 8000e9, "l2": 2500.5e9, "dram": 800e9}
    assert device.require("l2").reference == "line 1: L2"
    assert "No-FMA 3.500 TFLOP/s" in device.notes
    assert [dict(r.case.options) for r in found] == [{"point": "small #1"}, {"point": "large"}]
    works = [record.work for record in found if record.work is not None]
    assert [dict(work.bytes) for work in works] == [
        {"dram": 720e9, "l2": 900e9, "l1": 2250e9},
        {"dram": 420e9, "l2": 1050e9},
    ]
    assert [dict(work.flops) for work in works] == [{"vector.fp64": 1800e9}, {"vector.fp64": 4200e9}]
    assert any("each point stands for one second" in note for note in found.notes)


def test_points_stand_under_their_roofs_as_in_the_published_figure(tmp_path: Path) -> None:
    """Six points of a V100 and their share of the roof that binds, from the repository's reference case."""
    right = [("dram", 97.37), ("dram", 91.50), ("dram", 76.70), *(("vector.fp64", p) for p in (65.44, 65.07, 66.38))]
    text = """\
memroofs 14336 2996.77 828.758
mem_roof_names 'L1' 'L2' 'HBM'
comproofs 7068.86 3535.79
comp_roof_names 'FMA' 'No-FMA'
AI_HBM 2.584785579 4.738878073 6.892970567 9.047063062 11.08619259 13.21154434
AI_L2 2.250285265 3.34359685 3.245471837 3.766406852 4.356477696 5.182021625
AI_L1 0.865326481 1.556526957 2.222121895 2.863508257 3.446245893 4.034947498
FLOPS 2085.756683 3593.593112 4381.739349 4625.535516 4599.764097 4692.209405
labels 'nw=1''nw=2''nw=3' 'nw=4''nw=5''nw=6'
"""
    found = rl.read(written(tmp_path, "data.txt", text))
    (device,) = found.devices.values()
    bounds = [bound(record.work, device) for record in found if record.work is not None]
    assert [b.bound_by for b in bounds] == [name for name, _ in right]
    assert [round(100 * b.seconds, 2) for b in bounds] == [percent for _, percent in right]


def test_roofs_or_points_alone_are_enough(tmp_path: Path) -> None:
    head, tail = KEYWORDS.split("\n\n")
    assert len(rl.read(written(tmp_path, "roofs.txt", head))) == 0
    points = rl.read(written(tmp_path, "points.txt", tail), device="v100-sxm2-16gb")
    assert len(points) == 2
    assert points.cases[0].device == "tesla-v100-sxm2-16gb"
    with pytest.raises(DeviceFileError, match="holds no roofs"):
        rl.device(str(tmp_path / "points.txt"))


def test_points_of_one_label_are_two_points(tmp_path: Path) -> None:
    found = rl.read(written(tmp_path, "data.txt", KEYWORDS.replace("'large'", "'small #1'")))
    assert [dict(case.options)["point"] for case in found.cases] == ["small #1", "small #1 (2)"]


def test_precision_and_unit_come_from_the_names_of_roofs(tmp_path: Path) -> None:
    text = KEYWORDS.replace("'FMA' 'No-FMA'", "'Tensor FP16' 'FP32 FMA'")
    found = rl.read(written(tmp_path, "data.txt", text))
    (device,) = found.devices.values()
    assert {"matmul.fp16", "vector.fp32"} <= set(rates(device))
    assert any("FLOP are taken as matmul.fp16" in note for note in found.notes)


LABELS = "labels 'small #1''large'\n"


@pytest.mark.parametrize(
    ("line", "names", "says"),
    [
        ("labels 'a' 'b' 'c'\n", ["a", "b"], "2 points (FLOPS) have 3 labels, taken in their order: c label no point"),
        ("labels 'a'\n", ["a", "point 2"], "2 points (FLOPS) have 1 labels, taken in their order"),
    ],
)
def test_points_without_a_label_and_labels_without_a_point_are_told(
    tmp_path: Path, line: str, names: list[str], says: str
) -> None:
    path = tmp_path / "data.txt"
    path.write_text(KEYWORDS.replace(LABELS, line))
    records = rl.read(path)
    assert [record.name for record in records] == names
    assert says in records.notes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("comproofs", "roofs", "line 3: unknown keyword 'roofs'"),
        ("2500.5", "fast", "line 1 holds 'fast', which is no number"),
        ("2500.5", "-3", "line 1 holds '-3', which is no rate"),
        ("2500.5 ", "", "line 2: 'mem_roof_names' has 3 values, but 'memroofs' has 2"),
        ("'HBM'", "'HBM", 'line 2: cannot tell the names in "\'HBM"'),
        ("AI_L2 2 4", "AI_L2 2 0", "line 8 holds intensity 0"),
        ("AI_L2 2 4", "AI_L2 2", "line 8: 'AI_L2' has 1 values, but 'FLOPS' has 2"),
        ("FLOPS 1800 4200\n", "", "'AI_HBM' needs a line 'FLOPS' too"),
        (LABELS, "", "'FLOPS' needs a line 'labels' too"),
        ("AI_L2", "AI_L1", "line 9: 'AI_L1' was given in line 8 already"),
    ],
)
def test_damage_of_keywords_is_an_error_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(FileError, match=re.escape(message)):
        rl.read(written(tmp_path, "data.txt", KEYWORDS.replace(old, new)))


# NERSC: the table of kernels -----------------------------------------------------------------------------------------


def test_a_table_gives_the_mean_launch_of_each_kernel(tmp_path: Path) -> None:
    """Half of the sums of two launches: (1000 + 2000 + 2 x 8000) / 2 = 9500 FLOP in fp64, and (10 + 90) / 2 in fp32."""
    (record,) = rl.read(written(tmp_path, "pd_output.csv", as_csv(table())), device="v100-sxm2-16gb")
    assert record.name == "void mul<double>(int, int)"
    assert record.calls == 2
    assert record.work is not None
    assert record.timing is not None
    # 512 FLOP per tensor instruction of a V100: 4 x 512 / 2.
    assert dict(record.work.flops) == {"vector.fp64": 9500, "vector.fp32": 50, "matmul.fp16": 1024}
    assert dict(record.work.bytes) == {"dram": 2000, "l2": 4000, "l1": 8000}
    assert record.timing.median == pytest.approx(3000 / 1e9 / 2)
    assert not record.work.missing


def test_tensor_instructions_are_no_flop_on_other_chips(tmp_path: Path) -> None:
    path = written(tmp_path, "pd_output.csv", as_csv(table()))
    for device in (None, "a100-sxm4-40gb"):
        (record,) = rl.read(path, device=device)
        assert record.work is not None
        assert dict(record.work.flops) == {"vector.fp64": 9500, "vector.fp32": 50}
        assert record.work.missing == {"tensor instructions"}


def test_what_a_table_lacks_stays_unknown(tmp_path: Path) -> None:
    kept = ("Kernel Name", "all FLOPs", "dram__bytes.sum", "sm__sass_thread_inst_executed_op_dadd_pred_on.sum")
    row = {name: cell for name, cell in table().items() if name in kept}
    (record,) = rl.read(written(tmp_path, "pd.csv", as_csv(row)))
    assert record.timing is None
    assert record.work is not None
    assert dict(record.work.bytes) == {"dram": 4000}
    assert record.work.missing == {"fp64 on the lanes"}


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("dram__bytes.sum", "4001", "line 2, column 'AI HBM' holds"),
        ("dram__bytes.sum", "much", "line 2, column 'dram__bytes.sum' holds 'much', which is no number"),
        ("lts__t_bytes.sum", "-8000", "line 2, column 'lts__t_bytes.sum' holds -8000, and cannot be negative"),
        ("Count", "1.5", "line 2"),
        ("Time", "1e-6", "line 2, column 'Time' holds 1e-06, and the other columns give"),
        ("sm__sass_thread_inst_executed_op_dfma_pred_on.sum", "8001", "line 2, column 'CC FLOPs'"),
        ("sm__inst_executed_pipe_tensor.sum", "5", "line 2, column 'TC FLOPs'"),
    ],
)
def test_columns_that_contradict_each_other_are_an_error(tmp_path: Path, column: str, cell: str, message: str) -> None:
    text = as_csv({**table(), column: f"{cell}"}).replace(f'"{cell}"', cell)
    with pytest.raises(FileError, match=re.escape(message)):
        rl.read(written(tmp_path, "pd.csv", text))


# Damage of any kind --------------------------------------------------------------------------------------------------


def numbers(path: Path) -> set[float]:
    """Every rate, amount and time that a file gives."""
    found = rl.read(path)
    of_devices = {c.rate for device in found.devices.values() for c in device.ceilings}
    works = [record.work for record in found if record.work is not None]
    of_works = {n for work in works for n in (*work.flops.values(), *work.bytes.values())}
    return of_devices | of_works | {record.timing.median for record in found if record.timing is not None}


@pytest.mark.parametrize("name", VALID)
@settings(deadline=None)
@given(share=st.floats(0, 1))
@example(share=0.999)
def test_a_file_that_was_cut_gives_no_wrong_number(tmp_path_factory: Any, name: str, share: float) -> None:
    folder = tmp_path_factory.mktemp("cut")
    text = VALID[name]
    right = numbers(written(folder, name, text))
    path = written(folder, name, text[: int(share * len(text))])
    try:
        found = numbers(path)
    except FileError:
        return
    assert found <= right


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_changed_digit_of_a_table_is_seen(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Each number stands there twice, in some form: what is off by more than a millionth contradicts itself."""
    text = VALID["pd.csv"]
    path = written(tmp_path_factory.mktemp("digit"), "pd.csv", text)
    right = sorted(numbers(path))
    start = text.index("\n")
    position = data.draw(st.sampled_from([n for n, sign in enumerate(text) if n > start and sign.isdigit()]))
    digit = data.draw(st.sampled_from("0123456789"))
    path.write_text(text[:position] + digit + text[position + 1 :])
    try:
        found = sorted(numbers(path))
    except FileError:
        return
    assert found == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize("name", VALID)
@settings(deadline=None)
@given(data=st.data())
def test_any_damage_is_an_error_or_read(tmp_path_factory: Any, name: str, data: st.DataObject) -> None:
    raw = bytearray(VALID[name].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw)))
        raw[start : start + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    path = tmp_path_factory.mktemp("damage") / name
    path.write_bytes(raw)
    try:
        found = numbers(path)
    except FileError:
        return
    assert all(0 <= number < math.inf for number in found)


def test_roofs_of_rocprof_compute_are_a_device(tmp_path: Path) -> None:
    """GB/s and GFLOP/s of 10^9; the columns of extremes are none of roofs, and an unknown cell is no rate."""
    path = written(tmp_path, "roofline.csv", ROCPROF + ROCPROF_ROW + ROCPROF_ROW.replace("0,", "1,", 1))
    (device,) = rl.read(path).devices.values()
    stated = {c.resource: c.rate for c in device.ceilings if c.origin == "measured"}
    assert stated == pytest.approx(
        {
            "matmul.fp16": 150e12,
            "matmul.int8": 160e12,
            "vector.fp32": 20.9377e12,
            "dram": 1.3887e12,
            "l2": 3.0005e12,
        }
    )
    assert "Roofs of the first of 2 GPUs" in device.notes
    assert "LDSBw 9.000 TB/s" in device.notes
    assert rl.device(str(path)).require("dram").rate == pytest.approx(1.3887e12)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ROCPROF, "holds no GPU below its header"),
        ("device,HBMBw,FP32Flops\n0,5\n", "it was cut"),
        ("device,HBMBw\n0,fast\n", "column HBMBw holds 'fast', which is no number"),
        ("device,HBMBw\n0,N/A\n", "holds no roof that rooflens has"),
        ("device,HBMBw\n0,13", "holds no roof that rooflens has"),
    ],
)
def test_damage_of_roofs_of_rocprof_compute_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(FileError, match=says):
        rl.read(written(tmp_path, "roofline.csv", text))
