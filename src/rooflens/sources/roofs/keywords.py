"""The text files that NERSC's plotting scripts draw: roofs and points by keyword, a line for each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rooflens.errors import FileError
from rooflens.records import AS_IS, Case, Device, Record, Timing, Work
from rooflens.sources.roofs.ceilings import (
    NamedRoof,
    Roofs,
    device_of,
    level_of,
    named_roof,
    number,
    rate,
    unit_of,
)

_MEMORY, _MEMORY_NAMES = "memroofs", "mem_roof_names"
_COMPUTE, _COMPUTE_NAMES = "comproofs", "comp_roof_names"
_PERFORMANCE, _LABELS, _INTENSITY = "FLOPS", "labels", "AI"
_KNOWN = (
    _MEMORY,
    _MEMORY_NAMES,
    _COMPUTE,
    _COMPUTE_NAMES,
    _PERFORMANCE,
    _LABELS,
    f"{_INTENSITY}_HBM, {_INTENSITY}_L2 ...",
)
_QUOTED = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)")\s*""")
_UNKNOWN = ("nan", "-")
RATES_ONLY = "the file tells rates, no times: each point stands for one second of work"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A keyword, its place, and the values behind it."""

    keyword: str
    place: str
    values: tuple[str, ...]


def is_keyword(word: str) -> bool:
    """True if a line of such a file begins with this word."""
    return word in _KNOWN or word == _INTENSITY or re.fullmatch(r"AI_\w{1,20}", word, re.ASCII) is not None


def from_keywords(text: str, path: Path, model: str, told: Device | None) -> Roofs:
    """Return roofs as a device, and a record for each point, in a case of its own by its label.

    Raises:
        FileError: an unknown keyword, a value that is no number, or lines that do not fit each other.
    """
    lines = {line.keyword: line for line in _lines(text, repr(str(path)))}
    memory = [named_roof(*each, computes=False) for each in _roofs(lines, _MEMORY, _MEMORY_NAMES)]
    compute = [named_roof(*each, computes=True) for each in _roofs(lines, _COMPUTE, _COMPUTE_NAMES)]
    device = device_of(
        [*memory, *compute],
        title=model,
        told=told,
        suffix="roofs",
        kind="gpu",
        origin="user",
        notes=[f"Roofs of {path.name}; it does not tell how they are known"],
    )
    shown = told or device
    unit, notes = _unit(compute)
    case = Case(model=model, device=None if shown is None else shown.name, dtype=AS_IS)
    records = tuple(_points(lines, case, unit, notes))
    if device is None and not records:
        raise FileError(f"{str(path)!r} holds neither roofs nor points; known keywords: {', '.join(_KNOWN)}")
    return Roofs(device=device, records=records)


def _lines(text: str, where: str) -> Iterator[_Line]:
    seen: dict[str, int] = {}
    for n, line in enumerate(text.splitlines(), start=1):
        words = line.split(maxsplit=1)
        if not words or words[0].startswith("#"):
            continue
        keyword, place = words[0], f"{where}, line {n}"
        if not is_keyword(keyword):
            raise FileError(f"{place}: unknown keyword {keyword[:40]!r}; known: {', '.join(_KNOWN)}")
        if keyword in seen:
            raise FileError(f"{place}: {keyword!r} was given in line {seen[keyword]} already")
        seen[keyword] = n
        rest = words[1].strip() if len(words) > 1 else ""
        quoted = keyword in (_MEMORY_NAMES, _COMPUTE_NAMES, _LABELS)
        yield _Line(keyword=keyword, place=place, values=_texts(rest, place) if quoted else tuple(rest.split()))


def _texts(rest: str, place: str) -> tuple[str, ...]:
    """Names in quotes, as ``'L1' 'L2''HBM'``; without any quote, the words."""
    if "'" not in rest and '"' not in rest:
        return tuple(rest.split())
    texts, position = [], 0
    while position < len(rest):
        match = _QUOTED.match(rest, position)
        if match is None:
            raise FileError(f"{place}: cannot tell the names in {rest[position : position + 40]!r}; quote each")
        texts.append(match[1] if match[1] is not None else match[2])
        position = match.end()
    return tuple(texts)


def _roofs(lines: Mapping[str, _Line], values: str, names: str) -> Iterator[tuple[str, str, float]]:
    """Name, place and rate of each roof of a kind."""
    if values not in lines and names not in lines:
        return
    rates, named = _both(lines, values, names)
    for name, text in zip(named.values, rates.values, strict=True):
        yield name, rates.place.rpartition(", ")[2], rate(text, rates.place)


def _both(lines: Mapping[str, _Line], one: str, other: str) -> tuple[_Line, _Line]:
    """Two lines that go together, value by value."""
    here = lines.get(one) or lines[other]
    missing = next((keyword for keyword in (one, other) if keyword not in lines), None)
    if missing is not None:
        raise FileError(f"{here.place}: {here.keyword!r} needs a line {missing!r} too")
    first, second = lines[one], lines[other]
    if len(first.values) != len(second.values):
        raise FileError(
            f"{second.place}: {other!r} has {len(second.values)} values, but {one!r} has {len(first.values)}"
        )
    return first, second


def _unit(compute: Sequence[NamedRoof]) -> tuple[str, tuple[str, ...]]:
    """The resource of the points, which the file names by its roofs only, and a note if that is not sure."""
    if not compute:
        unit, telling = unit_of("")
        return unit, (f"the file names no compute roof: its FLOP are taken as {unit}",)
    name = max(compute, key=lambda roof: roof.rate).name
    unit, telling = unit_of(name)
    sure = telling and all(roof.resource == unit for roof in compute)
    return unit, () if sure else (f"FLOP are taken as {unit}, by the highest roof, {name!r}",)


def _points(lines: Mapping[str, _Line], case: Case, unit: str, notes: tuple[str, ...]) -> Iterator[Record]:
    intensities = [line for keyword, line in lines.items() if keyword.startswith(_INTENSITY)]
    speeds = lines.get(_PERFORMANCE)
    if speeds is None:
        lonely = next((line for line in (*intensities, lines.get(_LABELS)) if line is not None), None)
        if lonely is not None:
            raise FileError(f"{lonely.place}: {lonely.keyword!r} needs a line {_PERFORMANCE!r} too")
        return
    if _LABELS not in lines:  # the last line of such a file: without it, the others may have been cut
        raise FileError(f"{speeds.place}: {_PERFORMANCE!r} needs a line {_LABELS!r} too")
    labels, doubts = _labels(lines[_LABELS].values, len(speeds.values))
    columns, left_out = _by_level(lines, intensities)
    for n, (label, text) in enumerate(zip(labels, speeds.values, strict=True)):
        flops = rate(text, speeds.place)
        levels = {
            level: flops / its
            for level, line in columns.items()
            if (its := _intensity(line.values[n], line.place)) is not None
        }
        yield Record(
            case=Case(model=case.model, device=case.device, dtype=case.dtype, options=(("point", label),)),
            source="counters",
            scope="kernel",
            kind="other",
            name=label,
            work=Work(flops={unit: flops}, bytes=levels, origin="executed"),
            timing=Timing(samples=(1.0,), origin="profiler"),
            notes=(RATES_ONLY, *notes, *left_out, *doubts),
        )


def _labels(told: Sequence[str], count: int) -> tuple[list[str], tuple[str, ...]]:
    """A label for each of so many points, and a note where the file has another number of them."""
    labels = [*told[:count], *(f"point {n + 1}" for n in range(len(told), count))]
    if len(told) == count:
        return _distinct(labels), ()
    rest = f": {', '.join(told[count:])} label no point" if len(told) > count else ""
    return _distinct(labels), (f"{count} points ({_PERFORMANCE}) have {len(told)} labels, taken in their order{rest}",)


def _distinct(labels: Sequence[str]) -> list[str]:
    """Labels of which no two are equal: two points of one label are two points.

    >>> _distinct(["stride", "stride", "other"])
    ['stride', 'stride (2)', 'other']
    """
    seen: Counter[str] = Counter()
    distinct = []
    for label in labels:
        seen[label] += 1
        distinct.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return distinct


def _by_level(lines: Mapping[str, _Line], intensities: Sequence[_Line]) -> tuple[dict[str, _Line], tuple[str, ...]]:
    """The intensities by level, and notes on those of other levels."""
    by_level: dict[str, _Line] = {}
    left_out: list[str] = []
    for line in intensities:
        _both(lines, _PERFORMANCE, line.keyword)
        level = "dram" if line.keyword == _INTENSITY else level_of(line.keyword.replace("_", " "))
        if level is None or level in by_level:
            left_out.append(f"{line.keyword} is left out: rooflens has no such level, or another line is about it")
        else:
            by_level[level] = line
    return by_level, tuple(left_out)


def _intensity(text: str, place: str) -> float | None:
    """FLOP per byte; None where the file has none."""
    if text.lower() in _UNKNOWN:
        return None
    value = number(text, place)
    if value <= 0:
        raise FileError(f"{place} holds intensity {text}; it is above zero, or 'nan' where it is not known")
    return value
