"""How cases are named in a report, and how devices are told apart in its charts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import get_args

from rooflens.records import Case
from rooflens.report.case_names import differing, name_of
from rooflens.report.charts import Dot, Series
from rooflens.report.figures.palette import GREY, MOST_MODELS, OTHER, Symbol, device_colour, group_colours
from rooflens.report.figures.roofline import devices_of
from rooflens.report.model_families import colours_tell
from rooflens.results import RecordSet

SYMBOLS: tuple[Symbol, ...] = get_args(Symbol)
"""Of devices, beside their colours."""
_SMALLEST, _LARGEST = 0.6, 1.5
"""Sizes of marks whose size tells the batch."""
_DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1, 1.5))
_NOWHERE = ((1.0, 1.0),)
"""The path of a line that only a legend shows."""
CasePoint = tuple[Case, Dot]
"""A case, and its mark in a plot without its name."""


def naming(cases: Sequence[Case]) -> Callable[[Case], str]:
    """What names each of some cases: the fields in which they differ, the device among them."""
    fields = differing(cases)
    several = len({case.device for case in cases}) > 1

    def named(case: Case) -> str:
        words = name_of(case, fields)
        return f"{words} on {case.device}" if several and case.device else words

    return named


def common_note(cases: Iterable[Case]) -> tuple[str, ...]:
    """The model and the device that all cases share, where their names leave them out."""
    every = list(cases)
    models, devices = ({getattr(case, name) for case in every} for name in ("model", "device"))
    words = [models.pop()] if len(models) == 1 and "model" not in differing(every) else []
    words += [f"on {device}" for device in devices if device is not None and len(devices) == 1]
    return (" ".join(words),) if words else ()


def device_order(records: RecordSet) -> tuple[str, ...]:
    """The names of devices in the order of their colours and symbols, the same on every chart of these records."""
    cases = (case.device for case in records.cases)
    return tuple(filter(None, dict.fromkeys((*(device.name for device in devices_of(records)), *cases))))


@dataclass(frozen=True, slots=True)
class CaseLooks:
    """How cases are told apart on a chart: colour, symbol and size, and the name beside a mark.

    Attributes:
        tell: what a colour tells of a case.
        colours: of each of these, and of what shares the last one.
        rest: what shares it.
        shapes: a symbol for each dtype where there are several, else for each device.
        batches: the smallest and the largest, where sizes tell them.
        fields: what a name has; without any, colours, symbols and dashes tell all.
        dashes: of lines, by dtype.
    """

    tell: Callable[[Case], str]
    colours: Mapping[str, str]
    rest: tuple[str, ...]
    shapes: Mapping[str, Symbol]
    by_dtype: bool
    batches: tuple[int, int] | None
    fields: tuple[str, ...]
    dashes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, cases: Sequence[Case], order: Sequence[str] = ()) -> CaseLooks:
        """Devices have colours where there are several, else models, their families, or what differs.

        Args:
            order: `device_order` of all records of a report, so that a device looks the same on all of its charts.
        """
        devices, dtypes = (
            list(dict.fromkeys(values)) for values in zip(*((_device(case), case.dtype) for case in cases), strict=True)
        )
        several, rest = len(devices) > 1, tuple[str, ...]()
        every = list(dict.fromkeys((*order, *devices)))
        if several:
            tell: Callable[[Case], str] = _device
            colours = {device: device_colour(every.index(device), len(every)) for device in devices}
        else:
            tell = colours_tell(cases)[1]
            order = [group for group, _ in Counter(map(tell, cases)).most_common()]
            rest = tuple(order[MOST_MODELS - 1 :]) if len(order) > MOST_MODELS else ()
            colours = group_colours([group for group in order if group not in rest] + [OTHER] * bool(rest))
        by_dtype, fields = len(dtypes) > 1, differing(cases)
        batches = sorted({case.batch for case in cases if case.batch is not None})
        sized = len(batches) > 1 and (several or fields[0] != "batch size")
        told = [name for name, is_told in (("batch size", sized), ("dtype", by_dtype)) if is_told]
        return cls(
            tell=tell,
            colours=colours,
            rest=rest,
            shapes=dict(zip(dtypes if by_dtype else every, cycle(SYMBOLS), strict=False)),
            by_dtype=by_dtype,
            batches=(batches[0], batches[-1]) if sized else None,
            fields=tuple(field for field in fields if field not in told) or fields[:1],
        )

    @classmethod
    def of_many_lines(cls, cases: Sequence[Case], order: Sequence[str] = ()) -> CaseLooks:
        """Return looks without names: colours tell models, symbols devices, dashes dtypes; else those of :meth:`of`.

        Of many lines few names have room, and each would stand there again for every device.
        """
        looks = cls.of(cases, order)
        models, devices, dtypes = (
            list(dict.fromkeys(values))
            for values in zip(*((case.model, _device(case), case.dtype) for case in cases), strict=True)
        )
        every = list(dict.fromkeys((*order, *devices)))
        few = len(models) <= MOST_MODELS and len(every) <= len(SYMBOLS) and len(dtypes) <= len(_DASHES)
        if len(devices) == 1 or len(models) == 1 or not few or looks.fields != ("model",):
            return looks
        return replace(
            looks,
            tell=lambda case: case.model,
            colours=group_colours(models),
            shapes=dict(zip(every, SYMBOLS, strict=False)),
            by_dtype=False,
            fields=(),
            dashes=dict(zip(dtypes, _DASHES, strict=False)),
        )

    def series(self, case: Case) -> Series:
        """Return a series without points that looks as this case does."""
        group = self.tell(case)
        name = OTHER if group in self.rest else group
        shown = f"{len(self.rest)} more, see note" if name == OTHER else name
        return Series(
            name=shown,
            colour=self.colours[name],
            shape=self.shapes[case.dtype if self.by_dtype else _device(case)],
            dash=self.dashes.get(case.dtype, ()),
        )

    def dot(self, case: Case, dot: Dot) -> Dot:
        """Return the mark of a case, named and as large as its batch."""
        size = 1.0
        if self.batches is not None and case.batch is not None:
            low, high = self.batches
            size = _SMALLEST + (_LARGEST - _SMALLEST) * math.log(case.batch / low) / math.log(high / low)
        return replace(dot, label=name_of(case, self.fields) if self.fields else "", size=size)

    def legend(self) -> Iterator[Series]:
        """Yield what the symbols stand for, where the entries of the colours do not say it."""
        for name, colour in self.colours.items() if self.dashes else ():
            yield Series(name=name, colour=colour, path=_NOWHERE)
        for name, shape in self.shapes.items() if self.by_dtype or self.dashes else ():
            yield Series(name=name, colour=GREY, shape=shape)
        for dtype, dash in self.dashes.items() if len(self.dashes) > 1 else ():
            yield Series(name=dtype, colour=GREY, path=_NOWHERE, dash=dash)

    def notes(self) -> Iterator[str]:
        """Yield what sizes and the grey colour tell."""
        if self.batches is not None:
            yield f"size of a mark: batch {self.batches[0]} to {self.batches[1]}"
        if self.rest:
            yield f"grey, {len(self.rest)} more: {', '.join(self.rest)}"


def case_series(points: Sequence[CasePoint], order: Sequence[str] = ()) -> tuple[Series, ...]:
    """Points of cases as one series for each look."""
    if not points:
        return ()
    cases = [case for case, _ in points]
    looks, named = CaseLooks.of(cases, order), naming(cases)
    dots: dict[Series, list[Dot]] = {}
    for case, dot in points:
        dots.setdefault(looks.series(case), []).append(looks.dot(case, replace(dot, tip=(named(case), *dot.tip))))
    return (*(replace(look, dots=tuple(its)) for look, its in dots.items()), *looks.legend())


def case_notes(cases: Sequence[Case]) -> tuple[str, ...]:
    """What a reader must know of colours and sizes, and what names leave out."""
    return (*common_note(cases), *CaseLooks.of(cases).notes()) if cases else ()


def _device(case: Case) -> str:
    return case.device or ""


def count(number: int, what: str) -> str:
    """A number of things: ``2 errors``; what has no plural (info) stays as it is."""
    return f"{number} {what}" if number == 1 or what == "info" else f"{number} {what}s"


def spread(values: Sequence[float]) -> str:
    """``, 3 to 5`` behind a median; nothing where all values read alike."""
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return "" if low == high else f", {low} to {high}"
