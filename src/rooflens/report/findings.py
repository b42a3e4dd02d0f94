"""Findings as a table, and as the promised JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rooflens.checks import Findings
from rooflens.report.kernel_names import with_short_names
from rooflens.report.render import Format, render
from rooflens.report.table import Column, Entry, Table, build
from rooflens.report.text_formats import as_json


def _short(text: str) -> Entry:
    return Entry(text, label=with_short_names(text))


COLUMNS = (
    Column("severity", "severity", align="left"),
    Column("code", "code", align="left"),
    Column("subject", "subject", read=lambda each: _short(each.subject), align="left"),
    Column("message", "finding", read=lambda each: _short(each.message), align="left"),
    Column("evidence", "evidence", align="left", show="files", read=lambda each: json.dumps(dict(each.evidence))),
    Column("remedy", "remedy", align="left", show="files"),
)


def findings_text(every: Findings, format: Format, *, width: int | None = None, color: bool = False) -> str:
    """Findings in one of the formats of the command line; ``json`` has the promised shape."""
    if format == "json":
        return as_json(findings_json(every))
    return render(findings(every), format, width=width, color=color)


def findings(every: Findings) -> Table:
    """Return one row per finding, the gravest first; the remedy of each code stands below, once."""
    remedies = {finding.code: finding.remedy for finding in every}
    notes = [f"{code}: {remedy}" for code, remedy in remedies.items()]
    return build("Findings", COLUMNS, every, notes=[*notes, *every.notes])


def findings_json(every: Findings) -> dict[str, Any]:
    """Return the promised shape: an object with all findings, their evidence as numbers by name."""
    return {"findings": [asdict(finding) | {"evidence": dict(finding.evidence)} for finding in every]}
