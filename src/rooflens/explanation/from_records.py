"""Explains the records of an estimate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rooflens.costs import Cost
from rooflens.errors import InvalidValue, UnknownName
from rooflens.explanation.chapters import (
    AnswersOnDevice,
    Chapter,
    ExpectedOnDevice,
    Explained,
    ExplainedAnswer,
    Utilisation,
    calculations,
)
from rooflens.explanation.expected_calls import expected_calls
from rooflens.explanation.sums import FEW, sums
from rooflens.records import Call, Case, Device, Phase, Record, Work
from rooflens.results import Evidence, Quantity, RecordSet, join
from rooflens.results.answers import ANSWERS, ENERGIES, SAMPLED
from rooflens.results.factors import FactorRatio, RateOrigin, Time, step_time
from rooflens.results.totals import Total, grouped_by

LISTED_PATHS = 12


def explain_records(
    records: RecordSet, path: str | None, phase: Phase | None, devices: Sequence[Device]
) -> tuple[Chapter, ...]:
    """Explain the operations of a module and phase, one chapter per case.

    Args:
        path: the module, with those inside it; None where there is only one operation.
        phase: None is every phase.
        devices: where the time is bounded; none: those of the records.

    Raises:
        UnknownName: no such module.
        InvalidValue: the records keep no calls, or none is of that phase.
    """
    # What was counted of the same operations follows no formula.
    formulas = records.where(source="estimate") if "estimate" in records.sources else records
    with_calls = [record for record in formulas if record.call is not None]
    if not with_calls and records.sources == ("estimate",) and not any(record.scope == "op" for record in records):
        raise InvalidValue("there is nothing to explain: the model only gives views of its inputs, at no cost")
    if not with_calls:
        raise InvalidValue(
            "none of these records keeps the shapes of its call: they are no estimates, or an older rooflens wrote"
            " them; estimate the model again"
        )
    chapters: dict[Case, dict[Any, list[Record]]] = {}
    for record in _in_phase(_inside(with_calls, path), phase):
        groups = chapters.setdefault(replace(record.case, device=None), {})
        resources = frozenset(record.work.flops) if record.work else None
        alike = (record.path, record.phase, record.call, record.recomputed, resources, record.floor)
        groups.setdefault(alike, []).append(record)
    return tuple(
        Chapter(
            title=case.label(),
            operations=tuple(one for group in groups.values() for one in _explained(group, records, devices)),
            sums=tuple(sums(_under(formulas, case, devices), path, phase)) if len(groups) > FEW else (),
            expected=tuple(_expected(records, case, phase, path, devices)),
            kv_cache=None if path else next((r.kv_cache for r in records.records if _has_cache(r, case)), None),
            utilisations=() if path or case.mode != "train" else tuple(_utilisations(records, case, phase)),
            answers=() if path or phase else tuple(_answers(records, case)),
        )
        for case, groups in chapters.items()
    )


def _under(records: RecordSet, case: Case, given: Sequence[Device]) -> Iterator[tuple[RecordSet, Device | None]]:
    """Yield the work of a case with each device on which it is asked for."""
    for item in join(records):
        if replace(item.case, device=None) == case and item.work is not None:
            for device in given or (item.device,):
                yield item.work, device
            if given:
                return  # on the same devices for each item


def _has_cache(record: Record, case: Case) -> bool:
    return record.kv_cache is not None and replace(record.case, device=None) == case


def _expected(
    records: RecordSet, case: Case, phase: Phase | None, path: str | None, given: Sequence[Device]
) -> Iterator[ExpectedOnDevice]:
    """The expected time of a case on each of its devices that is asked for; of a module that on the device alone."""
    asked = {device.name for device in given}
    for item in join(records):
        if replace(item.case, device=None) != case or item.work is None or item.device is None:
            continue
        if asked and item.device.name not in asked:
            continue
        total = item.total(phase)
        if path:
            inside = _inside(item.work.records, path)
            total = Total([r for r in inside if phase in (None, r.phase)], item.device)
        found = None if total is None else total.prediction
        if found is not None:
            yield ExpectedOnDevice(
                device=item.device.name,
                seconds=found.seconds,
                low=found.low,
                high=found.high,
                waits_for=found.regime,
                families=found.families,
                busy=found.device,
                host=found.host,
            )


def _utilisations(records: RecordSet, case: Case, phase: Phase | None) -> Iterator[Utilisation]:
    """How the training step of a case uses each of its devices, or a phase of it."""
    for item in join(records):
        total = item.model_total(phase)
        if replace(item.case, device=None) != case or item.device is None or total is None:
            continue
        model, repeated = (_matrix(work) for work in (total.work, total.recomputed_work))
        measured = item.measured(phase)
        if model:
            yield Utilisation(
                device=item.device,
                flops=model,
                repeated=repeated,
                bound=None if total.missing or item.estimate is not None else total.seconds,
                measured=None if measured is None else measured.seconds,
            )


def _answers(records: RecordSet, case: Case) -> Iterator[AnswersOnDevice]:
    """What people ask of a case on each of its devices, and how each number comes about."""
    for item in join(records):
        origin = step_time(item.total(), item.measured())[1]
        if replace(item.case, device=None) == case and origin is not None:
            asked = ANSWERS.get(case.mode) or SAMPLED[case.mode]
            formulas = tuple(one for quantity in asked if (one := _formula(quantity, item, origin)) is not None)
            steps, device = tuple(_steps(item)), item.case.device or "this device"
            if formulas or steps:  # of inputs without a batch nobody knows the samples
                yield AnswersOnDevice(device=device, measured=origin == "measured", formulas=formulas, steps=steps)


def _formula(quantity: Quantity, item: Evidence, origin: RateOrigin) -> ExplainedAnswer | None:
    """Return how an answer comes about. An energy is that of the expected time: a bound has none."""
    time: Time | None = "predicted" if quantity in ENERGIES and origin == "bound" else None
    value, number = quantity.read(item, time=time).value, quantity.number
    if value is None or not isinstance(number, FactorRatio):
        return None
    how = number.formula(item, time)
    return ExplainedAnswer(name=quantity.name, title=quantity.title, formula=how, value=value, unit=quantity.unit)


def _steps(item: Evidence) -> Iterator[tuple[int, int, float | None]]:
    """The steps of decode in a whole answer; the last one stands for itself."""
    steps = grouped_by((r for r in item.work or () if r.tokens is not None), lambda record: record.tokens or 0)
    calls = {tokens: sum(record.calls for record in those) for tokens, those in steps.items()}
    for tokens, those in steps.items():
        times = max(1, round(calls[tokens] / calls[max(calls)]))  # some of the records may be left out
        seconds = None if item.work is None else item.work.sum(those, item.device).seconds
        yield tokens, times, None if seconds is None else seconds / times


def _matrix(work: Work | None) -> dict[str, float]:
    return {} if work is None else {unit: n for unit, n in work.flops.items() if unit.startswith("matmul.")}


def _inside(records: Sequence[Record], path: str | None) -> Sequence[Record]:
    """The records of a module and of those inside it."""
    if path is None and len(records) == 1:
        return records
    known = list(dict.fromkeys(record.path for record in records))
    if path is None:
        listed = ", ".join(filter(None, known[: LISTED_PATHS + 1])) + (" ..." if len(known) > LISTED_PATHS + 1 else "")
        raise InvalidValue(
            f"{records[0].case.model} has {len(records)} operations; choose some by their module path: {listed}"
            " ('' is the whole model)"
        )
    chosen = [r for r in records if not path or r.path == path or r.path.startswith(f"{path}.")]
    if not chosen:
        modules = dict.fromkeys(outer for inner in known for outer in _around(inner))
        raise UnknownName("module path", path, modules, f" ({records[0].case.model} has {len(known)} with operations)")
    return chosen


def _around(path: str) -> Iterator[str]:
    """Yield the modules around a path, the outermost first, and itself."""
    names = path.split(".")
    yield from (".".join(names[:depth]) for depth in range(1, len(names) + 1))


def _in_phase(records: Sequence[Record], phase: Phase | None) -> Sequence[Record]:
    chosen = [record for record in records if phase is None or record.phase == phase]
    if not chosen:
        known = ", ".join(dict.fromkeys(record.phase or "unknown" for record in records))
        raise InvalidValue(f"there is no operation of phase {phase!r} here; there are some of {known}")
    return chosen


def _explained(alike: Sequence[Record], records: RecordSet, given: Sequence[Device]) -> Iterator[Explained]:
    """Explain records of one operation, which may be of several devices."""
    first = alike[0]
    assert first.call is not None
    known = [records.devices[r.case.device] for r in alike if r.case.device in records.devices]
    asked = given or tuple({device.name: device for device in known}.values())
    own = _together([record for record in alike if record.case == first.case])
    for calculation, at in calculations(first.call, first.case.dtype, asked):
        cost, notes = _as_recorded(first, calculation.cost)
        if first.recomputed:
            notes = ("Repeats forward work during backward (checkpointing).", *notes)
        names = {record.case.device for record in alike}
        by_device = {its: _together([r for r in alike if r.case.device == its]) for its in names}
        yield Explained(
            calculation=calculation,
            path=first.path,
            phase=first.phase or "forward",
            calls=own.calls,
            work=cost.work,
            kernel_work=cost.kernel_work,
            floor=cost.floor,
            devices=at,
            expected=tuple(one for device in at for one in expected_calls(by_device.get(device.name, own), [device])),
            notes=notes,
        )


def _together(alike: Sequence[Record]) -> Record:
    """One record of the calls of several, which are of one operation: each step of an answer has its own."""
    seen: dict[object, tuple[Call, int]] = {}
    for record in alike:
        for call, calls in record.layouts or ((record.call, record.calls),):
            if call is not None:
                key = (call, call.layout)
                seen[key] = (call, calls + seen.get(key, (call, 0))[1])
    layouts = tuple(seen.values())
    one = replace(alike[0], call=layouts[0][0], calls=sum(calls for _, calls in layouts))
    return replace(one, layouts=layouts if len(layouts) > 1 else ())


def _as_recorded(record: Record, cost: Cost) -> tuple[Cost, tuple[str, ...]]:
    """The work that a record holds, and notes where it differs from the formula's."""
    held = record.work
    if held is None:
        return cost, ()
    notes = []
    if cost.kernel_work is not None and _same_flops(held, cost.kernel_work) and not _same_flops(held, cost.work):
        cost = replace(cost, work=cost.kernel_work, kernel_work=None)
        notes.append("The record counts causal attention as the half that its kernel executes.")
    elif not _same_flops(held, cost.work):
        own = replace(cost.work, flops=held.flops, missing=held.missing)
        cost = replace(cost, work=own, kernel_work=record.kernel_work)
        notes.append(f"The record holds {held.total_flops:,} FLOP: another version of rooflens counted it.")
    if held.bytes != cost.work.bytes:
        fusion = dict(record.case.options).get("fusion")
        why = f"Fused with its neighbours (fusion={fusion}) it" if fusion else "The record says that it"
        notes.append(f"{why} moves {held.bytes.get('dram', 0):,} B at DRAM.")
        executed = None if cost.kernel_work is None else replace(cost.kernel_work, bytes=held.bytes)
        cost = replace(cost, work=replace(cost.work, bytes=held.bytes), kernel_work=executed)
    return replace(cost, floor=record.floor), tuple(notes)


def _same_flops(one: Work, other: Work) -> bool:
    """True if two works have equal FLOP, up to the precision in which a device runs fp32 products."""
    return one.matmul_flops == other.matmul_flops and one.total_flops == other.total_flops
