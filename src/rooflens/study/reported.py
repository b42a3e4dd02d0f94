"""The reported figures of a study beside ours: those of single cases, and correlations over many."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from rooflens.checks import Figure, Finding, mode_of
from rooflens.checks.beside import Beside, Names, Ours, beside, catalogued
from rooflens.checks.figures import CORRELATION
from rooflens.compare import Correlation, correlations
from rooflens.compare.quantities import Time
from rooflens.compare.statistics import Method
from rooflens.errors import Incomparable
from rooflens.results import RecordSet

METHOD: Method = "spearman"
"""Of ranks: the quantities span five orders of magnitude, so that Pearson's r is that of the largest model."""


def figures_beside(
    figures: Iterable[Figure], records: RecordSet, *, findings: Iterable[Finding], names: Names
) -> tuple[Beside, ...]:
    """Each reported figure beside ours; a correlation is held against the rank correlation over the study's models.

    Args:
        records: of the study.
        findings: on the figures.
        names: what words for a machine turned out to be.
    """
    measured, bounds = _correlations(records, "measured"), _correlations(records, "bound")

    def over_models(figure: Figure) -> tuple[Ours | None, Ours | None]:
        if not figure.quantity.startswith(CORRELATION):
            return None, None
        devices = names.get(figure.device) or _known(figure.device)
        on_it = _median(figure, measured, devices) or _median(figure, bounds, devices)
        return on_it, _median(figure, measured, _alike(devices, records))

    return beside(figures, records, findings=findings, names=names, further=over_models)


def _median(figure: Figure, found: Iterable[Correlation], devices: frozenset[str]) -> Ours | None:
    """The coefficients of the settings of a figure on some devices, as their median."""
    quantity = figure.quantity.removeprefix(CORRELATION).strip().removesuffix("-latency")
    fitting = [
        item
        for item in found
        if item.quantity == quantity
        and item.setting.mode == mode_of(figure.phases)
        and item.setting.device in devices
        and METHOD in item.coefficients
    ]
    if not fitting:
        return None
    values = [item.coefficients[METHOD].value for item in fitting]
    where = ", ".join(sorted({str(item.setting.device) for item in fitting}))
    time = "time" if fitting[0].time == "measured" else "bound"
    over = f", median of {len(values)} settings, {min(values):.2f} to {max(values):.2f}" if len(values) > 1 else ""
    return Ours(value=median(values), of=f"Spearman with the {time} on {where}{over}")


def _alike(devices: Iterable[str], records: RecordSet) -> frozenset[str]:
    """The devices of a study of the kind of some others: a time on a CPU says little of a GPU."""
    known = [records.devices.get(name) or catalogued(name) for name in devices]
    kinds = {device.kind for device in known if device is not None}
    return frozenset(name for name, device in records.devices.items() if device.kind in kinds)


def _known(name: str) -> frozenset[str]:
    device = catalogued(name)
    return frozenset() if device is None else frozenset({device.name})


def _correlations(records: RecordSet, time: Time) -> tuple[Correlation, ...]:
    try:
        return correlations(records, time=time)
    except Incomparable:  # no case has such a time
        return ()
