"""The public names: complete, loaded on demand, and not displaced by subpackages of the same name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rooflens

ROOT = Path(__file__).parents[1]
PROMISED = {
    "advise",
    "calibrate",
    "chart",
    "check",
    "compare",
    "estimate",
    "explain",
    "explore",
    "largest_batch",
    "longest_context",
    "measure",
    "models",
    "rank",
    "count_program",
    "counters",
    "read",
    "region",
    "replay",
    "register_operation",
    "roofline",
    "run_study",
    "run_study_on_cluster",
    "study_records",
    "study_report",
    "study_status",
    "study_verdicts",
    "table",
    "devices",
    "device",
} | {
    "RecordSet",
    "Work",
    "Call",
    "Demand",
    "Timing",
    "Case",
    "Record",
    "Device",
    "Ceiling",
    "RooflensError",
    "__version__",
}


def test_the_package_is_what_is_promised() -> None:
    assert set(rooflens.__all__) == PROMISED
    assert dir(rooflens) == sorted(PROMISED)


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_each_name_is_there_and_is_no_module(name: str) -> None:
    value = getattr(rooflens, name)
    assert not isinstance(value, ModuleType)
    assert name in ("__version__", getattr(value, "__name__", None))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'rooflens' has no attribute 'rufline'"):
        rooflens.rufline  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["roofline", "devices", "compare"])
@pytest.mark.parametrize(
    "before",
    [
        "import rooflens.{name}",
        "import rooflens; import rooflens.{name}",
        "import rooflens; rooflens.{name}; import rooflens.{name}",
        "import rooflens.{name}; import rooflens; rooflens.{name}; import importlib; importlib.reload(rooflens)",
        "from rooflens import estimate; import rooflens.{name}",
        "from rooflens.{name} import __doc__; from rooflens import *",
    ],
)
def test_a_subpackage_never_takes_the_place_of_a_function(name: str, before: str) -> None:
    # In a new interpreter, since who imports what first is the question.
    code = (
        f"{before.format(name=name)}\n"
        "import sys, rooflens as rl\n"
        f"from rooflens import {name} as imported\n"
        f"from rooflens.{name} import __doc__ as text_of_the_package\n"
        f"assert rl.{name} is imported\n"
        f"assert rl.{name}.__module__.startswith('rooflens.api'), rl.{name}\n"
        f"assert sys.modules['rooflens.{name}'].__doc__ is text_of_the_package\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, check=True, timeout=60
    )


def test_other_subpackages_and_patches_are_set_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    import rooflens.records

    assert isinstance(rooflens.records, ModuleType)
    monkeypatch.setattr(rooflens, "estimate", len)
    assert vars(rooflens)["estimate"] is len


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert rooflens.__version__ in versions[:2]
