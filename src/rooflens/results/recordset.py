"""RecordSet: many records, with questions that people ask of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rooflens.devices import which_of
from rooflens.errors import AmbiguousResult, InvalidValue
from rooflens.notebook import Displayed
from rooflens.predict import Conduct, KnownTimes, Way, alone, fuses, way_of
from rooflens.records import (
    ANSWER_PHASES,
    EVERY_PHASE,
    PHASES,
    Bound,
    Case,
    Device,
    Environment,
    Failure,
    KvCache,
    Memory,
    Phase,
    Record,
    RecordFile,
    Source,
    Work,
    read_records,
    write_records,
)
from rooflens.results import frames
from rooflens.results.chosen_records import any_of, check_conditions, hold_for_cases, meets
from rooflens.results.joined_records import PartOfSet, joined_records
from rooflens.results.kept_records import KeptRecords, LayerMaker
from rooflens.results.totals import Coverage, Group, Total, grouped_by
from rooflens.roofline import Bounds

if TYPE_CHECKING:
    import pandas
    import polars

Made = TypeVar("Made")
Grouping = Literal["phase", "module", "family", "op"]

GROUP_KEYS: Mapping[Grouping, Callable[[Record], str]] = {
    "phase": lambda r: r.phase or "",
    "module": lambda r: r.path,
    "family": lambda r: r.kind,
    "op": lambda r: f"{r.path}/{r.name}" if r.path else r.name,
}
"""By what records are grouped at each level."""


class RecordSet(Displayed):
    """Records of one or many cases and sources.

    Iterating gives each observation once. Totals answer for one case and one source; where the set holds more, narrow
    it with :meth:`where` first.
    """

    def __init__(
        self,
        records: Iterable[Record],
        *,
        devices: Mapping[str, Device] | None = None,
        failures: Iterable[Failure] = (),
        environment: Environment | None = None,
        origin: RecordSet | None = None,
        whole: Mapping[Case, LayerMaker] | None = None,
    ) -> None:
        """Gather records.

        Args:
            devices: the devices that the cases name, by name.
            origin: the set from which these records are cut; what is known of them already is not computed again.
            whole: makes the records of a case of which those given are sums over equal layers.
        """
        self._kept = KeptRecords(summed=tuple(records), makers=dict(whole or {}))
        self.devices = dict(devices or {})
        self.failures = tuple(failures)
        self.environment = environment
        self.summed = self._kept.summed
        self._origin: KeptRecords = self._kept if origin is None else origin._origin
        self._bounds: Bounds = Bounds() if origin is None else origin._bounds
        self._totals: dict[tuple[Phase | None, int, Way | None, int | None], Total] = {}
        self._split: tuple[tuple[Case, Source, RecordSet], ...] | None = None
        self._made: dict[object, Any] = {}

    @property
    def records(self) -> tuple[Record, ...]:
        """All records; each layer of a model has its own."""
        return self._kept.every if self._kept.makers else self.summed

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __add__(self, other: RecordSet) -> RecordSet:
        """Return both sets together, as `union` does, with its errors."""
        return RecordSet.union((self, other))

    def __repr__(self) -> str:
        return f"RecordSet({len(self)} records, {len(self.cases)} cases, sources: {', '.join(self.sources) or 'none'})"

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The distinct cases, in order of appearance."""
        return tuple(dict.fromkeys(r.case for r in self.summed))

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The distinct sources, in order of appearance."""
        return tuple(dict.fromkeys(r.source for r in self.summed))

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The distinct phases, in order of appearance."""
        return tuple(dict.fromkeys(r.phase for r in self.summed if r.phase is not None))

    def where(self, **conditions: object) -> RecordSet:
        """Return the records that meet every condition: a field of the record or its case, or an option, as given.

        A device may be named in any way that the catalogue knows. Of a list of values any one is met.

        >>> rs.where(batch=[32, 64], source="measure")  # doctest: +SKIP
        """
        check_conditions(conditions)
        if (device := conditions.get("device")) is not None:
            here = {case.device for case in self.cases if case.device is not None}
            conditions["device"] = [which_of(here, one) if isinstance(one, str) else one for one in any_of(device)]
        summed = hold_for_cases(conditions)
        return RecordSet(
            (record for record in (self.summed if summed else self.records) if meets(record, conditions)),
            whole=self._kept.makers if summed else None,
            devices=self.devices,
            failures=(failure for failure in self.failures if meets(failure, conditions)),
            environment=self.environment,
            origin=self,
        )

    @classmethod
    def union(cls, sets: Iterable[RecordSet]) -> RecordSet:
        """Return all sets together, the empty one of none; of their environments what all say alike is kept.

        Parts of one estimate make the whole again, and what several hold is kept once. Measurements of the same whole
        are samples of the same thing. Of what was observed piece by piece each set is a run of its own, and the second
        one's case has ``run=2``; the same run is kept once, and parts that `where` took from one set are of one run.

        Raises:
            InvalidValue: something is no set; or two sets hold a device of the same name with other rates, or
                different estimates of one case: totals and bounds would change unseen.
        """
        every = [*sets] or [cls(())]
        strangers: list[object] = [each for each in every if not isinstance(each, RecordSet)]
        if strangers:
            first = strangers[0]
            hint = f"; read it first: rl.read({str(first)!r})" if isinstance(first, str | Path) else ""
            raise InvalidValue(f"{first!r} is no record set{hint}")
        if len(every) == 1:
            return every[0]
        devices: dict[str, Device] = {}
        for each in every:
            for name, device in each.devices.items():
                devices[name] = devices.get(name, device).joined(device)
        kept = joined_records(
            [PartOfSet(kept=each._kept, origin=each._origin, environment=each.environment) for each in every]
        )
        return RecordSet(
            kept.summed,
            whole=kept.makers,
            devices=devices,
            failures={id(failure): failure for each in every for failure in each.failures}.values(),
            environment=reduce(lambda one, other: one and other and one.common(other), (e.environment for e in every)),
            origin=every[0] if len({id(each._origin) for each in every}) == 1 else None,
        )

    def with_records(self, records: Iterable[Record]) -> RecordSet:
        """Return the same set with other records; some of its own are a part of it, as `where` returns one."""
        given, own = tuple(records), set(map(id, self.records))
        return RecordSet(
            given,
            devices=self.devices,
            failures=self.failures,
            environment=self.environment,
            origin=self if own.issuperset(map(id, given)) else None,
        )

    def once(self, make: Callable[[RecordSet], Made]) -> Made:
        """Return what a function makes of the set; it is made once."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made

    def split(self) -> tuple[tuple[Case, Source, RecordSet], ...]:
        """Return one set per case and source, in order of appearance; always the same sets."""
        if self._split is None:
            held = grouped_by(self.summed, lambda record: (record.case, record.source))
            more: dict[str, Any] = {"devices": self.devices, "environment": self.environment, "origin": self}
            makers = self._kept.makers
            self._split = tuple(
                (case, source, RecordSet(records, whole={case: makers[case]} if case in makers else None, **more))
                for (case, source), records in held.items()
            )
        return self._split

    def device(self) -> Device | None:
        """Return the device of the set's only case; None if it names none or the set does not hold it."""
        return self.devices.get(self._case().device or "")

    def total(self, phase: Phase | None = None) -> Total:
        """Return the sum of one case and source, in one phase or in all.

        Raises:
            AmbiguousResult: the set holds several cases or sources.
            InvalidValue: there is no such phase.
        """
        if phase is not None and phase not in EVERY_PHASE:
            raise InvalidValue(f"unknown phase {phase!r}; known: {', '.join(EVERY_PHASE)}")
        return self.under(self.device(), phase)

    def under(
        self,
        device: Device | None,
        phase: Phase | None = None,
        way: Way | None = None,
        times: KnownTimes | None = None,
    ) -> Total:
        """Return the sum of the records of a phase, or of all, on any device.

        Args:
            way: how the step runs, for its expected time; default: as the case says, else eagerly.
            times: of calls that were replayed on the device.
        """
        key = (phase, id(device), way, id(times) if times else None)
        if key not in self._totals:
            chosen = [r for r in self.summed if phase in (None, r.phase)]
            whole_answer = not set(ANSWER_PHASES).isdisjoint(self.phases)
            if phase == "forward" and not chosen and not whole_answer:
                # Every step has one; without operations it is all of the step.
                chosen = [r for r in self.summed if r.scope == "model" and r.source == "estimate"]
            self._totals[key] = Total(chosen, device, self._bounds, self.conduct(way, times, phase), phase)
        return self._totals[key]

    def conduct(self, way: Way | None = None, times: KnownTimes | None = None, phase: Phase | None = None) -> Conduct:
        """Return how the step of the set, or a phase of it, runs, as far as its case and its model's record tell."""
        model = next((r for r in self.summed if r.scope == "model" and r.source == "estimate"), None)
        if model is None:
            return alone(self.summed)
        options = dict(model.case.options)
        earlier = PHASES[: PHASES.index(phase)] if phase in PHASES else ()
        return Conduct(
            way=way or way_of(options),
            held=None if model.memory is None else model.memory.peak,
            host_calls=model.host_calls,
            fused=fuses(options),
            before=tuple(record for record in self.summed if record.phase in earlier),
            times=times or {},
        )

    def sum(self, records: Iterable[Record], device: Device | None) -> Total:
        """Return the sum of some of the records on a device; bounds that are known already are not computed again."""
        return Total(records, device, self._bounds)

    def bound(self, work: Work, device: Device) -> Bound:
        """Return the bound of any work on a device, computed once.

        Raises:
            MissingCeiling: the work has matrix FLOP of a precision for which the device has no rate.
        """
        return self._bounds.of(work, device)

    def by(self, level: Grouping) -> tuple[Group, ...]:
        """Return the records grouped by phase, module path, operation family or operation, in order of appearance."""
        if level not in GROUP_KEYS:
            raise InvalidValue(f"cannot group by {level!r}; known: {', '.join(GROUP_KEYS)}")
        device = self.device()
        groups = grouped_by((r for r in self.records if r.work is not None or r.timing is not None), GROUP_KEYS[level])
        return tuple(
            Group(
                key=key,
                kind=records[0].kind if len({r.kind for r in records}) == 1 else "",
                phase=records[0].phase if len({r.phase for r in records}) == 1 else None,
                total=self.sum(records, device),
            )
            for key, records in groups.items()
        )

    @property
    def parameters(self) -> int | None:
        """Parameter elements of the model, shared ones once; None if not recorded."""
        self._case()
        return next((r.parameters for r in self.summed if r.parameters is not None), None)

    @property
    def memory(self) -> Memory | None:
        """Peak memory of the step, by cause where known; None if not recorded."""
        self._case()
        return next((r.memory for r in self.summed if r.memory is not None), None)

    @property
    def kv_cache(self) -> KvCache | None:
        """What the cache of a language model holds after prefill or a decoding step; None of any other step."""
        self._case()
        return next((r.kv_cache for r in self.summed if r.kv_cache is not None), None)

    @property
    def coverage(self) -> Coverage:
        """Operations counted and listed."""
        return self.total().coverage

    @property
    def notes(self) -> tuple[str, ...]:
        """Every note on the records, once."""
        return tuple(dict.fromkeys(note for r in self.summed for note in r.notes))

    def save(self, path: str | Path) -> Path:
        """Write a record file; it appears whole or not at all."""
        target = Path(path)
        write_records(target, self.contents)
        return target

    @classmethod
    def load(cls, path: str | Path) -> RecordSet:
        """Read a record file."""
        return cls.of(read_records(Path(path)))

    @classmethod
    def of(cls, file: RecordFile) -> RecordSet:
        """Return the set of a record file's contents."""
        return cls(file.records, devices=file.devices, failures=file.failures, environment=file.environment)

    @property
    def contents(self) -> RecordFile:
        """The set as the contents of a record file."""
        return RecordFile(
            records=self.records, failures=self.failures, devices=self.devices, environment=self.environment
        )

    def to_polars(self, by: str | None = None, depth: int | None = None) -> polars.DataFrame:
        """Return the rows of :meth:`to_pandas` as a frame of polars."""
        return frames.of_polars(self, by, depth)

    def to_pandas(self, by: str | None = None, depth: int | None = None) -> pandas.DataFrame:
        """Return one row per record, or a table as numbers; what is unknown is missing (`pandas.NA`).

        A record's row is of one call: its work, its measured ``seconds``, ``bound_seconds`` and ``predicted_seconds``;
        an estimate's row of scope "model" has those of the whole step.

        Args:
            by: one row per ``module``, ``op``, ``family``, ``kernel`` or ``phase`` (of steps), as in
                :func:`rooflens.table`, in base units (``attrs["units"]``); ``seconds`` is the bound. A module's row
                holds those below it: add up where ``leaf`` is true.
            depth: of modules.

        Raises:
            MissingDependency: pandas is not installed.
        """
        return frames.of_pandas(self, by, depth)

    def _case(self) -> Case:
        cases, sources = self.cases, self.sources
        if not cases:
            raise AmbiguousResult("the set is empty: there is no case to answer for")
        if len(cases) > 1 or len(sources) > 1:
            listed = "; ".join(case.label() for case in cases[:5]) + ("; ..." if len(cases) > 5 else "")
            raise AmbiguousResult(
                f"this needs one case and one source, the set holds {len(cases)} cases ({listed}) and"
                f" {len(sources)} sources ({', '.join(sources)}); narrow it with where(...)"
            )
        return cases[0]
