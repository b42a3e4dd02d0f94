"""The sections of a report, in the order in which people ask."""

from __future__ import annotations

from collections.abc import Callable

from rooflens.report.study.agreement import agreement
from rooflens.report.study.breakdown import breakdown, memory
from rooflens.report.study.cases import count
from rooflens.report.study.content import Report, Section
from rooflens.report.study.key_findings import key_findings
from rooflens.report.study.latency import latency
from rooflens.report.study.modules import modules
from rooflens.report.study.results import failures, findings, hypotheses, reported, results
from rooflens.report.study.rooflines import rooflines
from rooflens.report.study.settings import environment, repeat, setting
from rooflens.report.study.throughput import devices, throughput
from rooflens.report.study.view import StudyView

SECTIONS: tuple[Callable[[StudyView], Section | None], ...] = (
    setting,
    key_findings,
    hypotheses,
    reported,
    results,
    rooflines,
    agreement,
    latency,
    throughput,
    devices,
    breakdown,
    memory,
    findings,
    modules,
    failures,
    environment,
    repeat,
)
"""Each gives its section, or None where the study has nothing for it."""


def compose(view: StudyView) -> Report:
    """The report of a study, as data."""
    sections = tuple(section for make in SECTIONS if (section := make(view)) is not None)
    cases = len({(case.model, case.batch, case.dtype, case.mode, case.options) for case in view.records.cases})
    devices = len({case.device for case in view.records.cases if case.device is not None})
    subtitle = count(cases, "step") + (f" on {count(devices, 'device')}" if devices else "")
    return Report(title=view.study.title, subtitle=subtitle, sections=sections)
