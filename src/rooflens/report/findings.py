"""Findings as a table, and as the promised JSON."""

from __future__ import annotations

import json
from typing import Any

from rooflens.checks import Finding, Findings
from rooflens.report.render import Format, render
from rooflens.report.table import Column, Entries, Table, build
from rooflens.report.text_formats import as_json

COLUMNS = (
    Column("severity", "severity", align="left"),
    Column("code", "code", align="left"),
    Column("subject", "subject", align="left"),
    Column("message", "finding", align="left"),
    Column("evidence", "evidence", align="left", show="files"),
    Column("remedy", "remedy", align="left", show="files"),
)


def findings_text(found: Findings, format: Format, *, width: int | None = None, color: bool = False) -> str:
    """Findings in one of the formats of the command line; ``json`` has the promised shape."""
    if format == "json":
        return as_json(findings_json(found))
    return render(findings(found), format, width=width, color=color)


def findings(found: Findings) -> Table:
    """One row per finding, the gravest first; the remedy of each code stands below, once."""
    remedies = {finding.code: finding.remedy for finding in found}
    notes = [f"{code}: {remedy}" for code, remedy in remedies.items()]
    return build("Findings", COLUMNS, map(_row, found), notes=[*notes, *found.notes])


def findings_json(found: Findings) -> dict[str, Any]:
    """The promised shape: an object with all findings, their evidence as numbers by name."""
    return {"findings": [_object(finding) for finding in found]}


def _row(finding: Finding) -> Entries:
    return {**_object(finding), "evidence": json.dumps(dict(finding.evidence))}


def _object(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "subject": finding.subject,
        "message": finding.message,
        "evidence": dict(finding.evidence),
        "remedy": finding.remedy,
    }
