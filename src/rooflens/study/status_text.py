"""The status of a study as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from rooflens.compare.uncertainty import FEWEST_POINTS
from rooflens.study.folder import STATES, Status, StudyChange
from rooflens.study.hypotheses import CORRELATIONS
from rooflens.study.study import SOURCES, Cell, Study

_TOLD = ("stage", "kind", "message")
"""What JSON tells of a failure."""
_MOST = 20
"""Failures that are listed for people; JSON has them all."""


def status_text(status: Status) -> str:
    """A status for people: counts of cells, in all and by source, what is left and for how long, and what failed."""
    return "\n".join(_lines(status)) + "\n"


def status_json(status: Status) -> str:
    """A status as a JSON object; times in seconds."""
    counts: dict[str, int] = {state: status.count(state) for state in STATES}
    sources: dict[str, dict[str, int]] = dict(by_source(status))
    cells = {cell.key: cell for cell in status.states}
    contents = {
        "format": 1,
        "cells": len(status.states),
        **counts,
        "complete": status.complete,
        "seconds": status.seconds,
        "expected_seconds": status.expected,
        "without_example": status.unlike,
        "sources": sources,
        "left_by_device": {device or "any": n for device, n in status.left_by_device().items()},
        "failures": [
            {"key": key, "cell": cells[key].label()} | {name: getattr(failure, name) for name in _TOLD}
            for key, failure in status.failures.items()
            if not failure.skipped
        ],
        "skips": [
            {"key": key, "cell": cells[key].label(), "reason": failure.reason}
            for key, failure in status.failures.items()
            if failure.skipped
        ],
        "not_asked_for": list(status.strangers),
    }
    return json.dumps(contents, indent=2) + "\n"


def too_few_models(study: Study, cells: Iterable[Cell]) -> Iterator[str]:
    """Which hypotheses on a correlation no result of these cells can decide, and how many models that takes."""
    models = len({cell.case.model for cell in cells})
    for hypothesis in study.hypotheses:
        claim = hypothesis.claim
        if claim is not None and claim.quantity in CORRELATIONS and 0 < models < FEWEST_POINTS:
            yield (
                f"no result can decide “{hypothesis.text}”: it is on a correlation, which takes {FEWEST_POINTS} models"
                f" to be told from chance, and the study holds {models}"
            )


def change_text(change: StudyChange) -> str:
    """How a study file differs from the one that its folder was begun with."""
    changes = []
    if change.added:
        more = len(change.added)
        changes.append(f"asks for {more} more {'cell' if more == 1 else 'cells'}")
    if change.dropped:
        changes.append(f"no longer asks for {_cells(len(change.dropped))}, whose files stay")
    return f"the study file changed since: it {' and '.join(changes) or 'asks for the same cells'}"


def duration(seconds: float) -> str:
    """A time to wait, in about two digits.

    >>> duration(4.21), duration(754), duration(11000)
    ('4.2 s', '13 min', '3.1 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def plain(text: str) -> str:
    """A text in one line without control characters: it may quote what a model or a file says.

    >>> plain("  a: no\\n\\x1b[31mmemory")
    '  a: no \N{REPLACEMENT CHARACTER}[31mmemory'
    """
    indent = text[: len(text) - len(text.lstrip(" "))]
    line = " ".join(text.split())
    return indent + "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def _lines(status: Status) -> Iterator[str]:
    shown = [state for state in STATES if state != "skipped" or status.count(state)]
    yield f"{_cells(len(status.states))}: {', '.join(f'{status.count(state)} {state}' for state in shown)}"
    for source, counted in by_source(status):
        yield f"  {source:<9} " + ", ".join(f"{n} {state}" for state, n in counted.items() if n)
    yield from remarks(status)


def remarks(status: Status) -> Iterator[str]:
    """Yield what is left and for how long, what failed, and what does not belong to the study."""
    cells = {cell.key: cell for cell in status.states}
    if status.seconds is not None:
        yield f"done so far in {duration(status.seconds)} of work"
    if status.count("left"):
        yield _rest(status)
    for device, n in status.left_by_device().items():
        if device is not None:
            yield f"  {n} of them need {device}"
    for skipped, title in ((False, "failed ('--retry' runs them again):"), (True, "skipped:")):
        told = [(key, failure) for key, failure in status.failures.items() if failure.skipped == skipped]
        if told:
            yield title
        for key, failure in told[:_MOST]:
            what = failure.reason if skipped else f"{failure.kind} at {failure.stage}: {failure.message}"
            yield plain(f"  {cells[key].label()}: {what}")
        if len(told) > _MOST:
            yield f"  and {len(told) - _MOST} more"
    if status.strangers:
        strangers = len(status.strangers)
        files = "record file belongs" if strangers == 1 else "record files belong"
        yield f"{strangers} {files} to no cell of the study; an older file of it asked for them"


def _rest(status: Status) -> str:
    left = status.count("left")
    if status.expected is None:
        return f"left: {_cells(left)}; nothing like that is done yet, so nobody knows for how long"
    time = f"about {duration(status.expected)} one after another"
    if not status.unlike:
        return f"left: {_cells(left)}, {time}"
    known = f"{left - status.unlike} of them {'take' if left - status.unlike > 1 else 'takes'} {time}"
    others = "takes is unknown: nothing like it is" if status.unlike == 1 else "take is unknown: nothing like them is"
    return f"left: {_cells(left)}; {known}, and how long the other {status.unlike} {others} done yet"


def _cells(number: int) -> str:
    return f"{number} cell" if number == 1 else f"{number} cells"


def by_source(status: Status) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield how many cells of each source are in each state."""
    for source in SOURCES:
        states = [state for cell, state in status.states.items() if cell.source == source]
        if states:
            yield source, {state: states.count(state) for state in STATES}
