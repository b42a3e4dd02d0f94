"""Finding: a number that cannot be true, or a mistake with a known signature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args, overload

from rooflens.errors import InvalidValue
from rooflens.notebook import Displayed

Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From what a reader should know to what cannot be true."""
FindingNumbers = Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One doubt about some figures.

    Attributes:
        code: stable name of the kind, see docs/check.md.
        severity: ``error``: cannot be true, or spoils every conclusion; ``warning``: unlikely, with honest reasons
            named; ``info``: good to know.
        subject: which figure or case, with file and line where it was typed in.
        message: what is wrong, and what that does to the result.
        evidence: the numbers that say so, in base units, by name.
        remedy: what to do.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    evidence: FindingNumbers
    remedy: str


@dataclass(frozen=True, slots=True)
class Findings(Displayed, Sequence[Finding]):
    """Findings, the gravest first, and what could not be checked.

    Attributes:
        notes: figures that nothing could be said about, and why.
    """

    items: tuple[Finding, ...]
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self.items[index]

    @property
    def codes(self) -> tuple[str, ...]:
        """The distinct codes, in order of appearance."""
        return tuple(dict.fromkeys(finding.code for finding in self.items))

    def at_least(self, severity: str) -> tuple[Finding, ...]:
        """The findings of this severity and of graver ones.

        Raises:
            InvalidValue: there is no such severity.
        """
        if severity not in SEVERITIES:
            raise InvalidValue(f"unknown severity {severity!r}; known: {', '.join(SEVERITIES)}")
        grave = SEVERITIES[SEVERITIES.index(severity) :]
        return tuple(finding for finding in self.items if finding.severity in grave)
