"""What the marks of a figure stand for: whole cases, their phases, or their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rooflens.compare.kernel_pairs import spelling
from rooflens.predict import Prediction
from rooflens.records import Case, Phase, Record, Source, Work
from rooflens.report.case_names import PHASE_WORDS, SHORT_PHASES, differing, name_of
from rooflens.report.columns import sum_of_known
from rooflens.report.figures.labels import cut
from rooflens.report.figures.palette import MIXED, MOST_MODELS, WHOLE
from rooflens.report.model_families import FAMILIES, colours_tell, family_of
from rooflens.report.module_tree import ITSELF
from rooflens.results import GROUP_KEYS, Evidence, RecordSet
from rooflens.results.totals import grouped_by

PieceKind = Literal["model", "phase", "module", "family", "module-family", "op", "operator", "kernel"]
BY: tuple[PieceKind, ...] = ("model", "phase", "module", "family", "module-family", "op", "operator", "kernel")

FEW_LAUNCHES = 12
"""Up to so many launches of kernels are shown one by one, more by the name of the kernel."""
_LONGEST_KERNEL = 80
_PARTS: Mapping[str, Callable[[Record], str]] = {
    "module": GROUP_KEYS["module"],
    "family": GROUP_KEYS["family"],
    "op": GROUP_KEYS["op"],
    "operator": lambda record: record.name,
    "module-family": lambda record: f"{record.path} {record.kind}",
}
"""What the records of one part of a case have in common."""
_OF_MODULES = ("module", "module-family")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one mark, or an estimated and an observed one, stands for.

    Attributes:
        name: the piece in full, for hover texts; `label` is what fits beside a mark.
        group: what its colour tells.
        records: those that hold its work.
        source: who observed it, None where nobody did.
        seconds: observed time; `whole_seconds` that of its whole case, the base of the share.
        whole: a whole case, drawn beside its own parts.
        kernel: a launch of a kernel, or all launches of one name.
        expected: the time of a step or phase that is expected of its device.
    """

    case: Case
    name: str
    label: str
    group: str
    records: tuple[Record, ...]
    source: Source | None = None
    seconds: float | None = None
    whole_seconds: float | None = None
    whole: bool = False
    kernel: bool = False
    expected: Prediction | None = None

    @property
    def listed(self) -> str:
        """The name of the piece in a list below the figure."""
        if self.whole:
            return self.label
        if not self.kernel:
            return self.name
        name, of, launch = self.name.partition(", launch ")  # which of several it is stays at any length of a name
        return cut(spelling(name).removeprefix("void "), _LONGEST_KERNEL - len(of + launch)) + of + launch

    @cached_property
    def work(self) -> Work | None:
        """What the device does for this piece: recomputation included, a causal call by what its kernel executes."""
        return Work.of_calls((work, r.calls) for r in self.records if (work := r.bound_work) is not None)


@dataclass(frozen=True, slots=True)
class Naming:
    """How the cases of a figure are told apart.

    Attributes:
        fields: the fields of a case in which they differ.
        labels: those that are written beside a mark: of many models not the batch, which its size tells, nor what each
            has in one value.
        colours: what colours tell where each mark is a whole case: the first thing that differs.
    """

    fields: tuple[str, ...]
    labels: tuple[str, ...]
    colours: str
    several_cases: bool
    several_phases: bool
    several_sets: bool

    @classmethod
    def of(cls, evidence: Sequence[Evidence]) -> Naming:
        """Name cases by the fields in which they differ."""
        cases = [item.case for item in evidence]
        several_phases = len({phase for item in evidence for phase in _phases(item)}) > 1
        fields = differing(cases)
        names = len({name_of(case, fields) for case in cases})
        models = len({case.model for case in cases})
        colours = "phase" if names == 1 and several_phases else colours_tell(cases)[0]
        few = names <= MOST_MODELS or models == 1
        told = {"batch size", *(field for field in fields if field != "model" and _models_tell(cases, field))}
        labels = fields if few else tuple(field for field in fields if field not in told)
        return cls(fields, labels, colours, names > 1, several_phases, len(evidence) > 1)

    @property
    def sizes(self) -> Literal["share", "batch", "nothing"]:
        """What the size of a whole case tells: of its phases their shares, else its batch unless colours tell that."""
        if self.several_phases:
            return "share"
        return "batch" if "batch size" in self.fields and self.colours != "batch size" else "nothing"

    def group(self, case: Case, phase: Phase | None) -> str:
        """Return what the colour of a whole case or phase tells."""
        if self.colours == "phase":
            return PHASE_WORDS[phase]
        return family_of(case.model) if self.colours == FAMILIES else name_of(case, [self.colours])


def _models_tell(cases: Sequence[Case], field: str) -> bool:
    """True if all cases of a model have the same value of a field."""
    return len({(case.model, name_of(case, [field])) for case in cases}) == len({case.model for case in cases})


def pieces(item: Evidence, work: RecordSet, by: PieceKind, naming: Naming) -> Iterator[Piece]:
    """Yield the pieces of a case with known work: itself, its phases, or its parts and then its phases as wholes."""
    if by == "model":
        yield _step(item, work, None, naming)
        return
    if by == "kernel":
        yield from _kernels(item, naming)
    elif by != "phase":
        yield from _parts(item, work, by, naming)
    for phase in _phases(item):
        yield _step(item, work, phase, naming, beside_parts=by != "phase")


def _phases(item: Evidence) -> list[Phase | None]:
    """Return the phases of a case, and None for the whole step where it was timed as one or no phase is known.

    A step of one phase is that phase, however it was timed.
    """
    timed_whole = item.time is not None and any(
        r.phase is None and r.timing is not None and r.scope == "model" for r in item.time
    )
    return [*item.phases, *([None] if len(item.phases) != 1 and (timed_whole or not item.phases) else [])]


def _step(item: Evidence, work: RecordSet, phase: Phase | None, naming: Naming, *, beside_parts: bool = False) -> Piece:
    time, whole, total = item.measured(phase), item.measured(), item.total(phase)
    short = name_of(item.case, naming.labels)
    if beside_parts:
        label = [short if naming.several_cases else "", PHASE_WORDS[phase]]
        group = WHOLE
    else:
        label = [short, SHORT_PHASES[phase] if naming.several_phases else ""]
        group = naming.group(item.case, phase)
    return Piece(
        case=item.case,
        name=f"{item.case.label()}, {PHASE_WORDS[phase]}",
        label=" ".join(filter(None, label)) or item.case.model,
        group=group,
        records=tuple(r for r in work if phase is None or r.phase == phase or item.phases == (phase,)),
        source=None if item.time is None else item.time.sources[0],
        seconds=None if time is None else time.seconds,
        whole_seconds=None if whole is None else whole.seconds,
        whole=beside_parts,
        expected=None if total is None else total.prediction,
    )


def _parts(item: Evidence, work: RecordSet, by: PieceKind, naming: Naming) -> Iterator[Piece]:
    """Yield modules, families, both at once or operations, with the time of each where they were timed one by one."""
    times: dict[str, float | None] = {}
    source, whole_seconds = None, None
    if item.pieces is not None:
        source = item.pieces.sources[0]
        timed = (r for r in item.pieces if r.scope != "model" and (r.timing is not None or r.work is not None))
        groups = grouped_by(timed, _PARTS[by])
        times = {key: item.pieces.sum(records, None).measured_seconds for key, records in groups.items()}
        whole_seconds = sum_of_known(times.values())
    worked = [r for r in work if r.work is not None and r.scope != "model"]
    case = name_of(item.case, naming.fields) if naming.several_cases else ""
    phases_told = by == "op" and len({r.phase for r in worked} - {None}) > 1
    for key, records in grouped_by(worked, _PARTS[by]).items():
        first, kinds, phases = records[0], {r.kind for r in records}, {r.phase for r in records}
        phase = first.phase if len(phases) == 1 else None
        named = "" if by == "operator" else first.path
        outside = f"{item.case.model}{key or f' {ITSELF}'}"  # of the modules: the model's own operations
        label = [
            case,
            first.kind if by == "family" else named or (item.case.model if by == "module-family" else first.name),
            SHORT_PHASES[phase] if phases_told and phase is not None else "",
        ]
        yield Piece(
            case=item.case,
            name=f"{outside if first.path == '' and by in _OF_MODULES else key}, {phase or 'all phases'}",
            label=" ".join(filter(None, label)),
            group=(first.kind if len(kinds) == 1 else "") or MIXED,
            records=tuple(records),
            source=source,
            seconds=times.get(key),
            whole_seconds=whole_seconds,
        )


def launches(item: Evidence) -> list[Record]:
    """Return the kernels whose work was counted launch by launch."""
    return [] if item.work is None else [r for r in item.work if r.scope == "kernel"]


def _kernels(item: Evidence, naming: Naming) -> Iterator[Piece]:
    """Yield launches one by one where they are few, else those of one name together.

    A launch whose work or time is unknown is not part of a sum: it is a piece of its own, without one.
    """
    counted = launches(item)
    few = len(counted) <= FEW_LAUNCHES
    times: dict[str, int] = {}
    groups: dict[tuple[object, ...], list[Record]] = {}
    for number, record in enumerate(counted):
        times[record.name] = times.get(record.name, 0) + 1
        which = number if few else record.name
        groups.setdefault((which, record.work is None, record.timing is None), []).append(record)
    seconds = {key: sum_of_known(record.seconds for record in records) for key, records in groups.items()}
    whole_seconds = sum_of_known(seconds.values())
    nth: dict[str, int] = {}
    for key, records in groups.items():
        name = records[0].name
        nth[name] = nth.get(name, 0) + 1
        yield Piece(
            case=item.case,
            name=f"{name}, launch {nth[name]} of {times[name]}" if few and times[name] > 1 else name,
            label=item.case.label() if naming.several_sets else "",
            group=records[0].kind or MIXED,
            records=tuple(records),
            source=None if item.time is None else item.time.sources[0],
            seconds=seconds[key],
            whole_seconds=whole_seconds,
            kernel=True,
        )
