"""The quantities of a case: name, unit, and how each is read from joined evidence. Whoever shows one takes it here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rooflens.records import Case, Device, Phase, Work
from rooflens.results.answers import ANSWERS, SAMPLED
from rooflens.results.evidence import Evidence, Measured
from rooflens.results.factors import RateOrigin, Time, step_time
from rooflens.results.quantity import Quantity
from rooflens.results.totals import Total


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return a share or a quotient; None where either is unknown or the whole is zero."""
    return part / whole if part is not None and whole else None


def efficiency(total: Total | None, seconds: float | None) -> float | None:
    """Return bound over measured time; None where either is unknown."""
    return None if total is None or total.work is None else ratio(total.seconds, seconds)


def mfu(total: Total | None, seconds: float | None) -> float | None:
    """Return model FLOP utilisation: the time that the model's matrix work takes at peak rate, over the measured time.

    Return None of what kernels executed: padding, other algorithms and repeated work are in it.
    """
    return None if total is None else _utilisation([total.work], total.device, seconds)


def hfu(total: Total | None, seconds: float | None) -> float | None:
    """Return hardware FLOP utilisation: as :func:`mfu`, with recomputed matrix work."""
    return None if total is None else _utilisation([total.work, total.recomputed_work], total.device, seconds)


def throughput(case: Case, total: Total | None, measured: Measured | None) -> tuple[float | None, RateOrigin | None]:
    """Return samples per second, and whether they come from the measured time or are the most that the bound allows."""
    samples, (seconds, origin) = case.samples, step_time(total, measured)
    return (None, None) if samples is None or seconds is None else (samples / seconds, origin)


def activations(evidence: Evidence) -> float | None:
    """Return bytes of results that the operations of forward write, views left out: what is kept and what is not."""
    written = [record for record in evidence.work or () if record.phase == "forward" and record.work is not None]
    if not written or any(record.traffic is None for record in written):
        return None
    return sum(record.traffic.outputs * record.calls for record in written if record.traffic is not None)


def _utilisation(works: Iterable[Work | None], device: Device | None, seconds: float | None) -> float | None:
    formulas = (work for work in works if work is not None and work.origin != "executed")
    amounts = (item for work in formulas for item in work.flops.items())
    matrix = [(resource, flops) for resource, flops in amounts if resource.startswith("matmul.")]
    if device is None or not seconds or not matrix:
        return None
    return sum(flops / device.require(resource).rate for resource, flops in matrix) / seconds


def _seconds(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
    """Return the measured time, or the bound or expected time that is asked for."""
    if time in ("bound", "predicted"):
        return (BOUND if time == "bound" else PREDICTED).of(evidence.total(phase)).value
    measured = evidence.measured(phase)
    return None if measured is None else measured.seconds


def _observed(
    read: Callable[[Total | None, float | None], float | None], of: Callable[..., Total | None] = Evidence.total
) -> Callable[..., float | None]:
    """Return a reader of what a measured time tells of a total."""
    return lambda evidence, phase, time: (
        None if time == "bound" else read(of(evidence, phase), _seconds(evidence, phase, time))
    )


def _rate(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
    if time == "predicted":
        return ratio(evidence.case.samples, _seconds(evidence, phase, time))
    measured = None if time == "bound" else evidence.measured(phase)
    if time == "measured" and measured is None:
        return None
    return throughput(evidence.case, evidence.total(phase), measured)[0]


def _performance(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
    flops, seconds = ALL_FLOPS.of(evidence.total(phase)).value, _seconds(evidence, phase, time)
    return flops / seconds if flops is not None and seconds else None


def _peak(evidence: Evidence, _: Phase | None, time: Time | None) -> float | None:
    """Return the peak memory of the step, measured or estimated."""
    observed = time in (None, "measured")
    for records in (evidence.time if observed else None, None if time == "measured" else evidence.work):
        if records is not None and records.memory is not None:
            return records.memory.peak
    return None


def _cache(evidence: Evidence, *_: object) -> float | None:
    """Return the bytes that the cache of a language model holds after the step."""
    cache = None if evidence.work is None else evidence.work.kv_cache
    return None if cache is None else cache.held


MATMUL_FLOPS = Quantity("matmul_flops", "matmul FLOP", unit="FLOP", total=lambda t: t.matmul_flops, grows=True)
RECOMPUTED_FLOPS = Quantity(
    "recomputed_flops", "recomputed FLOP", unit="FLOP", total=lambda t: t.recomputed_flops, grows=True
)
ALL_FLOPS = Quantity("flops", "FLOP", unit="FLOP", total=lambda t: t.flops, grows=True)
MACS = Quantity("macs", "MAC", unit="MAC", total=lambda t: t.macs, grows=True)
BYTES = Quantity("bytes", "DRAM bytes", "DRAM", unit="B", total=lambda t: t.bytes.get("dram"))
INTENSITY = Quantity("intensity", "intensity", "FLOP/B", unit="FLOP/B", total=lambda t: t.intensity, grows=True)
AS_WRITTEN_FLOPS = Quantity(
    "as_written_flops", "FLOP as written", unit="FLOP", total=lambda t: t.as_written.flops, grows=True
)
BOUND_MATMUL_FLOPS = Quantity(
    "bound_matmul_flops",
    "matmul FLOP in the bound",
    unit="FLOP",
    total=lambda t: t.floor.matmul_flops,
    grows=True,
)
BOUND_FLOPS = Quantity("bound_flops", "FLOP in the bound", unit="FLOP", total=lambda t: t.floor.flops, grows=True)
BOUND_MACS = Quantity("bound_macs", "MAC in the bound", unit="MAC", total=lambda t: t.floor.macs, grows=True)
BOUND_BYTES = Quantity(
    "bound_bytes", "DRAM bytes in the bound", "DRAM in the bound", unit="B", total=lambda t: t.floor.dram
)
BOUND_INTENSITY = Quantity(
    "bound_intensity",
    "intensity in the bound",
    "FLOP/B in the bound",
    unit="FLOP/B",
    total=lambda t: t.floor.intensity,
    grows=True,
)
BOUND = Quantity("bound", "bound, as a time", "bound", unit="s", better="less", total=lambda t: t.seconds, grows=True)
AS_WRITTEN = Quantity(
    "as_written",
    "the step as written, as a time",
    "as written",
    unit="s",
    better="less",
    total=lambda t: None if t.written_bound is None else t.written_bound.seconds,
    grows=True,
)
WHOLE_MODEL = Quantity(
    "whole_model",
    "whole-model roofline",
    unit="s",
    better="less",
    total=lambda t: None if t.whole_bound is None else t.whole_bound.seconds,
)
PREDICTED = Quantity(
    "predicted", "expected time", "expected", unit="s", better="less", total=lambda t: t.predicted_seconds
)
TIME = Quantity("time", "latency", "measured", unit="s", better="less", number=_seconds, timed=True)
THROUGHPUT = Quantity("throughput", "throughput", "samples /s", better="more", number=_rate, timed=True)
PERFORMANCE = Quantity(
    "performance", "performance", "FLOP/s", unit="FLOP/s", better="more", number=_performance, timed=True
)
EFFICIENCY = Quantity("efficiency", "efficiency", better="more", number=_observed(efficiency), timed=True, grows=True)
_OF_MODEL: Mapping[str, Any] = {"better": "more", "timed": True, "grows": True, "of_model": True}
MFU = Quantity(
    "mfu", "MFU", better="more", number=_observed(mfu, Evidence.model_total), timed=True, grows=True, of_model=True
)
ATTAINABLE_MFU = Quantity(
    "attainable_mfu",
    "MFU at this code's bound",
    better="more",
    total=lambda t: None if t.missing else mfu(t, t.seconds),
)
HFU = Quantity(
    "hfu", "HFU", better="more", number=_observed(hfu, Evidence.model_total), timed=True, grows=True, of_model=True
)
MEMORY = Quantity("memory", "peak memory", "peak", unit="B", better="less", number=_peak)
KV_CACHE = Quantity("kv_cache", "cache bytes", "cache", unit="B", better="less", number=_cache)
PARAMETERS = Quantity("parameters", "parameters", number=lambda evidence, *_: evidence.parameters)
ACTIVATIONS = Quantity(
    "activations", "activation bytes", "activations", unit="B", number=lambda evidence, *_: activations(evidence)
)

QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        TIME, BOUND, THROUGHPUT, PERFORMANCE, EFFICIENCY, ALL_FLOPS, MATMUL_FLOPS, BYTES, INTENSITY, MEMORY, PARAMETERS,
        ACTIVATIONS, RECOMPUTED_FLOPS, MACS, AS_WRITTEN, WHOLE_MODEL, PREDICTED, MFU, HFU, ATTAINABLE_MFU,
        KV_CACHE, AS_WRITTEN_FLOPS, BOUND_MATMUL_FLOPS, BOUND_FLOPS, BOUND_MACS, BOUND_BYTES, BOUND_INTENSITY,
        *(answer for answers in (*ANSWERS.values(), *SAMPLED.values()) for answer in answers),
    )
}  # fmt: skip
"""All of them by name."""
