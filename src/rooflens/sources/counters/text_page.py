"""The text that Nsight Compute prints for people: details or raw page, without ``--csv``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rooflens.sources.counters.counter_cells import CounterReading, is_counted
from rooflens.sources.counters.csv_rows import damaged
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.metrics import is_fact, kind_of, labelled
from rooflens.sources.counters.printed_numbers import NOT_AVAILABLE

_KERNEL = re.compile(
    r"  (?P<name>\S.*?)"
    r"(?: \(\d+, \d+, \d+\)x\(\d+, \d+, \d+\)|, \d{4}-\w{3}-\d{2} \d{2}:\d{2}:\d{2})"
    r", Context \d+, Stream \d+(?:, Device (?P<device>\d+), CC (?P<cc>\d+\.\d+))?\s*"
)
_SECTION = re.compile(r"\s+Section: (\S.*?)\s*")
_RULER = re.compile(r"\s+-{3,}(?: -{3,})+\s*")
_TITLES = re.compile(r"\s+Metric Name\s+Metric Unit\s+(?:Metric Value|Minimum.*)\s*")
_ROW = re.compile(r"\s{4,}(?P<name>\S+(?: \S+)*?)\s{2,}(?P<rest>\S.*?)\s*")
_PROCESS = re.compile(r"\[(\d+)\] \S.*")


def is_kernel(text: str) -> bool:
    """True if the text page of a launch begins here."""
    return text.startswith("  ") and _KERNEL.fullmatch(text) is not None


class TextPage:
    """Pages of launches, one after the other."""

    def __init__(self, reading: CounterReading) -> None:
        self._reading = reading
        self._launch: KernelLaunch | None = None
        self._number = 0
        self._process = ""
        self._section = ""
        self._inside = False
        self._is_below_titles = False

    def add(self, line: int, text: str) -> KernelLaunch | None:
        """Take a line and return the launch that it completes; FileError if a row of a table is damaged."""
        if (kernel := _KERNEL.fullmatch(text)) is not None:
            return self._begin(kernel, line)
        if (process := _PROCESS.fullmatch(text)) is not None:
            self._process = process[1]
        elif (section := _SECTION.fullmatch(text)) is not None:
            self._section, self._inside = section[1], False
        elif _RULER.fullmatch(text):
            # Before 2022 tables have no titles, and then no second line of dashes above the third.
            self._inside, self._is_below_titles = self._is_below_titles or not self._inside, False
        elif self._inside and _TITLES.fullmatch(text):
            self._is_below_titles = True
        elif self._inside and text.strip():
            self._row(text, line)
        return None

    def finish(self) -> Iterator[KernelLaunch]:
        """Give the last launch."""
        if self._launch is not None:
            yield self._launch

    def _begin(self, kernel: re.Match[str], line: int) -> KernelLaunch | None:
        done = self._launch
        self._launch = KernelLaunch(
            line=line,
            key=(self._process, str(self._number), kernel["device"] or ""),
            name=kernel["name"],
            device=kernel["device"] or "",
            cc=kernel["cc"],
        )
        self._number += 1
        self._section, self._inside, self._is_below_titles = "", False, False
        return done

    def _row(self, text: str, line: int) -> None:
        match = _ROW.fullmatch(text)
        if match is None or self._launch is None:
            raise damaged(self._reading.where, line, f"{text.strip()[:60]!r} is no row of a table")
        label, rest = match["name"], match["rest"].split()
        metric = label if "__" in label else labelled(self._section, label)
        self._reading.metrics[label] = None
        if metric is not None and is_fact(metric):
            self._launch.facts[metric] = match["rest"]
            return
        if not NOT_AVAILABLE.isdisjoint((rest[-1].lower(), " ".join(rest[-2:]).lower())):
            self._reading.doubts.missing(metric or label)
            if metric is not None and kind_of(metric) is not None:
                self._launch.add(metric, None)
        elif metric is None or kind_of(metric) is None:
            unit = rest[0] if len(rest) == 2 else ""
            self._reading.unused(label, rest[-1], line, counted=is_counted(label, unit))
        elif len(rest) > 2:
            raise damaged(self._reading.where, line, f"{metric} has no value that can be told from its unit")
        else:
            target = self._reading.target(metric, rest[0] if len(rest) == 2 else "", line)
            self._reading.put(self._launch, target, rest[-1], line)
