"""Importing rooflens, and reading results with it, stays light: heavy libraries wait until they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rooflens

SOURCE = Path(rooflens.__file__).parents[1]
TORCH = ("torch", "torchvision", "timm", "transformers")
HEAVY = (*TORCH, "onnx", "matplotlib", "plotly", "polars", "scipy", "rich", "jinja2", "junitparser")
LIGHT = ",records,devices,costs,roofline,results,checks,compare,report,readers,machine,running.cells,api,cli"
API = "catalogue,checking,comparing,counting,estimation,explaining,measurement,reading,regions,showing,studies"
LISTING = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a new interpreter that finds this rooflens."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


def loaded_by(code: str) -> set[str]:
    """Top-level packages that a new interpreter has loaded after `code`."""
    return set(python("-c", f"{code}\n{LISTING}").stdout.splitlines()[-1].split())


def test_the_listing_sees_what_is_loaded() -> None:
    assert "jinja2" in loaded_by("import jinja2.nodes")


@pytest.mark.parametrize("module", [*LIGHT.split(","), *(f"api.{name}" for name in API.split(","))])
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import rooflens.{module}".rstrip(".")).isdisjoint(HEAVY)


def test_asking_for_the_public_types_loads_nothing_heavy() -> None:
    assert loaded_by("import rooflens as rl; rl.RecordSet, rl.Work, rl.estimate, rl.devices").isdisjoint(HEAVY)


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from rooflens.cli import main
sys.argv = ["rooflens", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code
"""
    assert loaded_by(code).isdisjoint(HEAVY)


def test_importing_rooflens_loads_nothing_else() -> None:
    """Beside what every interpreter has and these three modules load; benchmarks/import_time.py tells the time."""
    listing = "import sys; print(*sorted(sys.modules))"
    before, after = (
        set(python("-c", f"import importlib, types, typing, __future__{more}\n{listing}").stdout.split())
        for more in ("", ", rooflens")
    )
    assert after - before == {"rooflens"}
