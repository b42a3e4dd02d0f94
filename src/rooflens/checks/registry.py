"""The register of checks. A rule is a small pure function from a context to doubts, known by a stable code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import chain

from rooflens.checks.context import Context
from rooflens.checks.finding import SEVERITIES, Finding, FindingNumbers, Severity


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a rule says: about what, why, and by which numbers. Its check adds the rest of a finding.

    Attributes:
        code: of the check, where a rule has several.
    """

    subject: str
    message: str
    evidence: FindingNumbers
    code: str = ""


CheckRule = Callable[[Context], Iterable[Doubt]]
ItemRule = Callable[..., Iterable[Doubt]]
ItemsOfContext = Callable[[Context], Iterable[tuple[object, ...]]]


@dataclass(frozen=True, slots=True)
class Check:
    """A registered check.

    Attributes:
        means: what its code says of a number, in a sentence without a full stop.
        inputs: what its rule looks at, see :func:`needs`.
    """

    code: str
    severity: Severity
    remedy: str
    means: str
    rule: CheckRule
    inputs: frozenset[str]


_CHECKS: dict[str, Check] = {}
CHECKS: Mapping[str, Check] = _CHECKS
"""Every check by its code, in the order of registration."""
_INPUTS: dict[CheckRule, frozenset[str]] = {}


def needs(*inputs: str) -> Callable[[CheckRule], CheckRule]:
    """Declare of a rule which of :attr:`Context.inputs` it looks at: where none of them is there it does not run."""

    def declare(rule: CheckRule) -> CheckRule:
        _INPUTS[rule] = frozenset(inputs)
        return rule

    return declare


def of_every(items: ItemsOfContext, *inputs: str) -> Callable[[ItemRule], CheckRule]:
    """Make a rule about one of some items a rule about all of them; `inputs` are what the items are made of."""

    def declare(rule: ItemRule) -> CheckRule:
        @needs(*inputs)
        @wraps(rule)
        def of_all(context: Context) -> Iterator[Doubt]:
            return chain.from_iterable(rule(context, *item) for item in items(context))

        return of_all

    return declare


def of_each(*quantities: str) -> Callable[[ItemRule], CheckRule]:
    """Make a rule about one stated figure, and its value, a rule about all of some quantities."""
    return of_every(lambda context: context.stated(*quantities), *quantities)


def check(code: str, severity: Severity, remedy: str, means: str = "") -> Callable[[CheckRule], CheckRule]:
    """Register a rule under a code. A code is given once; of several above one rule the lowest is registered first.

    Args:
        means: what the code says; by default the first line of the rule's docstring, which several codes cannot share.
    """
    assert severity in SEVERITIES

    def register(rule: CheckRule) -> CheckRule:
        if code in _CHECKS:
            raise ValueError(f"the code {code!r} is taken by {_CHECKS[code].rule.__name__}")
        said = means or (rule.__doc__ or "").partition("\n")[0].rstrip(".")
        _CHECKS[code] = Check(code, severity, remedy, said, rule, _INPUTS[rule])
        return rule

    return register


def findings(context: Context) -> Iterator[Finding]:
    """The doubts of every rule that has something to look at, each of which runs once, in the order of the checks."""
    rules = dict.fromkeys(each.rule for each in CHECKS.values() if each.inputs & context.inputs)
    doubts = {rule: tuple(rule(context)) for rule in rules}
    for each in CHECKS.values():
        for doubt in doubts.get(each.rule, ()):
            if doubt.code in ("", each.code):
                yield Finding(each.code, each.severity, doubt.subject, doubt.message, doubt.evidence, each.remedy)
