"""The quantities of a case: name, unit, and how each is read from joined evidence. Whoever shows one takes it here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from rooflens.records import Case, Device, Phase, Work
from rooflens.results.evidence import Evidence, Measured
from rooflens.results.totals import Total

RateOrigin = Literal["measured", "bound"]
"""Whether a throughput was measured or is the most that the bound allows."""
Time = Literal["measured", "bound"]
TIMES: tuple[Time, ...] = get_args(Time)
_CARDS = ("gpu", "tpu", "accelerator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number of a case.

    Attributes:
        value: in the base unit of its quantity; None is unknown.
        at_least: it is a lower bound, since the FLOP of some operation are unknown.
        interval: 95 % interval, None where there is none: an estimate has no samples.
    """

    value: float | None
    at_least: bool = False
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that is known of a case.

    Attributes:
        name: what claims and comparisons call it.
        title: what a sentence or an axis calls it.
        header: what the header of a table calls it.
        unit: base unit; ``""`` for a bare number.
        better: whether more of it is better, or less; ``""`` where neither is.
        total: how it is read from the total of some records, where that tells it.
        number: else how it is read from evidence, of a phase or the whole step, by measured time or by the bound.
        timed: it is a time, or something over a time, and as uncertain as that time.
        grows: it counts FLOP, so that it is a lower bound where those of some operation are unknown.
    """

    name: str
    title: str
    header: str = ""
    _: KW_ONLY
    unit: str = ""
    better: Literal["more", "less", ""] = ""
    total: Callable[[Total], float | None] = lambda _: None
    number: Callable[[Evidence, Phase | None, Time | None], float | None] | None = None
    timed: bool = False
    grows: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", self.header or self.title)

    def of(self, total: Total | None) -> Reading:
        """Return its number in the total of some records."""
        if total is None:
            return Reading(value=None)
        return Reading(value=self.total(total), at_least=self.grows and bool(total.missing))

    def read(self, evidence: Evidence, phase: Phase | None = None, time: Time | None = None) -> Reading:
        """Return its number of a phase of a case, or of the whole step.

        Args:
            time: the time that counts; default: the measured one where there is one.
        """
        total = evidence.total(phase)
        if self.number is None:
            return self.of(total)
        value = self.number(evidence, phase, time)
        measured = evidence.measured(phase) if self.timed and time != "bound" else None
        return Reading(
            value=value,
            at_least=self.grows and total is not None and bool(total.missing),
            interval=None if value is None or measured is None else self._interval(value, measured),
        )

    def _interval(self, value: float, measured: Measured) -> tuple[float, float] | None:
        """The interval of the time, of what is multiplied with it, or of what is divided by it."""
        low, high = measured.interval
        if low is None or high is None or value == measured.seconds:
            return None if low is None or high is None else (low, high)
        if self.better == "less":  # an energy grows with the time
            return (value * low / measured.seconds, value * high / measured.seconds)
        return (value * measured.seconds / high, value * measured.seconds / low) if low and high else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return a share or a quotient; None where either is unknown or the whole is zero."""
    return part / whole if part is not None and whole else None


def efficiency(total: Total | None, seconds: float | None) -> float | None:
    """Return bound over measured time; None where either is unknown."""
    return None if total is None or total.work is None else ratio(total.seconds, seconds)


def mfu(total: Total | None, seconds: float | None) -> float | None:
    """Return model FLOP utilisation: the time that the matrix work takes at peak rate, over the measured time."""
    return None if total is None else _utilisation([total.work], total.device, seconds)


def hfu(total: Total | None, seconds: float | None) -> float | None:
    """Return hardware FLOP utilisation: as :func:`mfu`, with recomputed matrix work."""
    return None if total is None else _utilisation([total.work, total.recomputed_work], total.device, seconds)


def throughput(case: Case, total: Total | None, measured: Measured | None) -> tuple[float | None, RateOrigin | None]:
    """Return samples per second, and whether they come from the measured time or are the most that the bound allows."""
    samples, (seconds, origin) = case.samples, step_time(total, measured)
    return (None, None) if samples is None or seconds is None else (samples / seconds, origin)


def step_time(total: Total | None, measured: Measured | None) -> tuple[float | None, RateOrigin | None]:
    """Return the time that a rate or an energy is about, above zero: the measured one where there is one, or the bound.

    Times of pieces tell no time of the step: what lies between the pieces takes time too.
    """
    if measured is not None:
        return (measured.seconds, "measured") if measured.seconds and not measured.pieces else (None, None)
    return (total.seconds, "bound") if total is not None and total.seconds else (None, None)


def prompt_tokens(evidence: Evidence) -> int | None:
    """Return the tokens of each sequence that a prefill step reads: those that its cache has seen, or was asked for."""
    cache = None if evidence.work is None else evidence.work.kv_cache
    asked = dict(evidence.case.options).get("seq_len")
    if cache is not None:
        return cache.tokens
    return asked if isinstance(asked, int) and asked > 0 else None


def activations(evidence: Evidence) -> float | None:
    """Return bytes of results that the operations of forward write, views left out: what is kept and what is not."""
    written = [record for record in evidence.work or () if record.phase == "forward" and record.work is not None]
    if not written or any(record.traffic is None for record in written):
        return None
    return sum(record.traffic.outputs * record.calls for record in written if record.traffic is not None)


def _utilisation(works: Iterable[Work | None], device: Device | None, seconds: float | None) -> float | None:
    amounts = (item for work in works if work is not None for item in work.flops.items())
    matrix = [(resource, flops) for resource, flops in amounts if resource.startswith("matmul.")]
    if device is None or not seconds or not matrix:
        return None
    return sum(flops / device.require(resource).rate for resource, flops in matrix) / seconds


def _seconds(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
    """Return the measured time or the bound."""
    if time == "bound":
        return BOUND.of(evidence.total(phase)).value
    measured = evidence.measured(phase)
    return None if measured is None else measured.seconds


def _observed(read: Callable[[Total | None, float | None], float | None]) -> Callable[..., float | None]:
    """Return a reader of what a measured time tells of a total."""
    return lambda evidence, phase, time: (
        None if time == "bound" else read(evidence.total(phase), _seconds(evidence, phase, time))
    )


def _step_time(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
    """Return the time of :func:`step_time`, or the one that is asked for."""
    measured = None if time == "bound" else evidence.measured(phase)
    total = None if time == "measured" else evidence.total(phase)
    return step_time(total, measured)[0]


def _rate(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
    measured = None if time == "bound" else evidence.measured(phase)
    if time == "measured" and measured is None:
        return None
    return throughput(evidence.case, evidence.total(phase), measured)[0]


def _of_mode(mode: str, tokens: Callable[[Evidence], float | None] | None = None) -> Callable[..., float | None]:
    """Return a reader of the time of a step of one mode, or of the tokens that it makes or reads per second."""

    def read(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
        seconds = _step_time(evidence, phase, time) if evidence.case.mode == mode else None
        if seconds is None or tokens is None:
            return seconds
        return ratio(tokens(evidence), seconds)

    return read


def _samples(evidence: Evidence) -> int | None:
    """Return the samples of a step; None where it is answered in tokens."""
    return None if evidence.case.mode in ANSWERS else evidence.case.samples


def _tokens(evidence: Evidence) -> int | None:
    """Return the tokens that a step of prefill reads or a step of decode makes, of all sequences; None of others."""
    each = {"prefill": prompt_tokens(evidence), "decode": 1}.get(evidence.case.mode)
    return None if each is None or evidence.case.batch is None else evidence.case.batch * each


def _energy(per: Callable[[Evidence], int | None]) -> Callable[..., float | None]:
    """Return a reader of the power limit times the time of the step, over tokens or samples.

    Only cards hold their power below the limit: what a CPU is rated for is none, and leaves out its memory.
    """

    def read(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
        device, seconds = evidence.device, _step_time(evidence, phase, time)
        if device is None or device.kind not in _CARDS or "power" not in device.facts or seconds is None:
            return None
        alone = dict(evidence.case.options).get("gpus", 1) == 1
        return ratio(device.facts["power"].value * seconds, per(evidence)) if alone else None

    return read


def _performance(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
    flops, seconds = ALL_FLOPS.of(evidence.total(phase)).value, _seconds(evidence, phase, time)
    return flops / seconds if flops is not None and seconds else None


def _peak(evidence: Evidence, _: Phase | None, time: Time | None) -> float | None:
    """Return the peak memory of the step, measured or estimated."""
    for records in (None if time == "bound" else evidence.time, None if time == "measured" else evidence.work):
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
    "predicted", "predicted time", "predicted", unit="s", better="less", total=lambda t: t.predicted_seconds
)
TIME = Quantity("time", "latency", "measured", unit="s", better="less", number=_seconds, timed=True)
THROUGHPUT = Quantity("throughput", "throughput", "samples /s", better="more", number=_rate, timed=True)
PERFORMANCE = Quantity(
    "performance", "performance", "FLOP/s", unit="FLOP/s", better="more", number=_performance, timed=True
)
EFFICIENCY = Quantity("efficiency", "efficiency", better="more", number=_observed(efficiency), timed=True, grows=True)
MFU = Quantity("mfu", "MFU", better="more", number=_observed(mfu), timed=True, grows=True)
ATTAINABLE_MFU = Quantity(
    "attainable_mfu", "MFU at the bound", better="more", total=lambda t: None if t.missing else mfu(t, t.seconds)
)
HFU = Quantity("hfu", "HFU", better="more", number=_observed(hfu), timed=True, grows=True)
TIME_TO_FIRST_TOKEN = Quantity(
    "time_to_first_token",
    "time to first token",
    "first token",
    unit="s",
    better="less",
    number=_of_mode("prefill"),
    timed=True,
)
PROMPT_RATE = Quantity(
    "prompt_tokens_per_second",
    "prompt tokens per second",
    "prompt tokens /s",
    better="more",
    number=_of_mode("prefill", _tokens),
    timed=True,
)
TIME_PER_OUTPUT_TOKEN = Quantity(
    "time_per_output_token",
    "time per output token",
    "per token",
    unit="s",
    better="less",
    number=_of_mode("decode"),
    timed=True,
)
SEQUENCE_RATE = Quantity(
    "sequence_tokens_per_second",
    "tokens per second of one sequence",
    "tokens /s, one sequence",
    better="more",
    number=_of_mode("decode", lambda _: 1),
    timed=True,
)
TOKEN_RATE = Quantity(
    "tokens_per_second",
    "tokens per second of all sequences",
    "tokens /s, all",
    better="more",
    number=_of_mode("decode", _tokens),
    timed=True,
)
ENERGY_PER_TOKEN = Quantity(
    "energy_per_token",
    "energy per token at the power limit",
    "energy /token",
    unit="J",
    better="less",
    number=_energy(_tokens),
    timed=True,
)
ENERGY_PER_SAMPLE = Quantity(
    "energy_per_sample",
    "energy per sample at the power limit",
    "energy /sample",
    unit="J",
    better="less",
    number=_energy(_samples),
    timed=True,
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
        KV_CACHE, TIME_TO_FIRST_TOKEN, PROMPT_RATE, TIME_PER_OUTPUT_TOKEN, SEQUENCE_RATE, TOKEN_RATE, ENERGY_PER_TOKEN,
        ENERGY_PER_SAMPLE,
    )
}  # fmt: skip
"""All of them by name."""

ANSWERS: Mapping[str, tuple[Quantity, ...]] = {
    "prefill": (TIME_TO_FIRST_TOKEN, PROMPT_RATE, ENERGY_PER_TOKEN),
    "decode": (TIME_PER_OUTPUT_TOKEN, SEQUENCE_RATE, TOKEN_RATE, ENERGY_PER_TOKEN),
}
"""What people ask of a step of each mode that is answered in tokens: samples say little there."""
