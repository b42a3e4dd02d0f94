"""Whole answers without a trace for each token: the fewest steps of decode whose sum is that of all.

The work of an operation of decode grows with the tokens in the cache: along a straight line, until a window is full, or
a cache of fixed length ... Over steps in which every operation grows along a line and meets the same ceiling, bytes,
FLOP and bounds of the middle one, times the number of steps, are exactly their sum. Where it does not, the steps are
halved, and each half is looked at alone, the longest first. Where a cache takes in entries for several tokens, this
goes for each kind of step (`stairs`). After `MOST` traces the middle ones stand for the others on no line too, and a
note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush

from rooflens.predict import card_of, predicted
from rooflens.records import Device, Record, Trace, Work
from rooflens.roofline import Bounds
from rooflens.running.stairs import Digits, Stairs, on_a_line
from rooflens.running.tracing import TracedRun, Tracer
from rooflens.runs.options import ANSWERING
from rooflens.runs.run import Run
from rooflens.sources import estimate as source
from rooflens.sources.answers import AnswerStep, answer_records

MOST = 48
"""Steps of decode of an answer that are traced, of each kind, before lines are no longer looked for."""
_NEAR = 2.0
"""Bytes or FLOP by which whole numbers may be off a line."""
_SLACK = 1e-9
_EXPECTED = 0.01
"""By which the expected time of a step may be off a line, as a share of it."""


def counted_run(
    run: Run,
    trace: Tracer,
    devices: Sequence[Device],
    tokens: int | None,
    positions: int | None = None,
    *,
    summing: bool = False,
) -> Callable[[Device | None], Iterable[Record]]:
    """Trace a step, or the steps of a whole answer, and return what makes its records on one of the devices.

    Args:
        tokens: with which a whole answer begins.
        positions: the most that the model's configuration names.
        summing: only sums are asked for, of a step.
    """
    if run.mode in ANSWERING and tokens is not None:
        (steps, off), causal = answer_steps(run, trace, devices, tokens), run.options.causal
        end = tokens + (run.options.output_len or 1) - 1
        notes = (*_notes(steps, off), *_beyond("the answer ends at", end, positions))

        def of_answer(device: Device | None) -> Iterable[Record]:
            case = run.case(device.name if device else None)
            return answer_records(steps, case, device, causal=causal, notes=notes)

        return of_answer
    length, cached = run.options.seq_len, run.options.cached_tokens or 0
    beyond = [] if length is None else _beyond("a sequence has", length + cached + (run.mode == "decode"), positions)
    return TracedRun(run, trace, summing, tuple(beyond)).begun()


def ends_of(run: Run, tokens: int | None, trace: Callable[[Run], Trace]) -> tuple[Run, ...]:
    """Return a run; of a whole answer prefill and the last step of decode of each kind: one needs most memory."""
    if run.mode not in ANSWERING or tokens is None:
        return (run,)
    output = run.options.output_len or 1
    room, last = tokens + output - 1, tokens + output - 2
    prefill = run.step_of_answer("prefill", tokens, room)
    if output == 1:
        return (prefill,)
    kinds = Stairs(_rates(trace(run.step_of_answer("decode", last, room)))).kinds(tokens, last)
    return (prefill, *(run.step_of_answer("decode", steps[-1], room) for steps in kinds))


def _notes(steps: Sequence[AnswerStep], off: float | None) -> Iterator[str]:
    if off is not None:
        yield (
            f"decode: its work grows along no line; {MOST} steps or more were traced, others are taken from the middle"
            f" one around them, whose bytes lie up to {100 * off:.2g} % beside the line between its ends"
        )
    elif any(step.times > 1 for step in steps):
        yield (
            "decode: each token after the first is a step with a longer cache; some steps stand for others where every"
            " operation grows along a straight line, so that work and bounds are the sums of all steps, and the"
            f" expected time within {100 * _EXPECTED:g} % of theirs"
        )


def _beyond(what: str, tokens: int, positions: int | None) -> Iterator[str]:
    if positions is not None and tokens > positions:
        yield f"{what} {tokens:,} tokens, and the configuration of the model names {positions:,} positions"


def answer_steps(
    run: Run, trace: Callable[[Run], Trace], devices: Sequence[Device], begin: int
) -> tuple[tuple[AnswerStep, ...], float | None]:
    """Return the steps of a whole answer: prefill, and those of decode that stand for all, the last one alone.

    Also how far beside a line the bytes of some are that stand for others, as a share of them; None where none is.

    Args:
        trace: traces the run of a step.
        begin: tokens of the decoder in prefill.
    """
    output = run.options.output_len or 1
    room = begin + output - 1

    @cache
    def traced(mode: str, tokens: int) -> tuple[Trace, tuple[source.Repeated, ...]]:
        done = trace(run.step_of_answer(mode, tokens, room))
        return done, source.repeated(done, run.options.fusion)

    done, operations = traced("prefill", begin)
    steps, off = [AnswerStep(phase="prefill", trace=done, operations=operations)], None
    if output > 1:
        growth = _Growth(run, lambda tokens: traced("decode", tokens), devices)
        for tokens, times in growth.stand_ins(begin, begin + output - 2, Stairs(_rates(traced("decode", room - 1)[0]))):
            done, operations = traced("decode", tokens)
            steps.append(AnswerStep(phase="decode", tokens=tokens, times=times, trace=done, operations=operations))
        off = growth.off
    return tuple(steps), off


class _Growth:
    """How steps of decode grow with the tokens in their cache."""

    def __init__(
        self,
        run: Run,
        traced: Callable[[int], tuple[Trace, tuple[source.Repeated, ...]]],
        devices: Sequence[Device],
    ) -> None:
        self._run = run
        self._traced = traced
        self._devices = devices or (None,)
        self._bounds = Bounds()
        self._known: dict[tuple[int, int], Sequence[Record]] = {}
        self.off: float | None = None

    def stand_ins(self, first: int, last: int, stairs: Stairs) -> list[tuple[int, int]]:
        """Return tokens of steps, and how many each stands for; the last one of each kind stands for itself."""
        kinds = stairs.kinds(first, last)
        alone = {steps[-1] for steps in kinds}
        waiting, found = [(first - last, first, last)], [(step, 1) for step in alone]
        while waiting:
            _, begin, end = heappop(waiting)
            looking = len({tokens for _, tokens in self._known}) < MOST * len(kinds)
            parts = [_Part(steps, alone, stairs) for steps in stairs.kinds(begin, end)]
            if looking and not all(self._grows_along_lines(part) for part in parts):
                middle = stairs.middle(begin, end)
                for begins, ends in ((begin, middle), (middle + 1, end)):
                    heappush(waiting, (begins - ends, begins, ends))
                continue
            if not looking:
                self._note_off(begin, (begin + end) // 2, end)
            found += [(step, times) for part in parts for step, times in part.stand_ins.items() if times]
        return sorted(found)

    def _note_off(self, *tokens: int) -> None:
        """Note how far the middle one of three steps is beside the line between the others."""
        first, middle, last = (self._bytes(n) for n in tokens)
        expected = first + (last - first) * (tokens[1] - tokens[0]) / (tokens[2] - tokens[0])
        self.off = max(self.off or 0.0, abs(middle / expected - 1) if expected else 0.0)

    def _bytes(self, tokens: int) -> float:
        works = ((record.bound_work, record.calls) for record in self._records(0, tokens))
        return sum(work.bytes.get("dram", 0.0) * calls for work, calls in works if work is not None)

    def _grows_along_lines(self, part: _Part) -> bool:
        return part.is_whole and (
            not part.looked_at or all(self._on_device(n, part) for n in range(len(self._devices)))
        )

    def _on_device(self, number: int, part: _Part) -> bool:
        device = self._devices[number]
        steps = [self._records(number, n) for n in part.looked_at]
        if len({len(records) for records in steps}) > 1:
            return False
        lines = (self._in_a_line(device, part.places, pieces) for pieces in zip(*steps, strict=True))
        return all(lines) and (device is None or _expected_in_a_line(device, part.places, steps))

    def _records(self, number: int, tokens: int) -> Sequence[Record]:
        """The operations of a step, in their order."""
        if (number, tokens) not in self._known:
            device, (done, operations) = self._devices[number], self._traced(tokens)
            case = self._run.case(device.name if device else None)
            every = source.records(done, operations, case, device, causal=self._run.options.causal)
            self._known[number, tokens] = [record for record in every if record.scope == "op"]
        return self._known[number, tokens]

    def _in_a_line(self, device: Device | None, places: Sequence[Digits], pieces: Sequence[Record]) -> bool:
        """True if an operation is the same in all steps, but for work that grows along a line under one ceiling."""
        first, *others = pieces
        if any(_identity(other) != _identity(first) for other in others):
            return False
        if all(other.call == first.call and other.floor == first.floor for other in others):
            return True
        for works in zip(*((r.work, r.bound_work, r.written) for r in pieces), strict=True):
            known = [work for work in works if work is not None]
            if len(known) < len(works) or not _line(places, [_amounts(work) for work in known]):
                return False
            if device is not None and len({self._bounds.of(work, device).bound_by for work in known}) > 1:
                return False
        return True


class _Part:
    """Steps of one kind.

    Attributes:
        stand_ins: of them, and how many each stands for.
        is_whole: these make up for all where work grows along lines; else one stands for those around it.
        looked_at: steps by which lines are looked for; none where each stands for itself.
    """

    def __init__(self, steps: Sequence[int], alone: Container[int], stairs: Stairs) -> None:
        others = [step for step in steps if step not in alone]
        found = stairs.stand_ins(others) if others else {}
        few = len(others) <= len(found or ()) + 1
        self.is_whole = few or found is not None
        self.stand_ins = dict.fromkeys(others, 1) if few else found or {others[len(others) // 2]: len(others)}
        self.looked_at = () if few else (steps[0], *(found or ()), *stairs.ends(steps), steps[-1])
        self.places = [stairs.place(step) for step in self.looked_at]


def _rates(trace: Trace) -> Iterator[int]:
    """Tokens for which entries of a cache stand."""
    yield from () if trace.kv_cache is None else (part.compression for part in trace.kv_cache.parts)


def _expected_in_a_line(device: Device, places: Sequence[Digits], steps: Sequence[Sequence[Record]]) -> bool:
    """True if the expected times of steps on the device lie near a line, or are not known."""
    card = card_of(device)
    known = [] if card is None else [predicted(step, card) for step in steps]
    seconds = [one.seconds for one in known if one is not None]
    return len(seconds) < len(places) or on_a_line(places, seconds, 0, _EXPECTED)


def _identity(record: Record) -> tuple[object, ...]:
    cause = None if record.floor is None else record.floor.cause
    missing = None if record.work is None else record.work.missing
    return record.path, record.name, record.kind, record.calls, cause, missing


def _amounts(work: Work) -> Mapping[str, float]:
    return {**work.flops, **work.bytes}


def _line(places: Sequence[Digits], amounts: Sequence[Mapping[str, float]]) -> bool:
    """True if amounts grow along lines."""
    names = {name for each in amounts for name in each}
    return all(on_a_line(places, [each.get(name, 0) for each in amounts], _NEAR, _SLACK) for name in names)
