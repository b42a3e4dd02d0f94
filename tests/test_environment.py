"""What a file says of where it was made, and what it must not say."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path

import pytest

from rooflens.runs.run import without_home
from rooflens.sources.environment import HIDDEN, capture, without_secrets


def test_versions_machine_and_flags_are_recorded() -> None:
    import torch

    found = capture(["rooflens", "estimate", "resnet18"])
    assert found.command == ("rooflens", "estimate", "resnet18")
    assert found.versions["torch"] == torch.__version__.split("+")[0] or found.versions["torch"] == torch.__version__
    assert found.machine["threads"] == torch.get_num_threads()
    assert found.flags["cudnn may use TF32"] == torch.backends.cudnn.allow_tf32
    assert found.created.endswith("+00:00")


def test_neither_host_nor_user_is_recorded() -> None:
    text = str(capture([f"/home/{getpass.getuser()}/bin/rooflens", "devices"]))
    assert socket.gethostname() not in text
    assert f"home/{getpass.getuser()}" not in text


def test_secrets_in_the_command_are_hidden() -> None:
    assert without_secrets(["rooflens", "--token", "abc", "HF_TOKEN=abc", "--api-key=abc", "resnet18"]) == (
        "rooflens",
        "--token",
        HIDDEN,
        f"HF_TOKEN={HIDDEN}",
        f"--api-key={HIDDEN}",
        "resnet18",
    )
    assert without_secrets([]) == ()


def test_an_author_is_no_secret() -> None:
    assert without_secrets(["rooflens", "--author", "me"]) == ("rooflens", "--author", "me")


def test_the_home_folder_is_written_as_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert without_secrets(["rooflens", "estimate", "/home/somebody/m.py:build", "-o=/home/somebody"]) == (
        "rooflens",
        "estimate",
        "~/m.py:build",
        "-o=~",
    )
    assert without_home("/home/somebodyelse/m.py") == "/home/somebodyelse/m.py"


def test_a_model_of_the_users_own_is_a_case_without_the_users_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import rooflens

    (tmp_path / "m.py").write_text("import torch\ndef build():\n    return torch.nn.Linear(2, 2), torch.ones(1, 2)\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert rooflens.estimate(f"{tmp_path}/m.py:build").cases[0].model == "~/m.py:build"
