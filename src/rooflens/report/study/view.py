"""What a report is about: a study and all that came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from rooflens.checks import Findings, examine
from rooflens.compare import (
    Correlation,
    DeviceComparison,
    PhaseRatio,
    Sweep,
    compare_devices,
    correlations,
    phase_ratios,
    sweeps,
)
from rooflens.errors import Incomparable
from rooflens.records import Environment, RecordFile
from rooflens.report.study.cases import device_order
from rooflens.reported import ComparedFigure, ReportedFigure
from rooflens.results import Evidence, RecordSet, join
from rooflens.study import Status, Study, StudyContents, StudyFolder, Verdict


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """A study and all that came of it.

    Attributes:
        status: the state of each of its cells.
        environments: each that records were made in, with the number of its record files.
        reported: figures of somebody else beside ours.
        text: the study file.
        name: the last name of the study's folder.
    """

    study: Study
    records: RecordSet
    status: Status = field(default_factory=lambda: Status(states={}))
    environments: tuple[tuple[Environment, int], ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    findings: Findings = field(default_factory=lambda: Findings(()))
    reported: tuple[ComparedFigure, ...] = ()
    text: str = ""
    name: str = ""

    @classmethod
    def of(
        cls,
        folder: StudyFolder,
        contents: StudyContents,
        figures: Iterable[ReportedFigure] = (),
        reported: tuple[ComparedFigure, ...] = (),
    ) -> StudyView:
        """Judge and check what the folder of a study holds.

        Args:
            figures: those that somebody reported; reported: the same beside ours.
        """
        return cls(
            study=folder.study,
            records=contents.records,
            status=Status(states=folder.states()),
            environments=_environments(file for _, file in contents.cells),
            verdicts=folder.verdicts(contents),
            findings=examine(figures, contents.records),
            reported=reported,
            text=(folder.path / "study.toml").read_text(encoding="utf-8"),
            name=folder.path.resolve().name,
        )

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Estimates beside the measurements of their cases."""
        return join(self.records)

    @cached_property
    def devices(self) -> DeviceComparison | None:
        """The same steps on several devices: what was measured on two, else their estimates; None where both lack."""
        estimates = RecordSet.union(each for _, source, each in self.records.split() if source == "estimate")
        return _compared(self.records) or _compared(estimates)

    @cached_property
    def device_order(self) -> tuple[str, ...]:
        """The names of devices in the order of their colours and symbols."""
        return device_order(self.records)

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Throughput against batch."""
        return sweeps(self.evidence, self.records.failures)

    @cached_property
    def phase_ratios(self) -> tuple[PhaseRatio, ...]:
        """Forward to backward; none where no case has both."""
        try:
            return phase_ratios(self.records)
        except Incomparable:
            return ()

    @cached_property
    def correlations(self) -> tuple[Correlation, ...]:
        """What goes with latency over the models of each setting; none where no time is known."""
        try:
            return correlations(self.records)
        except Incomparable:
            return ()


def _compared(records: RecordSet) -> DeviceComparison | None:
    """Return steps on several devices; None where no time is known on two."""
    try:
        return compare_devices(records)
    except Incomparable:
        return None


def _environments(files: Iterable[RecordFile]) -> tuple[tuple[Environment, int], ...]:
    """Each environment and its number of record files; when a file was made and by which process tells none apart."""
    counted: dict[str, tuple[Environment, int]] = {}
    for file in files:
        made = file.environment
        if made is not None:
            key = repr((made.rooflens, sorted(made.versions.items()), sorted(made.machine.items()), made.flags))
            first, number = counted.get(key, (made, 0))
            counted[key] = first, number + 1
    return tuple(counted.values())
