"""What stands around the tables of a counter file: lines of ncu itself, and of the program that it ran."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rooflens.errors import FileError, UnknownFormat
from rooflens.sources.counters.metrics import near

_MOST = 20
_TOOL = re.compile(r"==(PROF|ERROR|WARNING)==\s*(.*)")
_CONNECTED = re.compile(r"Connected to process (\d+) \((.*)\)")
_NO_METRIC = re.compile(r"Failed to find metric (?:regex:\^)?([A-Za-z_0-9]+)")
_SAVED_AGAIN = re.compile(r'(?:"?[\w ]*"?,)?"?(?:Process )?ID"?[,;\t].*Kernel Name')
"""A header of ncu that another program has written: with other separators, or with a column of its own in front."""
_LISTED = re.compile(r"\d+\.\s+(\S.*)")
_ADVICE = (
    (
        re.compile("ERR_NVGPUCTRPERM"),
        "the administrator opens the counters (NVreg_RestrictProfilingToAdminUsers=0) or gives ncu CAP_SYS_ADMIN",
    ),
    (re.compile("bad allocation|out of memory", re.IGNORECASE), "use --replay-mode application, or fewer metrics"),
    (re.compile("--target-processes"), "run ncu with --target-processes all"),
    (re.compile("returned an error code"), "the program failed; run it without ncu first"),
)


@dataclass(slots=True)
class Log:
    """The lines of a file that are no table.

    Attributes:
        errors: what ncu says went wrong; launches may have been measured before.
        passed_over: lines between the rows of a table that are none, and the first of them.
        header: the line of the last header, 0 for none; saved_again: that of one that another program wrote.
    """

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    passed_over: int = 0
    first_passed_over: int = 0
    header: int = 0
    saved_again: int = 0
    _listing: bool = False

    def tool(self, text: str) -> None:
        """Take a line of ncu."""
        match = _TOOL.match(text)
        if match is None:
            return
        level, message = match[1], match[2].strip()
        kept = {"ERROR": self.errors, "WARNING": self.warnings}.get(level)
        if kept is not None and len(kept) < _MOST and message not in kept:
            kept.append(message)
        if (connected := _CONNECTED.match(message)) and len(self.processes) < _MOST:
            self.processes.append(connected[2])

    def output(self, text: str, number: int, inside: bool) -> None:
        """Take a line of the program; `inside` a table it is counted."""
        if inside and not self.passed_over:
            self.first_passed_over = number
        self.passed_over += inside
        if not inside and _SAVED_AGAIN.match(text):
            self.saved_again = number
        if text.startswith("Available Kernels"):
            self._listing = True
        elif self._listing and (listed := _LISTED.fullmatch(text.strip())) and len(self.kernels) < _MOST:
            self.kernels.append(listed[1])

    def failure(self, where: str) -> FileError:
        """Return the error of a file without a launch, in ncu's own words where there are any."""
        messages = [*self.errors, *self.warnings]
        none = f"{where} holds no launch of a kernel"
        if self.saved_again and not self.errors:  # a kernel was launched, whatever else can be read
            return FileError(
                f"{none}: the table below line {self.saved_again} was saved again by another program, with other"
                " separators or a column of its own; export the report again"
            )
        parts = [message if message.endswith(".") else f"{message}." for message in messages]
        if not messages and self.processes and not self.header:
            names = ", ".join(dict.fromkeys(self.processes))
            parts.append(f"ncu connected to {names}, and none of them launched a kernel.")
        if self.kernels:
            parts.append(f"The filter matched none of the kernels: {'; '.join(self.kernels)}.")
        parts += _advice(" ".join(messages))
        if parts:
            return FileError(f"{none}: {' '.join(parts)}")
        if self.header:
            return FileError(f"{none}: no row stands below the header in line {self.header}")
        return UnknownFormat(f"{none}: no table of ncu is in it")

    def notes(self) -> list[str]:
        """Return what to know of the launches."""
        notes = []
        if self.errors:
            notes.append(
                f"the profile is partial, a total over it is too small: ncu reports {'; '.join(map(repr, self.errors))}"
            )
        if self.passed_over:
            notes.append(
                f"{self.passed_over} lines between the rows are no rows and were passed over, the first is line"
                f" {self.first_passed_over}"
            )
        return notes


def _advice(message: str) -> list[str]:
    """What helps against what ncu says."""
    advice = [f"What helps: {words}." for pattern, words in _ADVICE if pattern.search(message)]
    if match := _NO_METRIC.search(message):
        names = near(match[1])
        instead = f"instead: {', '.join(names)}" if names else "see ncu --query-metrics"
        advice.append(f"There is no metric {match[1]!r}; {instead}.")
    return advice
