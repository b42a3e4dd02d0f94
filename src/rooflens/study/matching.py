"""Which cases a claim is about, and which of them it compares: those that differ in nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rooflens.records import Scalar
from rooflens.reported import DeviceAliases
from rooflens.runs.run import recorded_name
from rooflens.study.claim_values import ClaimValue
from rooflens.study.grid import agrees, default_of, means_something
from rooflens.study.study import SOURCES, SourceName

CaseFacts = Mapping[str, Scalar | None]
_USUAL = ("model", "device", "batch", "dtype", "mode")
"""Facts of most cases, whether they have records or not."""


def meets(facts: CaseFacts, wanted: Mapping[str, Scalar], aliases: DeviceAliases) -> bool:
    """True if a case meets every condition."""

    def agrees_in(name: str, value: Scalar) -> bool:
        if facts.get(name) is None and value is False:  # of any option: it is off
            return True
        fact = anyway(facts, name)
        if name == "model" and isinstance(value, str):
            value = recorded_name(value, below_here=False)
        return agrees(fact, value) or (fact is not None and _same(fact, value, aliases))

    return all(agrees_in(name, value) for name, value in wanted.items())


def anyway(facts: CaseFacts, name: str) -> Scalar | None:
    """A fact, or the default of an option that the case does not name, if the option means anything there."""
    value = facts.get(name)
    if value is not None:
        return value
    source: SourceName = next((each for each in SOURCES if each == facts.get("source")), "measure")
    return default_of(name) if means_something(name, source, str(facts.get("mode"))) else None


def matched(
    lefts: Sequence[ClaimValue], rights: Sequence[ClaimValue], free: Collection[str], aliases: DeviceAliases
) -> Iterator[tuple[ClaimValue, ClaimValue]]:
    """Pair each value with those that differ in nothing but the facts in `free`.

    A value without a counterpart is not compared: the study leaves the other out. A case that failed, or is not run
    yet, is paired once, with the first that it would have been held against.
    """
    ours, theirs = ([value for value in side if not value.is_missing] for side in (lefts, rights))
    partners: dict[tuple[object, ...], list[ClaimValue]] = {}
    for right in theirs:
        partners.setdefault(_shared(right, free), []).append(right)
    for left in ours:
        yield from ((left, right) for right in partners.get(_shared(left, free), ()))
    yield from first_partners([left for left in lefts if left.is_missing], rights, free, aliases)
    missing = [right for right in rights if right.is_missing]
    yield from ((left, right) for right, left in first_partners(missing, ours, free, aliases))


def first_partners(
    missing: Sequence[ClaimValue], others: Sequence[ClaimValue], free: Collection[str], aliases: DeviceAliases
) -> Iterator[tuple[ClaimValue, ClaimValue]]:
    """Pair each case without records with the first other that may differ in nothing but the facts in `free`."""
    names = [name for name in _USUAL if name not in free and _is_known(name, missing, others, aliases)]
    alike: dict[tuple[object, ...], list[ClaimValue]] = {}
    for other in others:
        alike.setdefault(tuple(other.facts[name] for name in names), []).append(other)
    for value in missing:
        fitting = alike.get(tuple(value.facts[name] for name in names), ())
        partner = next((other for other in fitting if _may_be_alike(value.facts, other.facts, free, aliases)), None)
        if partner is not None:
            yield value, partner


def _is_known(name: str, missing: Sequence[ClaimValue], others: Sequence[ClaimValue], aliases: DeviceAliases) -> bool:
    """True if every value has this fact and none is an alias of a device."""
    facts = [value.facts.get(name) for value in (*missing, *others)]
    return all(fact is not None and fact not in aliases for fact in facts)


def _same(one: Scalar, other: Scalar, aliases: DeviceAliases) -> bool:
    """True if two facts are the same, or one is an alias of the other."""
    return one == other or one in aliases.get(str(other), ()) or other in aliases.get(str(one), ())


def _may_be_alike(missing: CaseFacts, other: CaseFacts, free: Collection[str], aliases: DeviceAliases) -> bool:
    """True if no known fact tells a case without records from another; only records know the length of a sequence."""
    pairs = [(_or_default(missing, name), _or_default(other, name)) for name in {*missing, *other} if name not in free]
    return all(one is None or two is None or _same(one, two, aliases) for one, two in pairs)


def _or_default(facts: CaseFacts, name: str) -> Scalar | None:
    value = facts.get(name)
    return default_of(name) if value is None else value


def _shared(value: ClaimValue, free: Collection[str]) -> tuple[object, ...]:
    return tuple(sorted((name, str(fact)) for name, fact in value.facts.items() if name not in free))
