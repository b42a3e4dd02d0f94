"""Reported correlations over models, held against the rank correlations of the same settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from rooflens.compare import Correlation, correlations
from rooflens.compare.uncertainty import Method
from rooflens.devices import catalogued_or_none
from rooflens.errors import Incomparable
from rooflens.reported.figures import CORRELATION, OurNumber, ReportedFigure
from rooflens.results import RecordSet, Time

METHOD: Method = "spearman"
"""Of ranks: the quantities span five orders of magnitude, so that Pearson's r is that of the largest model."""

_WORDS: Mapping[Time, str] = {"measured": "time", "predicted": "expected time", "bound": "bound"}


class ModelCorrelations:
    """The correlations over the models of a set of records, computed when a figure asks for them."""

    def __init__(self, records: RecordSet) -> None:
        self._records = records
        self._known: dict[Time, tuple[Correlation, ...]] = {}

    def of(self, figure: ReportedFigure, devices: frozenset[str]) -> tuple[OurNumber | None, OurNumber | None]:
        """Ours on the devices of a figure, and what was measured on devices of their kind."""
        each = (self._median(figure, time, devices) for time in ("measured", "predicted", "bound"))
        return next(filter(None, each), None), self._median(figure, "measured", self._of_their_kind(devices))

    def _of_their_kind(self, devices: Iterable[str]) -> frozenset[str]:
        """The devices of the records of the kind of some others: a time on a CPU says little of a GPU."""
        known = (self._records.devices.get(name) or catalogued_or_none(name) for name in devices)
        kinds = {device.kind for device in known if device is not None}
        return frozenset(name for name, device in self._records.devices.items() if device.kind in kinds)

    def _median(self, figure: ReportedFigure, time: Time, devices: frozenset[str]) -> OurNumber | None:
        """The median coefficient over the settings of a figure on some devices."""
        if time not in self._known:
            try:
                self._known[time] = correlations(self._records, time=time)
            except Incomparable:  # no case has such a time
                self._known[time] = ()
        quantity = figure.quantity.removeprefix(CORRELATION).strip().removesuffix("-latency")
        fitting = [
            item
            for item in self._known[time]
            if item.quantity == quantity
            and item.setting.mode == figure.mode
            and item.setting.device in devices
            and METHOD in item.coefficients
        ]
        if not fitting:
            return None
        values = [item.coefficients[METHOD].value for item in fitting]
        where = ", ".join(sorted({str(item.setting.device) for item in fitting}))
        over = f", median of {len(values)} settings, {min(values):.2f} to {max(values):.2f}" if len(values) > 1 else ""
        return OurNumber(value=median(values), of=f"Spearman with the {_WORDS[time]} on {where}{over}")
