"""Files as records, whoever wrote them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rooflens.api.arguments import named_options
from rooflens.errors import InvalidValue
from rooflens.machine import find
from rooflens.readers import ReadContext, read_file
from rooflens.records import Case, Device, Record, is_record_file
from rooflens.results import RecordSet
from rooflens.running.placing import placed
from rooflens.runs.dtype_names import dtype_named
from rooflens.runs.options import OF_STEP, Options
from rooflens.runs.run import recorded_name
from rooflens.sources.counters import Statement, stated, statement
from rooflens.study.folder import CELLS

_FACTS = ("model", "batch", "dtype", "mode", *OF_STEP)
"""What a user may say of the case of a file."""


@named_options()
def read(
    *paths: str | Path,
    device: str | Device | None = None,
    work: Mapping[str, Mapping[str, str | float]] | Iterable[Statement] | None = None,
    case: Mapping[str, Any] | None = None,
    trace: str | Path | None = None,
) -> RecordSet:
    """Return the records of files: ``rl.read("report.csv").total().seconds``; twin of ``rooflens read``.

    Of a folder all record files are read, and of the folder of a study its cells.

    A file is recognised by its content: records that rooflens wrote; a report of Nsight Compute (``.ncu-rep``), or what
    it prints as CSV or text in any layout (a record per launch of a kernel); a trace of PyTorch's profiler (a record
    per operation); an SQLite export of Nsight Systems (a record per kernel and copy); kernel times of nsys stats,
    nvprof and rocprof as CSV; what the Empirical Roofline Tool measured (a device); roofs and points of NERSC's scripts
    (a device and records); and what other packages read.

    Args:
        device: on which it ran, whose ceilings apply; default: the one that the file names. A record file with cases of
            several devices keeps these.
        work: the algorithm's work of kernels that only you know, by a part or pattern of their name:
            ``{"my_gemm*": {"flops": 2 * 4096**3, "dram": 100663296}}``. Besides ``flops`` a resource may be named
            (``matmul.bf16``). It stands in a case of its own (``work=stated``), beside what was executed.
        case: what the counters and traces are of, where the files do not say: ``{"model": "resnet18", "batch": 32,
            "dtype": "tf32", "mode": "train"}``, any of these, and the options of a step by which cases differ
            (``"img_size": 160``). With the records of an estimate of the same case among the files, algorithmic work
            stands beside what was executed; no model is loaded here. A trace whose recorded shapes are others than
            those of the estimate stands apart from it, and a note says why.
        trace: a trace of PyTorch's profiler of the same step, from a run without counters: each counted launch (of
            Nsight Compute, rocprof or rocprof-compute) takes its time, operation, module and phase from there.

    Raises:
        RecordFileError: a record file is missing, damaged (the line is named) or from a newer version.
        UnknownFormat: a file is none of these; the message says what it seems to be, and lists them.
        FileError: a file is damaged or too large, or holds nothing usable; ncu's own words are quoted.
        UnknownDevice: `device` is not known.
        UnknownName: no kernel has a name that `work` is about.
    """
    if not paths:
        raise InvalidValue("read needs at least one file")
    known = find(device) if isinstance(device, str) else device
    facts = {name: value for name, value in (case or {}).items() if value is not None}
    unknown = sorted((case or {}).keys() - set(_FACTS))
    if unknown:
        raise InvalidValue(f"a case is not told by {unknown[0]!r}; known: {', '.join(_FACTS)}")
    files = [Path(path) for path in paths]
    contexts = [ReadContext(name=name, device=known) for name in _names(files)]
    found = [
        read_file(file, context)
        for path, context in zip(files, contexts, strict=True)
        for file in _record_files(path) or [path]
    ]
    told = [_with_facts(records, facts) for records in found]
    together = RecordSet.union(told)
    said = {*facts} - {*OF_STEP} or Options.of(facts) != Options.of({})  # and not only defaults
    if said and all(one is other for one, other in zip(found, told, strict=True)):
        unused = "the files tell their own cases: what you say of the case is not used"
        together = together.with_records(_noted(together.records, unused))
    together = together if trace is None else placed(together, trace)
    statements = [statement(*each) for each in work.items()] if isinstance(work, Mapping) else list(work or ())
    if not statements:
        return together
    return together.with_records((*together.records, *stated(together.records, statements)))


def _noted(records: Sequence[Record], note: str) -> Sequence[Record]:
    """The records, the first with a note."""
    return [replace(record, notes=(*record.notes, note)) for record in records[:1]] + list(records[1:])


def _record_files(path: Path) -> list[Path]:
    """The record files of a folder or of a study's folder; none of a file, or where something else wrote the folder."""
    folders = (folder for folder in (path, path / CELLS) if os.path.isdir(folder))
    return next(filter(None, (sorted(filter(is_record_file, folder.iterdir())) for folder in folders)), [])


def _with_facts(records: RecordSet, facts: Mapping[str, Any]) -> RecordSet:
    """The set with what its user says of the case; records that rooflens wrote have their own."""
    if not facts or not {"counters", "profile"} & set(records.sources) or "estimate" in records.sources:
        return records
    cases = {case: _told(case, facts) for case in records.cases}
    return records.with_records(replace(record, case=cases[record.case]) for record in records)


def _told(case: Case, facts: Mapping[str, Any]) -> Case:
    """The case with what its user says of it; whole answers are a mode of their own, as everywhere."""
    options, mode = Options.of(facts), facts.get("mode", "generate" if facts.get("output_len") else case.mode)
    options.check_mode(mode)
    named = dict(case.options) | dict(options.in_case(mode))
    return replace(
        case,
        model=recorded_name(facts["model"]) if "model" in facts else case.model,
        batch=facts.get("batch", case.batch),
        dtype=dtype_named(facts["dtype"]) if "dtype" in facts else case.dtype,
        mode=mode,
        options=tuple(sorted(named.items())),
    )


def _names(files: Sequence[Path]) -> list[str]:
    """What the cases are called: the name of the file, and the whole path where two files share it."""
    stems = [file.name.partition(".")[0] or file.name for file in files]
    return [stem if stems.count(stem) == 1 else str(file) for stem, file in zip(stems, files, strict=True)]
