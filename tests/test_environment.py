"""What a file says of where it was made, and what it must not say."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rooflens.cli.main import cli
from rooflens.records import Case, Failure, Record, without_folders
from rooflens.runs.run import Run, recorded_name
from rooflens.sources import environment
from rooflens.sources.command import COMMANDS, FLAGS, PRIVATE, VALUED, WORDS, harmless
from rooflens.sources.environment import capture


def test_versions_machine_and_flags_are_recorded() -> None:
    import torch

    found = capture(["rooflens", "estimate", "resnet18"])
    assert found.command == ("rooflens", "estimate", "resnet18")
    assert found.versions["torch"] == torch.__version__.split("+")[0] or found.versions["torch"] == torch.__version__
    assert found.machine["threads"] == torch.get_num_threads()
    assert found.flags["cudnn may use TF32"] == torch.backends.cudnn.allow_tf32
    assert found.created.endswith("+00:00")


def test_what_is_installed_over_a_loaded_package_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # noqa: F401

    before = capture(["rooflens"]).versions["torch"]
    monkeypatch.setattr(environment, "version", lambda _: "99.0")
    monkeypatch.delitem(sys.modules, "onnx", raising=False)
    now = capture(["rooflens"]).versions
    assert (now["torch"], now["onnx"]) == (before, "99.0")


def test_neither_host_nor_user_is_recorded() -> None:
    text = str(capture([f"/home/{getpass.getuser()}/bin/rooflens", "devices"]))
    assert socket.gethostname() not in text
    assert f"home/{getpass.getuser()}" not in text


KEY = "hunter2-ABCdef"
SECRETS: list[list[str]] = [
    ["--access-key", KEY],
    ["--pass", KEY],
    ["--pwd", KEY],
    ["--passphrase", KEY],
    ["--bearer", KEY],
    ["--key", KEY],
    [f"--token={KEY}"],
    ["-H", f"Authorization: Bearer {KEY}"],
    [f"https://user:{KEY}@host/a"],
    [f"https://host/a.csv?token={KEY}"],
    [f"NAME_ACCESS_KEY_ID={KEY}"],
    [f'{{"token": "{KEY}"}}'],
    ["--title", KEY],
    ["--account", KEY],
    ["--dim", f"{KEY}=3"],
    ["--limit", KEY],
    ["--flag", "--other", KEY, KEY],
    ["-b", KEY, KEY],
    [f"--device={KEY}"],
    ["-o", f"/data/{KEY}/"],
    ["--", "bash", "-c", f"run --api-key {KEY}"],
    ["--", "/opt/bin/train", "--batch", "8", KEY],
]


@pytest.mark.parametrize("words", SECRETS, ids=lambda words: " ".join(words)[:40])
@pytest.mark.parametrize(
    "before", [["rooflens", "measure", "resnet18"], ["/home/ann/train.py"], ["rooflens", "read", "a.csv"]]
)
def test_what_may_be_a_secret_is_not_recorded(before: list[str], words: list[str]) -> None:
    command = harmless([*before, *words, "-b", "3"])
    assert KEY not in " ".join(command)
    assert command[-2:] == ("-b", "3")  # the tool's own options are told whatever stands before them


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("rooflens measure resnet18 -b 1,64 --dtype amp-bf16", "rooflens measure resnet18 -b 1,64 --dtype amp-bf16"),
        (
            "/opt/x/rooflens/__main__.py estimate timm:convnext_tiny --device t4 --device=h100-sxm --fused",
            "rooflens estimate timm:convnext_tiny --device t4 --device h100-sxm --fused",
        ),
        ("rooflens estimate /home/ann/m.py:build -o /home/ann/out/a.jsonl", "rooflens estimate m.py:build -o a.jsonl"),
        ("rooflens estimate hf:/data/llama/config.json --seq-len 8", "rooflens estimate hf:config.json --seq-len 8"),
        ("rooflens counters --limit 9 -- python train.py --lr 3", "rooflens counters --limit 9 -- python train.py ***"),
        ("rooflens explain mm --shape 2x3:fp32 --is-causal", "rooflens explain mm --shape 2x3:fp32 ***"),
        ("rooflens compare a.jsonl b.csv --fail-if-slower 5%", "rooflens compare a.jsonl b.csv --fail-if-slower 5%"),
        ("rooflens devices show 2x someone", "rooflens devices show ***"),
        ("rooflens study run study.toml -d out/ann --jobs 4", "rooflens study run study.toml -d *** --jobs 4"),
        ("rooflens measure resnet18 secret", "rooflens measure resnet18 ***"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_is_known_to_be_harmless_is_recorded(command: str, kept: str) -> None:
    assert " ".join(harmless(command.split())) == kept


def _parameters(command: click.Command) -> Iterator[click.Option]:
    yield from (param for param in command.params if isinstance(param, click.Option))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            assert name in COMMANDS
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _parameters(inner)


def test_every_option_of_the_command_line_is_known() -> None:
    """One that is not would be taken for somebody else's, and words after it left out."""
    for option in _parameters(cli):
        for flag in (*option.opts, *option.secondary_opts):
            assert flag in (FLAGS if option.is_flag else VALUED | PRIVATE), f"add {flag} to sources/command.py"
        if isinstance(option.type, click.Choice):
            assert {*option.type.choices} <= WORDS, f"add the words of --{option.name} to sources/command.py"


# Folders --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("cannot read '/home/ann/my models/net.py': no such file", "cannot read 'net.py': no such file"),
        ('File "/usr/lib/python3/site.py", line 3', 'File "site.py", line 3'),
        ("net (/data/ann/net.py, line 7)", "net (net.py, line 7)"),
        ("see ~/ann/net.py and ~ann/x.csv", "see net.py and x.csv"),
        ("in /home/ann", "in ~"),
        ("in /home/ann/: nothing", "in ~: nothing"),
        (r"cannot open 'C:\Users\ann\net.py'", "cannot open 'net.py'"),
        ("312 TFLOP/s at 2.0 TB/s, 1/2 of /layer1/conv1", "312 TFLOP/s at 2.0 TB/s, 1/2 of /layer1/conv1"),
        ("https://example.org/home/page", "https://example.org/home/page"),
        ("models/net.py and ../net.py", "models/net.py and ../net.py"),
    ],
)
def test_messages_and_notes_name_no_folder(text: str, kept: str) -> None:
    case = Case(model="net")
    assert Failure(case=case, source="measure", stage="build", kind="error", message=text).message == kept
    assert Record(case=case, source="estimate", scope="model", notes=(text,)).notes == (kept,)


def test_files_below_the_working_folder_have_their_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert recorded_name(f"{tmp_path}/models/m.py:build") == "models/m.py:build"
    assert without_folders(f"no '{tmp_path}/models/m.py'") == "no 'models/m.py'"
    assert recorded_name(f"{tmp_path.parent}/m.py:build") == "m.py:build"
    assert recorded_name("hf:/srv/llama/config.json") == "hf:config.json"
    assert [recorded_name(name) for name in ("resnet18", "hf:llama", "m.py:f", "../m.onnx")] == [
        *("resnet18", "hf:llama", "m.py:f", "../m.onnx")
    ]
    assert Run(model=f"{tmp_path.parent}/m.py:build").case().model == "m.py:build"
