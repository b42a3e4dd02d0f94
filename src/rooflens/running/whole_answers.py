"""Whole answers without a trace for each token: the fewest steps of decode whose sum is that of all.

The work of an operation of decode grows with the tokens in the cache: along a straight line, until a window is full, or
a cache of fixed length ... Over steps in which every operation grows along a line and meets the same ceiling, bytes,
FLOP and bounds of the middle one, times the number of steps, are exactly their sum. Where it does not, the steps are
halved, and each half is looked at alone, the longest first. A cache that grows in steps of some tokens is on no line
however often it is halved: after `MOST` traces the middle ones stand for the others there too, and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush

from rooflens.predict import card_of, predicted
from rooflens.records import Device, Record, Trace, Work
from rooflens.roofline import Bounds
from rooflens.running.tracing import TracedRun, Tracer
from rooflens.runs.options import ANSWERING
from rooflens.runs.run import Run
from rooflens.sources import estimate as source
from rooflens.sources.answers import AnswerStep, answer_records

MOST = 48
"""Steps of decode of an answer that are traced before lines are no longer looked for."""
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
        notes = (*_notes(steps, off), *_beyond(end, positions))

        def of_answer(device: Device | None) -> Iterable[Record]:
            case = run.case(device.name if device else None)
            return answer_records(steps, case, device, causal=causal, notes=notes)

        return of_answer
    return TracedRun(run, trace, summing).begun()


def ends_of(run: Run, tokens: int | None) -> tuple[Run, ...]:
    """Return a run; of a whole answer prefill and the last step of decode, one of which needs most memory."""
    if run.mode not in ANSWERING or tokens is None:
        return (run,)
    output = run.options.output_len or 1
    room = tokens + output - 1
    last = [run.step_of_answer("decode", tokens + output - 2, room)] if output > 1 else []
    return (run.step_of_answer("prefill", tokens, room), *last)


def _notes(steps: Sequence[AnswerStep], off: float | None) -> Iterator[str]:
    if off is not None:
        yield (
            f"decode: its work grows in stairs; {MOST} steps or more were traced, others are taken from the middle one"
            f" around them, whose bytes lie up to {100 * off:.2g} % beside the line between its ends"
        )
    elif any(step.times > 1 for step in steps):
        yield (
            "decode: each token after the first is a step with a longer cache; some steps stand for others where every"
            " operation grows along a straight line, so that work and bounds are the sums of all steps, and the"
            f" expected time within {100 * _EXPECTED:g} % of theirs"
        )


def _beyond(end: int, positions: int | None) -> Iterator[str]:
    if positions is not None and end > positions:
        yield f"the answer ends at {end:,} tokens, and the configuration of the model names {positions:,} positions"


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
        for tokens, times in growth.stand_ins(begin, begin + output - 2):
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

    def stand_ins(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return tokens of steps, and how many each stands for; the last step stands for itself."""
        waiting, found = [(first - last, first, last)], list[tuple[int, int]]()
        while waiting:
            _, begin, end = heappop(waiting)
            alone = [(end, 1)] if end == last else []
            count = end - begin + 1 - len(alone)  # those that one in the middle may stand for
            low, high = begin + (count - 1) // 2, begin + count // 2
            in_the_middle = [(low, count)] if low == high else [(low, count // 2), (high, count // 2)]
            if count <= 3:
                found += [(tokens, 1) for tokens in range(begin, end + 1)]
            elif len({tokens for _, tokens in self._known}) >= MOST:
                self._note_off(begin, low, end)
                found += [*in_the_middle, *alone]
            elif self._grows_along_lines(begin, low, low + 1, end):
                found += [*in_the_middle, *alone]
            else:
                for part in ((begin, low), (low + 1, end)):
                    heappush(waiting, (part[0] - part[1], *part))
        return sorted(found)

    def _note_off(self, *tokens: int) -> None:
        """Note how far the middle one of three steps is beside the line between the others."""
        first, middle, last = (self._bytes(n) for n in tokens)
        expected = first + (last - first) * (tokens[1] - tokens[0]) / (tokens[2] - tokens[0])
        self.off = max(self.off or 0.0, abs(middle / expected - 1) if expected else 0.0)

    def _bytes(self, tokens: int) -> float:
        works = ((record.needed, record.calls) for record in self._records(0, tokens))
        return sum(work.bytes.get("dram", 0.0) * calls for work, calls in works if work is not None)

    def _grows_along_lines(self, *tokens: int) -> bool:
        return all(self._on_device(n, tokens) for n in range(len(self._devices)))

    def _on_device(self, number: int, tokens: Sequence[int]) -> bool:
        device = self._devices[number]
        steps = [self._records(number, n) for n in tokens]
        if len({len(records) for records in steps}) > 1:
            return False
        lines = (self._in_a_line(device, tokens, pieces) for pieces in zip(*steps, strict=True))
        return all(lines) and (device is None or _expected_in_a_line(device, tokens, steps))

    def _records(self, number: int, tokens: int) -> Sequence[Record]:
        """The operations of a step, in their order."""
        if (number, tokens) not in self._known:
            device, (done, operations) = self._devices[number], self._traced(tokens)
            case = self._run.case(device.name if device else None)
            every = source.records(done, operations, case, device, causal=self._run.options.causal)
            self._known[number, tokens] = [record for record in every if record.scope == "op"]
        return self._known[number, tokens]

    def _in_a_line(self, device: Device | None, tokens: Sequence[int], pieces: Sequence[Record]) -> bool:
        """True if an operation is the same in all steps, but for work that grows along a line under one ceiling."""
        first, *others = pieces
        if any(_identity(other) != _identity(first) for other in others):
            return False
        if all(other.call == first.call and other.floor == first.floor for other in others):
            return True
        for works in zip(*((r.work, r.needed, r.written) for r in pieces), strict=True):
            known = [work for work in works if work is not None]
            if len(known) < len(works) or not _line(tokens, [_amounts(work) for work in known]):
                return False
            if device is not None and len({self._bounds.of(work, device).bound_by for work in known}) > 1:
                return False
        return True


def _expected_in_a_line(device: Device, places: Sequence[int], steps: Sequence[Sequence[Record]]) -> bool:
    """True if the expected times of steps on the device lie near a line, or are not known."""
    card = card_of(device)
    known = [] if card is None else [predicted(step, card) for step in steps]
    seconds = [one.seconds for one in known if one is not None]
    if len(seconds) < len(places):
        return True
    rise = (seconds[-1] - seconds[0]) / max(1, places[-1] - places[0])
    line = (seconds[0] + rise * (place - places[0]) for place in places)
    return all(abs(its / on_line - 1) <= _EXPECTED for its, on_line in zip(seconds, line, strict=True) if on_line)


def _identity(record: Record) -> tuple[object, ...]:
    cause = None if record.floor is None else record.floor.cause
    missing = None if record.work is None else record.work.missing
    return record.path, record.name, record.kind, record.calls, cause, missing


def _amounts(work: Work) -> Mapping[str, float]:
    return {**work.flops, **work.bytes}


def _line(places: Sequence[int], amounts: Sequence[Mapping[str, float]]) -> bool:
    """True if amounts lie on the line through those of the first and the last place."""
    first, last = amounts[0], amounts[-1]
    names = {name for each in amounts for name in each}
    for name in names:
        begin, rise = first.get(name, 0), last.get(name, 0) - first.get(name, 0)
        for place, each in zip(places, amounts, strict=True):
            expected = begin + rise * (place - places[0]) / max(1, places[-1] - places[0])
            if abs(each.get(name, 0) - expected) > _NEAR + _SLACK * expected:
                return False
    return True
