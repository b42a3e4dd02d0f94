"""The formula of an operation with its numbers filled in."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.costs import Calculation, Cost, arithmetic_of, calculate
from rooflens.errors import InvalidValue, UnknownModel, UnknownName
from rooflens.machine import find_all
from rooflens.records import PHASES, Call, Case, Device, Phase, Record, Work
from rooflens.report.explanation import Chapter, Explained, Explanation
from rooflens.results import RecordSet

if TYPE_CHECKING:
    import torch

LISTED_PATHS = 12


def explain(
    what: str | Path | Record | RecordSet | torch.nn.Module,
    *,
    shapes: Sequence[Any] = (),
    path: str | None = None,
    phase: Phase | None = None,
    device: str | Device | Sequence[str | Device] | None = None,
    dtype: str | None = None,
    **arguments: Any,
) -> Explanation:
    """Explain the work of operations: every formula in words and with its numbers filled in, as with pen and paper.

    >>> print(explain("mm", shapes=[(1024, 512), (512, 256)]))  # doctest: +SKIP
    >>> print(explain("resnet18", batch=256, path="layer1.0.conv1", device="t4"))  # doctest: +SKIP

    The numbers come out of the formulas that count, so they are those of an estimate.

    Args:
        what: an operation (``convolution``, ``mm``, ``attention``, ``lstm``, or any of torch's operators); or a record
            file, a record or a set of records; or a model as `estimate` takes it, which is estimated first.
        shapes: of an operation's tensors, in the order in which it takes them: tuples, or text like ``32x128:int64``.
        path: of a model or file: the module whose operations are explained, with those inside of it; ``""`` is the
            whole model.
        phase: forward, backward or optimizer. Default: forward of an operation, every phase that a model ran.
        device: where the time is bounded; default of records: their own.
        dtype: of an operation or model, as in `estimate`.
        arguments: of an operation by name (``input=(256, 3, 224, 224), stride=2``); of a model those of `estimate`
            (``batch=256, mode="train"``).

    Returns:
        `.text` (and ``str``) for a person, `.data` for a program, `.operations` for Python.

    Raises:
        UnknownName: no such operation, model, argument, module path or device; near names are listed.
        InvalidValue: what is needed is missing, or an argument cannot be used.
        ModelError: torch refuses the shapes.
    """
    if phase is not None and phase not in PHASES:
        raise InvalidValue(f"unknown phase {phase!r}; known: {', '.join(PHASES)}")
    devices = find_all(device)
    if isinstance(what, Record):
        what = RecordSet([what])
    if isinstance(what, Path) or (isinstance(what, str) and what.endswith(".jsonl")):
        what = RecordSet.load(what)
    if isinstance(what, RecordSet):
        if shapes or arguments or dtype is not None:
            raise InvalidValue("records know their shapes and types; give path and phase to choose some")
        return Explanation(_of_records(what, path, phase, devices))
    if isinstance(what, str) and path is None and what.isidentifier() and _is_operation(what):
        return Explanation((_of_operation(what, shapes, arguments, dtype or "fp32", phase or "forward", devices),))
    if shapes:
        raise _unknown(what) if isinstance(what, str) else InvalidValue("shapes are those of an operation")
    return Explanation(_of_model(what, path, phase, devices, dtype, arguments))


# An operation with shapes ---------------------------------------------------------------------------------------------


def _is_operation(name: str) -> bool:
    from rooflens.models import check_torch
    from rooflens.models.operator import is_operator

    check_torch()
    import rooflens.trace  # noqa: F401  # registers the operations that are rooflens' own

    return is_operator(name)


def _of_operation(
    name: str,
    shapes: Sequence[Any],
    arguments: Mapping[str, Any],
    dtype: str,
    phase: Phase,
    devices: Sequence[Device],
) -> Chapter:
    from rooflens.models import check_words
    from rooflens.models.operator import operator_step
    from rooflens.sources.estimate import traced

    check_words(dtype, "inference")
    if phase == "optimizer":
        raise InvalidValue("an operation has no optimizer; its phases are forward and backward")
    step = operator_step(name, shapes, arguments, dtype=dtype, backward=phase == "backward")
    counts: dict[Call, int] = {}
    for operation in traced(step).operations:
        if operation.phase == phase and not operation.path.startswith("("):
            counts[operation.call] = counts.get(operation.call, 0) + 1
    if not counts:
        raise InvalidValue(f"{name} moves and computes nothing in {phase}: it is a view, a shape query or free")
    return Chapter(
        title="",
        operations=tuple(
            _explained(found, found.cost, phase=phase, calls=calls, devices=at)
            for call, calls in counts.items()
            for found, at in _derivations(call, dtype, devices)
        ),
    )


def _derivations(call: Call, dtype: str, devices: Sequence[Device]) -> Iterator[tuple[Calculation, tuple[Device, ...]]]:
    """How a call is computed, and where: under some dtypes a device with TF32 takes another unit than one without."""
    found: dict[frozenset[str], tuple[Calculation, list[Device]]] = {}
    for device in devices or (None,):
        derivation = calculate(call, arithmetic_of(dtype, device))
        _, at = found.setdefault(frozenset(derivation.cost.work.flops), (derivation, []))
        at += [] if device is None else [device]
    for derivation, at in found.values():
        yield derivation, tuple(at)


def _explained(derivation: Calculation, cost: Cost, **more: Any) -> Explained:
    return Explained(derivation=derivation, work=cost.work, kernel_work=cost.kernel_work, **more)


# Models and records ---------------------------------------------------------------------------------------------------


def _of_model(
    model: str | torch.nn.Module,
    path: str | None,
    phase: Phase | None,
    devices: Sequence[Device],
    dtype: str | None,
    arguments: Mapping[str, Any],
) -> tuple[Chapter, ...]:
    from rooflens.api.estimation import estimate

    if isinstance(model, str) and path is None and model.isidentifier() and not _is_model(model):
        raise _unknown(model)
    known = inspect.signature(estimate).parameters
    for name in arguments:
        if name not in known:
            raise UnknownName("option of an estimate", name, known)
    options = dict(arguments)
    if phase in ("backward", "optimizer"):
        options.setdefault("mode", "train")
    return _of_records(estimate(model, device=devices, dtype=dtype, **options), path, phase, ())


def _is_model(name: str) -> bool:
    """Whether a plain word is the name of a model."""
    from rooflens.models import find as find_model

    try:
        find_model(name)
    except UnknownModel:
        return False
    return True


def _unknown(name: str) -> UnknownName:
    """For a word that is neither: near operations and near models."""
    from rooflens.models import torchvision
    from rooflens.models.operator import operator_names

    return UnknownName("operation or model", name, {*operator_names(), *torchvision.names()})


def _of_records(
    records: RecordSet, path: str | None, phase: Phase | None, devices: Sequence[Device]
) -> tuple[Chapter, ...]:
    with_calls = [record for record in records if record.call is not None]
    if not with_calls:
        raise InvalidValue(
            "none of these records keeps the shapes of its call: they are no estimates, or an older rooflens wrote"
            " them; estimate the model again"
        )
    chapters: dict[Case, dict[Any, list[Record]]] = {}
    for record in _in_phase(_inside(with_calls, path), phase):
        alike = chapters.setdefault(replace(record.case, device=None), {})
        resources = frozenset(record.work.flops) if record.work else None
        alike.setdefault((record.path, record.phase, record.call, record.recomputed, resources), []).append(record)
    return tuple(
        Chapter(
            title=case.label(),
            operations=tuple(one for equal in alike.values() for one in _of_equal(equal, records, devices)),
        )
        for case, alike in chapters.items()
    )


def _inside(records: Sequence[Record], path: str | None) -> Sequence[Record]:
    """The records of a module and of those inside of it."""
    if path is None and len(records) == 1:
        return records
    known = list(dict.fromkeys(record.path for record in records))
    if path is None:
        listed = ", ".join(filter(None, known[: LISTED_PATHS + 1])) + (" ..." if len(known) > LISTED_PATHS + 1 else "")
        raise InvalidValue(
            f"{records[0].case.model} has {len(records)} operations; choose some by their module path: {listed}"
            " ('' is the whole model)"
        )
    found = [r for r in records if not path or r.path == path or r.path.startswith(f"{path}.")]
    if not found:
        raise UnknownName("module path", path, known, f" ({records[0].case.model} has {len(known)} with operations)")
    return found


def _in_phase(records: Sequence[Record], phase: Phase | None) -> Sequence[Record]:
    found = [record for record in records if phase is None or record.phase == phase]
    if not found:
        known = ", ".join(dict.fromkeys(record.phase or "unknown" for record in records))
        raise InvalidValue(f"there is no operation of phase {phase!r} here; there are some of {known}")
    return found


def _of_equal(equal: Sequence[Record], records: RecordSet, given: Sequence[Device]) -> Iterator[Explained]:
    """Equal observations, which may stand for several devices."""
    first = equal[0]
    assert first.call is not None
    own = [records.devices[r.case.device] for r in equal if r.case.device in records.devices]
    asked = given or tuple({device.name: device for device in own}.values())
    for derivation, at in _derivations(first.call, first.case.dtype, asked):
        cost, notes = _as_recorded(first, derivation.cost)
        if first.recomputed:
            notes = ("Repeats forward work during backward (checkpointing).", *notes)
        yield _explained(
            derivation,
            cost,
            path=first.path,
            phase=first.phase or "forward",
            calls=first.calls,
            devices=at,
            notes=notes,
        )


def _as_recorded(record: Record, cost: Cost) -> tuple[Cost, tuple[str, ...]]:
    """What the record holds, and why that is not what the formula gives where it is not."""
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
    return cost, tuple(notes)


def _same_flops(one: Work, other: Work) -> bool:
    """Equal up to the precision in which a device runs fp32 products."""
    return one.matmul_flops == other.matmul_flops and one.total_flops == other.total_flops
