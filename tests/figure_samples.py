"""Record sets built by hand, with work and times that can be followed with a pencil."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rooflens.records import Case, Ceiling, Device, Phase, Record, Timing, Work
from rooflens.results import RecordSet


def device(
    name: str = "toy-100",
    title: str = "Toy 100",
    *,
    dram: float | None = 1e12,
    compute: dict[str, float] | None = None,
    verified: bool = True,
) -> Device:
    """A device of given rates; by default 1 TB/s, 100 TFLOP/s of fp32 products, 10 TFLOP/s on general lanes."""
    rates = {"matmul.fp32": 1e14, "vector.fp32": 1e13} if compute is None else compute
    ceilings = [
        Ceiling(
            resource=resource,
            rate=rate,
            silicon="tensor" if resource.startswith("matmul.") else "fma",
            origin="datasheet",
            reference="made up for a test",
            verified=verified,
        )
        for resource, rate in rates.items()
    ]
    if dram is not None:
        ceilings.append(
            Ceiling(resource="dram", rate=dram, silicon="memory", origin="datasheet", reference="made up for a test")
        )
    return Device(name=name, title=title, vendor="", kind="gpu", arch="", ceilings=tuple(ceilings), facts={})


def operation(
    case: Case,
    path: str,
    kind: str,
    *,
    matmul: float = 0.0,
    vector: float = 0.0,
    dram: float = 1e6,
    phase: Phase = "forward",
    name: str = "",
    precision: str = "fp32",
    calls: int = 1,
) -> Record:
    """An estimated operation."""
    flops = {f"matmul.{precision}": matmul, "vector.fp32": vector}
    work = Work(flops={resource: n for resource, n in flops.items() if n}, bytes={"dram": dram})
    return Record(
        case=case,
        source="estimate",
        scope="op",
        path=path,
        kind=kind,
        name=name or kind,
        phase=phase,
        work=work,
        calls=calls,
    )


def measured(case: Case, seconds: float, phase: Phase | None = "forward") -> Record:
    """A measured time of a whole phase."""
    timing = Timing(samples=(seconds,) * 3, origin="monotonic")
    return Record(case=case, source="measure", scope="model", phase=phase, timing=timing)


def chain(
    case: Case, blocks: int, *, scale: float = 1.0, traffic: float | None = None, precision: str = "fp32"
) -> list[Record]:
    """A network of blocks: convolution, normalization, activation, and a copy now and then."""
    found = []
    moved = scale if traffic is None else traffic
    for i in range(blocks):
        path = f"layer{i // 4 + 1}.{i % 4}"
        spread = 1.0 + (i * 7 % 11) / 3
        found += [
            operation(
                case, f"{path}.conv", "convolution", matmul=4e9 * scale * spread, dram=3e7 * moved, precision=precision
            ),
            operation(case, f"{path}.bn", "normalization", vector=4e7 * scale * spread, dram=5e7 * moved),
            operation(case, f"{path}.relu", "elementwise", vector=1e7 * scale * spread, dram=5e7 * moved),
        ]
        if i % 3 == 0:
            found.append(operation(case, path, "copy", dram=2e7 * moved, name="clone"))
    found.append(operation(case, "avgpool", "pooling", vector=2e6 * scale, dram=1e7 * moved))
    found.append(operation(case, "fc", "matmul", matmul=1e9 * scale, dram=8e6 * moved, precision=precision))
    return found


def records(items: Iterable[Record], devices: Sequence[Device] = ()) -> RecordSet:
    """A set that holds the devices too."""
    return RecordSet(items, devices={d.name: d for d in devices})
