"""The process in which jobs are done: ``python -m rooflens.running.worker [JOB]``.

Without an argument it serves whoever started it. With the file of a job, as under ncu, it counts a step and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rooflens.errors import RooflensError
from rooflens.running.isolation import AnswerListener, Serve, serve
from rooflens.running.jobs import Job, ModelRead, ReadModel, Refused, StageEntered, Start


def begin(start: Start) -> Serve:
    """What does the jobs of a kind, and looks at a file of the user's own."""
    do = _begin(start)

    def serve(job: Job, tell: AnswerListener) -> bool:
        if not isinstance(job, ReadModel):
            return do(job, tell)
        from rooflens.models import kept_switches, workload

        tell(StageEntered(name="read"))
        try:
            with kept_switches():
                runs = workload(job.asked).runs
        except RooflensError as error:
            tell(Refused.of(error))
        else:
            tell(ModelRead(runs=runs))
        return True

    return serve


def _begin(start: Start) -> Serve:
    """What does the jobs of a kind; only what these need is imported."""
    match start.kind:
        case "estimate":
            from rooflens.running import estimating

            return estimating.begin(start)
        case "measure":
            from rooflens.running import measuring

            return measuring.begin(start)
        case "profile":
            from rooflens.running import profiling

            return profiling.begin(start)
        case "rank":
            from rooflens.running import ranks

            return ranks.begin(start)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        from rooflens.running import profiling

        profiling.count(Path(sys.argv[1]))
    else:
        serve(begin)
