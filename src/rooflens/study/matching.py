"""Which cases a claim is about, and which of them are held against each other: those that differ in nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rooflens.records import Scalar
from rooflens.study.claim_values import Value
from rooflens.study.grid import agrees, default_of, means_something
from rooflens.study.study import SOURCES, SourceName

Names = Mapping[str, frozenset[str]]
"""Words for a machine, like ``cuda``, and the devices that they turned out to be."""
Facts = Mapping[str, Scalar | None]
_TOLD = ("model", "device", "batch", "dtype", "mode")
"""Facts that most cases tell, whether they have records or not."""


def meets(facts: Facts, wanted: Mapping[str, Scalar], names: Names) -> bool:
    """Whether a case is one of those that are wanted."""
    return all(_agrees(facts, name, value, names) for name, value in wanted.items())


def anyway(facts: Facts, name: str) -> Scalar | None:
    """A fact, or what holds for an option that the case does not name, if it means anything there."""
    value = facts.get(name)
    if value is not None:
        return value
    source: SourceName = next((each for each in SOURCES if each == facts.get("source")), "measure")
    return default_of(name) if means_something(name, source, str(facts.get("mode"))) else None


def matched(
    lefts: Sequence[Value], rights: Sequence[Value], free: Collection[str], names: Names
) -> Iterator[tuple[Value, Value]]:
    """Each value beside those that differ in nothing but the facts in `free`.

    One that has no counterpart is not compared: the study leaves the other out. What failed, or is not run yet, is told
    once, beside the first that it would have been held against.
    """
    ours, theirs = ([value for value in side if not value.is_missing] for side in (lefts, rights))
    partners: dict[tuple[object, ...], list[Value]] = {}
    for right in theirs:
        partners.setdefault(_shared(right, free), []).append(right)
    for left in ours:
        yield from ((left, right) for right in partners.get(_shared(left, free), ()))
    yield from first_partners([left for left in lefts if left.is_missing], rights, free, names)
    missing = [right for right in rights if right.is_missing]
    yield from ((left, right) for right, left in first_partners(missing, ours, free, names))


def first_partners(
    missing: Sequence[Value], others: Sequence[Value], free: Collection[str], names: Names
) -> Iterator[tuple[Value, Value]]:
    """Each case without records beside the first other from which it may differ in nothing but the facts in `free`."""
    told = [name for name in _TOLD if name not in free and _tells_apart(name, missing, others, names)]
    alike: dict[tuple[object, ...], list[Value]] = {}
    for other in others:
        alike.setdefault(tuple(other.facts[name] for name in told), []).append(other)
    for value in missing:
        fitting = alike.get(tuple(value.facts[name] for name in told), ())
        found = next((other for other in fitting if _may_be_alike(value.facts, other.facts, free, names)), None)
        if found is not None:
            yield value, found


def _tells_apart(name: str, missing: Sequence[Value], others: Sequence[Value], names: Names) -> bool:
    """Whether all values tell a fact, and none as a word that may mean several."""
    facts = [value.facts.get(name) for value in (*missing, *others)]
    return all(fact is not None and fact not in names for fact in facts)


def _agrees(facts: Facts, name: str, wanted: Scalar, names: Names) -> bool:
    value = anyway(facts, name)
    if facts.get(name) is None and wanted is False:  # of any option: it is off
        return True
    return agrees(value, wanted) or (value is not None and _same(value, wanted, names))


def _same(one: Scalar, other: Scalar, names: Names) -> bool:
    """Whether two facts are the same, or two words for one device."""
    return one == other or one in names.get(str(other), ()) or other in names.get(str(one), ())


def _may_be_alike(missing: Facts, other: Facts, free: Collection[str], names: Names) -> bool:
    """Whether a case without records may be alike to another: the length of a sequence, say, only records tell."""
    pairs = [(_or_default(missing, name), _or_default(other, name)) for name in {*missing, *other} if name not in free]
    return all(one is None or two is None or _same(one, two, names) for one, two in pairs)


def _or_default(facts: Facts, name: str) -> Scalar | None:
    value = facts.get(name)
    return default_of(name) if value is None else value


def _shared(value: Value, free: Collection[str]) -> tuple[object, ...]:
    return tuple(sorted((name, str(fact)) for name, fact in value.facts.items() if name not in free))
