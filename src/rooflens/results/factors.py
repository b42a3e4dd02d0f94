"""Quotients: numbers of a case that are a product of known factors over others, so that a formula can be shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rooflens.records import Phase
from rooflens.results.evidence import Evidence, Measured
from rooflens.results.totals import Total
from rooflens.units import show

Time = Literal["measured", "bound", "predicted"]
TIMES: tuple[Time, ...] = get_args(Time)
RateOrigin = Literal["measured", "bound"]
"""Whether a throughput was measured or is the most that the bound allows."""
Read = Callable[[Evidence, Phase | None, Time | None], float | None]
"""From evidence, of a phase or the whole step, by a time, to a number; None is unknown."""
_CARDS = ("gpu", "tpu", "accelerator")
HOUR = 3600.0
MILLION = 1e6


def step_time(total: Total | None, measured: Measured | None) -> tuple[float | None, RateOrigin | None]:
    """Return the time that a rate or an energy is about, above zero: the measured one where there is one, or the bound.

    Times of pieces tell no time of the step: what lies between the pieces takes time too.
    """
    if measured is not None:
        return (measured.seconds, "measured") if measured.seconds and not measured.pieces else (None, None)
    return (total.seconds, "bound") if total is not None and total.seconds else (None, None)


def seconds_of(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
    """Return the time of :func:`step_time`, or the one that is asked for."""
    if time == "predicted":
        expected = evidence.total(phase)
        return None if expected is None else expected.predicted_seconds
    measured = None if time == "bound" else evidence.measured(phase)
    total = None if time == "measured" else evidence.total(phase)
    return step_time(total, measured)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A number that quotients are made of.

    Attributes:
        words: what a formula calls it.
        unit: its base unit; ``""`` for a bare number.
        read: its value.
        phases: of a time, which phase of a mode it is the time of; of other modes it is that of the step.
    """

    words: str
    unit: str = ""
    read: Read
    phases: Mapping[str, Phase] | None = None


def _time(words: str, phases: Mapping[str, Phase]) -> Factor:
    def read(evidence: Evidence, phase: Phase | None, time: Time | None) -> float | None:
        return seconds_of(evidence, phases.get(evidence.case.mode, phase), time)

    return Factor(words=words, unit="s", read=read, phases=phases)


def _option(evidence: Evidence, name: str) -> float | None:
    value = dict(evidence.case.options).get(name)
    return value if isinstance(value, int | float) else None


def _prompt(evidence: Evidence, *_: object) -> float | None:
    """The tokens of each prompt: of a prefill step those that its cache has seen, or that were asked for.

    Of a chunk those that it reads.
    """
    if evidence.case.mode == "generate":
        return _option(evidence, "prompt_len")
    if _option(evidence, "cached_tokens") is not None:
        return _option(evidence, "seq_len")
    cache = None if evidence.work is None else evidence.work.kv_cache
    return cache.tokens if cache is not None else _option(evidence, "seq_len")


def _output(evidence: Evidence, *_: object) -> float | None:
    return _option(evidence, "output_len") if evidence.case.mode == "generate" else 1


def _steps(evidence: Evidence, *_: object) -> float | None:
    output = _output(evidence)
    return output if output is None or evidence.case.mode != "generate" else output - 1


def _last(evidence: Evidence, _: Phase | None, time: Time | None) -> float | None:
    """The bound of the last step of decode in a whole answer, which was estimated alone."""
    steps = [record for record in evidence.work or () if record.tokens is not None]
    if time not in (None, "bound") or not steps or evidence.work is None:
        return None
    last = max(record.tokens or 0 for record in steps)
    return evidence.work.sum([record for record in steps if record.tokens == last], evidence.device).seconds


def _power(evidence: Evidence, *_: object) -> float | None:
    """The power limit of a card.

    Only cards hold their power below the limit: what a CPU is rated for is none, and leaves out its memory.
    """
    device = evidence.device
    alone = dict(evidence.case.options).get("gpus", 1) == 1
    if device is None or device.kind not in _CARDS or "power" not in device.facts or not alone:
        return None
    return device.facts["power"].value


def _price(evidence: Evidence, *_: object) -> float | None:
    price = _option(evidence, "price_per_hour")
    return None if price is None else price * int(dict(evidence.case.options).get("gpus", 1))


FACTORS: Mapping[str, Factor] = {
    "step": _time("time of the step", {}),
    "answer": _time("time of prefill and decode", {}),
    "reading": _time("time of prefill", {"generate": "prefill"}),
    "writing": _time("time of decode", {"generate": "decode"}),
    "last": Factor(words="time of the last step of decode at the bound", unit="s", read=_last),
    "batch": Factor(words="batch", read=lambda evidence, *_: evidence.case.batch),
    "samples": Factor(words="samples of a step", read=lambda evidence, *_: evidence.case.samples),
    "sequence": Factor(words="tokens of a sequence", read=lambda evidence, *_: _option(evidence, "seq_len")),
    "prompt": Factor(words="tokens of a prompt", read=_prompt),
    "output": Factor(words="tokens of an output", read=_output),
    "steps": Factor(words="steps of decode", read=_steps),
    "power": Factor(words="power limit", unit="W", read=_power),
    "price": Factor(words="price per hour", read=_price),
    "hour": Factor(words="seconds of an hour", read=lambda *_: HOUR),
    "million": Factor(words="a million", read=lambda *_: MILLION),
}
"""What numbers are made of, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class FactorRatio:
    """A product of factors over others, in some modes.

    Attributes:
        factors: by mode, the names of those above and of those below.
    """

    factors: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]

    def __call__(self, evidence: Evidence, phase: Phase | None = None, time: Time | None = None) -> float | None:
        """Return its value; None where a factor is not known, or it is none of the mode."""
        if evidence.case.mode not in self.factors:
            return None
        value = 1.0
        for above, names in zip((True, False), self.factors[evidence.case.mode], strict=True):
            for name in names:
                factor = FACTORS[name].read(evidence, phase, time)
                if factor is None or not (above or factor):
                    return None
                value = value * factor if above else value / factor
        return value

    def timed_phase(self, evidence: Evidence, phase: Phase | None) -> Phase | None:
        """Return the phase whose time it is made of, where a `phase` or the whole step is asked for."""
        names = (name for side in self.factors[evidence.case.mode] for name in side)
        timed = next((phases for name in names if (phases := FACTORS[name].phases) is not None), {})
        return timed.get(evidence.case.mode, phase)

    def formula(self, evidence: Evidence, time: Time | None = None) -> str:
        """Return how its value comes about by a time: words, and numbers behind them."""
        above, below = self.factors[evidence.case.mode]
        written = " x ".join(_written(name, evidence, time) for name in above) or "1"
        divisors = " x ".join(_written(name, evidence, time) for name in below)
        if not below:
            return written
        return f"{written} / {f'({divisors})' if len(below) > 1 else divisors}"


def _written(name: str, evidence: Evidence, time: Time | None) -> str:
    factor = FACTORS[name]
    value = factor.read(evidence, None, time)
    words = factor.words if factor.phases is None else _timed(factor.words, evidence, time)
    if value is None:
        return f"{words} (unknown)"
    return f"{words} ({show(value, factor.unit) if factor.unit else f'{value:,.15g}'})"


def _timed(words: str, evidence: Evidence, time: Time | None) -> str:
    """Return what a formula calls a time: one answer may be of the expected time, and the next of the bound."""
    origin = time or step_time(evidence.total(), evidence.measured())[1]
    return {"measured": f"measured {words}", "predicted": f"expected {words}", "bound": f"{words} at the bound"}.get(
        origin or "", words
    )
