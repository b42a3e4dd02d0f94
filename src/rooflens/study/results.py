"""The contents of the record files of a study."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rooflens.records import RecordFile
from rooflens.results import RecordSet
from rooflens.study.study import Cell, is_open


@dataclass(frozen=True)
class StudyContents:
    """The cells that are done, skipped or failed, each with its records or failures, in the order of the study."""

    cells: tuple[tuple[Cell, RecordFile], ...]

    @cached_property
    def records(self) -> RecordSet:
        """Everything that the study found: records, failures, and of the environments what all say alike.

        Raises:
            InvalidValue: two cells name a device alike and give it other rates.
        """
        files = [contents for _, contents in self.cells]
        # Records may be many: only what is small goes through the sum of sets.
        headers = [RecordSet((), devices=file.devices, environment=file.environment) for file in files]
        rest = RecordSet.union(headers)
        return RecordSet(
            (record for contents in files for record in contents.records),
            devices=rest.devices,
            failures=(failure for contents in files for failure in contents.failures),
            environment=rest.environment,
        )

    @cached_property
    def aliases(self) -> dict[str, frozenset[str]]:
        """The devices that the study's words for this machine (``cuda``) and its device files stand for."""
        devices: dict[str, frozenset[str]] = {}
        for cell, contents in self.cells:
            word = cell.case.device
            if word is not None and is_open(word):
                named = {record.case.device for record in contents.records if record.case.device is not None}
                devices[word] = devices.get(word, frozenset()) | named
        return devices
