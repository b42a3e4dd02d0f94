"""Forward to backward: what the one takes over what the other takes, in time, FLOP and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.compare.doubts import Doubtful
from rooflens.compare.uncertainty import Interval
from rooflens.errors import Incomparable
from rooflens.records import Case
from rooflens.results import Evidence, Quantity, RecordSet, join
from rooflens.results.quantities import ALL_FLOPS, BOUND, BYTES, MATMUL_FLOPS, PREDICTED, TIME, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRatio(Doubtful):
    """Forward over backward of one case; None is unknown.

    Attributes:
        time: of the measured times; `time_interval`: its 95 % interval, from the samples of the same steps.
        predicted: of the expected times.
        flops, matmul_flops: without recomputation; about a half for products.
        backward_share: share of backward in the measured step.
    """

    case: Case
    time: float | None
    time_interval: Interval | None
    predicted: float | None
    bound: float | None
    flops: float | None
    matmul_flops: float | None
    bytes: float | None
    backward_share: float | None


def phase_ratios(records: RecordSet) -> tuple[PhaseRatio, ...]:
    """Return forward over backward, one per case that has both.

    Raises:
        Incomparable: no case has both.
    """
    ratios = tuple(_ratio(item) for item in join(records) if {"forward", "backward"} <= set(item.phases))
    if not ratios:
        raise Incomparable("no case has forward and backward: this takes steps of mode train")
    return ratios


def _ratio(item: Evidence) -> PhaseRatio:
    def over(quantity: Quantity) -> float | None:
        return ratio(quantity.read(item, "forward").value, quantity.read(item, "backward").value)

    return PhaseRatio(
        case=item.case,
        time=over(TIME),
        time_interval=_interval(item),
        predicted=over(PREDICTED),
        bound=over(BOUND),
        flops=over(ALL_FLOPS),
        matmul_flops=over(MATMUL_FLOPS),
        bytes=over(BYTES),
        backward_share=ratio(TIME.read(item, "backward").value, TIME.read(item).value),
    )


def _interval(item: Evidence) -> Interval | None:
    """Return the interval from one run that timed both phases of the same steps."""
    forward, backward = item.runs("forward"), item.runs("backward")
    if len(forward) != 1 or len(backward) != 1 or len(forward[0].samples) != len(backward[0].samples):
        return None
    from rooflens.compare.statistics import quotient_interval  # scipy takes a second to load

    return quotient_interval(forward[0].samples, backward[0].samples)
