"""``--format json``: the shape that design.md promises, one object per case."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rooflens.records import EVERY_PHASE, LEVELS, LINKS, MEMORY_CAUSES, Failure, KvCache, Memory, Phase
from rooflens.report.columns import whole
from rooflens.report.table_notes import device_notes, total_notes
from rooflens.results import Evidence, Measured, RecordSet, join
from rooflens.results.answers import ANSWERS, SAMPLED
from rooflens.results.evidence import only_failed
from rooflens.results.factors import step_time
from rooflens.results.quantities import (
    ALL_FLOPS,
    AS_WRITTEN,
    AS_WRITTEN_FLOPS,
    ATTAINABLE_MFU,
    BOUND,
    BOUND_FLOPS,
    BOUND_INTENSITY,
    EFFICIENCY,
    HFU,
    INTENSITY,
    MACS,
    MATMUL_FLOPS,
    MFU,
    PREDICTED,
    RECOMPUTED_FLOPS,
    THROUGHPUT,
    TIME,
    WHOLE_MODEL,
    throughput,
)

_ROOM = ("memory", "needed", "reserved", "borderline", "excess", "largest")
FORMAT = 1
"""Version of the shape; it rises when a promised key changes its name or meaning."""


_TOLD = ("source", "stage", "kind", "message")
"""What is told of a failure."""


def promised_json(rs: RecordSet) -> list[dict[str, Any]]:
    """One object per case; docs/json.md describes it. Unknown is None, counts are integers, times are seconds."""
    evidence = join(rs)
    nothing = [Evidence(case=failure.case, device=None, work=None, time=None) for failure in only_failed(rs, evidence)]
    why = {failure.case: failure for failure in reversed(rs.failures)}
    return [_case(item, why.get(item.case)) for item in (*evidence, *nothing)]


def _case(item: Evidence, why: Failure | None) -> dict[str, Any]:
    total = item.total()
    coverage = None if total is None else total.coverage
    phases = () if item.work is None else item.work.phases
    return {
        "format": FORMAT,
        "case": {
            "model": item.case.model,
            "device": item.case.device,
            "batch": item.case.batch,
            "dtype": item.case.dtype,
            "mode": item.case.mode,
            "options": dict(item.case.options),
        },
        "sources": list(item.sources),
        "parameters": item.parameters,
        "phases": {phase: _phase(item, phase) for phase in EVERY_PHASE if phase in phases},
        "step": _phase(item, None),
        "answers": _answers(item),
        "predicted_answers": _predicted_answers(item),
        "memory": _memory(None if item.work is None else item.work.memory),
        "kv_cache": None if item.work is None else _kv_cache(item.work.kv_cache),
        "fits": None if item.room is None else item.room.fits,
        "room": None if item.room is None else {name: getattr(item.room, name) for name in _ROOM},
        "coverage": {
            "operations": None if coverage is None else coverage.operations,
            "counted": None if coverage is None else coverage.counted,
            "uncounted": [] if coverage is None else list(coverage.uncounted),
            "bytes_share": None if coverage is None else coverage.bytes_share,
        },
        "measured": None if item.time is None else _measured(item, item.time),
        "failed": None if why is None else {name: getattr(why, name) for name in _TOLD},
        "notes": list(dict.fromkeys([*device_notes([item]), *total_notes([total] if total else []), *item.notes])),
    }


def _phase(item: Evidence, phase: Phase | None) -> dict[str, Any] | None:
    total = item.total(phase)
    if total is None:
        return None
    levels = ["dram", *(level for level in (*LEVELS, *LINKS) if level != "dram" and level in total.bytes)]
    counted = (MATMUL_FLOPS, RECOMPUTED_FLOPS, ALL_FLOPS, MACS)
    return {
        **{quantity.name: whole(quantity.of(total).value) for quantity in counted},
        "bytes": {level: whole(total.bytes.get(level)) for level in levels},
        "intensity": INTENSITY.of(total).value,
        "seconds": BOUND.of(total).value,
        "bound_by": total.bound_by or None,
        "bound_flops": whole(BOUND_FLOPS.of(total).value),
        "bound_bytes": {level: whole(total.floor.bytes.get(level)) for level in levels},
        "bound_intensity": BOUND_INTENSITY.of(total).value,
        "predicted_seconds": PREDICTED.of(total).value,
        "predicted_low": total.predicted_low,
        "predicted_high": total.predicted_high,
        "predicted_level": None if total.prediction is None else total.prediction.level,
        "as_written_flops": whole(AS_WRITTEN_FLOPS.of(total).value),
        "as_written_seconds": AS_WRITTEN.of(total).value,
        "surplus": {
            cause: {"bytes": whole(more.bytes), "flops": whole(more.flops), "seconds": more.seconds}
            for cause, more in total.surplus.items()
        },
        "recomputed_seconds": total.recomputed_seconds,
        "whole_model_seconds": WHOLE_MODEL.of(total).value,
        "lower_bound": bool(total.missing),
        "measured_seconds": TIME.read(item, phase).value,
        **{quantity.name: quantity.read(item, phase).value for quantity in (EFFICIENCY, MFU, HFU, ATTAINABLE_MFU)},
    }


def _answers(item: Evidence) -> dict[str, Any] | None:
    """What people ask of the step: rates, times of tokens, costs, and of a measured time energies."""
    _, origin = step_time(item.total(), item.measured())
    asked = ANSWERS.get(item.case.mode) or (THROUGHPUT, *SAMPLED[item.case.mode])
    if origin is None:
        return None
    return {"from": origin, **{quantity.name: quantity.read(item, time=origin).value for quantity in asked}}


def _predicted_answers(item: Evidence) -> dict[str, dict[str, float | None]] | None:
    """What is expected of them, with the ends of its band; None where no time is expected."""
    asked = ANSWERS.get(item.case.mode) or (THROUGHPUT, *SAMPLED[item.case.mode])
    known = {quantity.name: quantity.read(item, time="predicted") for quantity in asked if quantity.timed}
    found: dict[str, dict[str, float | None]] = {}
    for name, reading in known.items():
        if reading.value is not None:
            low, high = reading.interval or (None, None)
            found[name] = {"value": reading.value, "low": low, "high": high}
    return found or None


def _memory(memory: Memory | None) -> dict[str, int | None]:
    return {name: None if memory is None else getattr(memory, name) for name in ("peak", *MEMORY_CAUSES, "workspace")}


def _kv_cache(cache: KvCache | None) -> dict[str, Any] | None:
    if cache is None:
        return None
    totals = {name: getattr(cache, name) for name in ("tokens", "held", "used")}
    return {**totals, "per_token": whole(cache.per_token), "parts": [asdict(part) for part in cache.parts]}


def _measured(item: Evidence, time: RecordSet) -> dict[str, Any]:
    step = item.measured()
    rate, origin = throughput(item.case, item.total(), step)
    names = ("peak", "reserved", "monitor", "before")
    return {
        "source": time.sources[0],
        "phases": {phase: _timing(measured) for phase in item.phases if (measured := item.measured(phase)) is not None},
        "step": None if step is None else _timing(step),
        "sum_of_times": None if step is None else step.summed,
        "span": None if step is None else step.span,
        "throughput": rate if origin == "measured" else None,
        "memory": {name: None if time.memory is None else getattr(time.memory, name) for name in names},
    }


def _timing(measured: Measured) -> dict[str, Any]:
    timing = measured.timing
    return {
        "median": measured.seconds,
        **dict(zip(("low", "high"), measured.interval, strict=True)),
        "noise": None if timing is None else timing.noise,
        "cold": None if timing is None else timing.cold,
        "compiling": None if timing is None else timing.compiling,
        "samples": measured.samples,
        "clock": None if timing is None else timing.origin,
    }
