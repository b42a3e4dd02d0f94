"""The estimate beside a measurement: made here, or in a worker where a file of the user's own is the model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.api.cases import request
from rooflens.api.estimation import estimate
from rooflens.api.runners import lost, shares
from rooflens.errors import InvalidValue, ModelError, RooflensError
from rooflens.models import How, kept_switches
from rooflens.progress import Progress
from rooflens.records import Case, Device, Failure
from rooflens.results import RecordSet
from rooflens.sources import conditions, isolation

if TYPE_CHECKING:
    import torch

TRACE = "trace"
_REMEDY = "this is the estimate beside the measurement; leave it out with estimate=False (--no-estimate)"


def estimated(model: str | torch.nn.Module, device: Device | None, words: dict[str, Any], how: How) -> RecordSet:
    """The estimate of the cases of a measurement, made in this process.

    Raises:
        RooflensError: whatever an estimate raises, with a note on how to go on without it.
    """
    try:
        return estimate(model, device=device, compile=how.compile, **words)
    except RooflensError as error:
        error.add_note(_REMEDY)
        raise


def estimated_apart(
    model: str, device: Device | None, words: dict[str, Any], how: How, limit: float, progress: Progress | None
) -> RecordSet:
    """The same in a worker, batch by batch: a model that raises, crashes or hangs costs that batch's estimate only.

    Raises:
        InvalidValue: what an estimate refuses for another reason, with the same note.
    """
    import msgspec

    name = None if device is None else device.name
    cases = request(model, **words, how=How(compile=how.compile)).cases(name)
    plain = {"model": model} | {word: value for word, value in words.items() if word not in ("inputs", "loss")}
    setup = {"device": msgspec.to_builtins(device), "compile": how.compile}
    found = RecordSet(())
    with (
        isolation.Workers("rooflens.api.beside_worker", setup, limit=limit) as pool,
        tempfile.TemporaryDirectory(prefix="rooflens-") as folder,
    ):
        for case in cases:
            cell = {"words": plain | {"batch": case.batch}, "out": str(Path(folder) / "cell.jsonl")}
            found += _one(pool, cell, case, progress)
    return found


def _one(pool: isolation.Workers, cell: Mapping[str, Any], case: Case, progress: Progress | None) -> RecordSet:
    told: isolation.Answer = {}
    show = shares(progress or (lambda share, what: None), f"estimate of {case.label()}")

    def tell(answer: isolation.Answer) -> None:
        told.update(answer)
        show(answer)

    answer = pool.run(cell, tell)
    if isinstance(answer, isolation.Lost):
        return RecordSet((), failures=lost(case, "estimate", answer).failures)
    if "refused" in told:
        error = InvalidValue(told["refused"])
        error.add_note(_REMEDY)
        raise error
    if "failed" in told:
        failure = Failure(case=case, source="estimate", stage=TRACE, kind="error", message=told["failed"])
        return RecordSet((), failures=[failure])
    return RecordSet.load(cell["out"])


def begin(setup: Mapping[str, Any]) -> isolation.Run:
    """The worker's side: a cell is the words of an estimate, and the file for its records."""
    import msgspec
    import torch

    conditions.bound_memory()
    device = msgspec.convert(setup["device"], Device | None)
    estimate(torch.nn.Linear(1, 1), inputs=torch.ones(1, 1))  # what is loaded on first use is no part of a cell's time

    @kept_switches()
    def run(cell: Mapping[str, Any], tell: Callable[[isolation.Answer], None]) -> bool:
        tell({"stage": TRACE})
        try:
            estimate(device=device, compile=setup["compile"], **cell["words"]).save(cell["out"])
        except ModelError as error:
            tell({"failed": str(error)})
        except RooflensError as error:
            tell({"refused": str(error)})
        return True

    return run
