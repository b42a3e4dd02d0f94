"""Exports of Nsight Systems: kernels and copies."""

from __future__ import annotations

from pathlib import Path

from rooflens.readers.reader import FoundCases, ReadContext, Reader, numbered
from rooflens.records import Case
from rooflens.results import RecordSet
from rooflens.sources.profile import nsys


def _read(path: Path, context: ReadContext) -> RecordSet:
    """Where several GPUs did something, each has a case."""
    export = nsys.read_export(path)
    several, cases = len(nsys.cards_of(export)) > 1, FoundCases(context)

    def case_of(card: int | None) -> Case:
        return cases.of(None if card is None else export.titles.get(card), numbered(card, several=several))

    return RecordSet(list(nsys.records_of(export, case_of)), devices=cases.devices)


NSYS = Reader(
    name="Nsight Systems",
    reads="exports of Nsight Systems (.sqlite)",
    recognises=lambda head: head.startswith(nsys.MAGIC),
    read=_read,
)
