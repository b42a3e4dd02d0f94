"""Two files of kernels: launch against launch, by name and then by order; and by phase, module or family."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isclose
from typing import Literal, get_args

from rooflens.compare.doubts import Doubtful
from rooflens.errors import AmbiguousResult, Incomparable, InvalidValue
from rooflens.records import LEVELS, Record
from rooflens.results import UNATTRIBUTED, RecordSet
from rooflens.results.quantities import ratio
from rooflens.results.totals import grouped_by

LaunchedBy = Literal["kernel", "phase", "module", "family"]
_KEYS: Mapping[LaunchedBy, Callable[[Record], str]] = {
    "kernel": lambda record: spelling(record.name),
    "phase": lambda record: record.phase or "",
    "module": lambda record: record.path,
    "family": lambda record: "" if record.kind == "other" and not record.operation else record.kind,
}
LAUNCHED_BY: tuple[LaunchedBy, ...] = get_args(LaunchedBy)
"""What launches of two files are put together by."""
_CAST = re.compile(r"\([a-zA-Z_][\w ]*\)(?=-?\d)")
_NAMESPACE = re.compile(r"(?:\w+|<?unnamed>|\(anonymous namespace\))::")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPair:
    """One launch of a kernel, or one call of an operation, on the side or sides where it is.

    Attributes:
        name: in full, as the first side that has it writes it; `number`: which launch of this name it is, from 1.
    """

    name: str
    number: int
    before: Record | None
    after: Record | None

    @property
    def paired(self) -> bool:
        """True if both sides have it."""
        return self.before is not None and self.after is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSum:
    """Some launches of one side: times, executed FLOP and bytes by level together, None where one is unknown."""

    launches: int
    seconds: float | None
    flops: float | None
    bytes: Mapping[str, float | None]

    @property
    def dram(self) -> float | None:
        """Bytes of DRAM."""
        return self.bytes["dram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """All launches of a name, or of a phase, module or family."""

    name: str
    before: KernelSum
    after: KernelSum

    @property
    def ratio(self) -> float | None:
        """Seconds after over seconds before; None where a side has no such launch or no times."""
        return self._ratio(self.after.seconds, self.before.seconds)

    @property
    def gained(self) -> float | None:
        """Seconds by which it grew: negative where it got faster. A kernel that one side lacks takes no time there."""
        if self.before.seconds is None or self.after.seconds is None:
            return None
        same = isclose(self.after.seconds, self.before.seconds, rel_tol=1e-12)  # but for the order of a sum
        return 0.0 if same else self.after.seconds - self.before.seconds

    @property
    def flops_ratio(self) -> float | None:
        """FLOP after over FLOP before."""
        return self._ratio(self.after.flops, self.before.flops)

    def bytes_ratio(self, level: str) -> float | None:
        """Bytes of a level after over those before."""
        return self._ratio(self.after.bytes[level], self.before.bytes[level])

    def _ratio(self, after: float | None, before: float | None) -> float | None:
        return ratio(after, before) if self.before.launches and self.after.launches else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison(Doubtful):
    """Two files of kernels.

    Attributes:
        by: what launches are put together by.
        launches: in the order of the first file, then those that only the second has.
        kernels: by that, the largest change of time first; `total`: all of them.
    """

    by: LaunchedBy
    launches: tuple[LaunchPair, ...]
    kernels: tuple[Kernel, ...]
    total: Kernel

    @property
    def only_before(self) -> tuple[LaunchPair, ...]:
        """Launches of the first file without a partner."""
        return tuple(launch for launch in self.launches if launch.after is None)

    @property
    def only_after(self) -> tuple[LaunchPair, ...]:
        """Launches of the second file without a partner."""
        return tuple(launch for launch in self.launches if launch.before is None)


def compare_kernels(before: RecordSet, after: RecordSet, by: str = "kernel") -> KernelComparison:
    """Return the launches of two files, the n-th of a name against the n-th of the same name, and their sums.

    Names are the same whether or not they spell out namespaces and casts (:func:`spelling`): pages of ncu differ there.
    A file of a profiler holds operations as well, each with the time of its kernels: they are compared likewise.

    Args:
        by: what is summed: launches of a ``kernel``, ``phase``, ``module`` or ``family``.

    Raises:
        Incomparable: a side holds no launch and no timed operation, or does not tell of what module ... any of them is.
        AmbiguousResult: a side holds those of several cases.
        InvalidValue: launches are not summed by that.
    """
    wanted = next((each for each in LAUNCHED_BY if each == by), None)
    if wanted is None:
        raise InvalidValue(f"kernels are not put together by {by!r}; known: {', '.join(LAUNCHED_BY)}")
    one, other = (_launches(records, wanted, which) for records, which in ((before, "first"), (after, "second")))
    ours, theirs = (grouped_by(side, _KEYS[wanted]) for side in (one, other))
    sides = {key: (ours.get(key, []), theirs.get(key, [])) for key in dict.fromkeys((*ours, *theirs))}
    kernels = [
        Kernel(name=(us or them)[0].name if by == "kernel" else key, before=_side(us), after=_side(them))
        for key, (us, them) in sides.items()
    ]
    return KernelComparison(
        by=wanted,
        launches=tuple(_paired(one, other)),
        kernels=tuple(sorted(kernels, key=lambda kernel: -abs(kernel.gained or 0))),
        total=Kernel(name="", before=_side(one), after=_side(other)),
    )


def is_launch(record: Record) -> bool:
    """True if a record is something that ran on the device: a launch, or an operation that was timed.

    Work that the user stated of a launch is a record beside it, and no launch of its own.
    """
    if record.work is not None and record.work.origin == "stated":
        return False
    return record.scope == "kernel" or (record.scope == "op" and record.timing is not None)


def spelling(name: str) -> str:
    """Return a kernel's name without what one tool writes and another leaves out: namespaces, casts and spaces.

    >>> spelling("void cudnn::engines_precompiled::nchwToNhwcKernel<__half, (bool)0>(const T1 *)")
    'void nchwToNhwcKernel<__half,0>(const T1*)'
    """
    plain = _NAMESPACE.sub("", _CAST.sub("", name))
    return re.sub(r"\s*([<>(),*&\[\]])\s*", r"\1", plain).strip()


def _launches(records: RecordSet, by: LaunchedBy, which: str) -> list[Record]:
    """Return the launches of one side: those of one case, since another case has launches of its own."""
    launches = [record for record in records if is_launch(record)]
    cases = list(dict.fromkeys(record.case for record in launches))
    if not launches:
        raise Incomparable(
            f"the {which} side holds no kernels: give files of Nsight Compute or of a profiler, or measurements made"
            " with --profile"
        )
    if len(cases) > 1:
        listed = ", ".join(case.label() for case in cases[:5])
        raise AmbiguousResult(
            f"the {which} side holds the kernels of {len(cases)} cases ({listed}); narrow it with where(...), or give a"
            " file per case"
        )
    if {*map(_KEYS[by], launches)} <= {"", UNATTRIBUTED}:
        raise Incomparable(f"the {which} side does not tell the {by} of any of its kernels; compare it by kernel")
    return launches


def _paired(before: Sequence[Record], after: Sequence[Record]) -> Iterator[LaunchPair]:
    """Every launch of the first side with its partner, then those of the second side that have none."""
    partners = grouped_by(after, _KEYS["kernel"])
    seen: Counter[str] = Counter()
    for record in before:
        key = spelling(record.name)
        number = seen[key]
        seen[key] += 1
        same = partners.get(key, [])
        partner = same[number] if number < len(same) else None
        yield LaunchPair(name=record.name, number=number + 1, before=record, after=partner)
    for key, records in partners.items():
        for number, record in enumerate(records[seen[key] :], start=seen[key] + 1):
            yield LaunchPair(name=record.name, number=number, before=None, after=record)


def _side(items: Sequence[Record]) -> KernelSum:
    return KernelSum(
        launches=sum(record.calls for record in items),
        seconds=_sum(r.seconds for r in items),
        flops=_sum(None if r.work is None or r.work.missing else r.work.total_flops * r.calls for r in items),
        bytes={level: _sum(_moved(r, level) for r in items) for level in LEVELS},
    )


def _moved(record: Record, level: str) -> float | None:
    """The bytes of all calls of a record at a level."""
    moved = None if record.work is None else record.work.bytes.get(level)
    return None if moved is None else moved * record.calls


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, zero of nothing; None where a value is unknown."""
    items = list(values)
    known = [value for value in items if value is not None]
    return fsum(known) if len(known) == len(items) else None
