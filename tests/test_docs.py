"""The pages are true: commands, outputs, blocks, links and words."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from scripts import cli_docs, console_docs, docs_words
from scripts.docs_words import words
from tests.calibration_samples import TINY
from tests.docs_blocks import ROOT, blocks, run_python, shown_commands

import rooflens as rl
from rooflens.cli.main import cli

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
SHOWN = [*console_docs.PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES = [*SHOWN, console_docs.RECIPES]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
# The design shows calls with placeholders; the page on counting is a doctest of its own.
WITH_PYTHON = [page for page in SHOWN if blocks(page, "python") and page.name not in ("design.md", "counting.md")]


REFERENCES = ("cli.md", "json.md", "glossary.md", "check.md", "design.md", "evidence.md", "prediction-tables.md")
"""Pages in which one looks something up: lists of keys, words, codes, promises and measurements."""
MADE = ("README.md", "benchmark-counting.md", "decoder-floors.md", "coming-from.md", "gallery.md", "tutorial.md")
"""Made by a program, or with a block for each part."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder, with measurements and ceilings of a few milliseconds."""
    from rooflens.devices import files
    from rooflens.sources.calibrate import SIZES, trial

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setitem(trial.LEAST, "cpu", 1e-5)
    monkeypatch.setitem(SIZES, ("cpu", True), TINY)


def test_the_page_of_commands_is_fresh() -> None:
    # In a process of its own: click keeps a command's help option from whoever asked for it first.
    program = "from scripts import cli_docs; import sys; sys.stdout.write(cli_docs.page())"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert cli_docs.PAGE.read_text() == done.stdout, "run scripts/cli_docs.py"


def test_every_help_text_fits_a_terminal_of_eighty_columns() -> None:
    texts = re.findall(r"^```text\n(.*?)^```", cli_docs.PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(texts) > 10
    assert [line for block in texts for line in block.splitlines() if len(line) > 80] == []


def test_every_command_is_on_its_page_and_has_a_twin() -> None:
    page, twins = cli_docs.PAGE.read_text(), (ROOT / "docs" / "python.md").read_text()
    for path, command in cli_docs.commands():
        assert f"# {path}\n" in page
        assert isinstance(command, click.Group) or f"`{path}`" in twins, path


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_outputs_are_those_of_the_commands(page: Path) -> None:
    assert console_docs.refreshed(page.read_text()) == page.read_text(), "run scripts/console_docs.py"


def test_a_stale_output_is_noticed() -> None:
    page = "```console\n$ rooflens --version\nrooflens 0.0\n$ rooflens devices\n...\n$ rooflens plot x\n```\n"
    assert console_docs.refreshed(page) == page.replace("0.0", cli_version())


def cli_version() -> str:
    return CliRunner().invoke(cli, ["--version"]).stdout.split()[-1]


@EVERY_PAGE
def test_commands_that_are_shown_exist_with_their_options(page: Path) -> None:
    for command in shown_commands(page):
        parse(cli, shlex.split(command)[1:])


def parse(group: click.Group, words: list[str]) -> None:
    """Take a command line apart without running it; wrong usage raises."""
    context = group.make_context(group.name, words)
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    if isinstance(command, click.Group):
        parse(command, rest)
    else:
        command.make_context(name, rest, parent=context)


def test_what_a_page_leaves_out_of_an_output_is_left_out_of_the_new_one() -> None:
    now = ["title", "a 1", "b 20", "c 3", "note", "end"]
    assert console_docs.cut_as(["title", "...", "b 2", "...", "end"], now) == ["title", "...", "b 20", "...", "end"]
    assert console_docs.cut_as(["old", "a 9", "..."], now) == ["title", "a 1", "..."]
    assert console_docs.cut_as(["...", "c 4", "note", "..."], now) == ["...", "c 3", "note", "..."]


def test_commands_that_do_not_exist_are_noticed() -> None:
    with pytest.raises(click.UsageError):
        parse(cli, ["estimate", "resnet18", "--dvice", "t4"])
    with pytest.raises(click.UsageError):
        parse(cli, ["draw", "x.jsonl"])


def test_the_readme_has_one_picture_and_the_two_commands() -> None:
    text = README.read_text()
    assert len(re.findall(r"!\[", text)) == 1
    (first, second) = re.findall(r"^make \w+", text, flags=re.MULTILINE)
    assert (first, second) == ("make demo", "make test")
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


def test_the_readme_shows_what_else_there_is() -> None:
    commands = [words[1] for words in map(shlex.split, shown_commands(README))]
    assert commands == ["measure", "plot", "counters", "read", "compare", "check", "study", "rank"]


@pytest.mark.usefixtures("quick")
def test_the_tutorial_runs() -> None:
    (study,) = blocks(TUTORIAL, "toml")
    Path("study.toml").write_text(study.text)
    for block in blocks(TUTORIAL, "sh"):
        for line in block.text.splitlines():
            words = shlex.split(line.replace("--budget 1", "--budget 0.1").replace("--quick", "--quick --budget 1"))[1:]
            result = CliRunner().invoke(cli, words, catch_exceptions=False)
            assert result.exit_code == 0, f"{line}\n{result.output}"
    assert {"l4.html", "before.html", "after.jsonl", "report.html"} <= {path.name for path in Path().iterdir()}
    (verdict,) = rl.study_verdicts("out/study")
    assert verdict.outcome == "supported"  # its text says so


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_blocks_run_and_print_what_they_say(page: Path) -> None:
    for place, (shown, printed) in run_python(page).items():
        assert printed == shown, place


def test_a_wrong_comment_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nn = 2\nif n:\n    print(n + 1)  # 4\nprint(n)\n```\n")
    assert run_python(page) == {"page.md, line 3": ("4", "3")}


@EVERY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(page.read_text()):
        target, _, anchor = (match[1] or match[2]).partition("#")
        if target.startswith("https://"):
            continue
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name}: {match[0]}"
        if anchor:
            assert anchor in anchors(path), f"{page.name}: {match[0]}"


def anchors(page: Path) -> set[str]:
    """The names that headings get: lower case, spaces as hyphens, other signs dropped."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_counts_the_devices(page: Path) -> None:
    assert re.search(rf"\b{len(rl.devices())} devices\b", page.read_text()) is None  # a new device would make it wrong


@pytest.mark.parametrize("page", SHOWN[: len(console_docs.PAGES)], ids=lambda page: page.name)
def test_a_page_is_short_and_begins_with_what_people_want(page: Path) -> None:
    text = page.read_text()
    if page.name not in REFERENCES:
        assert len(words(text)) <= docs_words.MOST_OF_A_PAGE
    if page.name not in (*REFERENCES, *MADE):
        assert "```" in text.partition("\n## ")[0], "no block above the first heading"


def test_words_are_counted_outside_of_blocks(tmp_path: Path) -> None:
    text = "Two words, 3 4 |\n```sh\nrooflens models\n```\nfive\n<!-- made: x -->\nsix\n<!-- end -->\nand <!-- a -->\n"
    assert words(text)[:3] == ["Two", "words,", "five"]
    (tmp_path / "page.md").write_text(text)
    assert docs_words.by_hand(tmp_path / "page.md") == 5  # Two words, five and a


def test_pages_stay_as_short_as_they_are() -> None:
    counted = {page.name: docs_words.by_hand(page) for page in docs_words.pages()}
    assert max(counted.values()) <= docs_words.MOST_OF_A_PAGE
    assert sum(counted.values()) <= docs_words.MOST_OF_ALL, "take out what your sentence makes needless"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index, page.name


def test_a_rate_is_flop_per_second_and_a_count_is_flop() -> None:
    files = [*PAGES, *(path for folder in ("src", "examples", "scripts") for path in (ROOT / folder).rglob("*.py"))]
    for path in files:
        text = path.read_text().replace("DeepSpeed FLOPS profiler", "")
        text = re.sub(r"""(["`])FLOPS\1""", "", text)  # the keyword of a file of others, in quotes
        assert re.search(r"\b[kMGTP]?FLOPS\b", text) is None, path


@pytest.mark.filterwarnings("default")
def test_what_the_readme_says_of_torchs_own_counter_still_holds() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    lstm, query = torch.nn.LSTM(16, 16), torch.randn(1, 8, 64, 32)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        lstm(torch.randn(4, 2, 16))
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
    assert counter.get_total_flops() == 0
