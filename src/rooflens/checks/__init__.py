"""Doubt: numbers that cannot be true, and mistakes that have a signature.

Each check is a small pure function from a :class:`Context` (figures, records, devices, right values) to doubts,
registered under a stable code. Reads records and devices, runs nothing, needs no torch.
"""

from collections.abc import Iterable, Mapping

from rooflens.checks import kernels, roofs, sums, times, traffic, work
from rooflens.checks.context import Context
from rooflens.checks.expected import RightValues, mode_of
from rooflens.checks.figures import QUANTITIES, STEPS, Figure, recorded
from rooflens.checks.finding import SEVERITIES, Finding, Findings, Severity
from rooflens.checks.registry import CHECKS, Check
from rooflens.checks.typed import holds_figures, read_figures
from rooflens.records import Device
from rooflens.results import RecordSet

__all__ = [
    "CHECKS",
    "QUANTITIES",
    "SEVERITIES",
    "STEPS",
    "Check",
    "Context",
    "Figure",
    "Finding",
    "Findings",
    "RightValues",
    "Severity",
    "examine",
    "holds_figures",
    "mode_of",
    "read_figures",
    "recorded",
]

TOPICS = (work, traffic, times, roofs, sums, kernels)
"""Modules whose import registers their checks."""


def examine(
    figures: Iterable[Figure] = (),
    records: RecordSet | None = None,
    *,
    devices: Mapping[str, Device] | None = None,
    estimates: RecordSet | None = None,
) -> Findings:
    """Every finding on some figures and records, the gravest first.

    Args:
        figures: those that were typed in.
        records: estimates, measurements and counters; their own estimates are right values too.
        devices: devices that the figures may name, beside those of the records and of the catalogue.
        estimates: right values of further models.
    """
    records = RecordSet(()) if records is None else records
    right = RightValues(records if estimates is None else RecordSet([*records, *estimates]))
    context = Context(
        figures=(*figures, *recorded(records)),
        records=records,
        devices={**records.devices, **(devices or {})},
        right=right,
    )
    found = [finding for check in CHECKS.values() for finding in check.findings(context)]
    return Findings(tuple(sorted(found, key=lambda finding: -SEVERITIES.index(finding.severity))), _unchecked(context))


def _unchecked(context: Context) -> tuple[str, ...]:
    """Models and devices that figures name and nobody knows."""
    models = {f.model for f in context.figures if f.model and context.right.parameters(f) is None}
    devices = {f.device for f in context.figures if f.device and context.device(f) is None}
    notes = []
    for what, names in (("models", models), ("devices", devices)):
        if names:
            listed = ", ".join(sorted(names))
            notes.append(f"{what} without right values, whose figures are only compared with each other: {listed}")
    return tuple(notes)
