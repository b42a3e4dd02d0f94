"""`rl.table`, the twin of what commands print, and sets that keep where they were made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import InvalidValue
from rooflens.records import Case, Environment, Failure, Record, Scalar, Timing


@pytest.fixture(scope="module")
def estimate() -> rl.RecordSet:
    return rl.estimate("alexnet", batch=2, device="t4")


@pytest.mark.parametrize("format", ["table", "md", "tex", "csv", "json"])
def test_it_is_what_the_command_prints(estimate: rl.RecordSet, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["estimate", "alexnet", "-b", "2", "--device", "t4", "--format", format]
    printed = CliRunner().invoke(cli, words).stdout_bytes.decode()
    assert rl.table(estimate, format=format) == printed  # type: ignore[arg-type]


def test_width_and_depth(estimate: rl.RecordSet) -> None:
    flat, deep = rl.table(estimate, width=60, depth=0), rl.table(estimate, width=200, depth=2)
    assert max(map(len, flat.splitlines())) <= 60
    assert "features" not in flat
    assert "features" in deep


def test_several_sets_share_a_table(estimate: rl.RecordSet) -> None:
    (case,) = estimate.cases
    timing = Timing(samples=(0.25,) * 4, origin="monotonic")
    time = rl.RecordSet([Record(case=case, source="measure", scope="model", phase="forward", timing=timing)])
    (shown,) = json.loads(rl.table(estimate, time, format="json"))
    assert shown["phases"]["forward"]["measured_seconds"] == 0.25
    alone = rl.table(time, width=80)
    assert "250.0 ms" in alone
    assert "Memory" not in alone, "nobody observed any"


def test_failures_alone_and_nothing_at_all() -> None:
    failure = Failure(case=Case(model="net"), source="measure", stage="run", kind="out of memory", message="too big")
    assert "too big" in rl.table(rl.RecordSet((), failures=[failure]))
    with pytest.raises(InvalidValue, match="no table"):
        rl.table()
    assert json.loads(rl.table(format="json")) == []


def test_sets_made_at_different_moments_keep_their_environment() -> None:
    early = Environment(rooflens="0.1.0", created="2026-01-02T03:04:05+00:00", machine={"cpus": 2})
    late = replace(early, created="2026-01-02T03:04:09+00:00")

    def summed(one: Environment | None, two: Environment | None) -> Environment | None:
        return (rl.RecordSet((), environment=one) + rl.RecordSet((), environment=two)).environment

    assert summed(early, late) == summed(late, early) == early
    # What both say alike is kept, and what they say differently is not.
    said: dict[str, Scalar] = {"cpus": 2, "card": "A"}
    one, two = replace(early, machine=said, commit="a"), replace(late, machine=said | {"card": "B"}, commit="b")
    both = summed(one, two)
    assert both == replace(early, machine={"cpus": 2}, commit=None)
    woken = replace(late, machine={"cpus": 4, "card": "A", "driver": "580"})
    assert summed(early, woken) == summed(woken, early) == replace(early, machine={"card": "A", "driver": "580"})
    elsewhere = replace(woken, machine={"cpu": "another", "card": "A"})
    assert summed(early, elsewhere) == replace(early, machine={})
    assert summed(early, replace(late, rooflens="9.9")) is None
    assert summed(early, None) is None


@pytest.mark.parametrize(
    ("output", "format", "written"),
    [("a.svg", None, "a.svg"), ("a", "svg", "a.svg"), ("a.v2", "pdf", "a.v2.pdf"), ("A.SVG", "svg", "A.SVG")],
)
def test_plot_format_gives_a_suffix(tmp_path: Path, output: str, format: str | None, written: str) -> None:
    words = ["plot", "--device", "t4", "-o", str(tmp_path / output), *(["--format", format] if format else [])]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    assert [path.name for path in tmp_path.iterdir()] == [written]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "a"), "'a': the suffix says how to draw; known: .png .svg .pdf .html"),
        (("-o", "a.gif"), "'a.gif': the suffix says how to draw"),
        (("-o", "a.png", "--format", "svg"), "--format is svg, but 'a.png' says png"),
    ],
)
def test_plot_refuses_before_it_reads(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(cli, ["plot", "no-such-file.jsonl", *words])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--columns", "batch,optimizer"),
            "no column 'optimizer' in this table; it is an option, and the column",
        ),
        (("--columns", "cold"), "did you mean measured_cold?"),
        (("--by", "module", "--sort", "params"), "did you mean parameters?"),
        (("--sort", "zzz"), "known: model, batch"),
    ],
)
def test_an_unknown_column_is_told_before_the_work(
    words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rl, "estimate", None)  # not called: it would be a TypeError
    done = CliRunner().invoke(cli, ["estimate", "alexnet", *words])
    assert isinstance(done.exception, InvalidValue)
    assert told in str(done.exception)
    assert "own_measured_seconds" not in str(done.exception), "no wall of names"


def test_what_was_asked_for_is_never_hidden(estimate: rl.RecordSet) -> None:
    by_module = rl.table(estimate, by="module", sort="predicted", width=80)
    assert "expected" in by_module
    hidden = " ".join(by_module.partition("narrow): ")[2].split())
    assert "share of expected" in hidden
    assert "expected" not in hidden.split(", ")
    assert "MAC" in rl.table(estimate, by="op", sort="macs", width=80).partition("hidden")[0]
    asked = rl.table(estimate, by="module", columns=["expected"], sort="matmul FLOP", width=80)
    header = next(line for line in asked.splitlines() if line.startswith("module"))
    assert header.split() == ["module", "expected", "FLOP"], "the word matmul stands above FLOP"
    assert "as written" not in asked


def test_records_are_written_though_nobody_reads_the_table(
    estimate: rl.RecordSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(rl, "estimate", lambda *_, **__: estimate)
    monkeypatch.setattr("rooflens.cli.options.click.echo", broken)
    done = CliRunner().invoke(cli, ["estimate", "alexnet", "-q", "-o", f"{tmp_path}/a.jsonl", "-o", f"{tmp_path}/a.md"])
    assert isinstance(done.exception, BrokenPipeError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.md"]
