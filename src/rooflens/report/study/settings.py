"""The first section: the question, how it was asked, and how far the study is; the last ones: where, and how again."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rooflens.records import Environment, Scalar
from rooflens.report.study.content import Block, Code, Facts, Section, TableBlock
from rooflens.report.study.view import StudyView
from rooflens.report.table import COUNT, Column, Entries, build
from rooflens.study import STATES, Cell, Study, excluded

MOST_NAMED = 24
"""Values of an axis that are named; of more, the first ones."""
_COMMANDS = """\
rooflens study run study.toml -d {folder}
rooflens study status {folder}
rooflens study report {folder} -o report.html"""
_ENVIRONMENT = (
    Column(key="what", header="", align="left"),
    Column(key="name", header="name", align="left"),
    Column(key="value", header="value", align="left"),
    Column(key="cells", header="record files", unit=COUNT),
)


def setting(view: StudyView) -> Section:
    """Question, method, what was varied, what was left out, how many cells are done."""
    facts = list(_axes(view.status.states))
    if states := ", ".join(f"{n} {state}" for state in STATES if (n := view.status.count(state))):
        facts.append(("cells", states))
    blocks: list[Block] = [*_paragraphs(view.study.question), *_paragraphs(view.study.method)]
    blocks += [Facts(tuple(facts))] if facts else []
    if view.study.excluded:
        blocks += ["Left out:", Facts(tuple(_exclusions(view.study)))]
    return Section(key="question", title="Question and setting", blocks=tuple(blocks))


def environment(view: StudyView) -> Section | None:
    """What the records were made with: said once where all say alike."""
    if not view.environments:
        return None
    rows = list(_environment_rows(view.environments))
    times = sorted(made.created for made, _ in view.environments)
    notes = [f"records were made between {times[0]} and {times[-1]} (UTC)"] if times[0] != times[-1] else []
    table = build("Environment", _ENVIRONMENT, rows, notes=notes)
    return Section(key="environment", title="Environment", blocks=(TableBlock(key="environment", table=table),))


def repeat(view: StudyView) -> Section:
    """Everything that is needed to run the study again."""
    blocks: list[Block] = [
        "The study file below names every case. These commands run it, tell how far it is, and write this report.",
        # The folder by its last name: where it lies says nothing to others.
        Code("Commands", _COMMANDS.format(folder=shlex.quote(f"out/{view.name}"))),
    ]
    versions = {made.rooflens for made, _ in view.environments}
    commits = {made.commit for made, _ in view.environments if made.commit}
    facts = [("rooflens", ", ".join(sorted(versions)))] if versions else []
    facts += [("working tree", ", ".join(sorted(commits)))] if commits else []
    blocks += [Facts(tuple(facts))] if facts else []
    return Section(key="repeat", title="How to repeat it", blocks=(*blocks, Code("Study file", view.text)))


def _axes(cells: Iterable[Cell]) -> Iterator[tuple[str, str]]:
    """What was varied: models, devices, batches ..."""
    columns: dict[str, list[object]] = {}
    for cell in cells:
        case = cell.case
        for axis, value in (
            ("sources", cell.source),
            ("models", cell.file or case.model),
            ("devices", case.device),
            ("batches", case.batch),
            ("dtypes", case.dtype),
            ("modes", case.mode),
            *(("options", f"{name}={value}") for name, value in case.options),
        ):
            columns.setdefault(axis, []).append(value)
    for axis, values in columns.items():
        known = [str(value) for value in dict.fromkeys(values) if value is not None]
        if known:
            more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
            yield axis, ", ".join(known[:MOST_NAMED]) + more


def _exclusions(study: Study) -> Iterator[tuple[str, str]]:
    """Each exclusion in words and why, and how many cells all of them leave out."""
    for exclusion in study.excluded:
        conditions = (f"{name} {' or '.join(map(str, values))}" for name, values in exclusion.conditions.items())
        yield ", ".join(conditions), exclusion.why or "no reason is given"
    if left_out := len(excluded(study)):
        yield "in all", f"{left_out} cells"


def _paragraphs(text: str) -> Iterator[str]:
    """Text of a study file: an empty line ends a paragraph, the other line breaks are the editor's."""
    yield from filter(None, (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)))


def _environment_rows(environments: tuple[tuple[Environment, int], ...]) -> Iterator[Entries]:
    counted: Counter[tuple[int, str, str, str]] = Counter()
    for made, files in environments:
        kinds: list[tuple[str, Mapping[str, Scalar]]] = [("versions", {"rooflens": made.rooflens, **made.versions})]
        kinds += [("machine", made.machine), ("flags", made.flags)]
        for order, (what, values) in enumerate(kinds):
            for name, value in values.items():
                counted[order, what, name, str(value)] += files
    for (_, what, name, value), files in sorted(counted.items()):
        yield {"what": what, "name": name, "value": value, "cells": files}
