"""What a release needs beside the code: one version, and a current list of licences."""

from __future__ import annotations

import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scripts import licences, release_check
from scripts.licences import PAGE, ROOT, licence, needed, page

import rooflens as rl


def test_every_file_names_the_same_version() -> None:
    assert release_check.stated(r"^version: (.+)$", ROOT / "CITATION.cff") == rl.__version__
    assert f"## [{rl.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_list_of_licences_is_current() -> None:
    before = PAGE.read_text(encoding="utf-8")
    assert page(before) == before, "run scripts/licences.py"


def test_every_dependency_has_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = needed()
    for line in project["dependencies"]:
        assert found[canonicalize_name(Requirement(line).name)] == ""
    assert {name: found[name] for name in ("torch", "torchvision", "transformers", "onnx", "submitit")} == {
        "torch": "torch",
        "torchvision": "vision",
        "transformers": "llm",
        "onnx": "onnx",
        "submitit": "slurm",
    }
    extras = {name for name in project["optional-dependencies"] if name not in ("dev", "all")}
    assert extras | {""} == set(licences.EXTRAS) == set(release_check.TRIES) | {""}
    assert licence("click") == "BSD-3-Clause"
    assert licence("no-such-package-here") is None
