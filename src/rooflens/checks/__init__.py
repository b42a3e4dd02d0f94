"""Doubt: numbers that cannot be true, and mistakes that have a signature.

Each check is a small pure function from a :class:`Context` (figures, records, devices, right values) to doubts,
registered under a stable code. Reads records and devices, runs nothing, needs no torch.
"""

from collections.abc import Iterable, Mapping

from rooflens.checks import above, expected, kernels, prefixes, roofs, sums, times, traffic
from rooflens.checks import flops as work
from rooflens.checks.context import Context
from rooflens.checks.finding import SEVERITIES, Finding, Findings
from rooflens.checks.registry import CHECKS, findings
from rooflens.devices import catalogued
from rooflens.errors import AmbiguousDevice, RooflensError
from rooflens.records import Device
from rooflens.records.files import TWICE, UNPROMISED
from rooflens.reported import ReportedFigure, RightValues, recorded, spelled_like
from rooflens.results import RecordSet

PARTIAL = ("the profile is partial", "partial: ")
"""How notes of a profile begin that ended early."""
TOPICS = (work, traffic, times, expected, roofs, above, sums, kernels, prefixes)
"""Modules whose import registers their checks."""


def examine(
    figures: Iterable[ReportedFigure] = (),
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
    gravest = sorted(findings(context), key=lambda finding: -SEVERITIES.index(finding.severity))
    return Findings(tuple(gravest), (*_unchecked(context), *_partial(records), *_of_files(records)))


def _unchecked(context: Context) -> tuple[str, ...]:
    """Notes on the models and devices that figures name and nobody knows."""
    models = {f.model for f in context.figures if f.model and context.right.parameters(f) is None}
    devices = {f.device for f in context.figures if f.device and context.device(f) is None}
    notes = []
    for what, names in (("models", map(_with_likeness, models)), ("devices", devices)):
        if listed := ", ".join(sorted(names)):
            notes.append(f"{what} without right values, whose figures are only compared with each other: {listed}")
    short = {f.model for f in context.figures if context.expected(f) is None and context.right.shortest(f) is not None}
    if short:
        notes.append(
            f"no length is told (tokens); times are held against a step of one token: {', '.join(sorted(short))}"
        )
    return (*notes, *filter(None, map(_ambiguity, sorted(devices))))


def _with_likeness(model: str) -> str:
    like = spelled_like(model)
    return model if like is None else f"{model} (did you mean {like}?)"


def _ambiguity(name: str) -> str:
    """The devices that a name may mean, as a sentence; "" where no device has it."""
    try:
        catalogued(name)
    except AmbiguousDevice as error:
        return str(error)
    except RooflensError:
        return ""
    return ""


def _partial(records: RecordSet) -> tuple[str, ...]:
    """Notes of readers and of ncu on profiles that ended early: what is there is right, and a total is not."""
    notes = [(r.case.label(), note) for r in records if r.source == "counters" for note in r.notes]
    return tuple(f"{case}: {note}" for case, note in dict.fromkeys(notes) if note.startswith(PARTIAL))


def _of_files(records: RecordSet) -> tuple[str, ...]:
    """Notes on record files of which nobody can tell whether they are whole."""
    return tuple(note for note in records.notes if note.startswith(UNPROMISED) or TWICE in note)
