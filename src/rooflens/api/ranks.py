"""A cell on several devices: one process for each, started here and joined by torch.distributed."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rooflens.api.cases import request
from rooflens.errors import InvalidValue, RooflensError
from rooflens.models import How
from rooflens.records import Case, Conditions, Failure, Record, write_atomically
from rooflens.sources import conditions

FAILED = "failed.json"


def check_gpus(how: How, where: str, mode: str, named: bool) -> None:
    """Raise InvalidValue for what several devices cannot do, or are not there for."""
    import torch

    if not isinstance(how.gpus, int) or how.gpus < 1:
        raise InvalidValue(f"cannot measure on {how.gpus!r} devices; give 1 or more")
    if how.gpus == 1:
        return
    if mode != "train":
        raise InvalidValue(f"several devices share a training step, and this is {mode!r}; give mode='train'")
    if not named:
        raise InvalidValue("a module or a loss that is handed in cannot be sent to several processes; name the model")
    if how.profile:
        raise InvalidValue("a step on several devices is not profiled; leave profile out")
    if how.cuda_graph:
        raise InvalidValue("the all-reduce of gradients is not captured in CUDA graphs here; leave cuda_graph out")
    there = torch.cuda.device_count() if where == "cuda" else how.gpus
    if there < how.gpus:
        raise InvalidValue(f"{how.gpus} CUDA devices were asked for, and torch finds {there}")


def measured(
    words: Mapping[str, Any], case: Case, observer: conditions.Observer, *, how: How, budget: float
) -> list[Record] | Failure:
    """Measure a training step on several devices; on a CPU each process takes its share of the threads.

    Args:
        words: of the request, plain data.
    """
    import msgspec
    from torch.multiprocessing.spawn import ProcessExitedException, spawn

    from rooflens.sources import parallel

    notes: list[str] = []
    around: list[Conditions] = []
    with tempfile.TemporaryDirectory(prefix="rooflens-") as name:
        folder = Path(name)
        cell = {"words": dict(words) | {"how": asdict(how)}, "device": case.device, "budget": budget}
        try:
            with observer.around(notes, around):
                spawn(_rank, args=(how.gpus, observer.where, name, cell), nprocs=how.gpus)
        except ProcessExitedException as error:
            if (folder / FAILED).exists():
                return msgspec.json.decode((folder / FAILED).read_bytes(), type=Failure)
            return Failure(case=case, source="measure", stage="forward", kind="crash", message=str(error))
        files = [folder / f"{rank}.json" for rank in range(how.gpus)]
        seen = [msgspec.json.decode(file.read_bytes(), type=parallel.Seen) for file in files]
    *phases, scaling = parallel.records(seen, case)
    return [*phases, replace(scaling, conditions=around[0], notes=tuple(notes))]


def _rank(rank: int, ranks: int, where: str, folder: str, cell: Mapping[str, Any]) -> None:
    """What each process does. Its results, or why it failed, go to a file."""
    import msgspec

    from rooflens.sources import measure, parallel

    how = How(**cell["words"]["how"])
    asked = request(**cell["words"] | {"how": how, "inputs": None, "loss": None})
    (case,) = asked.cases(cell["device"])
    with parallel.process_group(rank, ranks, where, Path(folder)):
        try:
            step = asked.step(asked.build("cpu"), case.batch, where)
            seen = parallel.measured(step, case, where, how=how, budget=cell["budget"])
        except RooflensError as error:
            # Before the others lose their connection to this process, and say that instead: the first to fail tells.
            if not (Path(folder) / FAILED).exists():
                failure = measure.failure(case, error, "train")
                write_atomically(Path(folder) / FAILED, msgspec.json.encode(failure))
            sys.exit(1)
    write_atomically(Path(folder) / f"{rank}.json", msgspec.json.encode(seen))
