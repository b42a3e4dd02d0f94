"""Comparison: two runs, evidence, kernels, devices, and what goes together with what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from rooflens.api.arguments import named_options
from rooflens.api.reading import read
from rooflens.checks import examine
from rooflens.compare import (
    Comparison,
    DeviceComparison,
    DeviceRanking,
    Sweep,
    asked_numbers,
    compare_devices,
    compare_evidence,
    compare_kernels,
    compare_runs,
    correlations,
    exponents,
    phase_ratios,
    ranked,
    sweeps,
)
from rooflens.compare.doubts import doubts_of, of_sides
from rooflens.compare.kernel_pairs import is_launch
from rooflens.compare.runs import SIDES
from rooflens.compare.uncertainty import FEWEST_FITTED
from rooflens.devices import which_of
from rooflens.devices.price_files import prices_of
from rooflens.errors import Incomparable, InvalidValue
from rooflens.machine import find
from rooflens.notebook import Listed
from rooflens.records import Case, Source
from rooflens.results import RecordSet, join

Question = Literal[
    "runs", "evidence", "kernels", "devices", "correlation", "scaling", "phases", "throughput", "answers"
]
QUESTIONS: tuple[Question, ...] = get_args(Question)
One = RecordSet | str | Path
_TAKES: Mapping[Question, frozenset[str]] = {
    "runs": frozenset({"across", "force"}),
    "evidence": frozenset({"by"}),
    "kernels": frozenset({"by"}),
    "devices": frozenset({"baseline", "prices", "time"}),
    "correlation": frozenset({"time", "against", "phase"}),
    "scaling": frozenset({"time", "over", "phase"}),
    "phases": frozenset(),
    "throughput": frozenset(),
    "answers": frozenset(),
}
"""The options of each question."""


@named_options()
def compare(
    *sources: One | Sequence[One],
    question: Question | None = None,
    across: Collection[str] | None = None,
    force: bool | None = None,
    by: str | None = None,
    baseline: str | None = None,
    prices: Mapping[str, float] | str | Path | None = None,
    time: str | None = None,
    against: str | None = None,
    over: str | None = None,
    phase: str | None = None,
) -> Comparison:
    """Compare records or files: ``rl.compare(before, after)``, ``rl.compare(est, time, hw)``.

    Args:
        sources: record sets, files, or folders of record files. A folder, or a list, is one side: several runs.
        question: what is asked; default: what the sources allow.

            - ``runs``: two sides of the same steps: slower or faster, with an interval and a test (default for two
              sources that were measured, or counted the same step);
            - ``evidence``: estimate, measurement, profile and counters of the same case, and the errors (default for
              other sources);
            - ``kernels``: two files of kernels, by name and then by order (two sources that hold only kernels);
            - ``devices``: which device, at what batch, as :func:`rank` (default for estimates of several devices); of
              measurements, or with `baseline` or `time`, the same steps on several devices;
            - ``correlation``: FLOP, parameters, bytes and activations against latency, over models;
            - ``scaling``: the power with which time grows with `over`;
            - ``phases``: forward over backward; ``throughput``: samples per second against batch, and its knee;
            - ``answers``: times of tokens, rates, energies and costs, case beside case.
        across: of ``runs``: fields of the case, or options, that may differ, like ``["dtype"]``.
        force: of ``runs``: compare although the environments forbid it.
        by: of ``evidence``: ``case`` (default), ``phase``, ``module``, ``family`` or ``op``; of ``kernels``: ``kernel``
            (default), ``phase``, ``module`` or ``family``.
        baseline: of ``devices``: the device that the others are put beside; default: the first.
        prices: of ``devices``: price by device for an hour, in a currency of yours; or a TOML file of them.
        time: ``measured``, ``predicted`` or ``bound``; default: measured if anything was.
        against: of ``correlation``: another quantity than ``latency``.
        over: of ``scaling``: ``batch`` (default), a quantity like ``flops``, or an option like ``seq_len``.
        phase: of ``correlation`` and ``scaling``: one phase instead of the whole step.

    Returns:
        Frozen data; ``rl.table`` shows it. Of ``correlation`` and what follows it, a tuple with one item per setting.
        Its ``doubts`` repeat the notes and findings that make what is compared doubtful.

    Raises:
        InvalidValue: an unknown question, an option that it does not take, or too many sources.
        Incomparable: nothing in common, or environments that decide the result differ.
        FileError: a file cannot be read.
    """
    given = {
        "across": across, "force": force, "by": by, "baseline": baseline, "prices": prices, "time": time,
        "against": against, "over": over, "phase": phase,
    }  # fmt: skip
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not sources:
        raise InvalidValue("compare needs something to compare: record sets, or files")
    sets = [_side(source) for source in sources]
    asked = question or default_question(sets, pieces="by" in options)
    if asked not in QUESTIONS:
        raise InvalidValue(f"unknown question {asked!r}; known: {', '.join(QUESTIONS)}")
    alien = sorted(options.keys() - _TAKES[asked])
    if alien:
        taken = ", ".join(sorted(_TAKES[asked])) or "none"
        others = ", ".join(other for other, options_of in _TAKES.items() if alien[0] in options_of)
        raise InvalidValue(
            f"{alien[0]!r} is no option of the question {asked!r}; its options: {taken}; {alien[0]!r} is for: {others}"
        )
    if asked in ("runs", "kernels"):
        return _two_sides(asked, sets, options)
    together = RecordSet.union(sets)
    comparison: Comparison = _ONE_SET[asked](together, **_canonical(options, together))
    if not comparison:
        raise Incomparable(_NOTHING[asked])
    return _doubting(comparison, [*doubts_of(join(together)), *_findings(together)])


def _two_sides(question: Question, sets: Sequence[RecordSet], options: Mapping[str, Any]) -> Comparison:
    if len(sets) != 2:
        raise InvalidValue(
            f"the question {question!r} takes two sides, not {len(sets)}; put the files of a side into a folder (in"
            " Python: into a list)"
        )
    before, after = sets
    if question == "runs":
        comparison: Comparison = compare_runs(before, after, **options)
        doubts = {which: [*_findings(side)] for which, side in zip(SIDES, sets, strict=True)}
    else:
        comparison = compare_kernels(before, after, **options)
        doubts = {which: [*doubts_of(join(side)), *_findings(side)] for which, side in zip(SIDES, sets, strict=True)}
    return _doubting(comparison, of_sides(doubts))


def _findings(records: RecordSet) -> Iterator[str]:
    """What the checks doubt of some records."""
    return (f"{finding.subject}: {finding.message}" for finding in examine(records=records).at_least("warning"))


def _doubting(comparison: Comparison, doubts: Sequence[str]) -> Comparison:
    """A comparison, or each item of one, with further doubts."""
    if isinstance(comparison, tuple):
        return Listed(replace(item, doubts=tuple(doubts)) for item in comparison)  # type: ignore[return-value]
    return replace(comparison, doubts=(*comparison.doubts, *doubts))


def _canonical(options: Mapping[str, Any], records: RecordSet) -> dict[str, Any]:
    """The options with devices by their names in the set; typed names may be any that the catalogue knows."""
    here = {case.device for case in records.cases if case.device is not None}

    baseline, prices = options.get("baseline"), options.get("prices")
    return {
        **options,
        **({} if baseline is None else {"baseline": which_of(here, baseline, find)}),
        **({} if prices is None else {"prices": prices_of(prices, here, find)}),
    }


def default_question(sets: Sequence[RecordSet], *, pieces: bool = False) -> Question:
    """What sets most likely ask: two of the same steps are runs, two of kernels are kernels, estimates a ranking.

    Args:
        pieces: some pieces of the steps are asked for, which runs have not.
    """
    if pieces and len(sets) == 2 and _launching(sets[0]) & _launching(sets[1]):
        return "kernels"
    if len(sets) == 2 and all(_measured(records) for records in sets):
        return "runs"
    if len(sets) == 2 and all(any(map(is_launch, records)) and "estimate" not in records.sources for records in sets):
        return "kernels"
    if len(sets) == 2 and _in_pieces(sets[0]) & _in_pieces(sets[1]):
        return "runs"
    return (
        "devices"
        if all(one.sources == ("estimate",) for one in sets) and _several_estimated(RecordSet.union(sets))
        else "evidence"
    )


def _measured(records: RecordSet) -> bool:
    return any(r.source == "measure" and r.scope == "model" and r.timing is not None for r in records)


def _launching(records: RecordSet) -> set[Source]:
    """Who saw launches."""
    return {record.source for record in records if is_launch(record)}


def _in_pieces(records: RecordSet) -> set[tuple[Case, Source]]:
    """The cases that were observed piece by piece, each with who did."""
    return {(r.case, r.source) for r in records.summed if r.source != "estimate" and r.scope != "model"}


def _side(source: One | Sequence[One]) -> RecordSet:
    """One side: a set, a file, all record files of a folder or of a study's folder, or several of these."""
    if isinstance(source, RecordSet):
        return source
    if isinstance(source, str | Path):
        return read(source)
    if not source:
        raise InvalidValue("a side is an empty list: there is nothing to compare")
    return RecordSet.union(map(_side, source))


def _devices(
    records: RecordSet, *, baseline: str | None = None, prices: Mapping[str, float] | None = None, time: Any = None
) -> DeviceComparison | DeviceRanking:
    """Estimates are ranked; what was measured, or is to be put beside a baseline, is compared step by step."""
    if baseline is None and time is None and _several_estimated(records):
        return ranked(records, prices=prices)
    return compare_devices(records, baseline=baseline, prices=prices, time=time)


def _several_estimated(records: RecordSet) -> bool:
    """True if all there is are estimates, and on several devices."""
    return records.sources == ("estimate",) and len({case.device for case in records.cases} - {None}) > 1


def _throughput(records: RecordSet) -> tuple[Sweep, ...]:
    return sweeps(join(records), records.failures)


_ONE_SET: Mapping[Question, Callable[..., Any]] = {
    "evidence": compare_evidence,
    "devices": _devices,
    "correlation": correlations,
    "scaling": exponents,
    "phases": phase_ratios,
    "throughput": _throughput,
    "answers": asked_numbers,
}
"""Questions to all records together, and who answers."""
_NOTHING: Mapping[Question, str] = {
    "correlation": "no setting (device, batch, dtype, mode, options) has three models with known numbers and times",
    "scaling": f"no series has {FEWEST_FITTED} different values: batches or option values of a model, or models",
    "throughput": "no case has a batch and a time: this takes measurements, or estimates on a device",
}
