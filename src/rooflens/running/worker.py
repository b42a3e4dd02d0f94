"""The process in which jobs are done: ``python -m rooflens.running.worker [JOB]``.

Without an argument it serves whoever started it. With the file of a job, as under ncu, it counts one step and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from rooflens.running.isolation import Serve, serve
from rooflens.running.jobs import Count, Start


def begin(start: Start) -> Serve:
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

        profiling.count(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Count))
    else:
        serve(begin)
