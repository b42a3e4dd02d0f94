"""What holds for every test."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import settings
from scripts import slurm_here
from tests.warm_workers import Nursery

from rooflens.costs.profiler_names import is_known
from rooflens.costs.registry import ENTRIES, cost
from rooflens.running import process
from rooflens.sources import device_lock

if settings.get_current_profile_name() == "default":  # not in CI, whose profile has none either
    # A time limit per example measures the load of the machine, not the code; budgets have tests of their own.
    settings.register_profile("rooflens", deadline=None)
    settings.load_profile("rooflens")


def pytest_configure() -> None:
    """Let torch compute in one thread, in workers too: several test processes share the cores, and threads that wait
    for each other spin. Keep compiled code, whatever the environment asks: many tests start a Python.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: collections of garbage need not look through them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """So do modules that a file of tests has loaded, and what it has cached."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("needs an accelerator")
    if item.get_closest_marker("slurm") is not None and (why := slurm_here.missing()):
        pytest.skip(why)


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests wait for no measurement of somebody else on this machine."""
    folder = tmp_path_factory.mktemp("locks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_lock, "cache_folder", lambda: folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def _warm_workers() -> Iterator[None]:
    """Workers need not import torch: they are copies of a process that has."""
    with Nursery() as nursery, pytest.MonkeyPatch.context() as patch:
        warm = SimpleNamespace(PIPE=subprocess.PIPE, Popen=nursery.popen)
        patch.setattr(process, "subprocess", warm)
        yield


@pytest.fixture(autouse=True)
def _formulas() -> Iterator[None]:
    """A formula that a test registers is gone after the test."""
    before = dict(ENTRIES)
    yield
    if before != ENTRIES:
        ENTRIES.clear()
        ENTRIES.update(before)
        cost.cache_clear()
        is_known.cache_clear()
