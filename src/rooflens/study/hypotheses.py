"""The ``[[hypothesis]]`` tables of a study file: what somebody expects, in words and as a claim."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from rooflens.compare.timed_cases import Compared
from rooflens.compare.uncertainty import METHODS
from rooflens.devices import as_meant, find
from rooflens.errors import RooflensError, UnitError
from rooflens.records import Scalar
from rooflens.results.answers import ANSWERS, SAMPLED
from rooflens.results.quantities import (
    ACTIVATIONS,
    ALL_FLOPS,
    BOUND,
    BYTES,
    EFFICIENCY,
    INTENSITY,
    KV_CACHE,
    MATMUL_FLOPS,
    MEMORY,
    PARAMETERS,
    PERFORMANCE,
    PREDICTED,
    THROUGHPUT,
    TIME,
)
from rooflens.study.conditions import as_named, check_condition
from rooflens.study.grid import agrees, default_of
from rooflens.study.study import OPTIONS, Amount, Claim, Hypothesis, Relation, Side, Study, is_open
from rooflens.study.toml_table import NUMBER, SCALAR, TEXT, KeyKind, TomlTable, near, one_of
from rooflens.units import parse

QUANTITIES: Mapping[str, str] = {
    quantity.name: quantity.unit
    for quantity in (
        TIME, BOUND, PREDICTED, THROUGHPUT, PERFORMANCE, EFFICIENCY, ALL_FLOPS, MATMUL_FLOPS, BYTES, INTENSITY, MEMORY,
        PARAMETERS, ACTIVATIONS, KV_CACHE,
        *(answer for modes in (SAMPLED, ANSWERS) for each in modes.values() for answer in each),
    )
}  # fmt: skip
"""What a claim may be about, and its base unit."""
CORRELATIONS = METHODS
"""A claim may also be about a correlation over models, of what ``of`` names with the time."""
CORRELATED: tuple[Compared, ...] = ("flops", "matmul_flops", "parameters", "bytes", "activations")
FIELDS = ("model", "device", "batch", "dtype", "mode", "seq_len", "img_size", *OPTIONS)
RELATIONS: tuple[Relation, ...] = get_args(Relation)
_CLAIM = ("quantity", "left", "relation", "right")
AMOUNTS: tuple[Amount, ...] = get_args(Amount)
_KINDS: Mapping[str, KeyKind] = {
    "text": TEXT,
    "quantity": one_of((*QUANTITIES, *CORRELATIONS)),
    "relation": one_of(RELATIONS),
    "for": TEXT,
}
_FOR = re.compile(r"(every|most|some)\s+(\w+)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def hypotheses(top: TomlTable, study: Study) -> Iterator[Hypothesis]:
    """Every hypothesis of a file, its names held against those of the study.

    Raises:
        StudyFileError: a key or a value means nothing, or names what the study does not hold.
    """
    for table in top.tables("hypothesis"):
        given = table.read(_KINDS, ("left", "right", "margin", "where"))
        if not given.get("text"):
            table.fail("text", "is missing: say what is expected")
        missing = [key for key in _CLAIM if key not in table.values]
        if missing and len(missing) < len(_CLAIM):
            table.fail(missing[0], f"is missing; a claim has {', '.join(_CLAIM)}")
        for key in ("for", "margin", "where"):
            if key in table.values and missing:
                table.fail(key, f"belongs to a claim, and there is none; a claim has {', '.join(_CLAIM)}")
        yield Hypothesis(text=given["text"], claim=None if missing else _claim(table, given, study))


def _claim(table: TomlTable, given: Mapping[str, Any], study: Study) -> Claim:
    quantity = given["quantity"]
    amount, every = _for(table, given.get("for", "every case"))
    claim = Claim(
        quantity=quantity,
        left=_side(table, "left", quantity, study),
        relation=given["relation"],
        right=_side(table, "right", quantity, study),
        every=every,
        amount=amount,
        margin=_margin(table),
        where=_conditions(table.table("where"), study),
    )
    _check_sides(table, claim)
    if claim.relation in ("<", ">=") and claim.margin >= 1:
        never = "can never hold" if claim.relation == "<" else "always holds"
        table.fail("margin", f"is {claim.margin:.0%}; with it {claim.relation!r} {never}; 5 % is 0.05 or '5 %'")
    return claim


def _check_sides(table: TomlTable, claim: Claim) -> None:
    """Refuse sides that could not be held against each other, and correlations of nothing."""
    correlation = claim.quantity in CORRELATIONS
    left, right = claim.left, claim.right
    if left.value is not None and right.value is not None:
        table.fail("right", "is a number, and so is left; one side has to be about cases: left = {device = ...}")
    cases = [(side.quantity or claim.quantity, side.conditions) for side in (left, right) if side.value is None]
    if len(cases) == 2 and cases[0] == cases[1]:
        table.fail("right", "is about the same cases as left: each would be held against itself")
    if correlation and claim.every == "model":
        table.fail("for", "is 'model', and a correlation is taken over all models; write 'every device' or another")
    for key, side in (("left", left), ("right", right)):
        named = {**claim.where, **side.conditions}
        if side.value is not None:
            continue
        if correlation and "model" in named:
            table.fail(key if "model" in side.conditions else "where", "names a model, and a correlation is over all")
        if correlation and "of" not in named:
            table.fail(key, f"does not say of what the correlation is: of = {' or '.join(CORRELATED)}")
        if not correlation and "of" in named:
            table.fail(key if "of" in side.conditions else "where", f"says 'of', which {claim.quantity} does not have")


def _side(table: TomlTable, key: str, quantity: str, study: Study) -> Side:
    """A number, a quantity with its unit, or conditions."""
    value = table.values[key]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return Side(value=_number(table, key, quantity, value))
    if not isinstance(value, dict):
        table.fail(key, f"is {value!r}; it has to be a number, a quantity like '10 ms', or cases: {{device = ...}}")
    inner = table.table(key)
    given = inner.read({"quantity": _KINDS["quantity"], "times": NUMBER}, inner.values)
    own = given.get("quantity")
    if ((own or quantity) in CORRELATIONS) != (quantity in CORRELATIONS):
        inner.fail("quantity", f"is {own!r}; a correlation is compared with a correlation only")
    return Side(
        quantity=own, conditions=_conditions(inner, study, ("times", "quantity")), times=given.get("times", 1.0)
    )


def _number(table: TomlTable, key: str, quantity: str, value: str | float) -> float:
    """A number of the claim's own in base units."""
    if not isinstance(value, str):
        if not -float("inf") < value < float("inf"):
            table.fail(key, f"is {value!r}; it has to be a number that a value can be held against")
        return float(value)
    unit = QUANTITIES.get(quantity, "")
    if not unit:
        percent = _PERCENT.fullmatch(value.strip()) if quantity not in ("throughput", "parameters") else None
        if percent is None:
            table.fail(
                key, f"is {value!r}; {quantity} has no unit, so write a plain number; for cases {{device = ...}}"
            )
        return float(percent[1]) / 100
    try:
        return parse(value, unit)
    except UnitError as error:
        table.fail(key, f"is {value!r}: {error}; for cases write {key} = {{device = ...}}")


def _for(table: TomlTable, text: str) -> tuple[Amount, str]:
    match = _FOR.fullmatch(text)
    known = ("case", *FIELDS)
    if match is None or match[2] not in known:
        hint = "" if match is None else near(match[2], known)
        table.fail("for", f"is {text!r}{hint}; write every, most or some, and one of {', '.join(known)}")
    (amount,) = (each for each in AMOUNTS if each == match[1])
    return amount, match[2]


def _margin(table: TomlTable) -> float:
    value = table.values.get("margin", 0)
    percent = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    share = float(percent[1]) / 100 if percent is not None else value
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share < float("inf"):
        table.fail("margin", f"is {value!r}; it has to be a share like 0.05, or '5 %'")
    return float(share)


def _conditions(table: TomlTable, study: Study, others: tuple[str, ...] = ()) -> dict[str, Scalar]:
    """What cases have to be like; a name that the study does not hold is a mistake, since no case could meet it."""
    for key, value in table.values.items():
        if isinstance(value, list):
            table.fail(key, f"is {value!r}; give one value, or a pattern like 'resnet*'")
    conditions = table.read(dict.fromkeys((*FIELDS, "phase", "source", "of"), SCALAR), others)
    for key in conditions:
        conditions[key] = as_named(key, conditions[key])
        check_condition(table, key, conditions[key])
        allowed = _allowed(key, study)
        if key == "device":
            conditions[key] = _device(table, conditions[key], allowed)
        elif conditions[key] is not False and allowed and not any(agrees(value, conditions[key]) for value in allowed):
            names = [str(value) for value in allowed]
            problem = f"is {conditions[key]!r}, which the study does not hold{near(conditions[key], names)}"
            table.fail(key, f"{problem}; it holds: {', '.join(names)}")
    return conditions


def _device(table: TomlTable, value: Scalar, allowed: Sequence[Scalar] | None) -> Scalar:
    """A device by the catalogue's name; words for this machine as they are."""
    if (allowed is None and is_open(str(value))) or any(agrees(each, value) for each in allowed or ()):
        return value
    try:
        name = find(as_meant(str(value))[0]).name
    except RooflensError as error:
        table.fail("device", f"is {value!r}: {error}")
    # Words for this machine may turn out to be any device, under its own name.
    if allowed is not None and name not in allowed and not any(is_open(str(each)) for each in allowed):
        table.fail("device", f"is {value!r}, which the study does not hold; it holds: {', '.join(map(str, allowed))}")
    return name


def _allowed(key: str, study: Study) -> Sequence[Scalar] | None:
    """What a condition may ask for; None where anything may turn up."""
    if key == "of":
        return CORRELATED
    if study.recorded or key in ("phase", "source"):
        return None
    grids, named = study.grids, list[Sequence[Scalar]]()
    if key == "device":
        named += [grid.devices for grid in grids]
        named += [some for grid in grids for some in grid.devices_of.values()]
    elif key in OPTIONS:
        named += [grid.options.get(key, (default_of(key) or False,)) for grid in grids]
    else:
        named += [getattr(grid, _AXES[key]) for grid in grids]
        if not all(named):  # the model's own
            return None
    return list(dict.fromkeys(value for values in named for value in values)) or None


_AXES = {
    "model": "models",
    "batch": "batches",
    "dtype": "dtypes",
    "mode": "modes",
    "seq_len": "seq_lens",
    "img_size": "img_sizes",
}
"""Conditions whose values are an axis of a grid."""
