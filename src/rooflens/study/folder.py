"""The folder of a study: its record files are its state.

::

    FOLDER/
      study.toml              a copy of the study file
      study.json              where the study file lies, and the hash by which a change of it is told
      figures.csv             a copy of the reported figures, if the study has any
      cells/KEY.jsonl         the records of a cell: it is done
      cells/KEY.failed.jsonl  why a cell failed
      cells/KEY.skipped.jsonl why a cell was skipped: its device has no rate for its dtype
      journal/RUN.jsonl       seconds that each cell took, one file per run: only the time of the rest hangs on it

A file appears whole or not at all, so a run that is killed leaves what is done and what is not, and nothing between.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Literal, get_args

from rooflens.errors import InvalidValue, OutputError, RecordFileError, StudyFileError
from rooflens.notebook import Displayed
from rooflens.records import Failure, RecordFile, check_writable, read_records, write_atomically, write_records
from rooflens.results import RecordSet
from rooflens.study.claims import judge
from rooflens.study.grid import cells as cells_of
from rooflens.study.grid import standing
from rooflens.study.lease import is_leased
from rooflens.study.results import StudyContents
from rooflens.study.study import Cell
from rooflens.study.study_file import StudyFile, read_study
from rooflens.study.verdict import Verdict
from rooflens.study.whereabouts import home_of, noted

FORMAT = 1
CELLS = "cells"
"""The folder of the record files, in that of the study."""
FileKind = Literal["done", "skipped", "failed"]
SUFFIXES: Mapping[FileKind, str] = {"done": ".jsonl", "skipped": ".skipped.jsonl", "failed": ".failed.jsonl"}
"""How the file of a cell ends, by what came of it."""
DONE = SUFFIXES["done"]
CellState = Literal["done", "skipped", "failed", "running", "left"]
STATES: tuple[CellState, ...] = get_args(CellState)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyChange:
    """How a study differs from the one that a folder was begun with.

    Attributes:
        added: cells that it asks for now.
        dropped: cells that it no longer asks for; their files stay.
    """

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Displayed):
    """How far a study is.

    Attributes:
        states: every cell of the study, in its order.
        failures: what went wrong, or why a cell was skipped, by the key of the cell.
        seconds: what the cells that are done took together; None where nobody noted it.
        expected: what those left will take, one after another; None where nothing like them is done yet.
        unlike: cells left whose kind has no example yet: they are not in `expected`.
        strangers: record files of cells that the study does not ask for.
    """

    states: Mapping[Cell, CellState]
    failures: Mapping[str, Failure] = field(default_factory=dict)
    seconds: float | None = None
    expected: float | None = None
    unlike: int = 0
    strangers: tuple[str, ...] = ()

    def count(self, state: CellState) -> int:
        """How many cells are in a state."""
        return sum(each == state for each in self.states.values())

    def cells(self, *states: CellState) -> tuple[Cell, ...]:
        """The cells that are in one of some states."""
        return tuple(cell for cell, state in self.states.items() if state in states)

    @property
    def complete(self) -> bool:
        """True if every cell is done or skipped."""
        return self.count("done") + self.count("skipped") == len(self.states)

    def left_by_device(self) -> Counter[str | None]:
        """Cells left by the device that they need, None for those that run anywhere."""
        return Counter(cell.needs for cell in self.cells("left"))


class StudyFolder:
    """A study and its records so far: ``StudyFolder.open("out/resnets").records()``.

    Attributes:
        home: the folder of the study file, which its paths are relative to.
        files: where the record files and leases are.
        figures: the reported figures that stand beside ours.
    """

    def __init__(self, path: Path, file: StudyFile) -> None:
        self.path, self.study, self.home = path, file.study, file.home
        self.files = path / CELLS
        self.figures = None if file.study.figures is None else path / "figures.csv"

    @classmethod
    def open(cls, path: str | Path) -> StudyFolder:
        """The folder of a study that was begun before, with the study as it was then.

        Raises:
            InvalidValue: there is no study in this folder.
            StudyFileError: its study file cannot be read.
        """
        folder = Path(path)
        begun = _begun(folder)
        if begun is None:
            raise InvalidValue(
                f"{str(path)!r} holds no study; begin one with 'rooflens study run STUDY.toml -d {path}'"
            )
        return cls(folder, read_study(folder / "study.toml", home=home_of(folder, begun["home"])))

    @classmethod
    def begin(cls, path: str | Path, study: str | Path) -> tuple[StudyFolder, StudyChange | None]:
        """Make the folder of a study, or take the one that is there.

        Returns:
            The folder, and how the study changed since, None if it did not.

        Raises:
            StudyFileError: the study cannot be read.
            OutputError: the folder cannot be written.
        """
        folder, source = Path(path), Path(study)
        file = read_study(source)
        begun = _begun(folder)
        sha256 = hashlib.sha256(file.text.encode()).hexdigest()
        if begun is not None and begun["sha256"] == sha256:
            return cls(folder, file), None
        check_writable(folder / "study.toml")
        new = cls(folder, file)
        before = _keys_before(folder) if begun is not None else set()
        (folder / CELLS).mkdir(exist_ok=True)
        if file.study.figures is not None:
            write_atomically(folder / "figures.csv", (file.home / file.study.figures).read_bytes())
        write_atomically(folder / "study.toml", file.text)
        # Last: what it tells is then there.
        home = noted(folder, file.home)
        write_atomically(folder / "study.json", json.dumps({"format": FORMAT, "sha256": sha256, "home": home}) + "\n")
        now = {cell.key for cell in new.cells}
        change = StudyChange(added=tuple(sorted(now - before)), dropped=tuple(sorted(before - now)))
        return new, None if begun is None else change

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell of the study, in the order in which they are best run."""
        return cells_of(self.study, self.home)

    def named(self, keys: Iterable[str]) -> tuple[Cell, ...]:
        """The cells of these keys, in the order of the study.

        Raises:
            InvalidValue: the study has no such cell.
        """
        wanted = set(keys)
        cells = tuple(cell for cell in self.cells if cell.key in wanted)
        if len(cells) < len(wanted):
            unknown = sorted(wanted - {cell.key for cell in cells})
            raise InvalidValue(f"the study in {str(self.path)!r} has no cell {unknown[0]!r}")
        return cells

    def has(self, cell: Cell) -> FileKind | None:
        """What came of a cell, where the folder has a file of it."""
        return next((each for each, suffix in SUFFIXES.items() if (self.files / f"{cell.key}{suffix}").exists()), None)

    def wants(self, cell: Cell, *, retry: bool) -> bool:
        """True if a cell is still to be run.

        Args:
            retry: whether one that failed or was skipped is.
        """
        has = self.has(cell)
        return has is None or (has != "done" and retry)

    def has_any(self) -> bool:
        """True if any cell is done or failed."""
        return any(_key(name) is not None for name in self._listed())

    def keep(self, cell: Cell, contents: RecordFile) -> None:
        """Write the records of a cell, or why there are none."""
        came = outcome(contents)
        write_records(self.files / f"{cell.key}{SUFFIXES[came]}", contents)
        for other, suffix in SUFFIXES.items():
            if other not in ("done", came):
                (self.files / f"{cell.key}{suffix}").unlink(missing_ok=True)

    def take_recorded(self) -> int:
        """Copy the files that were recorded elsewhere and stand for cells that are not done here; how many."""
        names = self._listed()
        taken = 0
        for key, path in standing(self.study, self.home, self.cells).items():
            if f"{key}{DONE}" not in names and path.name not in names:
                write_atomically(self.files / path.name, path.read_bytes())
                taken += 1
        return taken

    def sweep(self) -> None:
        """Remove what killed runs left of cells that are done."""
        for name in self._listed():
            known = re.fullmatch(r"\.(.+?)(?:\.lease-.*|(?:\.failed|\.skipped)?\.jsonl\..*\.tmp)", name)
            if known and (self.files / f"{known[1]}{DONE}").exists() and not is_leased(self.files, known[1]):
                (self.files / name).unlink(missing_ok=True)

    def status(self) -> Status:
        """Which cells are done, skipped, failed, running or left, and how long the rest should take."""
        names = self._listed()
        states = {cell: self._state(cell, names) for cell in self.cells}
        keys = {cell.key for cell in self.cells}
        took = self._took()
        expected, unlike = _expected([cell for cell, state in states.items() if state == "left"], self.cells, took)
        seconds = [took[cell.key] for cell, state in states.items() if state == "done" and cell.key in took]
        return Status(
            states=states,
            failures={cell.key: self.failure(cell) for cell, state in states.items() if state in ("failed", "skipped")},
            seconds=sum(seconds) if seconds else None,
            expected=expected,
            unlike=unlike,
            strangers=tuple(sorted(key for name in names if (key := _key(name)) is not None and key not in keys)),
        )

    def states(self) -> dict[Cell, CellState]:
        """The state of every cell, from a listing of the folder alone."""
        names = self._listed()
        return {cell: self._state(cell, names) for cell in self.cells}

    def _listed(self) -> set[str]:
        """The names of all files of cells; none where a copy of the folder left out what was empty."""
        try:
            return set(os.listdir(self.files))
        except FileNotFoundError:
            return set()

    def _state(self, cell: Cell, names: set[str]) -> CellState:
        """The state of a cell, from a listing of the folder."""
        if f"{cell.key}{DONE}" in names:
            return "done"
        if f".{cell.key}.lease-1" in names and is_leased(self.files, cell.key):
            return "running"
        return next((each for each, suffix in SUFFIXES.items() if f"{cell.key}{suffix}" in names), "left")

    def failure(self, cell: Cell) -> Failure:
        """Why a cell failed or was skipped."""
        name = f"{cell.key}{SUFFIXES[self.has(cell) or 'failed']}"
        failures = self._read(name).failures
        if not failures:
            raise RecordFileError(f"{self.files / name} tells no failure; remove it, and the cell is run again")
        return failures[0]

    def _read(self, name: str) -> RecordFile:
        try:
            return read_records(self.files / name)
        except RecordFileError as error:
            error.add_note(f"remove the file, and 'rooflens study resume {self.path}' runs its cell again")
            raise

    def contents(self) -> StudyContents:
        """All that the record files hold, each read once.

        Raises:
            RecordFileError: a file is damaged; it is named.
        """
        names = self._listed()
        files = []
        for cell in self.cells:
            name = next((name for suffix in SUFFIXES.values() if (name := f"{cell.key}{suffix}") in names), None)
            if name is not None:
                files.append((cell, self._read(name)))
        return StudyContents(tuple(files))

    def records(self) -> RecordSet:
        """Everything that the study found, see :attr:`StudyContents.records`."""
        return self.contents().records

    def verdicts(self, contents: StudyContents) -> tuple[Verdict, ...]:
        """What the contents of the record files say of each hypothesis."""
        left = [cell for cell, state in self.states().items() if state in ("left", "running")]
        return judge(self.study.hypotheses, contents.records, contents.aliases, left)

    def journal(self) -> Path:
        """A new file for the seconds that the cells of one run take."""
        folder = self.path / "journal"
        try:
            folder.mkdir(exist_ok=True)
            self.files.mkdir(exist_ok=True)  # a copy of the folder may have left it out, if it was empty
        except OSError as error:
            raise OutputError(f"cannot write {str(folder)!r}: {error.strerror}") from error
        return folder / f"{os.urandom(6).hex()}.jsonl"

    def _took(self) -> dict[str, float]:
        """Seconds of cells by key, as far as they were noted; half a line of a killed run is skipped."""
        took: dict[str, float] = {}
        for path in sorted((self.path / "journal").glob("*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    noted = json.loads(line)
                    took[noted["cell"]] = float(noted["seconds"])
                except (ValueError, LookupError, TypeError):
                    continue
        return took


def _begun(folder: Path) -> Mapping[str, object] | None:
    """The contents of the ``study.json`` of a folder, None if it has none."""
    path = folder / "study.json"
    try:
        begun = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidValue(f"cannot read {str(path)!r}: {error}") from error
    if not isinstance(begun, dict) or begun.get("format") != FORMAT or not {"sha256", "home"} <= begun.keys():
        raise InvalidValue(f"{str(path)!r} was not written by this version of rooflens; it reads format {FORMAT}")
    return begun


def _keys_before(folder: Path) -> set[str]:
    """The cells of the study that a folder was begun with; if that can no longer be read, those that have files."""
    try:
        return {cell.key for cell in StudyFolder.open(folder).cells}
    except (StudyFileError, InvalidValue):  # a device or a recorded file has gone, which the new file no longer needs
        return {key for name in os.listdir(folder / CELLS) if (key := _key(name)) is not None}


def _key(name: str) -> str | None:
    """The key of a cell by the name of its file."""
    if name.startswith(".") or not name.endswith(DONE):
        return None
    return name.removesuffix(DONE).removesuffix(".failed").removesuffix(".skipped")


def outcome(contents: RecordFile) -> FileKind:
    """What came of a cell whose records these are."""
    if contents.records:
        return "done"
    return "skipped" if contents.failures and all(failure.skipped for failure in contents.failures) else "failed"


def _expected(left: Iterable[Cell], cells: Iterable[Cell], took: Mapping[str, float]) -> tuple[float | None, int]:
    """Seconds that cells will take, each the mean of those like it, and how many have none like them."""

    def kinds(cell: Cell) -> tuple[tuple[str, ...], ...]:
        """What cells may share, most of it first."""
        return (cell.source, cell.case.model, cell.case.mode), (cell.source, cell.case.model), (cell.source,)

    examples = sorted((kind, took[cell.key]) for cell in cells if cell.key in took for kind in kinds(cell))
    typical = {kind: fmean(s for _, s in group) for kind, group in groupby(examples, key=lambda example: example[0])}
    guesses = [next((typical[kind] for kind in kinds(cell) if kind in typical), None) for cell in left]
    known = [guess for guess in guesses if guess is not None]
    return (sum(known) if known or not guesses else None), len(guesses) - len(known)
