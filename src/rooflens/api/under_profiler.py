"""The process in which a step is profiled and counted: ``python -m rooflens.api.under_profiler [JOB]``.

Without a job it is a worker that times steps under torch's profiler. With a job it runs one step and ends, under ncu.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rooflens.api.cases import Request, request
from rooflens.api.cell import contents
from rooflens.errors import RooflensError
from rooflens.models import How, Step, compiled, eager, placed, running, switches
from rooflens.records import Case, write_records
from rooflens.sources import isolation


def begin(setup: Mapping[str, Any]) -> isolation.Run:
    """The worker's side: profile one step of a cell; its records and its trace become files."""
    from rooflens.sources import measure, profile

    where: str = setup["where"]

    def run(cell: Mapping[str, Any], tell: Callable[[isolation.Answer], None]) -> bool:
        asked, case = _asked(cell)
        stage = "build"
        try:
            tell({"stage": stage})
            step = _step(asked, case, where)
            stage = "profile"
            tell({"stage": stage})
            found = contents(list(profile.records(step, case, where, keep=cell["trace"])), setup["command"])
        except RooflensError as error:
            found = contents(measure.failure(case, error, stage), setup["command"])
        write_records(Path(cell["out"]), found)
        return not found.failures

    return run


def count(cell: Mapping[str, Any]) -> None:
    """Run one step between the marks at which ncu starts and stops."""
    from rooflens.sources import profile

    asked, case = _asked(cell)
    step = _step(asked, case, "cuda")
    with switches(case.dtype), running(step.name):
        profile.counted(step, eager(step, "cuda"))


def _asked(cell: Mapping[str, Any]) -> tuple[Request, Case]:
    words = cell["words"]
    asked = request(**words | {"how": How(**words["how"]), "inputs": None, "loss": None})
    (case,) = asked.cases(cell["device"])
    return asked, case


def _step(asked: Request, case: Case, where: str) -> Step:
    step = placed(asked.step(asked.build("cpu"), case.batch, where), where, copy=False)
    return compiled(step) if asked.how.compile else step


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import msgspec

        count(msgspec.json.decode(Path(sys.argv[1]).read_bytes()))
    else:
        isolation.serve(begin)
