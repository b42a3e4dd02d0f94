"""Checks of bytes: footprints taken for traffic, and traffic that is less than can be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from rooflens import units
from rooflens.checks.context import Context, close, fold, grouped
from rooflens.checks.registry import Doubt, check, needs, of_each
from rooflens.records import Device
from rooflens.reported.figures import FOOTPRINTS, ReportedFigure
from rooflens.reported.right_values import item_bytes

LOW = 0.5
PADDED = 2.0
"""Times the algorithm's FLOP that tiles and padding execute at most."""
LARGER_THAN_CACHE = 10
"""Compulsory traffic this many times as large as the last-level cache cannot mostly stay in it."""


def last_level_cache(device: Device | None) -> float:
    """Bytes of the last-level cache, 0 where they are not known."""
    fact = None if device is None else device.facts.get("l2")
    return 0.0 if fact is None else fact.value


@check("footprint-as-traffic", "error", "divide by the DRAM bytes that were moved: counted, or `rooflens estimate`")
@needs("intensity", "estimated_time")
def footprint_as_traffic(context: Context) -> Iterator[Doubt]:
    """Intensity or time was computed from memory in use."""
    for figure, value in context.stated("intensity"):
        works = [(flops, other.precision) for other, flops in context.beside(figure, "flops", "counted_flops")]
        expected = context.expected(figure)
        if not works and expected is not None and expected.matmul:
            works = [(expected.matmul, 0.0)]
        for (what, nbytes, error), (flops, more) in product(_occupied(context, figure), works):
            if close(value, flops / nbytes, 2e-3 + figure.precision + error + more):
                yield Doubt(
                    figure.subject,
                    f"{value:.4g} FLOP/B is {units.show(flops, 'FLOP')} over {units.show(nbytes, 'B')} of {what}:"
                    " memory in use is not traffic, so the point stands at a wrong intensity",
                    {"intensity FLOP/B": value, "FLOP": flops, "footprint B": nbytes},
                )
                break
    for figure, value in context.stated("estimated_time"):
        for _, nbytes in context.beside(figure, *FOOTPRINTS):
            for rate in bandwidths(context, figure):
                if close(value, nbytes / rate, 2e-3 + figure.precision):
                    yield Doubt(
                        figure.subject,
                        f"{units.show(value, 's')} is {units.show(nbytes, 'B')} over {units.show(rate, 'B/s')}:"
                        " memory in use is not traffic",
                        {"estimated s": value, "footprint B": nbytes, "bandwidth B/s": rate},
                    )
                    break


def _occupied(context: Context, figure: ReportedFigure) -> Iterator[tuple[str, float, float]]:
    """What was taken for traffic perhaps, with the error of its rounding: memory that is stated, else the weights."""
    held = [(f.quantity, v, f.precision) for f, v in context.beside(figure, *FOOTPRINTS)]
    yield from held
    parameters = context.right.parameters(figure)
    if parameters and figure.precision <= 1e-3 and not held and not any(context.beside(figure, "bytes")):
        weights = parameters * item_bytes(figure.dtype)
        yield from ((f"{n} x the weights" if n > 1 else "the weights", n * weights, 0.0) for n in (1, 2, 3))


def bandwidths(context: Context, figure: ReportedFigure) -> list[float]:
    """DRAM bandwidths that the author may have used: those stated for the device, then the catalogue's."""
    stated = [value for _, value in context.of_device(figure, "bandwidth")]
    device = context.device(figure)
    ceiling = None if device is None else device.ceiling("dram")
    return [*stated, *([ceiling.rate] if ceiling is not None else [])]


@check("weights-as-traffic", "error", "add inputs, outputs and activations: most of the traffic of most models")
@of_each("bytes")
def weights_as_traffic(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """Stated bytes are the weights alone."""
    parameters, expected = context.right.parameters(figure), context.expected(figure)
    if not parameters or (expected is not None and expected.nbytes and close(value, expected.nbytes, 0.02)):
        return
    weights = parameters * item_bytes(figure.dtype)
    for n in (1, 2, 3):
        if figure.precision <= 1e-3 and close(value, n * weights, 5e-4):
            yield Doubt(
                figure.subject,
                f"{units.show(value, 'B')} is {n} x the weights ({units.show(weights, 'B')}): activations do"
                " not exist in it, so the intensity is too high",
                {"stated B": value, "weights B": weights, "ratio": value / weights},
            )


@check("bytes-below-compulsory", "error", "count every launch of the step, and every unit of the byte rows")
@needs("bytes", "read_bytes", "intensity")
def bytes_below_compulsory(context: Context) -> Iterator[Doubt]:
    """A whole step moved less than its weights and inputs, which do not fit into the last-level cache."""
    for figure, value in context.stated("bytes", "read_bytes"):
        expected = context.expected(context.quickest(figure))
        least = None if expected is None else expected.compulsory
        cache = last_level_cache(context.device(figure))
        if least is not None and least > cache and value * (1 + figure.precision) < least:
            yield Doubt(
                figure.subject,
                f"{units.show(value, 'B')} for a step whose weights and inputs are {units.show(least, 'B')}, more than"
                f" the last-level cache ({units.show(cache or None, 'B')}) holds: launches or rows are missing",
                {"stated B": value, "weights and inputs B": least, "last-level cache B": cache},
            )
    yield from _too_intense(context)


def _too_intense(context: Context) -> Iterator[Doubt]:
    """More FLOP per byte than a step can have that reads its weights and inputs."""
    for figure, value in context.stated("intensity"):
        expected = context.expected(context.quickest(figure))
        if expected is None or not expected.flops or expected.compulsory is None:
            continue
        most = PADDED * expected.flops / expected.compulsory
        if expected.compulsory > last_level_cache(context.device(figure)) and value > most * (1 + figure.precision):
            yield Doubt(
                figure.subject,
                f"{value:.4g} FLOP/B for a step of {units.show(expected.flops, 'FLOP')} whose weights and inputs are"
                f" {units.show(expected.compulsory, 'B')}: its traffic was less than these",
                {"intensity FLOP/B": value, "FLOP": expected.flops, "weights and inputs B": expected.compulsory},
            )


@check("bytes-low", "warning", "sum all launches, converting each row by its own unit (byte, Kbyte, Mbyte)")
@of_each("bytes")
def bytes_low(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """A step moved less than half of what its operations read and write, too much to stay in a cache."""
    expected, device = context.expected(context.quickest(figure)), context.device(figure)
    if expected is None or expected.nbytes is None or expected.compulsory is None:
        return
    if figure.recorded is not None and dict(figure.recorded.options).get("compile"):  # operations were fused
        return
    # bytes_below_compulsory says so where they do not fit into the cache, which is graver.
    is_graver = value < expected.compulsory and expected.compulsory > last_level_cache(device)
    below = value < LOW * expected.nbytes and not is_graver
    if below and expected.nbytes > LARGER_THAN_CACHE * last_level_cache(device):
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'B')} is {fold(value / expected.nbytes)} of the {units.show(expected.nbytes, 'B')}"
            " that the operations read and write one by one: rows of a larger unit or launches were lost, or"
            " operations were fused",
            {"stated B": value, "operations' B": expected.nbytes, "ratio": value / expected.nbytes},
        )


@check("bytes-of-batch", "error", "measure or estimate the traffic of each batch size")
@needs("bytes")
def bytes_of_batch(context: Context) -> Iterator[Doubt]:
    """The same bytes at every batch size."""
    for same in grouped(context.stated("bytes"), "group", "model", "machine", "dtype", "phase", "image"):
        batches = sorted({figure.batch for figure, _ in same if figure.batch is not None})
        values = [value for figure, value in same if figure.batch is not None]
        if len(batches) > 1 and close(min(values), max(values), 1e-3):
            yield Doubt(
                same[0][0].subject,
                f"{units.show(values[0], 'B')} at batch {', '.join(map(str, batches))}: traffic grows with the batch,"
                " so this is the size of the weights or of a pool",
                {"B": values[0], "smallest batch": batches[0], "largest batch": batches[-1]},
            )


@check("backward-is-forward", "warning", "backward also reads saved activations and writes gradients: count it apart")
@needs("bytes", "flops")
def backward_is_forward(context: Context) -> Iterator[Doubt]:
    """Forward and backward have the same bytes or FLOP to the last digit."""
    for same in grouped(
        context.stated("bytes", "flops"), "quantity", "group", "model", "machine", "dtype", "batch", "image"
    ):
        by_phase = {figure.phase: (figure, value) for figure, value in same if figure.precision <= 1e-3}
        forward, backward = by_phase.get("forward"), by_phase.get("backward")
        if forward is not None and backward is not None and forward[1] == backward[1] > 0:
            figure, value = backward
            unit = "B" if figure.quantity == "bytes" else "FLOP"
            yield Doubt(
                figure.subject,
                f"{units.show(value, unit)} is the forward figure again, to the last digit",
                {f"forward {unit}": value, f"backward {unit}": value},
            )
