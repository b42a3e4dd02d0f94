"""The command line as a user meets it: output, files, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rooflens as rl
from rooflens.cli import options
from rooflens.cli.main import COMMANDS, cli, main
from rooflens.records import FORMAT

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    runner = CliRunner()
    return lambda *words: runner.invoke(cli, [str(word) for word in words])


def ended(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that ends by itself."""
    with pytest.raises(SystemExit) as exit_:
        main([str(word) for word in words])
    captured = capsys.readouterr()
    return int(exit_.value.code or 0), captured.out, captured.err


def test_choices_repeated_for_a_light_help_are_those_of_the_library() -> None:
    from rooflens import records
    from rooflens.report.figures.case_pieces import BY
    from rooflens.report.figures.saving import SUFFIXES
    from rooflens.report.render import FORMATS

    assert (options.DTYPES, options.AS_IS) == (records.DTYPES, records.AS_IS)
    assert options.MODES == records.MODES
    assert set(options.FORMATS) == set(FORMATS)
    assert options.GROUPINGS == tuple(BY)
    assert options.LEVELS == records.LEVELS
    assert options.FIGURES == tuple(f".{suffix}" for suffix in SUFFIXES)


def test_estimate_as_json_is_the_promised_shape(run: Run) -> None:
    result = run("estimate", "resnet18", "-b", 256, "--device", "a100-sxm4-40gb", "--dtype", "fp32", "--format", "json")
    assert result.exit_code == 0
    assert result.stderr == ""
    (case,) = json.loads(result.stdout)
    assert case["format"] == 1
    assert case["case"] == {
        "model": "resnet18",
        "device": "a100-sxm4-40gb",
        "batch": 256,
        "dtype": "fp32",
        "mode": "inference",
        "options": {},
    }
    assert case["parameters"] == 11_689_512
    assert case["phases"].keys() == {"forward"}
    forward = case["phases"]["forward"]
    assert forward["matmul_flops"] == 928_805_552_128
    assert forward["macs"] == 464_402_776_064
    assert isinstance(forward["matmul_flops"], int)
    assert forward["seconds"] > 0
    assert forward["bound_by"] == "matmul.fp32"
    low, expected, high = (forward[f"predicted_{what}"] for what in ("low", "seconds", "high"))
    assert forward["seconds"] < low < expected < high
    causes = {"parameters", "buffers", "inputs", "activations", "gradients", "optimizer", "kv_cache", "temporaries"}
    assert causes | {"peak"} <= case["memory"].keys()
    assert case["memory"]["peak"] == sum(case["memory"][cause] for cause in causes)
    assert case["coverage"]["operations"] == case["coverage"]["counted"]
    assert case["coverage"]["uncounted"] == []


def test_several_batches_and_devices_are_one_object_each(run: Run) -> None:
    result = run("estimate", "alexnet", "-b", "1,2", "--device", "t4", "--device", "l4", "--format", "json")
    assert [(c["case"]["batch"], c["case"]["device"]) for c in json.loads(result.stdout)] == [
        (1, "tesla-t4"),
        (1, "l4"),
        (2, "tesla-t4"),
        (2, "l4"),
    ]


def test_the_table_shows_summary_families_modules_and_coverage(run: Run) -> None:
    text = run("estimate", "alexnet", "-b", 16, "--device", "t4").stdout
    for word in ("Summary", "Operation families", "Modules", "Memory", "convolution", "features", "classifier"):
        assert word in text
    assert "(100 % of bytes)" in text
    assert max(map(len, text.splitlines())) <= 80


def test_depth_unfolds_the_module_tree(run: Run) -> None:
    folded, unfolded = (run("estimate", "resnet18", "--depth", depth).stdout for depth in (0, 3))
    assert "layer1" not in folded
    assert "conv1" in unfolded


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [
        (".jsonl", b'{"type":"header"'),
        (".json", b"["),
        (".csv", b"model"),
        (".md", b"#"),
        (".tex", b""),
        (".txt", b"Summary"),
        (".png", b"\x89PNG"),
        (".svg", b"<?xml"),
        (".pdf", b"%PDF"),
        (".html", b"<!DOCTYPE html>"),
    ],
)
def test_the_suffix_says_what_is_written(run: Run, tmp_path: Path, suffix: str, begins: bytes) -> None:
    path = tmp_path / f"deep/er/alexnet{suffix}"
    result = run("estimate", "alexnet", "--device", "t4", "-o", path)
    assert result.exit_code == 0, result.output
    assert path.read_bytes().lower().startswith(begins.lower())
    assert f"wrote {path}" in result.stderr


def test_measure_writes_records_that_plot_draws(run: Run, tmp_path: Path) -> None:
    records, picture = tmp_path / "run.jsonl", tmp_path / "run.svg"
    result = run("measure", "alexnet", "--img-size", 64, "--device", "cpu", "--budget", 0.1, "-o", records)
    assert result.exit_code == 0, result.output
    assert "measured" in result.stdout
    assert rl.read(records).sources == ("estimate", "measure")
    assert run("plot", records, "--device", "xeon-platinum-8380", "-o", picture).exit_code == 0
    assert picture.stat().st_size > 1000


def test_plot_draws_devices_alone(run: Run, tmp_path: Path) -> None:
    assert run("plot", "--device", "t4", "-o", tmp_path / "t4.png").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("estimate", "resnet19"), "did you mean"),
        (("estimate", "resnet18", "--device", "h1000"), "unknown device"),
        (("estimate", "resnet18", "--device", "tesla-v100-sxm2-16gb", "--dtype", "bf16"), "matmul.bf16"),
        (("estimate", "vit_b_16", "--img-size", "225"), "vit_b_16"),
        (("plot", "no-such-file.jsonl", "-o", "x.png"), "cannot read 'no-such-file.jsonl'"),
    ],
)
def test_errors_are_one_sentence_without_a_traceback(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    code, out, err = ended(capsys, *words)
    assert code == 1
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("estimate", "resnet18", "-b", "0"), "at least 1"),
        (("estimate", "resnet18", "-b", "many"), "no list of whole numbers"),
        (("estimate", "resnet18", "--dtype", "fp12"), "fp12"),
        (("estimate", "resnet18", "-o", "x.docx"), "the suffix says what to write"),
        (("estimate",), "MODEL"),
        (("estmate", "resnet18"), "estmate"),
        (("plot", "-o", "x.png"), "nothing to draw"),
    ],
)
def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    code, out, err = ended(capsys, *words)
    assert code == 2
    assert out == ""
    assert message in err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("estimate", "resnet18", "--by", "modules"), "; did you mean 'module' or 'model'?"),
        (("read", "run.jsonl", "--mode", "Trian"), "; did you mean 'train'?"),
        (("rank", "resnet18", "--by", "price"), "; did you mean 'cost'?"),
        (("plot", "--width", "wide", "--device", "t4", "-o", "a.png"), "no width in millimetres; write 85"),
        (("estimate", "resnet18", "--by", "zzz"), "'op', 'operator', 'kernel'."),  # nothing is near
    ],
)
def test_a_word_that_is_no_choice_is_told_what_was_meant(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], meant: str
) -> None:
    code, _, err = ended(capsys, *words)
    assert code == 2
    assert err.strip().endswith(meant)


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(rl.RooflensError):
        main(["--debug", "estimate", "resnet19"])


def test_damaged_and_newer_record_files_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = rl.estimate("alexnet", device="t4").save(tmp_path / "whole.jsonl").read_text()
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(whole[: len(whole) // 2] + "{")  # wherever the cut is, also between two lines
    newer = tmp_path / "newer.jsonl"
    newer.write_text(whole.replace(f'"format":{FORMAT}', '"format":99', 1))
    for path, message in ((damaged, "line"), (newer, "format 99")):
        code, _, err = ended(capsys, "plot", path, "-o", tmp_path / "x.png")
        assert code == 1
        assert message in err
        assert str(path) in err


def test_an_output_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = ended(capsys, "estimate", "alexnet", "-o", tmp_path / "file" / "x.jsonl")
    assert code == 1
    assert "cannot write" in err


def test_a_users_file_that_raises_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def build():\n    raise ValueError('no [bold]data[/bold] \\x1b[31mhere')\n")
    code, _, err = ended(capsys, "estimate", f"{path}:build")
    assert code == 1
    assert "raised ValueError: no [bold]data[/bold]" in err
    assert "line 2" in err
    assert "\x1b" not in err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert f"rooflens {command}" in result.stdout


@pytest.mark.parametrize("command", ["estimate", "measure"])
def test_every_option_is_a_keyword_of_the_twin(command: str) -> None:
    import inspect

    # The last ones belong to another twin, rl.largest_batch.
    shown = {"outputs", "format_", "by", "depth", "sort", "top", "columns"}
    rendering = shown | {"help", "quiet", "devices", "largest", "longest", "reserve"}
    rendering |= {"max_time_per_token", "max_time_to_first_token"}
    parameters = inspect.signature(getattr(rl, command)).parameters
    context = cli.get_command(None, command)  # type: ignore[arg-type]
    assert context is not None
    assert {p.name for p in context.params if not getattr(p, "hidden", False)} - rendering <= parameters.keys()


def test_a_pipe_gets_plain_text_and_nothing_on_stderr() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rooflens", "estimate", "alexnet"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_what_a_model_prints_is_no_part_of_the_result(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\nfrom torch import nn\nprint('hello')\n"
        "def build():\n    print('building')\n    return nn.Linear(4, 2), torch.randn(3, 4)\n"
    )
    command = [sys.executable, "-m", "rooflens", "estimate", f"{path}:build", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)[0]["phases"]["forward"]["matmul_flops"] == 2 * 3 * 4 * 2
    assert "hello" not in done.stderr  # nor is it shown elsewhere: it may have no end


def test_a_budget_that_is_no_number_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ended(capsys, "measure", "alexnet", "--device", "cpu", "--budget", "nan")
    assert code == 1
    assert "cannot sample" in err


def test_a_search_tells_what_it_tries_where_no_bar_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "SILENT", -1.0)
    for lines, said in ((True, " 25%  batch 8\n"), (False, "")):
        with options.progress_bar(lines=lines) as tell:
            tell(0.25, "batch 8")
        assert capsys.readouterr().err == said
