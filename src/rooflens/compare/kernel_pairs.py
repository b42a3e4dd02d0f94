"""Two files of kernels: launch against launch, by name and then by order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from rooflens.compare.doubts import Doubtful
from rooflens.errors import AmbiguousResult, Incomparable
from rooflens.records import Record
from rooflens.results import RecordSet
from rooflens.results.quantities import ratio
from rooflens.results.totals import grouped_by

_CAST = re.compile(r"\([a-zA-Z_][\w ]*\)(?=-?\d)")
_NAMESPACE = re.compile(r"(?:\w+|<unnamed>|\(anonymous namespace\))::")


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
    """All launches of a name on one side: times, executed FLOP and DRAM bytes together, None where one is unknown."""

    launches: int
    seconds: float | None
    flops: float | None
    dram: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """All launches of a name."""

    name: str
    before: KernelSum
    after: KernelSum

    @property
    def ratio(self) -> float | None:
        """Seconds after over seconds before; None where a side has no such launch or no times."""
        return ratio(self.after.seconds, self.before.seconds) if self.before.launches and self.after.launches else None

    @property
    def gained(self) -> float | None:
        """Seconds by which it grew: negative where it got faster. A kernel that one side lacks takes no time there."""
        if self.before.seconds is None or self.after.seconds is None:
            return None
        return self.after.seconds - self.before.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison(Doubtful):
    """Two files of kernels.

    Attributes:
        launches: in the order of the first file, then those that only the second has.
        kernels: by name, the largest change of time first; `total`: all of them.
    """

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


def compare_kernels(before: RecordSet, after: RecordSet) -> KernelComparison:
    """Return the launches of two files, the n-th of a name against the n-th of the same name.

    Names are the same whether or not they spell out namespaces and casts (:func:`spelling`): pages of ncu differ there.
    A file of a profiler holds operations as well, each with the time of its kernels: they are compared likewise.

    Raises:
        Incomparable: a side holds no launch and no timed operation.
        AmbiguousResult: a side holds those of several cases.
    """
    one, other = (_launches(records, which) for records, which in ((before, "first"), (after, "second")))
    launches = tuple(_paired(one, other))
    ours, theirs = _by_name(one), _by_name(other)
    sides = [(ours.get(key, []), theirs.get(key, [])) for key in dict.fromkeys((*ours, *theirs))]
    kernels = [Kernel(name=(us or them)[0].name, before=_side(us), after=_side(them)) for us, them in sides]
    return KernelComparison(
        launches=launches,
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


def _launches(records: RecordSet, which: str) -> list[Record]:
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
    return launches


def _paired(before: Sequence[Record], after: Sequence[Record]) -> Iterator[LaunchPair]:
    """Every launch of the first side with its partner, then those of the second side that have none."""
    partners = _by_name(after)
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


def _by_name(records: Iterable[Record]) -> Mapping[str, list[Record]]:
    return grouped_by(records, lambda record: spelling(record.name))


def _side(items: Sequence[Record]) -> KernelSum:
    return KernelSum(
        launches=sum(record.calls for record in items),
        seconds=_sum(r.seconds for r in items),
        flops=_sum(None if r.work is None or r.work.missing else r.work.total_flops * r.calls for r in items),
        dram=_sum(None if r.work is None else (r.work * r.calls).bytes.get("dram") for r in items),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, zero of nothing; None where a value is unknown."""
    items = list(values)
    known = [value for value in items if value is not None]
    return fsum(known) if len(known) == len(items) else None
