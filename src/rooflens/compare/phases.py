"""Forward to backward: what the one takes over what the other takes, in time, FLOP and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.compare.resampling import Interval
from rooflens.compare.statistics import quotient_interval
from rooflens.errors import Incomparable
from rooflens.records import Case, Phase
from rooflens.results import RecordSet, Total
from rooflens.results.evidence import Evidence, join


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRatio:
    """Forward over backward of one case; None is unknown.

    Attributes:
        time: of the measured times; `time_interval`: its 95 % interval, from the samples of the same steps.
        bound: of the bounds.
        flops, matmul_flops: of the FLOP, without recomputation; about a half for products.
        bytes: of the bytes to and from DRAM.
        backward_share: share of backward in the measured step.
    """

    case: Case
    time: float | None
    time_interval: Interval | None
    bound: float | None
    flops: float | None
    matmul_flops: float | None
    bytes: float | None
    backward_share: float | None


def phase_ratios(records: RecordSet) -> tuple[PhaseRatio, ...]:
    """Forward over backward, one per case that has both.

    Raises:
        Incomparable: no case has both.
    """
    found = tuple(_ratio(item) for item in join(records) if {"forward", "backward"} <= set(item.phases))
    if not found:
        raise Incomparable("no case has forward and backward: this takes steps of mode train")
    return found


def _ratio(item: Evidence) -> PhaseRatio:
    works = (item.total("forward"), item.total("backward"))
    return PhaseRatio(
        case=item.case,
        time=_over(_seconds(item, "forward"), _seconds(item, "backward")),
        time_interval=_interval(item),
        bound=_of_totals(works, "seconds"),
        flops=_of_totals(works, "flops"),
        matmul_flops=_of_totals(works, "matmul_flops"),
        bytes=_over(*(None if total is None else total.bytes.get("dram") for total in works)),
        backward_share=_over(_seconds(item, "backward"), _seconds(item, None)),
    )


def _seconds(item: Evidence, phase: Phase | None) -> float | None:
    measured = item.measured(phase)
    return None if measured is None else measured.seconds


def _interval(item: Evidence) -> Interval | None:
    """From one run that timed both phases of the same steps."""
    forward, backward = item.runs("forward"), item.runs("backward")
    if len(forward) != 1 or len(backward) != 1 or len(forward[0].samples) != len(backward[0].samples):
        return None
    return quotient_interval(forward[0].samples, backward[0].samples)


def _of_totals(totals: tuple[Total | None, Total | None], name: str) -> float | None:
    return _over(*(None if total is None else getattr(total, name) for total in totals))


def _over(part: float | None, other: float | None) -> float | None:
    return part / other if part is not None and other else None
