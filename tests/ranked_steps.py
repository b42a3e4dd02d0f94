"""Steps whose expected time is known by hand: a relu in fp32 on cards of a round bandwidth."""

from __future__ import annotations

from dataclasses import replace

from tests.calls import call, tensor
from tests.test_predict import device as round_card

from rooflens.costs import Arithmetic, cost
from rooflens.records import Case, Ceiling, Device, Fact, Memory, Record, Traffic
from rooflens.results import RecordSet

TERA = 1e12
SAMPLE = 1_000_000
"""Elements of a sample: 4 MB in and 4 MB out, so 100 samples take 1 ms at 0.8 of 1 TB/s."""
CONSTANTS = {
    "stream.start": 0.0,
    "stream.share_wide": 0.8,
    "host.operation": 0.0,
    "host.start": 0.0,
    "launch.gap": 0.0,
    "launch.handover": 0.0,
    "launch.among": 1.0,
}


def a_card(name: str, bandwidth: float = TERA, watts: float = 300, memory: float = 80e9, **constants: float) -> Device:
    """A card of which a stream reaches 80 %, whose host costs nothing unless it is told to."""
    made = round_card(power=watts, memory=memory)
    dram = Ceiling(resource="dram", rate=bandwidth, silicon="memory", origin="user", reference="round")
    ceilings = (*(ceiling for ceiling in made.ceilings if ceiling.resource != "dram"), dram)
    known = {name.replace("__", "."): value for name, value in constants.items()}
    return replace(made, name=name, title=name.title(), ceilings=ceilings, constants={**CONSTANTS, **known})


def relu_on(card: Device, batch: int = 100, peak: int = 1_000_000_000, **case: object) -> RecordSet:
    """An estimate of a relu over a batch."""
    x = tensor(batch, SAMPLE)
    what = call("relu", x, self=x)
    one = cost(what, Arithmetic())
    of = Case(model="relu", device=card.name, batch=batch, **case)  # type: ignore[arg-type]
    held = Memory(peak=peak, temporaries=0, inputs=peak // 2, activations=peak - peak // 2)
    step = Record(case=of, source="estimate", scope="model", memory=held, parameters=0)
    operation = Record(
        case=of, source="estimate", scope="op", kind=one.family, name="relu", phase="forward", work=one.work,
        traffic=Traffic(weights=0, inputs=0, outputs=0), call=what,
    )  # fmt: skip
    return RecordSet([step, operation], devices={card.name: card})


def steps(*sets: RecordSet) -> RecordSet:
    """Several estimates together."""
    return RecordSet.union(sets)


def with_facts(card: Device, **facts: float) -> Device:
    """A card with other facts."""
    return replace(card, facts={**card.facts, **{name: Fact(value=value) for name, value in facts.items()}})
