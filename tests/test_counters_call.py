"""rl.counters and its command where there is no card, and the step of a program that a region marks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.counters import counters as command
from rooflens.cli.main import cli
from rooflens.cli.parameter_types import IntList
from rooflens.errors import CountersUnavailable, InvalidValue
from rooflens.sources.profile import profiled_step

no_card = pytest.mark.skipif(torch.cuda.is_available(), reason="a card is here: counters are read")


@no_card
def test_without_counters_times_stand_beside_estimated_work_and_say_so(tmp_path: Path) -> None:
    found = rl.counters("alexnet", batch=[1, 2], img_size=64, mode="train", keep=tmp_path)
    assert found.sources == ("estimate", "profile")
    for case in {record.case for record in found.where(source="profile")}:
        (note,) = (n for n in found.where(source="profile", batch=case.batch).notes if n.startswith("NOT COUNTED"))
        assert "no NVIDIA GPU" in note
    assert {r.phase for r in found.where(source="profile") if r.phase} == {"forward", "backward", "optimizer"}
    assert not any(record.work for record in found.where(source="profile"))  # estimated work is never counted work
    assert len(list(tmp_path.glob("*.trace.json"))) == 2


@no_card
def test_the_command_says_it_too_and_programs_are_refused() -> None:
    words = ["counters", "alexnet", "-b", "1", "--img-size", "64", "--depth", "0"]
    shown = CliRunner().invoke(cli, words)
    assert (shown.exit_code, "NOT COUNTED" in shown.stdout) == (3, True)
    assert "--allow-missing" in shown.stderr
    assert CliRunner().invoke(cli, [*words, "--allow-missing", "--no-estimate"]).exit_code == 0
    with pytest.raises(CountersUnavailable, match="no NVIDIA GPU"):
        rl.count_program(["python", "train.py"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["counters"], "Missing argument 'MODEL'"),
        (["counters", "resnet18", "--", "python", "x.py"], "not both"),
        (["counters", "--"], "no program stands behind --"),
        (["counters", "--seq-len", "5", "--", "python", "x.py"], "--seq-len is of a model"),
        (["counters", "-b", "5", "--", "python", "x.py"], "--batch is of a model"),
        (["counters", "--estimate", "--", "python", "x.py"], "--estimate is of a model"),
        (["counters", "--no-estimate", "--", "python", "x.py"], "--no-estimate is of a model"),
    ],
)
def test_wrong_usage_is_told(words: list[str], expected: str) -> None:
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 2
    assert expected in shown.stderr


def test_every_option_is_refused_for_a_program_or_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: dict[str, object] = {}
    monkeypatch.setattr("rooflens.count_program", lambda program, **options: reached.update(options))
    monkeypatch.setattr(
        "rooflens.cli.options.Shown.emit",
        lambda shown, found: reached.update({"outputs": shown.outputs, "format_": shown.format_, **shown.asked}),
    )
    words = {"dtype": "fp32", "outputs": "x.jsonl", "sort": "seconds", "columns": "seconds"}
    for param in command.params:
        if not isinstance(param, click.Option) or not param.expose_value:  # that of --quiet goes to no command
            continue
        flag, choices = max(param.opts, key=len), getattr(param.type, "choices", None)
        is_number = isinstance(param.type, IntList | click.IntRange | click.FloatRange)
        value = (
            []
            if param.is_flag
            else [choices[0] if choices else words.get(param.name or "", "3" if is_number else "t4")]
        )
        reached.clear()
        shown = CliRunner().invoke(cli, ["counters", flag, *value, "--", "python", "x.py"])
        why = (f"{flag} is of a model", f"{flag} is about weights")
        refused = shown.exit_code == 2 and any(text in shown.stderr for text in why)
        assert (param.name in reached) != refused, flag


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(InvalidValue, match="name it"):
        rl.counters(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="cache control 'warm'"):
        rl.counters("resnet18", cache="warm")
    for limit in (0, math.nan):
        with pytest.raises(InvalidValue, match="leaves no time"):
            rl.counters("resnet18", limit=limit)
    with pytest.raises(InvalidValue, match="limit is '600'; give a number of seconds"):
        rl.count_program(["true"], limit="600")  # type: ignore[arg-type]


def test_a_region_marks_one_iteration_for_ncu_and_times_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    marked: list[object] = []

    @contextmanager
    def mark(module: object) -> Iterator[None]:
        marked.append("begin")
        yield
        marked.append("end")

    monkeypatch.setattr(profiled_step, "marked", mark)
    monkeypatch.setenv("ROOFLENS_COUNTERS", "1")
    region = rl.region("step", skip=2, iterations=3, save=tmp_path / "run.jsonl")
    for n in range(6):
        with region:
            marked.append(n)
    assert marked == [0, 1, "begin", 2, "end", 3, 4, 5]
    assert not (tmp_path / "run.jsonl").exists()  # under ncu times mean nothing
    with pytest.raises(InvalidValue, match="timed nothing"):
        _ = region.records


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_a_model_is_counted_on_a_card() -> None:
    found = rl.counters("alexnet", batch=4, dtype="bf16")
    counted = found.where(source="counters")
    assert counted.coverage.time_share is not None
    assert counted.coverage.time_share > 0.95
    executed, algorithmic = (s.total().matmul_flops for s in (counted, found.where(source="estimate")))
    assert executed is not None
    assert algorithmic is not None
    assert executed >= algorithmic
