"""Options for a Slurm cluster, and progress of its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rooflens as rl
from rooflens.cli.command_group import say
from rooflens.cli.options import Command

if TYPE_CHECKING:
    from rooflens.study import Status

NAMES = ("partition", "gres", "account", "time", "cpus", "parallel")


def cluster_options(command: Command) -> Command:
    """Add options for jobs of a cluster; the command gets ``cluster``, a dictionary or None."""

    @wraps(command)
    def called(*args: Any, cluster: str | None, **options: Any) -> Any:
        given = {name: value for name in NAMES if (value := options.pop(name)) is not None}
        if given and cluster is None:
            raise click.UsageError(f"--{next(iter(given))} is for jobs of a cluster; add --cluster NAME")
        return command(*args, cluster=None if cluster is None else {"cluster": cluster, **given}, **options)

    for option in reversed(
        (
            click.option(
                "--cluster",
                metavar="NAME",
                help="Run in Slurm jobs, with the settings in [cluster.NAME] of the study file; 'slurm' needs none.",
            ),
            click.option(
                "--partition", help="Partition of the jobs. This and the options below replace values of the table."
            ),
            click.option("--gres", help="Generic resources of a job, such as gpu:1."),
            click.option("--account", help="Account that pays for the jobs."),
            click.option("--time", type=click.IntRange(1), metavar="MINUTES", help="Time limit of a job."),
            click.option("--cpus", type=click.IntRange(1), help="CPUs of a job."),
            click.option("--parallel", type=click.IntRange(1), help="Number of jobs of an array that run at once."),
        )
    ):
        called = option(called)
    return called  # type: ignore[return-value]


def run_on_cluster(what: Path, *, cluster: Mapping[str, Any], folder: Path | None = None, **options: Any) -> Status:
    """Run a study on a cluster; an interrupt ends the waiting and leaves the jobs."""
    try:
        return rl.run_study_on_cluster(what, folder, **cluster, **options)
    except KeyboardInterrupt:
        say("the jobs go on: 'rooflens study resume' waits for them, 'scancel' ends them")
        raise


def progress_text(status: Status, jobs: Sequence[str]) -> str:
    """Return how far a study is, and the states of its jobs, in one line."""
    failed = status.count("failed")
    parts = [f"{status.count('done')} of {len(status.states)} cells done", *([f"{failed} failed"] if failed else [])]
    states = Counter(jobs)
    what = ", ".join(f"{number} {_state_text(state)}" for state, number in sorted(states.items()))
    return f"{', '.join(parts)}; jobs: {what or 'none'}"


def _state_text(state: str) -> str:
    """Return a state of squeue, like ``PENDING Resources``, as text."""
    name, _, why = state.partition(" ")
    return f"{name.lower()} ({why})" if why else name.lower()
