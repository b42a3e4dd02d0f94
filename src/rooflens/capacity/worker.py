"""The search for the largest batch of a model in a file of the user's own: in a worker, which alone reads the file.

The worker is ``python -m rooflens.capacity``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from rooflens.capacity.largest import AskedDevice, searched
from rooflens.capacity.step_sizes import Size
from rooflens.devices.reserves import Reserve
from rooflens.errors import ModelError, RooflensError
from rooflens.host_limits import bound_memory
from rooflens.progress import Progress
from rooflens.records import Case, Device, Memory, write_atomically
from rooflens.results import Fit, Fits, RecordSet, Total
from rooflens.running.estimating import at_each_place
from rooflens.running.isolation import AnswerListener, Lost, Serve, Workers
from rooflens.running.jobs import Answer, CallElsewhere, Done, Refused, Share, Start
from rooflens.runs.run import Place, Request, recorded_name


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Search for the largest batch of a request on devices; the rest is as in :func:`searched`.

    Attributes:
        out: the record file of the estimates; the answers lie beside it.
        place: where the user's function is called.
    """

    asked: Request
    targets: tuple[AskedDevice, ...]
    free: tuple[Reserve, ...] | None
    out: str
    place: Place = "meta"


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A :class:`Fit` without its total, which follows from the records."""

    name: str
    device: Device
    count: int
    case: Case
    of: Size
    size: int | None
    positions: int | None
    in_memory: int | None
    capped: bool
    memory: int | None
    reserves: tuple[Reserve, ...]
    held: Memory | None
    reason: str

    @classmethod
    def from_fit(cls, fit: Fit) -> SearchAnswer:
        """Return the same, as it travels."""
        return cls(**{name: getattr(fit, name) for name in cls.__struct_fields__})

    def fit(self, records: RecordSet) -> Fit:
        """Return the fit, with its total from the records."""
        fit = Fit(**msgspec.structs.asdict(self))
        return replace(fit, total=Total(records.where(case=self.case).records, self.device)) if self.size else fit


def searched_in_worker(
    asked: Request,
    targets: Sequence[AskedDevice],
    free: tuple[Reserve, ...] | None,
    limit: float,
    progress: Progress | None,
) -> Fits:
    """As :func:`searched`, in a worker that is killed after `limit` seconds.

    Raises:
        ModelError: the worker was lost.
    """
    start = Start(kind="estimate", command=tuple(sys.argv))
    with (
        Workers(start, limit=limit, program="rooflens.capacity") as workers,
        tempfile.TemporaryDirectory(prefix="rooflens-") as folder,
    ):
        out = Path(folder) / "estimates.jsonl"

        def ask(place: Place, tell: AnswerListener) -> Done | Lost:
            def hear(answer: Answer) -> None:
                tell(answer)
                if isinstance(answer, Share) and progress is not None:
                    progress(answer.done, recorded_name(asked.model))

            return workers.run(Search(asked=asked, targets=tuple(targets), free=free, out=str(out), place=place), hear)

        ending, refusals = at_each_place(ask)
        if isinstance(ending, Lost):
            raise ModelError(f"{recorded_name(asked.model)}: {ending.message} ({ending.kind})")
        for refusal in refusals:
            raise refusal.error
        records = RecordSet.load(out)
        answers = msgspec.json.decode(_beside(out).read_bytes(), type=tuple[SearchAnswer, ...])
    return Fits((answer.fit(records) for answer in answers), records)


def _beside(out: Path) -> Path:
    return out.with_suffix(".json")


def begin(start: Start, _: AnswerListener) -> Serve:
    """The worker's side."""
    from rooflens.models import CallAgain, kept_switches

    bound_memory(start.beside)

    def do(job: Search, tell: AnswerListener) -> bool:
        try:
            with kept_switches():
                fits = searched(
                    job.asked, job.targets, job.free, lambda share, _: tell(Share(done=share)), place=job.place
                )
        except CallAgain as again:
            tell(CallElsewhere(place=again.place))
            return False
        except RooflensError as error:
            tell(Refused.of(error))
            return True
        tell(Share(done=1.0))  # a copy of this process, which the model forked, ends here and writes nothing
        fits.save(job.out)
        write_atomically(_beside(Path(job.out)), msgspec.json.encode([SearchAnswer.from_fit(fit) for fit in fits]))
        return True

    return do
