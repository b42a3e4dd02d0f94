"""The request to the process that reads a report, and its answers: lines of JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """The only line that it gets: results to read, by their place in the file, and bytes of address space at most."""

    results: list[int]
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The version of ncu-report, None where it came with ncu itself, and the number of results in the file."""

    package: str | None
    results: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """One result.

    Attributes:
        ranges: names of the NVTX ranges of the process that had begun and not ended, then those of the thread that
            launched it, from outside in within each domain.
        facts: what it says of device and run.
        values: unit and value by metric, None for one without a value.
    """

    name: str
    device: str
    ranges: tuple[str, ...]
    facts: dict[str, str]
    values: dict[str, tuple[str, int | float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAnswer:
    """One line: :class:`Opened` first, then each result that was asked for, then `done`; or `failed` at any time.

    Attributes:
        lacking: why the package cannot be imported.
        failed: why the report cannot be read.
    """

    opened: Opened | None = None
    told: ReportResult | None = None
    lacking: str = ""
    failed: str = ""
    done: bool = False
