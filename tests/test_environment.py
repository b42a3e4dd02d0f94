"""What a file says of where it was made, and what it must not say."""

from __future__ import annotations

import getpass
import socket

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
