"""The register of checks. A rule is a small pure function from a context to doubts, known by a stable code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rooflens.checks.context import Context
from rooflens.checks.finding import SEVERITIES, Finding, FindingNumbers, Severity


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a rule says: about what, why, and by which numbers. Its check adds the rest of a finding.

    Attributes:
        code: of the check, where a rule has several.
    """

    subject: str
    message: str
    evidence: FindingNumbers
    code: str = ""


CheckRule = Callable[[Context], Iterable[Doubt]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A registered check."""

    code: str
    severity: Severity
    remedy: str
    rule: CheckRule


_CHECKS: dict[str, Check] = {}
CHECKS: Mapping[str, Check] = _CHECKS
"""Every check by its code, in the order of registration."""


def check(code: str, severity: Severity, remedy: str) -> Callable[[CheckRule], CheckRule]:
    """Register a rule under a code. A code is given once; of several above one rule the lowest is registered first."""
    assert severity in SEVERITIES

    def register(rule: CheckRule) -> CheckRule:
        if code in _CHECKS:
            raise ValueError(f"the code {code!r} is taken by {_CHECKS[code].rule.__name__}")
        _CHECKS[code] = Check(code=code, severity=severity, remedy=remedy, rule=rule)
        return rule

    return register


def findings(context: Context) -> Iterator[Finding]:
    """The doubts of every rule, each of which runs once, in the order of the checks."""
    doubts = {rule: tuple(rule(context)) for rule in dict.fromkeys(each.rule for each in CHECKS.values())}
    for each in CHECKS.values():
        for doubt in doubts[each.rule]:
            if doubt.code in ("", each.code):
                yield Finding(
                    code=each.code,
                    severity=each.severity,
                    subject=doubt.subject,
                    message=doubt.message,
                    evidence=doubt.evidence,
                    remedy=each.remedy,
                )
