"""Words that people type: misspelt commands, other names of dtypes, folders of models; and what a shell completes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import click
import pytest
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.completion import DeviceName, ModelName, torchvision_names
from rooflens.cli.main import COMMANDS, cli
from rooflens.errors import InvalidValue
from rooflens.models import torchvision
from rooflens.records import Case
from rooflens.runs.dtype_names import dtype_named
from rooflens.study import Cell, Status
from rooflens.study.cell_runs import CellNews


def said(*words: str) -> str:
    """What a command line that cannot be run says."""
    result = CliRunner().invoke(cli, words, prog_name="rooflens")
    assert result.exit_code == 2
    return result.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "wrong", "meant"),
    [
        ("device", "device", "devices"),
        ("estimat resnet18 -b 4", "estimat", "estimate resnet18 -b 4"),
        ("Compare", "Compare", "compare"),
        ("devices h100", "h100", "devices show h100"),
        ("device t4", "device", "devices show t4"),
        ("stud rnu a.toml", "stud", "study run a.toml"),
        ("devices lst", "lst", "devices list"),
        ("study a.toml", "a.toml", "study run a.toml"),
        ("study resum out", "resum", "study resume out"),
        ("report out", "report", "study report out"),
        ("status out", "status", "study status out"),
    ],
)
def test_a_misspelt_command_says_what_was_meant(words: str, wrong: str, meant: str) -> None:
    assert said(*words.split()) == f"Error: no command '{wrong}'; did you mean 'rooflens {meant}'?"


def test_the_folder_of_a_study_is_no_command(tmp_path: Path) -> None:
    assert said("study", str(tmp_path)).endswith(f"did you mean 'rooflens study status {tmp_path}'?")


def test_a_word_that_is_near_nothing_lists_the_commands() -> None:
    assert said("xyzzy") == f"Error: no command 'xyzzy'; known: {', '.join(COMMANDS)}"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("float16", "fp16"),
        ("half", "fp16"),
        ("torch.bfloat16", "bf16"),
        ("Float32", "fp32"),
        ("AMP_BF16", "amp-bf16"),
        ("amp", "amp-fp16"),
        ("tf32", "tf32"),
        ("fp12", "fp12"),
    ],
)
def test_other_names_of_dtypes(word: str, name: str) -> None:
    assert dtype_named(word) == name


def test_dtypes_are_the_same_by_any_name() -> None:
    result = CliRunner().invoke(cli, ["estimate", "alexnet", "--dtype", "half,bfloat16,fp16", "--format", "json"])
    assert result.exit_code == 0, result.output
    assert [case.dtype for case in rl.estimate("alexnet", dtype=["float16", "torch.bfloat16", "half"]).cases] == [
        "fp16",
        "bf16",
    ]


@pytest.mark.parametrize("word", ["int4", "int8", "fp8", "mxfp4"])
def test_a_format_of_weights_is_no_dtype(word: str) -> None:
    hint = f"{word} is a format of weights: --weights {word} (in Python weights='{word}')"
    assert said("estimate", "alexnet", "--dtype", word).endswith(hint)
    with pytest.raises(InvalidValue) as caught:
        rl.estimate("alexnet", dtype=word)
    assert str(caught.value).endswith(hint)


def test_a_folder_with_a_configuration_is_a_model(tmp_path: Path) -> None:
    config = '{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 16, "n_positions": 8}'
    (tmp_path / "config.json").write_text(config)
    folder = rl.estimate(str(tmp_path), seq_len=4)
    file = rl.estimate(f"hf:{tmp_path / 'config.json'}", seq_len=4)
    assert folder.total().flops == file.total().flops
    assert folder.parameters == file.parameters
    assert str(tmp_path) not in folder.cases[0].model
    (tmp_path / "config.json").unlink()
    with pytest.raises(rl.errors.UnknownModel):
        rl.estimate(str(tmp_path), seq_len=4)


def completed(kind: Any, start: str) -> list[str]:
    context = click.Context(cli)
    return [item.value for item in kind.shell_complete(context, click.Argument(["x"]), start) if item.type == "plain"]


def test_a_shell_completes_models_and_devices() -> None:
    assert "llama-3.1-8b" in completed(ModelName(), "llama-3.1")
    assert "meta-llama/Llama-3.1-8B" in completed(ModelName(), "meta-llama/")
    assert completed(ModelName(), "resnet1") == ["resnet101", "resnet152", "resnet18"]
    assert completed(DeviceName(), "H100-SXM") == ["h100-sxm5-80gb"]
    (file,) = ModelName().shell_complete(click.Context(cli), click.Argument(["x"]), "my/mo")
    assert (file.type, file.value) == ("file", "my/mo")


def test_the_names_in_torchvisions_files_are_those_that_it_registers() -> None:
    assert sorted(torchvision_names()) == sorted(torchvision.names())


def test_a_quiet_command_prints_results_alone(tmp_path: Path) -> None:
    words = ["estimate", "alexnet", "-o", str(tmp_path / "a.jsonl")]
    loud, quiet = CliRunner().invoke(cli, words), CliRunner().invoke(cli, [*words, "--quiet"])
    assert "wrote" in loud.stderr
    assert quiet.stderr == ""
    assert quiet.stdout == loud.stdout


@pytest.mark.parametrize("words", [[], ["--quiet"]])
def test_cells_of_a_quiet_study_end_without_a_word(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, progress: Callable[[CellNews], None], **__: object) -> Status:
        cell = Cell(case=Case(model="net"), source="estimate")
        news = CellNews(cell=cell, what="done", share=1.0, text="", seconds=2.0)
        thread = Thread(target=progress, args=(news,))  # which knows nothing of the command line
        thread.start()
        thread.join()
        return Status(states={})

    monkeypatch.setattr(rl, "run_study", run)
    done = CliRunner().invoke(cli, ["study", "resume", "out", *words])
    assert done.exit_code == 0
    assert ("done" in done.stderr) == (not words)


def test_a_page_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def launch(path: str) -> int:
        opened.append(path)
        return 0

    monkeypatch.setattr(click, "launch", launch)
    page = tmp_path / "t4.html"
    CliRunner().invoke(cli, ["plot", "--device", "t4", "-o", str(page), "--open"], catch_exceptions=False)
    assert opened == [str(page)]
    assert "none is written" in said("plot", "--device", "t4", "-o", str(tmp_path / "t4.svg"), "--open")
