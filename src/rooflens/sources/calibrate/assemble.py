"""Makes a device of measured rates: fills in the others, and notes doubts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from rooflens.devices.rules import RESOURCES, SourcedValue, ceilings
from rooflens.records import LEVELS, Device
from rooflens.sources.calibrate.trial import MeasuredRates
from rooflens.units import show

LANES = "the lanes that run fp32 products"
ABOVE = 1.05
"""A ceiling that beats the catalogue's by more than this gets a note."""
SLOW = 0.25
HERE = "this machine"


def assembled(measured: MeasuredRates, *, where: str, name: str, title: str, known: Device | None) -> Device:
    """The device ``NAME-measured``.

    What was not measured keeps the rate of the catalogue or of a rule, with its own origin. On a CPU, element-wise work
    gets the rate of the fp32 products, marked ``derived``, if these were faster than plain multiply-adds, or if the
    lanes were not measured and the catalogue does not know them.
    """
    kind = "cpu" if where == "cpu" else "gpu"
    base = known or Device(name=name, title=title, vendor=HERE, kind=kind, arch="", ceilings=(), facts={})
    rates = _with_lanes(measured.rates, known) if where == "cpu" else dict(measured.rates)
    rates = {resource: replace(rate, value=_rounded(rate.value)) for resource, rate in rates.items()}
    facts = {
        key: replace(fact, value=_rounded(fact.value) if key != "memory" else fact.value)
        for key, fact in measured.facts.items()
    }
    rates, doubts = _doubted(rates, known)
    by_resource = {ceiling.resource: ceiling for ceiling in base.ceilings}
    for ceiling in ceilings(rates, vendor=base.vendor, kind=kind, facts=facts):
        if ceiling.resource in rates or ceiling.resource not in by_resource:  # a rule never displaces the catalogue
            by_resource[ceiling.resource] = ceiling
    return Device(
        name=f"{base.name}-measured",
        title=f"{base.title} (measured)",
        vendor=base.vendor,
        kind=kind,
        arch=base.arch,
        ceilings=tuple(by_resource[resource] for resource in RESOURCES if resource in by_resource),
        facts={**base.facts, **facts},
        notes=". ".join((*measured.notes, *doubts)),
    )


def _rounded(value: float) -> float:
    """Four digits: more are not repeatable."""
    return float(f"{value:.3e}")


def _with_lanes(rates: Mapping[str, SourcedValue], known: Device | None) -> dict[str, SourcedValue]:
    """The rates of a CPU, with that of its vector lanes, which also run its fp32 products."""
    products, lanes = rates.get("matmul.fp32"), rates.get("vector.fp32")
    wanted = lanes.value < products.value if lanes is not None and products is not None else known is None
    if products is None or not wanted:
        return dict(rates)
    reference = LANES if lanes is None else f"{LANES}; {lanes.reference} reached {show(lanes.value, 'FLOP/s')}"
    derived = replace(products, origin="derived", reference=reference, accumulate=None, verified=False)
    return {**rates, "vector.fp32": derived}


def _doubted(rates: dict[str, SourcedValue], known: Device | None) -> tuple[dict[str, SourcedValue], list[str]]:
    """The rates, doubts added to their references, and a note per doubt."""
    doubts = dict([*_above(rates, known), *_upside_down(rates), *_emulated(rates)])
    noted = {
        resource: replace(rate, reference=f"{rate.reference}; {doubts[resource]}") if resource in doubts else rate
        for resource, rate in rates.items()
    }
    return noted, [f"{resource}: {doubt}" for resource, doubt in doubts.items()]


def _above(rates: Mapping[str, SourcedValue], known: Device | None) -> Iterator[tuple[str, str]]:
    for resource, rate in rates.items():
        ceiling = known.ceiling(resource) if known is not None else None
        if ceiling is not None and rate.value > ABOVE * ceiling.rate:
            origin = ceiling.origin + ("" if ceiling.verified else ", not verified")
            times = f"{rate.value / ceiling.rate:.2f} x the catalogue's rate ({origin})"
            yield resource, f"{times}: a clock above the one it counts with, or one of the two is wrong"


def _emulated(rates: Mapping[str, SourcedValue]) -> Iterator[tuple[str, str]]:
    """Doubts about a narrow precision that is far slower than fp32: where hardware has it, it never is."""
    full = rates.get("matmul.fp32")
    for resource in ("matmul.fp16", "matmul.bf16", "matmul.int8"):
        if full is not None and resource in rates and rates[resource].value < SLOW * full.value:
            yield resource, "far below fp32: torch has no fast way to do it on this machine"


def _upside_down(rates: Mapping[str, SourcedValue]) -> Iterator[tuple[str, str]]:
    """Doubts about a level that is slower than the next one outside it."""
    near = [level for level in reversed(LEVELS) if level in rates]
    for inner, outer in pairwise(near):
        if rates[inner].value < rates[outer].value:
            yield inner, f"slower than {outer}, which cannot be: its working sets were not in it"
