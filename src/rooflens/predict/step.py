"""From the records of a step, or of a part of it, to the time that they will take: two queues, host and device.

A replayed CUDA graph has no host in it. Compiled code launches what fusion leaves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from rooflens.costs import Arithmetic, cost
from rooflens.predict import host
from rooflens.predict.bands import PROCESSOR_FAMILY, Regime, band, waits_for
from rooflens.predict.call_on_device import HALF, CallOnDevice, calls_on_device
from rooflens.predict.card import Card
from rooflens.predict.constants import Level
from rooflens.predict.effects.streams import cold_weights
from rooflens.predict.expected import expected_seconds
from rooflens.predict.launched_calls import launched
from rooflens.predict.power import held_back, joules
from rooflens.predict.queues import Launched, two_queues
from rooflens.records import ANSWER_PHASES, Call, HostCalls, Phase, Record, Scalar, is_training

Way = Literal["eager", "compiled", "graph"]
"""How a step runs: operation by operation, compiled, or from CUDA graphs."""


def way_of(options: Mapping[str, Scalar]) -> Way:
    """Return how a case with these options runs."""
    return "graph" if options.get("cuda_graph") else "compiled" if options.get("compile") else "eager"


def fuses(options: Mapping[str, Scalar]) -> bool:
    """True if the bytes of an estimate with these options are those of fused groups."""
    return options.get("fusion", "none") != "none" or bool(options.get("compile"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The time that some work will take; derived, never stored.

    Attributes:
        seconds: the expected time.
        low, high: the measured time lies between them in 80 of 100 cases.
        level: how the constants behind it are known.
        generation: of the devices that they were read off.
        regime: what it waits for.
        device: seconds of the device's queue; `host`: of the host's, None where it is not asked for.
        families: seconds on the device by family.
    """

    seconds: float
    low: float
    high: float
    level: Level
    generation: str
    regime: Regime
    device: float
    host: float | None
    families: dict[str, float]


KnownTimes = Mapping[tuple[Call, tuple[object, ...]], float]
"""Seconds of calls that are known, by call and layout: equal calls may differ in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the step runs to which records belong.

    Attributes:
        way: eager, compiled or from graphs.
        held: bytes of its tensors at the peak; None where that is not known.
        host_calls: views and calls of modules; none where the host does not matter.
        fused: the records' bytes are those of fused groups.
        step: the records are those of a step, or of a phase.
        before: records of the phases before that one: the host may be ahead from them.
        times: of calls that were replayed on the device, by call and layout.
    """

    way: Way = "eager"
    held: float | None = None
    host_calls: tuple[HostCalls, ...] | None = None
    fused: bool = False
    step: bool = True
    before: tuple[Record, ...] = ()
    times: KnownTimes = field(default_factory=dict)

    def of_phase(self, phase: Phase | None) -> tuple[HostCalls, ...]:
        """What the host does besides launching, in one phase or in all."""
        return tuple(c for c in self.host_calls or () if phase in (None, c.phase))


ALONE = Conduct(way="graph", step=False)
"""Pieces of a step: their time on the device."""
FUSED_ALONE = replace(ALONE, fused=True)
"""Those of compiled code, or of an estimate with fusion."""


def alone(records: Sequence[Record]) -> Conduct:
    """Return how pieces of a step run, by the options of their case: on the device alone, fused where it is."""
    return FUSED_ALONE if records and fuses(dict(records[0].case.options)) else ALONE


def predicted(
    records: Sequence[Record], card: Card, conduct: Conduct | None = None, phase: Phase | None = None
) -> Prediction | None:
    """Return the time of a step, of one phase of it, or (without a host) of pieces; None where a call is not known.

    Of a whole answer it is the sum of its phases: the first token has to be there before the next is begun. From CUDA
    graphs runs its decode alone.
    """
    working = [r for r in records if r.work is not None]
    conduct = alone(working) if conduct is None else conduct
    if conduct.step and phase is None and {record.phase for record in working}.issuperset(ANSWER_PHASES):
        parts = [predicted([r for r in working if r.phase == its], card, conduct, its) for its in ANSWER_PHASES]
        expected = [part for part in parts if part is not None]
        return _summed(expected) if len(expected) == len(parts) else None
    if conduct.step and conduct.way == "graph" and {record.phase for record in working} == {"prefill"}:
        conduct = replace(conduct, way="eager")  # of an answer only decode is captured: its prompt is read once
    if all(r.call is None for r in working) or any(r.call is None for r in working if not r.work or not r.work.missing):
        return None
    if card.launches_itself and not _timed_on_processors(working, conduct):
        return None
    part = _Part(tuple(_doing(record, card, conduct) for record in working), card)
    if not conduct.step:
        return part.takes(part.device, "pieces")
    if conduct.way == "graph" and not card.launches_itself:
        return part.takes(
            held_back(sum(_among(its, card, graph=True) for its in part.doing), part.joules, card), "graph"
        )
    return _with_host(part, conduct, phase)


def _with_host(part: _Part, conduct: Conduct, phase: Phase | None) -> Prediction:
    """The time of a step or of a phase that a host launches."""
    card = part.card
    if card.launches_itself:
        hosts = host.around(conduct.of_phase(phase), card)
        return part.takes(part.device + hosts, "in turn", hosts)
    before = tuple(_doing(record, card, conduct) for record in conduct.before if record.work is not None)
    earlier, mine = _launched(before, card, conduct), _launched(part.doing, card, conduct)
    begun, issued = two_queues(earlier)
    seconds, hosts = two_queues([*earlier, *mine])[0] - begun, sum(its.host for its in mine)
    waited = hosts - (begun - issued)  # what is launched while the device is busy with earlier phases costs nothing
    device = part.device
    return part.takes(held_back(seconds, part.joules, card), waits_for(device, waited), hosts)


def _times_begun(record: Record) -> int:
    """How often a record's phase is begun: for each micro-batch, and for each token of an answer but the first."""
    options = dict(record.case.options)
    if record.phase == "decode":
        written = options.get("output_len")
        return max(1, written - 1) if isinstance(written, int) else 1
    batches = options.get("accumulation_steps") if record.phase in ("forward", "backward") else None
    return batches if isinstance(batches, int) else 1


class _Doing(NamedTuple):
    """What the device has to do for the calls of a record.

    Attributes:
        seconds: of the calls alone.
        launches: of kernels, one for each call, or for each operation of the code that it stands for.
        replayed: seconds of calls whose times are known.
        joules: of the calls; 0 where they are not known.
    """

    record: Record
    seconds: float
    launches: float
    replayed: float
    joules: float


def _doing(record: Record, card: Card, conduct: Conduct) -> _Doing:
    seconds = launches = replayed = energy = 0.0
    for piece, calls in _pieces(record, conduct):
        known = conduct.times.get((piece.call, piece.call.layout)) if conduct.times else None
        if known is None:
            one = expected_seconds(piece, card)
        else:
            one = known + cold_weights(piece, card)
            replayed += calls * known
        seconds += calls * one
        energy += calls * joules(piece, one, card)
        launches += calls * (piece.own if piece.nbytes else 0.0) * launched(piece.call, piece.family).operations
    return _Doing(record, seconds, launches, replayed, energy)


def _among(its: _Doing, card: Card, *, graph: bool) -> float:
    """Seconds of the calls of a record among others, with what passes between them."""
    if its.record.phase == "backward":
        seconds = its.seconds * card["launch.backward"]
    else:
        seconds = its.seconds * card["launch.among"] if graph else its.seconds
    return seconds + its.launches * card["launch.handover" if graph else "launch.gap"]


def _launched(doing: Sequence[_Doing], card: Card, conduct: Conduct) -> list[Launched]:
    """What the host launches, phase by phase, in whatever order the records stand: each has to be begun."""
    phases: dict[Phase | None, list[_Doing]] = {}
    for one in doing:
        phases.setdefault(one.record.phase, []).append(one)
    found: list[Launched] = []
    for phase, its in phases.items():
        begins, times = host.beginning(phase, card, compiled=conduct.way == "compiled"), _times_begun(its[0].record)
        found.append(Launched(times * begins, 0.0, times))
        found += _in_phase(its, card, conduct, phase)
    return found


def _in_phase(doing: Sequence[_Doing], card: Card, conduct: Conduct, phase: Phase | None) -> Iterator[Launched]:
    """The calls of each record as the host launches them: compiled code at once, else operation by operation."""
    if conduct.way == "compiled":
        yield from (Launched(d.launches * card["host.compiled"], _among(d, card, graph=False), 1) for d in doing)
        return
    factor, calls = host.recording(doing[0].record, card), sum(d.record.calls for d in doing)
    besides = host.around(conduct.of_phase(phase), card, factor) / calls
    for its in doing:
        count = its.record.calls
        each = host.dispatching(its.record, card) + besides
        yield Launched(count * each, _among(its, card, graph=False), count)


@dataclass(frozen=True, slots=True)
class _Part:
    """A step, a phase or pieces of it, and the card."""

    doing: tuple[_Doing, ...]
    card: Card

    @property
    def device(self) -> float:
        """Seconds of the calls alone."""
        return sum(its.seconds for its in self.doing)

    @property
    def joules(self) -> float:
        """Of the calls."""
        return sum(its.joules for its in self.doing)

    def takes(self, seconds: float, regime: Regime, hosts: float | None = None) -> Prediction:
        """Return the prediction, with the band of what is like it."""
        families: dict[str, float] = defaultdict(float)
        for its in self.doing:
            families[its.record.kind] += its.seconds
        device, launches = self.device, sum(its.launches for its in self.doing)
        level: Level = "replayed" if sum(its.replayed for its in self.doing) > device / 2 else self.card.level
        own = {PROCESSOR_FAMILY: device} if self.card.launches_itself else families
        low, high = band(own, regime, level, _mode(self.doing[0].record), device / max(1.0, launches))
        return Prediction(
            seconds=seconds,
            low=seconds * low,
            high=seconds * high,
            level=level,
            generation=self.card.constants.generation,
            regime=regime,
            device=device,
            host=hosts,
            families=dict(families),
        )


def _mode(record: Record) -> str:
    """The mode whose bands suit a record: a phase of an answer is a step of that mode."""
    return record.phase if record.case.mode == "generate" and record.phase is not None else record.case.mode


def _timed_on_processors(records: Sequence[Record], conduct: Conduct) -> bool:
    """True if a processor's suite has calls like these: forward passes in fp32, operation by operation."""
    as_written = conduct.way == "eager" or not conduct.step
    narrow = any(t.dtype in HALF for r in records if r.call is not None for t in r.call.outputs)
    return as_written and not narrow and not is_training(r.phase for r in records)


def _summed(parts: Sequence[Prediction]) -> Prediction:
    """Return the time of phases that wait for each other, with the level and the regime of the longest."""
    longest = max(parts, key=lambda part: part.seconds)
    families = sum((Counter(part.families) for part in parts), Counter[str]())
    hosts = [part.host for part in parts if part.host is not None]
    return replace(
        longest,
        seconds=sum(part.seconds for part in parts),
        low=sum(part.low for part in parts),
        high=sum(part.high for part in parts),
        device=sum(part.device for part in parts),
        host=sum(hosts) if hosts else None,
        families=dict(families),
    )


def _pieces(record: Record, conduct: Conduct) -> Iterator[tuple[CallOnDevice, int]]:
    alone = 1.0
    if conduct.fused and record.call is not None and record.work is not None:
        moved = cost(record.call, Arithmetic()).work.bytes["dram"]
        alone = min(1.0, record.work.bytes.get("dram", 0.0) / moved) if moved else 1.0
    yield from calls_on_device(record, conduct.held, alone, compiled=conduct.fused)
