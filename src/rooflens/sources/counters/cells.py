"""Cells of a table: what becomes of them, and how they get there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rooflens.sources.counters.launches import Launch, Names, names_of
from rooflens.sources.counters.metrics import kind_of
from rooflens.sources.counters.numbers import NOT_AVAILABLE, Deferred, Numbers, Value, power_of, scaled
from rooflens.sources.counters.rows import damaged
from rooflens.sources.counters.unusual import Unusual


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What becomes of the cells of a metric. One object per metric and unit of a table, told apart by identity.

    Attributes:
        power: of ten, of its unit.
        percent: it is a share, which is looked at and not kept.
        read: whether somebody needs its values.
    """

    metric: str
    power: int = 0
    percent: bool = False
    read: bool = True

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers, as sums are."""
        return self.metric.endswith(".sum") and not self.percent


def unread(metric: str, unit: str) -> Target:
    """A metric that nobody needs: shares that were measured are looked at all the same."""
    share = unit == "%" and not metric.startswith(("launch__", "device__", "sm__maximum"))
    return Target(metric, percent=share, read=share)


class Reader:
    """What the readers of all layouts share: the numbers of the file and what is unusual in it."""

    def __init__(self, where: str, numbers: Numbers, unusual: Unusual) -> None:
        self.where = where
        self.numbers = numbers
        self.unusual = unusual

    def target(self, metric: str, unit: str, line: int) -> Target:
        """What becomes of the cells of a metric in a unit.

        Raises:
            FileError: the metric is one that is read, and cannot have this unit.
        """
        kind = kind_of(metric)
        if kind is None:
            return unread(metric, unit)
        power = power_of(unit, kind)
        if power is None:
            raise damaged(self.where, line, f"{metric} cannot have the unit {unit!r}")
        return Target(metric, power)

    def put(self, launch: Launch, target: Target, text: str, line: int) -> None:
        """Keep a cell that is read.

        Raises:
            FileError: it is no number, or the launch has another value already.
        """
        value = self.numbers.read(text, target.power, line)
        if target.percent and value is not None:
            self.unusual.percent(target.metric, value)
            return
        if isinstance(value, int | float) and value < 0:  # what passes that did not agree leave of a difference
            value = None
        if value is None:
            self.unusual.missing(target.metric)
        if target.percent:
            return
        if not launch.add(target.metric, value):
            raise damaged(self.where, line, f"{target.metric} has another value for the same launch above")

    def fill(self, launch: Launch, cells: Sequence[Cell]) -> None:
        """Keep all cells of a launch that are read: sums at once where each is written like one, which most are.

        Raises:
            FileError: as :meth:`put`.
        """
        if not cells:
            return
        targets, texts, lines = zip(*cells, strict=True)
        shape = shape_of(targets)
        if not self.sums(launch, shape, [texts[i] for i in shape.whole] if shape.others else texts):
            for cell in cells:
                self.put(launch, *cell)
            return
        for i in shape.others:
            self.put(launch, targets[i], texts[i], lines[i])

    def sums(self, launch: Launch, shape: Shape, texts: Sequence[str]) -> bool:
        """Keep the sums of a launch if each is written as a whole number; else nothing is kept."""
        some = [i for i, text in enumerate(texts) if text != "0"]
        numbers = self.numbers.whole([texts[i] for i in some]) if some else []
        if numbers is None:
            return False
        values = shape.zeros.copy()
        for i, number in zip(some, numbers, strict=True):
            values[shape.names[i]] = number
        for name, power in shape.scaled:
            if value := values[name]:
                values[name] = scaled(str(value), power)
        launch.take(shape.keys, values)
        return True

    def unused(self, metric: str, text: str, line: int) -> None:
        """Look at a cell that nobody needs: it may be missing, or tell how numbers are written."""
        if text.lower() in NOT_AVAILABLE:
            self.unusual.missing(metric)
        elif self.numbers.style is None:
            self.numbers.see(text, line)


Cell = tuple[Target, str, int]
"""What becomes of it, its text, and its line."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The cells that launches have in common.

    Attributes:
        whole: places of the sums, each counter once; `names` and `keys` are theirs, and `zeros` their values if idle.
        scaled: those of them whose unit is no base unit.
        others: places of all other cells.
    """

    whole: tuple[int, ...]
    names: tuple[str, ...]
    keys: Names
    zeros: dict[str, Value | Deferred]
    scaled: tuple[tuple[str, int], ...]
    others: tuple[int, ...]


@lru_cache(maxsize=1024)
def shape_of(targets: tuple[Target, ...]) -> Shape:
    first = {target: i for i, target in reversed(list(enumerate(targets)))}
    whole = tuple(i for i, target in enumerate(targets) if target.whole and first[target] == i)
    names = [targets[i].metric for i in whole]
    whole = whole if len(set(names)) == len(names) else ()
    kept = tuple(targets[i].metric for i in whole)
    return Shape(
        whole=whole,
        names=kept,
        keys=names_of(kept),
        zeros=dict.fromkeys(kept, 0),
        scaled=tuple((targets[i].metric, targets[i].power) for i in whole if targets[i].power),
        others=tuple(i for i in range(len(targets)) if i not in whole),
    )
