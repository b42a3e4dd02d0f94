"""Checks of counted kernels, launch by launch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rooflens import units
from rooflens.checks.context import Context
from rooflens.checks.registry import Doubt, check, of_every
from rooflens.records import Case, Record, Work
from rooflens.reported.figures import STEPS, ReportedFigure

PRODUCT = re.compile(
    r"gemm|s?1688|16816|884|hmma|wgmma|nvjet|xmma|tensorop|cutlass|fmha|flash|cudnn.*conv|sm80_|sm90_", re.IGNORECASE
)
"""Names of kernels that compute products: only to suspect, never to count."""
SUPPORT = re.compile(
    r"splitk?reduce|transpose|nchwto|nhwcto|memset|memcpy|pad|scale|copy|init|convert|cast|permute|fill", re.IGNORECASE
)
"""Kernels of the same libraries that only move data or prepare a product."""
_LACKS = re.compile("it needs|is a lower bound|are unknown: their counters|tensor (?:operations|instructions)")
"""What a reader notes of a launch whose FLOP are not all known."""
_UNAVAILABLE = re.compile(r"\d+ values are not available: |had no value; a metric of this chip")
_RANDOM = re.compile(r"distribution_\w*kernel")
"""Kernels that fill tensors with random numbers; those of fused dropout are called otherwise."""
HALF_SHARE, SLACK, LITTLE, LAUNCHES = 0.05, 1.25, 0.01, 0.5
WIDE = frozenset({"fp32", "tf32"})


def _launches(context: Context) -> Iterator[tuple[Case, list[Record]]]:
    """The counted kernels of each case."""
    for case, source, part in context.records.split():
        kernels = [r for r in part if r.scope == "kernel"]
        if source == "counters" and kernels:
            yield case, kernels


of_counted_cases = of_every(_launches, "counters")


def _sum(kernels: list[Record], level: str) -> float | None:
    """Bytes of a level over all launches; None where one of them lacks it."""
    works = [(r.work, r.calls) for r in kernels]
    if any(work is None or level not in work.bytes for work, _ in works):
        return None
    return sum(work.bytes[level] * calls for work, calls in works if work is not None)


@check("kernel-without-flops", "error", "collect tensor-core operations too (`rooflens counters`)")
@of_counted_cases
def kernel_without_flops(context: Context, case: Case, kernels: list[Record]) -> Iterator[Doubt]:
    """Kernels that compute products by their name did no FLOP by their counters, or none that were counted."""
    uncounted = not any(unit.startswith("matmul.") for r in kernels if r.work is not None for unit in r.work.flops)
    empty = [r for r in kernels if _is_product(r.name) and _did_nothing(r.work, uncounted=uncounted)]
    if empty and any(r.work is not None and r.work.flops for r in kernels):
        yield Doubt(
            f"{case.label()}: {empty[0].name}",
            f"{len(empty)} of {len(kernels)} launches compute products by their name and did no FLOP that were"
            " counted: tensor-core work is not in these counters, so totals are a lower bound",
            {"launches": len(kernels), "without FLOP": len(empty)},
        )


def _did_nothing(work: Work | None, *, uncounted: bool) -> bool:
    """True if no FLOP were counted, or not all while products of tensor cores were counted nowhere."""
    return work is not None and (uncounted if work.missing else not work.total_flops)


@check("flops-unknown", "warning", "collect what is missing: `rooflens read FILE` names it; unknown is not zero")
@of_counted_cases
def flops_unknown(context: Context, case: Case, kernels: list[Record]) -> Iterator[Doubt]:
    """Some launches have FLOP that no counter tells; where none were to be counted nothing is missing."""
    unknown = [r for r in kernels if not _is_copy(r) and (r.work is None or r.work.missing)]
    why = list(dict.fromkeys(note for r in unknown for note in r.notes if _LACKS.search(note)))
    if unknown and (why or any(r.work is not None and r.work.flops for r in kernels)):
        missing = f": {'; '.join(why[:2])}" if why else ""
        yield Doubt(
            case.label(),
            f"{len(unknown)} of {len(kernels)} launches have FLOP that were not counted{missing}; totals, intensity"
            " and FLOP/s are lower bounds",
            {"launches": len(kernels), "with unknown FLOP": len(unknown)},
        )


@check("metric-unavailable", "warning", "use a name that the chip has; `rooflens counters` takes no other")
@of_counted_cases
def metric_unavailable(context: Context, case: Case, kernels: list[Record]) -> Iterator[Doubt]:
    """Counters without a value: a name that is misspelt or of another chip, or no permission."""
    notes = list(dict.fromkeys(note for r in kernels for note in r.notes if _UNAVAILABLE.search(note)))
    if notes:
        yield Doubt(case.label(), "; ".join(notes), {"launches": len(kernels)})


@check("start-up-profiled", "info", "profile a step after warm-up: --profile-from-start off, inputs made before")
@of_counted_cases
def start_up_profiled(context: Context, case: Case, kernels: list[Record]) -> Iterator[Doubt]:
    """Kernels that draw random numbers ran among those of an inference: weights or inputs were made meanwhile."""
    drawing = [r for r in kernels if _RANDOM.search(r.name)]
    if drawing and case.mode == "inference":
        yield Doubt(
            f"{case.label()}: {drawing[0].name}",
            f"{sum(r.calls for r in drawing)} kernels drew random numbers: weights or inputs were made within the"
            " profile, or it is a training step with dropout",
            {"kernels": sum(r.calls for r in drawing), "launches": sum(r.calls for r in kernels)},
        )


def _is_product(name: str) -> bool:
    return PRODUCT.search(name) is not None and SUPPORT.search(name) is None


@check("half-in-fp32", "warning", "subtract HFMA2.MMA moves (`rooflens read` does), or state the dtype that ran")
@of_counted_cases
def half_in_fp32(context: Context, case: Case, kernels: list[Record]) -> Iterator[Doubt]:
    """16-bit FLOP on general lanes in an fp32 run."""
    total = Work.sum(r.work * r.calls for r in kernels if r.work is not None)
    if case.dtype not in WIDE or total is None or not total.total_flops:
        return
    half = sum(total.flops.get(unit, 0.0) for unit in ("vector.fp16", "vector.bf16"))
    if half > HALF_SHARE * total.total_flops:
        yield Doubt(
            case.label(),
            f"{units.show(half, 'FLOP')} of {units.show(total.total_flops, 'FLOP')} are 16-bit, in a run of"
            f" {case.dtype}: on this architecture the compiler loads constants with HFMA2.MMA, which counters take"
            " for arithmetic",
            {"16-bit FLOP": half, "FLOP": total.total_flops},
        )


def _is_copy(record: Record) -> bool:
    """True if a profiler timed it beside counted kernels: copies and fills, which ncu does not count."""
    return record.work is None and record.timing is not None and record.timing.origin == "profiler"


@check("metric-incomplete", "warning", "read every row, whatever its unit; collect the metric again for all launches")
@of_counted_cases
def metric_incomplete(context: Context, case: Case, kernels: list[Record]) -> Iterator[Doubt]:
    """Some launches lack what others have."""
    for what, known in (
        ("time", [r.timing is not None for r in kernels]),
        ("DRAM bytes", [r.work is not None and "dram" in r.work.bytes for r in kernels if not _is_copy(r)]),
    ):
        if any(known) and not all(known):
            yield Doubt(
                case.label(),
                f"{known.count(False)} of {len(known)} launches have no {what}: a sum over the others is too small",
                {"launches": len(known), f"with {what if what != 'time' else 'a time'}": known.count(True)},
            )


@check(
    "dram-near-zero",
    "warning",
    "use compulsory bytes, or profile with flushed caches (--cache-control all)",
    "A whole case has hardly any DRAM traffic: its intensity is meaningless",
)
@check(
    "dram-above-l2",
    "warning",
    "compare the definitions of both levels, and whether other processes used the card",
    "A whole case has more DRAM than L2 traffic",
)
@of_counted_cases
def dram_and_l2(context: Context, case: Case, kernels: list[Record]) -> Iterator[Doubt]:
    """A whole case has more DRAM than L2 traffic, or hardly any."""
    dram, l2 = _sum(kernels, "dram"), _sum(kernels, "l2")
    if dram is None or not l2:
        return
    numbers = {"DRAM B": dram, "L2 B": l2, "ratio": dram / l2}
    if dram > SLACK * l2:
        message = (
            f"{units.show(dram, 'B')} from DRAM, but {units.show(l2, 'B')} through L2, which all of it must pass:"
            " others used the memory, or a level is counted in part"
        )
        yield Doubt(case.label(), message, numbers, "dram-above-l2")
    elif dram < LITTLE * l2:
        message = (
            f"{units.show(dram, 'B')} from DRAM for {units.show(l2, 'B')} through L2: everything was in the cache,"
            " and the DRAM intensity says nothing"
        )
        yield Doubt(case.label(), message, numbers, "dram-near-zero")


@check("launches-missing", "warning", "profile the whole step, and look for errors in the profiler's output")
@of_counted_cases
def launches_missing(context: Context, case: Case, kernels: list[Record]) -> Iterator[Doubt]:
    """Far fewer launches than the step has operations."""
    figure = ReportedFigure(quantity="launches", value=None, recorded=case, model=case.model, batch=case.batch)
    phases = tuple(dict.fromkeys(r.phase for r in kernels if r.phase is not None)) or STEPS.get(case.mode, ("forward",))
    expected = context.expected(figure, phases)
    n = sum(r.calls for r in kernels)
    if expected is None or dict(case.options).get("compile") or n >= LAUNCHES * expected.operations:
        return
    yield Doubt(
        case.label(),
        f"{n} launches for a step of {expected.operations} operations, each at least one kernel: the profile is"
        " partial, and its totals are too small",
        {"launches": n, "operations": expected.operations},
    )
