"""The reported figures of a study beside ours: those of single cases, and correlations over many."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from rooflens.checks import Figure, Finding
from rooflens.checks.beside import Beside, Names, Ours, beside
from rooflens.checks.figures import CORRELATION
from rooflens.compare import Correlation, correlations
from rooflens.devices import find
from rooflens.errors import Incomparable, RooflensError
from rooflens.results import RecordSet

METHOD = "spearman"
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
    found = {time: _correlations(records, time == "measured") for time in ("measured", "bound")}

    def over_models(figure: Figure) -> Ours | None:
        if not figure.quantity.startswith(CORRELATION):
            return None
        quantity = figure.quantity.removeprefix(CORRELATION).strip().removesuffix("-latency")
        devices = names.get(figure.device) or _known(figure.device)
        for time, items in found.items():
            of = [item for item in items if item.quantity == quantity and item.setting.device in devices]
            values = [item.coefficients["spearman"].value for item in of if METHOD in item.coefficients]
            if values:
                spread = f"{min(values):.2f} to {max(values):.2f}"
                return Ours(
                    value=median(values),
                    of=f"Spearman with the {time} time, median of {len(values)} settings ({spread})",
                )
        return None

    return beside(figures, records, findings=findings, names=names, further=over_models)


def _known(name: str) -> frozenset[str]:
    try:
        return frozenset({find(name).name})
    except RooflensError:
        return frozenset()


def _correlations(records: RecordSet, measured: bool) -> tuple[Correlation, ...]:
    try:
        return correlations(records, time="measured" if measured else "bound")
    except Incomparable:  # no case has such a time
        return ()
