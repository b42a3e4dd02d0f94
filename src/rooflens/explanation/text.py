"""Explanations as text, 80 columns wide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rooflens.costs import WorkTerm, result_names
from rooflens.explanation.blocks import Labelled, TextBlock, laid_out, number, wrapped
from rooflens.explanation.chapters import (
    AnswersOnDevice,
    Chapter,
    ExpectedOnDevice,
    Explained,
    ExplainedSum,
    SummedPart,
    Utilisation,
)
from rooflens.explanation.expected_text import LEGEND, constants_blocks, expected_blocks, unknown_time
from rooflens.records import Argument, Call, Device, Floor, KvCache, Tensor, Work
from rooflens.roofline import bound
from rooflens.units import show, show_range

_SHOWN = 4
"""A list of tensors shows this many."""


def lines_of(chapters: Sequence[Chapter], *, in_full: bool = False) -> Iterator[str]:
    """The lines of an explanation; of many operations their sum, or all `in_full`."""
    for nth, chapter in enumerate(chapters):
        if chapter.title:
            yield from [""] * bool(nth)
            yield from wrapped(chapter.title, "", "  ")
            yield ""
        for one in chapter.sums:
            yield from wrapped("bound" if one.device is None else f"bound on {one.device.name}", "", "  ")
            yield from [*laid_out([*_summed(one)]), ""]
        if chapter.kv_cache is not None:
            yield from wrapped("cache after the step", "", "  ")
            yield from [*laid_out([*_cached(chapter.kv_cache)]), ""]
        for expected in chapter.expected:
            yield from wrapped(f"expected on {expected.device}", "", "  ")
            yield from [*laid_out([*_consists(expected)]), ""]
        for use in chapter.utilisations:
            yield from wrapped(f"use of {use.device.name}", "", "  ")
            yield from [*laid_out([*_used(use)]), ""]
        for answers in chapter.answers:
            yield from wrapped(f"answers on {answers.device}", "", "  ")
            yield from [*laid_out([*_answered(answers)]), ""]
        if chapter.sums and not in_full:
            several = f"{len(chapter.operations):,} operations: --path MODULE explains those of a module"
            yield from wrapped(f"{several}, --in-full (in Python in_full) each of them.", "", "")
            continue
        for place, operation in enumerate(chapter.operations):
            yield from [""] * bool(place)
            yield from wrapped(_title(operation), "", "  ")
            times = [block for device in operation.devices for block in _timed(operation.executed, device)]
            yield from laid_out([*_counted(operation), *times, *_made_of(operation)])
        yield from _constants(chapter)


def _made_of(operation: Explained) -> Iterator[TextBlock]:
    """The expected time of an operation on each device, and in each layout where its calls have several."""
    layouts = Counter(one.device.name for one in operation.expected)
    for one in operation.expected:
        yield from expected_blocks(one, several=layouts[one.device.name] > 1)


def _constants(chapter: Chapter) -> Iterator[str]:
    """The constants behind the expected times of a chapter's operations, device by device."""
    devices = {device.name: device for operation in chapter.operations for device in operation.devices}
    told = False
    for name, device in devices.items():
        expected = [one for operation in chapter.operations for one in operation.expected if one.device.name == name]
        yield ""
        if not expected:
            yield from wrapped(unknown_time(device), "", "  ")
            continue
        yield from wrapped(f"constants on {name}", "", "  ")
        yield from laid_out([*constants_blocks(expected)])
        told = True
    if told:
        yield ""
        yield from wrapped(LEGEND, "  ", "  ")


def _summed(one: ExplainedSum) -> Iterator[TextBlock]:
    """The bound of many operations: what each family and module adds to it, and the bound of their sum."""
    yield (
        "The operations run one after the other. Each takes the longest of its times over units and levels, operands"
        " from DRAM; the bound is the sum."
    )
    for parts in (one.families, one.modules):
        yield ""
        for part in parts:
            yield Labelled(part.name or "(model)", _part(part))
    yield ""
    for resource, amount in (*one.work.flops.items(), *one.work.bytes.items()):
        yield Labelled(resource, _over_rate(one, resource, amount))
    if one.seconds is None:
        yield "No device is named: no time is known."
        return
    by = f", most of it by {one.bound_by}" if one.bound_by else ""
    yield Labelled("bound", f"together {show(one.seconds, 's')}{by}")
    if one.whole is not None:
        yield Labelled("as one", f"{show(one.whole.seconds, 's')} by {one.whole.bound_by}: the whole-model roofline")


def _part(part: SummedPart) -> str:
    amounts = (show(part.flops, "FLOP"), show(part.bytes, "B"), show(part.seconds, "s"))
    known = [amount for value, amount in zip((part.flops, part.bytes, part.seconds), amounts, strict=True) if value]
    return f"{part.calls:,} calls: {', '.join(known) or 'nothing of its own'}"


def _over_rate(one: ExplainedSum, resource: str, amount: float) -> str:
    """The time that all FLOP or bytes together take at one rate."""
    computes = resource in one.work.flops
    total = show(amount, "FLOP" if computes else "B")
    ceiling = None if one.device is None else one.device.ceiling(resource)
    if ceiling is None:
        return total
    rate = show(ceiling.rate, "FLOP/s" if computes else "B/s")
    return f"{total} / {rate} ({ceiling.origin}) = {show(amount / ceiling.rate, 's')}"


def _cached(cache: KvCache) -> Iterator[TextBlock]:
    """What a cache holds, tensor by tensor."""
    yield f"Tensors of {cache.batch} x {cache.tokens} tokens; a view of more than it shows keeps all of it in memory."
    for part in cache.parts:
        shape = "x".join(map(str, part.shape))
        each = f"{part.tensors} x {number(part.held)} B = {number(part.tensors * part.held)} B"
        used = "" if part.used == part.held else f", in use {number(part.tensors * part.used)} B"
        entry = "" if part.compression == 1 else f", an entry for {part.compression} tokens"
        yield Labelled(part.name, f"{part.tensors} x {shape}:{part.dtype}; {each}{used}{entry}")
    yield Labelled("held", f"together {number(cache.held)} B")
    yield Labelled("in use", f"together {number(cache.used)} B: what the next step needs")
    yield Labelled("per token", f"{number(cache.per_token)} B: what the next token of one sequence adds")


def _consists(expected: ExpectedOnDevice) -> Iterator[TextBlock]:
    """The parts of an expected time, and how they are put together."""
    for family, seconds in sorted(expected.families.items(), key=lambda part: -part[1]):
        yield Labelled(family, show(seconds, "s"))
    yield Labelled("device", f"together {show(expected.busy, 's')}")
    if expected.host is not None:
        yield Labelled("host", f"{show(expected.host, 's')} for launching them")
        waits = expected.seconds - expected.busy
        if expected.waits_for != "in turn" and waits > 0:
            yield Labelled("waits", f"{show(waits, 's')} of the device, for launches and from kernel to kernel")
    how = {
        "pieces": "on the device alone",
        "graph": "no host, and the time between kernels",
        "in turn": "host and device are one",
    }.get(expected.waits_for, f"{expected.waits_for}: a call begins when it is launched and the one before is done")
    band = show_range(expected.low, expected.high, "s")
    yield Labelled("expected", f"{show(expected.seconds, 's')} ({band}); {how}")


def _used(use: Utilisation) -> Iterator[TextBlock]:
    """MFU and HFU: the time that matrix FLOP take at the peak, over the bound and over a measured time."""
    yield (
        "MFU takes the matrix FLOP of the model, attention as it is counted; HFU also those that checkpointing runs"
        " again. Both are the time that these take at the peak of their unit, over the time of the step."
    )
    for what, flops in (("model", use.flops), ("again", use.repeated)):
        for unit, n in flops.items():
            peak = use.device.require(unit)
            time = show(n / peak.rate, "s")
            rate = show(peak.rate, "FLOP/s")
            yield Labelled(what, f"{unit}, {number(n)} FLOP / {rate} ({peak.origin}) = {time}")
    model, again = use.seconds(use.flops), use.seconds(use.repeated)
    for what, seconds in (("at this code's bound", use.bound), ("measured", use.measured)):
        if seconds:
            yield Labelled(f"MFU {what}", f"{show(model, 's')} / {show(seconds, 's')} = {100 * model / seconds:.3g} %")
        if seconds and again:
            both = f"({show(model, 's')} + {show(again, 's')}) / {show(seconds, 's')}"
            yield Labelled(f"HFU {what}", f"{both} = {100 * (model + again) / seconds:.3g} %")


def _answered(answers: AnswersOnDevice) -> Iterator[TextBlock]:
    """What people ask, with its formula, and the steps of decode of a whole answer."""
    for tokens, times, seconds in answers.steps:
        each = "" if seconds is None else f", {show(seconds, 's')} each"
        stands = f"stands for {times:,} steps" if times > 1 else "stands for itself"
        yield Labelled("decode", f"{tokens:,} tokens in the cache: {stands}{each}")
    for one in answers.formulas:
        value = show(one.value, one.unit) if one.unit else f"{one.value:.5g}"
        yield Labelled(one.title, f"{one.formula} = {value}")


def _title(explained: Explained) -> str:
    name, family = explained.calculation.call.name, explained.calculation.cost.family
    parts = [
        f"{explained.path}: {name}" if explained.path else name,
        explained.phase,
        f"{explained.calls} calls" if explained.calls > 1 else "",
        f"family {family}" if family != name else "",
    ]
    return ", ".join(filter(None, parts))


def _counted(explained: Explained) -> Iterator[TextBlock]:
    """The call, the formula in words, FLOP and bytes."""
    calculation = explained.calculation
    work = calculation.cost.work
    yield _written(calculation.call)
    for paragraph in filter(None, calculation.formula.split("\n\n")):
        yield ""
        yield paragraph
    yield ""
    if calculation.uncounted is not None:
        yield Labelled(
            "FLOP", f"not counted: {calculation.uncounted}; unknown, which is not zero (bytes need no formula)"
        )
    elif not calculation.flops:
        yield Labelled("FLOP", "none")
    yield from _terms(calculation.flops, "FLOP")
    if len(calculation.flops) > 1:
        yield Labelled("FLOP", f"together {number(work.total_flops)} FLOP")
    if calculation.kernel_flops:
        yield ""
        yield "What a causal kernel executes; times are those of this:"
        yield from _terms(calculation.kernel_flops, "FLOP")
    yield ""
    yield from _terms(calculation.bytes, "B")
    yield Labelled("DRAM", f"together {number(work.bytes['dram'])} B")
    for note in explained.notes:
        yield ""
        yield note
    if explained.floor is not None:
        yield from _floor(explained.floor)


def _floor(floor: Floor) -> Iterator[TextBlock]:
    """What every implementation needs: the bound is that of it."""
    yield ""
    yield f"What every implementation needs; the bound is that of it, the code does more ({floor.cause}):"
    if floor.formula:
        yield floor.formula
    for resource, n in floor.work.flops.items():
        yield Labelled(resource, f"{number(n)} FLOP")
    yield Labelled("DRAM", f"{number(floor.work.bytes['dram'])} B")


def _terms(terms: tuple[WorkTerm, ...], unit: str) -> Iterator[Labelled]:
    for term in terms:
        result = f"{number(term.value)} {unit}"
        is_plain = term.expression in (str(term.value), f"{term.value} {unit}")
        yield Labelled(term.what, result if is_plain else f"{term.expression} = {result}")


def _timed(work: Work, device: Device) -> Iterator[TextBlock]:
    """Work over rate for each resource, the sums of those that share silicon, and the largest of all."""
    yield ""
    yield f"On {device.name}:"
    shortest = bound(work, device)
    silicon: dict[str, list[str]] = {}
    for resource, seconds in shortest.shares.items():
        ceiling = device.require(resource)
        computes = resource in work.flops
        amount = f"{number(work.flops[resource])} FLOP" if computes else f"{number(work.bytes[resource])} B"
        rate = show(ceiling.rate, "FLOP/s" if computes else "B/s")
        yield Labelled(resource, f"{amount} / {rate} ({ceiling.origin}) = {show(seconds, 's')}")
        silicon.setdefault(ceiling.silicon if computes else resource, []).append(resource)
    for resource in sorted(shortest.skipped):
        yield Labelled(resource, "no rate is known: left out")
    for unit, resources in silicon.items():
        if len(resources) > 1:
            total = sum(shortest.shares[resource] for resource in resources)
            yield Labelled(unit, f"{' + '.join(resources)} = {show(total, 's')} on one unit")
    by = f" by {shortest.bound_by}" if shortest.bound_by else ""
    yield Labelled("bound", f"{show(shortest.seconds, 's')}{by}, the largest: units and memory overlap")


def _written(call: Call) -> str:
    """The call as text: name=shape:type."""
    given = ", ".join(f"{name}={_value(value)}" for name, value in call.arguments)
    results: dict[str, list[Tensor]] = {}
    for name, tensor in zip(result_names(call), call.outputs, strict=True):
        if tensor.elements:
            results.setdefault(name, []).append(tensor)
    made = ", ".join(f"{name}={_value(t[0] if len(t) == 1 else tuple(t))}" for name, t in results.items())
    return f"{given} -> {made or 'changed in place'}"


def _value(value: Argument) -> str:
    if isinstance(value, Tensor):
        return f"{'x'.join(map(str, value.shape)) or 'scalar'}:{value.dtype}"
    if isinstance(value, tuple):
        shown = value if len(value) <= _SHOWN else value[:_SHOWN]
        more = [f"{len(value) - len(shown)} more"] if len(shown) < len(value) else []
        return "[" + ", ".join([*map(_value, shown), *more]) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return str(value)
