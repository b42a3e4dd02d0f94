"""Which device, at what batch: every device at its best batch, the best device first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rooflens.compare.devices import check_prices
from rooflens.compare.doubts import Doubtful
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import Case, Failure, Scalar
from rooflens.results import Evidence, Quantity, RecordSet, Room, Time, Total, join
from rooflens.results.answers import (
    COST_OF_INPUT,
    COST_OF_OUTPUT,
    COST_PER_ANSWER,
    COST_PER_SAMPLE,
    ENERGY_PER_SAMPLE,
    ENERGY_PER_TOKEN,
    PROMPT_RATE,
    TOKEN_RATE,
)
from rooflens.results.quantities import THROUGHPUT, TIME
from rooflens.results.totals import grouped_by
from rooflens.runs.options import PRICED

RankedBy = Literal["throughput", "time", "energy", "cost"]
ORDERS: tuple[RankedBy, ...] = get_args(RankedBy)
NO_PRICE = (
    "no device has a price, so none can be ranked by cost; give prices for an hour, like --price l4=0.7 --price"
    " h200=3.5, or a file of them (in Python prices={'l4': 0.7, 'h200': 3.5})"
)
_SAMPLES = (THROUGHPUT, ENERGY_PER_SAMPLE, COST_PER_SAMPLE)
_ASKED: Mapping[str, tuple[Quantity, Quantity, Quantity]] = {
    "inference": _SAMPLES,
    "train": _SAMPLES,
    "prefill": (PROMPT_RATE, ENERGY_PER_TOKEN, COST_OF_INPUT),
    "decode": (TOKEN_RATE, ENERGY_PER_TOKEN, COST_OF_OUTPUT),
    "generate": (TOKEN_RATE, ENERGY_PER_TOKEN, COST_PER_ANSWER),
}


def quantity_by(mode: str, by: RankedBy) -> Quantity:
    """Return the quantity that devices are ranked by in a mode: of samples, or of tokens."""
    rate, energy, cost = _ASKED[mode]
    return {"throughput": rate, "time": TIME, "energy": energy, "cost": cost}[by]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedDevice:
    """One step on one device.

    Attributes:
        evidence: its estimate; the case has the device's price.
        step: the case without the price.
        time: `predicted`, or `bound` where no time can be expected: then rates are the most that is possible.
        best: the batch at which the device stands in the ranking.
    """

    evidence: Evidence
    step: Case
    time: Time
    best: bool = False

    @property
    def total(self) -> Total | None:
        """Work, bound and expected time."""
        return self.evidence.total()

    @property
    def room(self) -> Room | None:
        """What the step needs of the device's memory."""
        return self.evidence.room

    @property
    def fits(self) -> bool | None:
        """True if it fits into the memory; None if unknown."""
        return None if self.room is None else self.room.fits

    def value(self, by: RankedBy) -> float | None:
        """Return the number that devices are ranked by; no energy of a bound, which says nothing of it."""
        if by == "energy" and self.time == "bound":
            return None
        return quantity_by(self.step.mode, by).read(self.evidence, time=self.time).value

    def standing(self, by: RankedBy) -> tuple[bool, bool, bool, float]:
        """Return what sorts devices and batches, the best first.

        What fits comes first, then what has an expected time, then what has the number. Of what does not fit, the
        smallest comes first.
        """
        value = self.value(by)
        sign = -1 if quantity_by(self.step.mode, by).better == "more" else 1
        if self.room is not None and self.fits is False:
            return (True, self.time == "bound", False, self.room.needed / self.room.memory)
        return (False, self.time == "bound", value is None, sign * (value or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRanking(Doubtful):
    """Devices in their order, step by step.

    Attributes:
        by: the number that decides.
        rows: each device with all of its batches, or with its best one.
        batches: those that were tried, of steps with several.
        failed: what could not be estimated.
        records: the estimates behind it.
    """

    by: RankedBy
    rows: tuple[RankedDevice, ...]
    batches: tuple[int | None, ...]
    failed: tuple[Failure, ...]
    records: RecordSet


def check_order(by: str) -> None:
    """Raise InvalidValue if devices cannot be ranked by this."""
    if by not in ORDERS:
        raise InvalidValue(f"cannot rank by {by!r}; known: {', '.join(ORDERS)}")


def ranked(
    records: RecordSet,
    *,
    by: RankedBy = "throughput",
    prices: Mapping[str, float] | None = None,
    best_only: bool = False,
) -> DeviceRanking:
    """Return the devices of some estimates in the order of what each can be expected to reach at its best batch.

    Args:
        by: `throughput` (samples or tokens per second), `time` (of the step), `energy` or `cost` (of a sample, of a
            token).
        prices: of devices by canonical name, for an hour.
        best_only: leave out every batch of a device but the best.

    Raises:
        InvalidValue: an unknown order, a price of no device, or an order by cost without any price.
        Incomparable: there is no estimate on a device.
    """
    check_order(by)
    known = dict(prices or {})
    found = [item for item in join(records.where(source="estimate")) if item.device is not None]
    if not found:
        raise Incomparable("nothing here was estimated on a device: there is nothing to rank")
    check_prices(known, [case.device or "" for case in (*(e.case for e in found), *(f.case for f in records.failures))])
    rows = [_row(item, known) for item in found]
    if by == "cost" and all(row.value("cost") is None for row in rows):
        raise InvalidValue(NO_PRICE)
    groups = grouped_by(rows, lambda row: replace(row.step, device=None, batch=None))
    ordered = (row for group in groups.values() for row in _in_order(group, by))
    return DeviceRanking(
        by=by,
        rows=tuple(row for row in ordered if row.best or not best_only),
        batches=tuple(dict.fromkeys(batch for group in groups.values() for batch in _batches(group))),
        failed=records.failures,
        records=records,
    )


def _batches(alike: Iterable[RankedDevice]) -> tuple[int | None, ...]:
    """The batches of a step among which devices have a best one: several, or none."""
    found = tuple(dict.fromkeys(row.step.batch for row in alike))
    return found if len(found) > 1 else ()


def _in_order(rows: Iterable[RankedDevice], by: RankedBy) -> Iterator[RankedDevice]:
    """Yield the rows of one step, device by device."""

    def standing(row: RankedDevice) -> tuple[object, ...]:
        return row.standing(by), row.standing("throughput")  # a device without a price has a best batch all the same

    devices = grouped_by(rows, lambda row: row.step.device)
    best = {device: min(its, key=standing) for device, its in devices.items()}
    for device in sorted(best, key=lambda device: standing(best[device])):
        for row in devices[device]:
            yield replace(row, best=row is best[device])


def _row(item: Evidence, prices: Mapping[str, float]) -> RankedDevice:
    own, device = dict(item.case.options), item.case.device
    step = item.case.without(PRICED)
    added: dict[str, Scalar] = {}
    if device is not None and device in prices:
        added["price_per_hour"] = prices[device]
    priced = replace(item, case=replace(item.case, options=tuple(sorted((own | added).items()))))
    total = priced.total()
    expected = total is not None and total.predicted_seconds is not None
    return RankedDevice(evidence=priced, step=step, time="predicted" if expected else "bound")
