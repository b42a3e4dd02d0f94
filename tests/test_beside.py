"""Estimates beside a measurement end with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from rooflens.errors import ModelError
from rooflens.records import Device, RecordFile
from rooflens.running import beside
from rooflens.runs.run import Run


def test_a_call_that_ends_early_begins_no_further_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    begun, ended = threading.Event(), threading.Event()

    def estimate(run: Run, _: Sequence[Device], __: Any) -> RecordFile:
        asked.append(run.batch)
        begun.set()
        assert ended.wait(10)
        raise ModelError("the worker was killed")

    @contextmanager
    def worker(*_: object, **__: object) -> Iterator[Any]:
        yield estimate
        ended.set()  # as a worker's end is: what it does is over

    monkeypatch.setattr(beside, "estimator_in_worker", worker)
    runs = [Run(model="net", batch=batch) for batch in (1, 2, 3)]
    with beside.Beside(60.0) as estimates:
        done = estimates.begin(runs, None)
        assert begun.wait(10)
    with pytest.raises(ModelError, match="the call was over"):
        done.result(10)
    assert asked == [1]
