"""The register of checks: each is a small pure function from a context to doubts, known by a stable code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rooflens.checks.context import Context
from rooflens.checks.finding import SEVERITIES, Finding, FindingNumbers, Severity


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a check says: about what, why, and by which numbers. The check's entry adds the rest of a finding."""

    subject: str
    message: str
    evidence: FindingNumbers


Doubts = Iterable[Doubt]
Judge = Callable[[Context], Doubts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A registered check."""

    code: str
    severity: Severity
    remedy: str
    judge: Judge

    def findings(self, context: Context) -> Iterable[Finding]:
        """The check's doubts about a context as findings."""
        for doubt in self.judge(context):
            yield Finding(
                code=self.code,
                severity=self.severity,
                subject=doubt.subject,
                message=doubt.message,
                evidence=doubt.evidence,
                remedy=self.remedy,
            )


_CHECKS: dict[str, Check] = {}
CHECKS: Mapping[str, Check] = _CHECKS
"""Every check by its code, in the order of registration."""


def check(code: str, severity: Severity, remedy: str) -> Callable[[Judge], Judge]:
    """Register a judge under a code; a code is given once."""
    assert severity in SEVERITIES

    def register(judge: Judge) -> Judge:
        if code in _CHECKS:
            raise ValueError(f"the code {code!r} is taken by {_CHECKS[code].judge.__name__}")
        _CHECKS[code] = Check(code=code, severity=severity, remedy=remedy, judge=judge)
        return judge

    return register
