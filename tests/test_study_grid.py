"""From a study to its cells: the product, what is left out, and keys that stay."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.study_samples import SMALL, written

from rooflens.records import Case
from rooflens.study import Cell, cells, excluded, read_study, stated
from rooflens.study.grid import standing

T4, A100 = "tesla-t4", "a100-sxm4-40gb"


def cells_of(folder: Path, text: str) -> tuple[Cell, ...]:
    return cells(read_study(written(folder, text)).study, folder)


def said(found: tuple[Cell, ...]) -> list[str]:
    return [cell.label() for cell in found]


def test_the_product_in_the_order_in_which_devices_share_a_trace(tmp_path: Path) -> None:
    found = cells_of(tmp_path, SMALL)
    assert len(found) == 2 * 3 * 2
    assert [(cell.case.model, cell.case.batch, cell.case.device) for cell in found[:5]] == [
        ("resnet18", 1, T4),
        ("resnet18", 1, A100),
        ("resnet18", 2, T4),
        ("resnet18", 2, A100),
        ("resnet18", 4, T4),
    ]
    assert len({cell.key for cell in found}) == 12


def test_estimates_come_first_whatever_the_file_says(tmp_path: Path) -> None:
    found = cells_of(tmp_path, 'title = "T"\nmodels = ["a", "b"]\nsources = ["counters", "measure", "estimate"]\n')
    assert [cell.source for cell in found] == ["estimate"] * 2 + ["measure"] * 2 + ["counters"] * 2


def test_an_option_belongs_to_the_cells_that_it_means_something_to(tmp_path: Path) -> None:
    text = 'title = "T"\nmodels = ["m"]\nsources = ["estimate", "measure"]\nmodes = ["inference", "train"]\n'
    text += '[options]\ncausal = true\ncuda_graph = true\noptimizer = ["sgd", "adam"]\nchannels_last = [false, true]\n'
    assert said(cells_of(tmp_path, text)) == [
        "estimate m fp32 inference causal=True cuda_graph=True",
        "estimate m fp32 inference causal=True channels_last=True cuda_graph=True",
        "estimate m fp32 train causal=True cuda_graph=True",
        "estimate m fp32 train causal=True channels_last=True cuda_graph=True",
        "estimate m fp32 train causal=True cuda_graph=True optimizer=adam",
        "estimate m fp32 train causal=True channels_last=True cuda_graph=True optimizer=adam",
        "measure m fp32 inference cuda_graph=True",
        "measure m fp32 inference channels_last=True cuda_graph=True",
        "measure m fp32 train cuda_graph=True",
        "measure m fp32 train channels_last=True cuda_graph=True",
        "measure m fp32 train cuda_graph=True optimizer=adam",
        "measure m fp32 train channels_last=True cuda_graph=True optimizer=adam",
    ]


def test_whole_answers_are_cells_of_what_runs_them_whole(tmp_path: Path) -> None:
    sources = 'sources = ["estimate", "measure", "counters"]\n'
    text = f'title = "T"\nmodels = ["m"]\n{sources}modes = ["decode", "generate"]\n'
    text += "[options]\nprompt_len = [8, 9]\noutput_len = 4\nprice_per_hour = 2.5\n"
    assert said(cells_of(tmp_path, text)) == [
        "estimate m fp32 decode price_per_hour=2.5",
        "estimate m fp32 generate output_len=4 price_per_hour=2.5 prompt_len=8",
        "estimate m fp32 generate output_len=4 price_per_hour=2.5 prompt_len=9",
        "measure m fp32 decode price_per_hour=2.5",
        "measure m fp32 generate output_len=4 price_per_hour=2.5 prompt_len=8",
        "measure m fp32 generate output_len=4 price_per_hour=2.5 prompt_len=9",
        "counters m fp32 decode",
    ]


def test_devices_of_a_source(tmp_path: Path) -> None:
    text = 'title = "T"\nmodels = ["m"]\ndevices = ["t4", "cpu"]\nsources = ["estimate", "measure"]\n'
    found = cells_of(tmp_path, text + '[measure]\ndevices = ["cpu", "h100-sxm"]\n')
    assert [(cell.source, cell.case.device, cell.needs) for cell in found] == [
        ("estimate", T4, None),
        ("estimate", "cpu", "cpu"),
        ("measure", "cpu", "cpu"),
        ("measure", "h100-sxm5-80gb", "h100-sxm5-80gb"),
    ]


def test_grids_are_united(tmp_path: Path) -> None:
    text = 'title = "T"\nmodels = ["m"]\n[[grid]]\nbatches = [1, 2]\n[[grid]]\nbatches = [2, 3]\n'
    assert [cell.case.batch for cell in cells_of(tmp_path, text)] == [1, 2, 3]


def test_exclusions(tmp_path: Path) -> None:
    text = SMALL + '[[exclude]]\nmodel = "res*"\nbatch = [">= 4", 1]\nwhy = "so"\n'
    text += '[[exclude]]\ndevice = "T4"\nbatch = 2\n'
    study = read_study(written(tmp_path, text)).study
    found = [(cell.case.model, cell.case.batch, cell.case.device) for cell in cells(study, tmp_path)]
    assert found == [
        ("resnet18", 2, A100),
        ("alexnet", 1, T4),
        ("alexnet", 1, A100),
        ("alexnet", 2, A100),
        ("alexnet", 4, T4),
        ("alexnet", 4, A100),
    ]
    assert [(cell.case.batch, why) for cell, why in excluded(study).items() if cell.case.model == "resnet18"] == [
        (1, "so"), (1, "so"), (2, ""), (4, "so"), (4, "so"),
    ]  # fmt: skip


def test_an_option_can_be_excluded_by_being_off(tmp_path: Path) -> None:
    text = 'title = "T"\nmodels = ["m"]\n[options]\ncompile = [false, true]\n[[exclude]]\ncompile = false\n'
    assert said(cells_of(tmp_path, text)) == ["estimate m fp32 inference compile=True"]


def test_a_key_stays_what_it_is() -> None:
    # Another key would have every study that was begun run again.
    case = Case(model="hf:Qwen/x", device=T4, batch=64, dtype="amp-bf16", mode="train", options=(("seq_len", 128),))
    text = (
        '{"batch":64,"device":"tesla-t4","dtype":"amp-bf16","file":null,"mode":"train","model":"hf:Qwen/x",'
        '"options":[["seq_len",128]],"source":"measure"}'
    )
    hashed = hashlib.sha256(text.encode()).hexdigest()[:10]
    assert Cell(case=case, source="measure").key == f"measure-hf-qwen-x-b64-amp-bf16-train-tesla-t4-{hashed}"


def test_whatever_differs_has_another_key() -> None:
    case = Case(model="m")
    others = [
        Case(model="M"),
        Case(model="m", batch=1),
        Case(model="m", device="cpu"),
        Case(model="m", options=(("seq_len", 1),)),
        Case(model="m", options=(("seq_len", "1"),)),
        Case(model="m", options=(("compile", True),)),
        Case(model="m/" * 100),
    ]
    found = [Cell(case=each, source="estimate").key for each in (case, *others)]
    found += [Cell(case=case, source="measure").key, Cell(case=case, source="replay", file="m").key]
    assert len({key.lower() for key in found}) == len(others) + 3
    assert all(len(key) < 100 and "/" not in key for key in found)


def test_recorded_files_are_cells_or_stand_for_cells(tmp_path: Path) -> None:
    key = "estimate-m-fp32-inference-"
    (own,) = cells_of(tmp_path, 'title = "T"\nmodels = ["m"]\n')
    assert own.key.startswith(key)
    (tmp_path / "old").mkdir()
    for name in (f"{own.key}.jsonl", "ncu run.csv", "other.jsonl"):
        (tmp_path / "old" / name).touch()
    text = 'title = "T"\nmodels = ["m"]\n[[recorded]]\nfiles = ["old/*.jsonl"]\n'
    text += '[[recorded]]\nfiles = "old/*.csv"\nmodel = "resnet18"\nbatch = 2\ndevice = "t4"\nmode = "train"\n'
    study = read_study(written(tmp_path, text)).study
    found = cells(study, tmp_path)
    assert [(cell.source, cell.file) for cell in found] == [
        ("estimate", None),
        ("replay", "old/other.jsonl"),
        ("replay", "old/ncu run.csv"),
    ]
    assert found[2].case == Case(model="resnet18", batch=2, device=T4, dtype="as-is", mode="train")
    assert standing(study, tmp_path, found) == {own.key: tmp_path / "old" / f"{own.key}.jsonl"}
    assert stated(study, tmp_path, "old/ncu run.csv") == {
        "model": "resnet18", "mode": "train", "batch": 2, "device": T4,
    }  # fmt: skip
    assert stated(study, tmp_path, "old/other.jsonl") == {}


def test_the_name_of_a_record_file_tells_no_folder_of_the_machine() -> None:
    here = Cell(case=Case(model="/home/ann/net.py:build", device="/home/ann/board.toml"), source="estimate")
    there = Cell(case=Case(model="/home/bob/net.py:build", device="/home/ann/board.toml"), source="estimate")
    assert here.key.startswith("estimate-net.py-build-fp32-inference-board.toml-")
    assert here.key != there.key
    assert "models-net.py-build" in Cell(case=Case(model="models/net.py:build"), source="estimate").key
