"""The algorithm's work of custom kernels, which only their user knows, beside what the hardware executed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from rooflens.errors import InvalidValue, UnknownName
from rooflens.records import COMPUTE_RESOURCES, DATA_RESOURCES, Record, Work
from rooflens.sources.counters.arithmetic import calculate
from rooflens.sources.counters.work import short

ALL_FLOP = "flops"
OPTION = ("work", "stated")
"""By which the case of stated work is told from that of executed work."""
_DEFAULT = "vector.fp32"
_WILD = frozenset("*?[")
_RESULT = "void "
"""Kernels return nothing; names of templates say so."""
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The work of one launch of some kernels by their algorithm.

    Attributes:
        pattern: a part of a kernel's name, or with ``*``, ``?`` or ``[`` a pattern for the whole of it.
        flops: FLOP by resource; under `ALL_FLOP` those whose precision the counters tell.
        bytes: bytes by level; levels that are not stated are counted ones.
    """

    pattern: str
    flops: Mapping[str, float]
    bytes: Mapping[str, float]

    def fits(self, kernel: str) -> bool:
        """True if a kernel is meant: by its full name, with its result or without, or by that of its function."""
        if self.pattern in kernel:  # which may have stars of pointers in it
            return True
        names = (kernel, kernel.removeprefix(_RESULT), short(kernel))
        return not _WILD.isdisjoint(self.pattern) and any(fnmatchcase(name, self.pattern) for name in names)


def parse_statement(text: str) -> Statement:
    """Return a statement as it is typed: ``PATTERN:flops=2*4096**3,dram=100663296``.

    >>> parse_statement("gemm*:flops=2*8**3,dram=3*4*8**2")
    Statement(pattern='gemm*', flops={'flops': 1024}, bytes={'dram': 768})

    Raises:
        InvalidValue: it has another form.
    """
    pattern, colon, amounts = text.rpartition(":")
    if not colon or not pattern or "=" not in amounts:
        raise InvalidValue(f"cannot read {text!r} as work of kernels; write 'PATTERN:flops=2*4096**3,dram=100663296'")
    pairs = [part.partition("=") for part in amounts.split(",")]
    names = [name.strip() for name, _, _ in pairs]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InvalidValue(f"{text!r} states {twice[0]} twice; state it once")
    return statement(pattern, {name: value for name, (_, _, value) in zip(names, pairs, strict=True)})


def statement(pattern: str, amounts: Mapping[str, str | float]) -> Statement:
    """Return a statement from its parts; amounts are numbers or arithmetic on numbers.

    InvalidValue if an amount has an unknown name or an impossible value, or there is none.
    """
    known = {ALL_FLOP} | COMPUTE_RESOURCES | DATA_RESOURCES
    values: dict[str, float] = {}
    for name, amount in amounts.items():
        if name not in known:
            raise InvalidValue(
                f"unknown work {name!r} of {pattern!r}; known: {ALL_FLOP}, {', '.join(sorted(COMPUTE_RESOURCES))}, and"
                f" bytes at {', '.join(sorted(DATA_RESOURCES))}"
            )
        values[name] = calculate(amount) if isinstance(amount, str) else amount
    if not values or not pattern:
        raise InvalidValue(f"no work is stated for {pattern!r}; write like {{'gemm*': {{'flops': 2*4096**3}}}}")
    flops = {name: value for name, value in values.items() if name not in DATA_RESOURCES}
    levels = {name: value for name, value in values.items() if name in DATA_RESOURCES}
    Work(flops={_DEFAULT if name == ALL_FLOP else name: value for name, value in flops.items()}, bytes=levels)
    return Statement(pattern=pattern, flops=flops, bytes=levels)


def stated(records: Iterable[Record], statements: Iterable[Statement]) -> Iterator[Record]:
    """Give a second record for each kernel that a statement is about, with the algorithm's work and the same time.

    They have a case of their own, so that stated and executed work stand side by side and are never added. Of several
    statements that fit a kernel the first counts.

    Raises:
        UnknownName: a statement is about no kernel.
        InvalidValue: a statement is only about kernels that earlier ones are about.
    """
    items = [record for record in records if record.scope in ("kernel", "op") and record.name]
    names = dict.fromkeys(record.name for record in items)
    told: set[str] = set()
    for its in statements:
        meant = {name for name in names if its.fits(name)}
        if not meant:
            known = list(dict.fromkeys(map(short, names)))
            listed = f"; known: {', '.join(known[:_MOST_NAMES])}{', ...' if len(known) > _MOST_NAMES else ''}"
            raise UnknownName("kernel", its.pattern, known, listed if known else "; there are no kernels")
        if meant <= told:
            raise InvalidValue(
                f"the work of every kernel that {its.pattern!r} fits is stated before; put narrow patterns in front of"
                " wide ones, and FLOP and bytes of a pattern in one statement"
            )
        left = meant - told
        told |= meant
        yield from (_stated(record, its) for record in items if record.name in left)


def _stated(record: Record, its: Statement) -> Record:
    counted = record.work.bytes if record.work is not None else {}
    resource, notes = _resource(record) if ALL_FLOP in its.flops else (_DEFAULT, ())
    flops = {resource if name == ALL_FLOP else name: n for name, n in its.flops.items()}
    levels = {**counted, **its.bytes}
    kept = [level for level in counted if level not in its.bytes]
    if kept:
        notes = (*notes, f"stated work: bytes at {', '.join(kept)} are the counted ones")
    if its.bytes:
        notes = (*notes, f"stated work: bytes at {', '.join(its.bytes)} are stated, not counted")
    case = replace(record.case, options=tuple(sorted((*record.case.options, OPTION))))
    # Where bytes alone are stated the FLOP are not known, and not none.
    missing = frozenset() if flops else frozenset({short(record.name)})
    work = Work(flops=flops, bytes=levels, origin="stated", missing=missing)
    return replace(record, case=case, work=work, notes=notes)


def _resource(record: Record) -> tuple[str, tuple[str, ...]]:
    """The unit that did most of the executed work, and notes."""
    executed = record.work.flops if record.work is not None else {}
    if executed:
        return max(executed, key=lambda name: executed[name]), ()
    note = f"stated work: its FLOP are taken as {_DEFAULT}, as no counter tells; or name the unit: matmul.bf16=..."
    return _DEFAULT, (note,)
