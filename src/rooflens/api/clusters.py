"""Studies on a Slurm cluster, from a login node: nothing is run here, and nothing of torch is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rooflens.api.studies import chosen, open_study
from rooflens.errors import UnknownName
from rooflens.study import Cluster, Status, StudyChange, StudyFolder, slurm

PLAIN = "slurm"
"""The name of a cluster that needs no table: its jobs are as sbatch makes them where nothing is said."""


def run_study_on_cluster(
    study: str | Path,
    folder: str | Path | None = None,
    *,
    cluster: str = PLAIN,
    partition: str | None = None,
    gres: str | None = None,
    account: str | None = None,
    time: int | None = None,
    cpus: int | None = None,
    parallel: int | None = None,
    retry: bool = False,
    sources: Sequence[str] = (),
    devices: Sequence[str] = (),
    recorded: bool = True,
    progress: slurm.Look | None = None,
    begun: Callable[[StudyFolder, StudyChange | None], None] | None = None,
) -> Status:
    """Run a study, or what is left of it, on a Slurm cluster: one array of jobs per kind of device.

    Comes back when nothing is left. It may be killed at any moment: the jobs go on, and when it is called again it
    waits for them and submits only what they leave. The study's folder has to be on a disk that all nodes share.

    Args:
        study, folder, sources, devices, recorded, begun: as in :func:`rooflens.api.studies.run_study`.
        cluster: a table ``[cluster.NAME]`` of the study, or ``slurm``, which needs none.
        partition, gres, account, cpus, parallel: instead of what the table says; what it says of single devices stays.
        time: of a job, in minutes.
        retry: also run cells that failed before.
        progress: told again and again how far the study is, and what its jobs in the queue do.

    Raises:
        ClusterError: there is no Slurm here, it refuses the jobs, or jobs end without a result.
        UnknownName: the study has no such cluster.
        InvalidValue: there is no such source or device in the study, or jobs would be too short for a cell.
        MissingDependency: submitit is not installed.
    """
    opened, change = open_study(study, folder)
    own = _cluster(opened.study.clusters, cluster)
    said = {"partition": partition, "gres": gres, "account": account, "time": time, "cpus": cpus, "parallel": parallel}
    own = replace(own, **{key: value for key, value in said.items() if value is not None})  # type: ignore[arg-type]
    if begun is not None:
        begun(opened, change)
    if recorded:
        opened.take_recorded()
    cells = chosen(opened, sources, devices)
    if retry:
        for cell in cells:
            slurm.forget(opened, cell)
    # Jobs may begin elsewhere than where they were submitted.
    words = ("-m", "rooflens.api.part", str(opened.path.resolve()))
    slurm.run(opened, cells, own, words, tell=progress or (lambda *_: None))
    opened.sweep()
    return opened.status()


def _cluster(known: Mapping[str, Cluster], name: str) -> Cluster:
    if name in known:
        return known[name]
    if name == PLAIN:
        return Cluster(name=name)
    listed = f"it has {', '.join(known)}" if known else "it has none"
    remedy = f"; {listed}; write a table [cluster.{name}] into the study, or use {PLAIN!r}, which needs none"
    raise UnknownName("cluster", name, known, remedy)
