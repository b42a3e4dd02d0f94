"""Times the iterations of an existing training loop."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ContextDecorator
from types import CodeType
from typing import Any, Generic, TypeVar, cast

import torch

from rooflens.errors import InvalidValue
from rooflens.regions.counted import check_countable
from rooflens.regions.iterations import Iterations, Pass
from rooflens.regions.laps import ITERATION, LOADING, Lap, Pace, samples_in
from rooflens.regions.plan import Plan
from rooflens.report.overview import tables_of
from rooflens.report.render import render
from rooflens.results import RecordSet

Item = TypeVar("Item")
Function = TypeVar("Function", bound=Callable[..., Any])


def region_at(place: CodeType, plan: Plan, model: torch.nn.Module | None, trace: torch.nn.Module | None) -> Region:
    """The region of a call of :func:`rooflens.region`.

    Args:
        place: the code that calls. A call made again there, in the same thread, means the same region, see
            :meth:`Region.is_made_again`.

    Raises:
        InvalidValue, UnknownDevice, OutputError: see :meth:`Plan.checked`; or a compiled model is traced.
    """
    module = model if trace is None else trace
    key = id(place), plan.name, id(module)
    _, before, known = OWN.made.get(key, (None, None, None))
    if known is not None and plan == before and known.is_made_again(module):
        return known
    if module is not None and not isinstance(module, torch.nn.Module):
        raise InvalidValue(f"the model of a region is {module!r}; give the nn.Module that the loop runs")
    if model is not None and model is not module:
        raise InvalidValue("model and trace are two different modules; give one of them")
    checked = plan.checked()
    if trace is not None:
        check_countable(trace)
    made = Region(checked, module)
    OWN.made[key] = place, plan, made  # the code is kept, so that its id is not given to another
    return made


class Region(ContextDecorator):
    """Times the iterations of a loop; made by :func:`region`.

    A context manager (each entry is an iteration), a decorator (each call is one) and, by :meth:`over`, a watch on a
    loader. An iteration that raises is dropped.
    """

    def __init__(self, plan: Plan, model: torch.nn.Module | None) -> None:
        self._plan = plan
        self._whole = model is not None
        self._iterations = Iterations(plan, model)
        self._thread: int | None = None
        self._open = False
        self._made, self._entered, self._kept = 1, 0, False

    def is_made_again(self, model: torch.nn.Module | None) -> bool:
        """True if each region that this call made so far was entered once: then the next call means this region."""
        same = not self._kept and self._entered == self._made and model is self._iterations.model
        self._made += same
        return same

    def __enter__(self) -> Region:
        self._entered += 1
        around = OWN.passes
        if around and not self._whole and not self._open:
            around.append(self._part_of(around[-1]))
        else:
            self._check_alone()
            around.append(self._iterations.begin(self))
            self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        around = OWN.passes
        now = around.pop(max(n for n, entered in enumerate(around) if entered.region is self))
        if not now.path:
            self._open = False
            now.of.end(now, completed=kind is None)
        elif now.begins is not None:
            lap = Lap(begins=now.begins, ends=now.of.mark())
            if kind is None:
                around[-1].inner += [(now.path, lap), *now.inner]

    def __call__(self, function: Function) -> Function:
        """Time each call of a function as an iteration."""
        if not callable(function):
            raise InvalidValue(
                f"{function!r} is not a function whose calls can be timed; watch a loader with .over(loader)"
            )
        if any(is_lazy(function) for is_lazy in _LAZY):
            raise InvalidValue(
                f"{function.__name__} returns before its body has run, so a call cannot be timed; use"
                f" `with rl.region({self._plan.name!r}):` inside it"
            )
        self._kept = True
        return super().__call__(function)

    def over(self, loader: Iterable[Item]) -> WatchedLoader[Item]:
        """Time a loop over a loader; each item and what is done with it is one iteration.

        Waiting for the next item is data loading, the rest is the step. Starting the loader (its workers) belongs to
        neither. A second loop over the same region continues the first.
        """
        self._kept = True
        return WatchedLoader(self, loader)

    @property
    def records(self) -> RecordSet:
        """The step, the regions inside it, iteration and data loading so far, and the work if it was counted.

        Raises:
            InvalidValue: no iteration was timed yet.
        """
        return self._iterations.records

    @property
    def pace(self) -> Pace | None:
        """Wall time, share of data loading and samples per second over all timed iterations; None without a loader."""
        return self._iterations.times.pace

    def report(self) -> str:
        """The table of :func:`table` as text."""
        return render(tables_of(self.records), "table")

    def __repr__(self) -> str:
        return f"<region {self._plan.name!r}: {self._iterations}>"

    def _part_of(self, outer: Pass) -> Pass:
        """A pass through this region inside an iteration of the region around it."""
        name, given = self._plan.name, self._plan.only_alone
        if given:
            raise InvalidValue(
                f"region {name!r} is entered inside {outer.of.plan.name!r} and timed with it; leave out"
                f" {', '.join(given)}"
            )
        if name in (ITERATION, LOADING):
            raise InvalidValue(f"{name!r} is the name of a part that every loop has; give the region another")
        begins = outer.of.mark() if outer.begins is not None else None
        path = f"{outer.path}/{name}" if outer.path else name
        return Pass(of=outer.of, region=self, stage=outer.stage, path=path, begins=begins)

    def _check_alone(self) -> None:
        """Check that one thread enters, one iteration at a time."""
        thread = threading.get_ident()
        if self._thread not in (None, thread):
            raise InvalidValue(
                f"region {self._plan.name!r} is entered from a second thread, and its iterations would mix; make one"
                " region for each thread"
            )
        if self._open:
            raise InvalidValue(
                f"region {self._plan.name!r} is entered while an iteration of it runs; give a part of it a region"
                " of its own, without a model"
            )
        self._thread = thread

    def _watch(self, loader: Iterable[Item]) -> Iterator[Item]:
        iterations, around = self._iterations, OWN.passes
        items = iter(loader)
        now: Pass | None = None
        waits: int | None = None
        try:
            while iterations.stage != "done":
                self._check_alone()
                if waits is None and iterations.stage == "time":
                    waits = iterations.mark()
                try:
                    held = [next(items)]
                except StopIteration:
                    return
                now = iterations.begin(self, waits, None if waits is None else samples_in(held[0]))
                around.append(now)
                self._open = True
                yield held.pop()  # not kept here: the loop may free it early
                around.remove(now)
                self._open = False
                waits, now = iterations.end(now, completed=True), None  # waiting begins where the step ends
            now = iterations.begin(self)  # done: regions inside are still parts, of what nobody times
            around.append(now)
            yield from items
        finally:
            self._leave(now, around)

    def _leave(self, now: Pass | None, around: list[Pass]) -> None:
        """Close a loop that ended, was broken off, or raised: a loader cannot tell these apart."""
        if now is not None:
            around.remove(now)
            self._open = False
            self._iterations.end(now, completed=False)
        self._iterations.pause()


_LAZY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class WatchedLoader(Generic[Item]):
    """Gives the items of a loader and times them; has the loader's length and attributes (dataset, sampler ...)."""

    def __init__(self, region: Region, loader: Iterable[Item]) -> None:
        self._region, self._loader = region, loader

    def __iter__(self) -> Iterator[Item]:
        return self._region._watch(self._loader)

    def __len__(self) -> int:
        return len(cast(Sized, self._loader))

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying asks for these before the object is made
            raise AttributeError(name)
        return getattr(self._loader, name)


class _Own(threading.local):
    """What each thread has for itself.

    Attributes:
        made: the last region of each place, name and model, with its plan.
        passes: the passes that the thread is in, the innermost last.
    """

    def __init__(self) -> None:
        self.made: dict[tuple[int, str, int], tuple[CodeType, Plan, Region]] = {}
        self.passes: list[Pass] = []


OWN = _Own()
