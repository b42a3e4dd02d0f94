"""An explanation, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from rooflens.costs import WorkTerm
from rooflens.explanation.chapters import Chapter, ExpectedCall, Explained, ExplainedSum, Utilisation
from rooflens.explanation.text import lines_of
from rooflens.predict import Form, Term
from rooflens.records import Device, Work
from rooflens.records.calls import to_plain
from rooflens.roofline import bound

_OF_CACHE = ("held", "used", "per_token")


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The formulas of some operations with their numbers filled in: ``print(rl.explain("mm", shapes=...))``.

    Attributes:
        chapters: the operations, by case.
        in_full: the text has every operation, also of many; else the parts of their sum.
    """

    chapters: tuple[Chapter, ...]
    in_full: bool = False

    @property
    def operations(self) -> tuple[Explained, ...]:
        """Every operation that is explained."""
        return tuple(operation for chapter in self.chapters for operation in chapter.operations)

    @property
    def text(self) -> str:
        """The explanation for a person, 80 columns wide."""
        return "\n".join(lines_of(self.chapters, in_full=self.in_full))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Explanation({', '.join(operation.calculation.call.name for operation in self.operations)})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f'<pre style="white-space: pre-wrap">{escape(self.text)}</pre>'

    @property
    def data(self) -> list[dict[str, Any]]:
        """The explanation for a program: an object for each operation, numbers in FLOP, bytes and seconds.

        After them an object tells the expected time on each device with its parts; of a whole model also its cache, how
        a training step uses each device, and what people ask of it, with the formula.
        """
        return [
            {"case": chapter.title or None, **plain} for chapter in self.chapters for plain in _plain_chapter(chapter)
        ]


def _plain_chapter(chapter: Chapter) -> Iterator[dict[str, Any]]:
    yield from map(_plain, chapter.operations)
    cache = chapter.kv_cache
    whole = {
        "sums": [_plain_sum(one) for one in chapter.sums],
        "expected": [asdict(on_device) for on_device in chapter.expected],
        "kv_cache": None if cache is None else asdict(cache) | {name: getattr(cache, name) for name in _OF_CACHE},
        "utilisation": [_plain_use(use) for use in chapter.utilisations],
        "answers": [asdict(on_device) for on_device in chapter.answers],
    }
    if any(whole.values()):
        yield whole


def _plain_sum(one: ExplainedSum) -> dict[str, Any]:
    return {
        "device": None if one.device is None else one.device.name,
        "seconds": one.seconds,
        "bound_by": one.bound_by or None,
        **_plain_work(one.work),
        "families": [asdict(part) for part in one.families],
        "modules": [asdict(part) for part in one.modules],
        "whole_model_seconds": None if one.whole is None else one.whole.seconds,
    }


def _plain_use(use: Utilisation) -> dict[str, Any]:
    """MFU and HFU, and what they are made of."""
    model, again = use.seconds(use.flops), use.seconds(use.repeated)
    times = {"bound": use.bound, "measured": use.measured}
    return {
        "device": use.device.name,
        "flops": dict(use.flops),
        "repeated_flops": dict(use.repeated),
        "peaks": {unit: use.device.require(unit).rate for unit in {**use.flops, **use.repeated}},
        "mfu": {origin: model / seconds if seconds else None for origin, seconds in times.items()},
        "hfu": {origin: (model + again) / seconds if seconds else None for origin, seconds in times.items()},
    }


def _plain(explained: Explained) -> dict[str, Any]:
    """One operation; numbers in FLOP, bytes and seconds."""
    calculation, kernel_work, floor = explained.calculation, explained.kernel_work, explained.floor
    return {
        "path": explained.path,
        "phase": explained.phase,
        "calls": explained.calls,
        "family": calculation.cost.family,
        "call": to_plain(calculation.call, layout=False),
        "formula": calculation.formula,
        "uncounted": calculation.uncounted,
        "flops": _plain_terms(calculation.flops),
        "kernel_flops": _plain_terms(calculation.kernel_flops),
        "bytes": _plain_terms(calculation.bytes),
        "work": _plain_work(explained.work),
        "kernel_work": None if kernel_work is None else _plain_work(kernel_work),
        "floor": None if floor is None else {"cause": floor.cause, "formula": floor.formula, **_plain_work(floor.work)},
        "bounds": {device.name: _plain_bound(explained.executed, device) for device in explained.devices},
        "expected": [_plain_expected(one) for one in explained.expected],
        "notes": list(explained.notes),
    }


def _plain_expected(one: ExpectedCall) -> dict[str, Any]:
    return {
        "device": one.device.name,
        "calls": one.calls,
        "seconds": one.seconds,
        "low": one.low,
        "high": one.high,
        "level": one.level,
        "generation": one.generation,
        "made_of": None if one.form is None else _plain_form(one.form),
        "constants": dict(one.constants),
        "sources": dict(one.sources),
    }


def _plain_form(form: Form) -> dict[str, Any]:
    """A term with what it was made of, or terms with how they are put together."""
    if not isinstance(form, Term):
        return {"how": form.how, "exponent": form.exponent, "terms": [_plain_form(part) for part in form.parts]}
    return {
        "name": form.name or None,
        "seconds": form.seconds,
        "times": form.times,
        "details": dict(form.details),
        "constants": list(form.constants),
        "made_of": None if form.form is None else _plain_form(form.form),
    }


def _plain_terms(terms: tuple[WorkTerm, ...]) -> list[dict[str, Any]]:
    return [{"of": term.what, "expression": term.expression, "value": term.value} for term in terms]


def _plain_work(work: Work) -> dict[str, Any]:
    return {"flops": dict(work.flops), "bytes": dict(work.bytes)}


def _plain_bound(work: Work, device: Device) -> dict[str, Any]:
    shortest = bound(work, device)
    return {"seconds": shortest.seconds, "bound_by": shortest.bound_by, "shares": shortest.shares}
