"""Record sets small enough that every total can be worked out by hand. The numbers are derived in `conv_net`."""

from __future__ import annotations

from rooflens.records import (
    Case,
    Ceiling,
    Device,
    Failure,
    Memory,
    Phase,
    Record,
    Silicon,
    Timing,
    Work,
)
from rooflens.results import RecordSet


def device(name: str = "toy", **rates: float) -> Device:
    """A device of 1 TFLOP/s in products, 100 GFLOP/s in vectors and 1 GB/s, or of the rates given."""
    silicon: dict[str, Silicon] = {"matmul": "tensor", "vector": "fma", "special": "special", "dram": "memory"}
    given = rates or {"matmul_fp32": 1e9, "vector_fp32": 1e8, "dram": 1e9}
    ceilings = tuple(
        Ceiling(
            resource=key.replace("_", "."),
            rate=rate,
            silicon=silicon[key.split("_")[0]],
            origin="user",
            reference="made up for tests",
        )
        for key, rate in given.items()
    )
    return Device(name=name, title=name, vendor="none", kind="gpu", arch="toy", ceilings=ceilings, facts={})


def operation(
    case: Case,
    path: str,
    kind: str,
    work: Work,
    phase: Phase = "forward",
    name: str = "",
    calls: int = 1,
    recomputed: bool = False,
) -> Record:
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
        recomputed=recomputed,
    )


def conv_net(case: Case) -> list[Record]:
    """Forward of a net on two 3 x 8 x 8 fp32 images: convolution to 8 channels (3 x 3), ReLU, linear layer to 10.

    | operation   | FLOP                              | bytes                                       |
    |-------------|-----------------------------------|---------------------------------------------|
    | convolution | 2 * (2*8*8*8) * (3*3*3) = 55,296  | 4 * (2*3*64 + 8*27 + 2*8*64)       =  6,496 |
    | relu        | 2*8*8*8                 =  1,024  | 4 * (1024 + 1024)                  =  8,192 |
    | linear      | 2 * 2 * 512 * 10        = 20,480  | 4 * (2*512 + 512*10 + 10 + 2*10)   = 24,696 |
    | sum         | 76,800, in products 75,776        | 39,384                                      |

    The linear layer's 20 additions of the bias are part of its product. Parameters: 8*27 + 512*10 + 10 = 5,346.
    """
    return [
        Record(
            case=case,
            source="estimate",
            scope="model",
            parameters=5346,
            memory=Memory(
                peak=31_160,
                parameters=21_384,
                buffers=0,
                inputs=1_536,
                activations=0,
                gradients=0,
                optimizer=0,
                kv_cache=0,
                temporaries=8_240,
            ),
        ),
        operation(case, "features.0", "convolution", Work(flops={"matmul.fp32": 55_296}, bytes={"dram": 6_496})),
        operation(
            case, "features.1", "elementwise", Work(flops={"vector.fp32": 1_024}, bytes={"dram": 8_192}), name="relu"
        ),
        operation(case, "head", "linear", Work(flops={"matmul.fp32": 20_480}, bytes={"dram": 24_696})),
    ]


def backward(case: Case) -> list[Record]:
    """Backward of the same net: made-up, round numbers, with a loss and an optimizer outside of the model."""
    rounds = Work(flops={"matmul.fp32": 40_000}, bytes={"dram": 20_000})
    return [
        operation(case, "(loss)", "loss", Work(flops={"special.fp32": 60}, bytes={"dram": 160}), "forward"),
        operation(case, "(loss)", "loss", Work(flops={"vector.fp32": 40}, bytes={"dram": 240}), "backward"),
        operation(case, "head", "linear", rounds, "backward"),
        operation(
            case,
            "features.1",
            "elementwise",
            Work(flops={"vector.fp32": 1_024}, bytes={"dram": 12_288}),
            "backward",
            name="threshold_backward",
        ),
        operation(
            case,
            "features.0",
            "convolution",
            Work(flops={"matmul.fp32": 55_296}, bytes={"dram": 6_496}),
            "backward",
            recomputed=True,
        ),
        operation(case, "features.0", "convolution", 2 * rounds, "backward"),
        operation(
            case, "(optimizer)", "optimizer", Work(flops={"vector.fp32": 21_384}, bytes={"dram": 106_920}), "optimizer"
        ),
    ]


def times(case: Case, phase: Phase | None, *samples: float, cold: float | None = None) -> Record:
    timing = Timing(samples=samples, origin="monotonic", cold=cold)
    return Record(case=case, source="measure", scope="model", phase=phase, timing=timing)


INFERENCE = Case(model="toynet", device="toy", batch=2)
TRAINING = Case(model="toynet", device="toy", batch=2, mode="train", options=(("optimizer", "sgd"),))
STEADY = (200e-6, 201e-6, 202e-6, 199e-6, 198e-6, 200e-6, 200e-6, 201e-6)


def estimated() -> RecordSet:
    return RecordSet(conv_net(INFERENCE), devices={"toy": device()})


def trained() -> RecordSet:
    return RecordSet([*conv_net(TRAINING), *backward(TRAINING)], devices={"toy": device()})


def measured() -> RecordSet:
    """The measurement of `estimated`: a median of 200 us, quiet, with memory."""
    memory = Record(case=INFERENCE, source="measure", scope="model", memory=Memory(peak=40_960, reserved=2_097_152))
    return RecordSet([times(INFERENCE, "forward", *STEADY, cold=0.5), memory], devices={"toy": device()})


def both() -> RecordSet:
    return estimated() + measured()


def demo() -> RecordSet:
    """Three models of two batches, estimated and measured on one device: what the demo shows."""
    cases = [
        Case(model=model, device="xeon-platinum-8480c", batch=batch)
        for model in ("resnet18", "alexnet", "mobilenet_v3_large")
        for batch in (1, 16)
    ]
    records = []
    for scale, case in enumerate(cases, start=1):
        matmul = Work(flops={"matmul.fp32": 3.628e9 * scale}, bytes={"dram": 118_403_456 * scale})
        vector = Work(flops={"vector.fp32": 31_000_000 * scale}, bytes={"dram": 54_000_000 * scale})
        records += [
            Record(case=case, source="estimate", scope="model", parameters=11_689_512),
            operation(case, "conv1", "convolution", matmul),
            operation(case, "relu", "elementwise", vector),
            times(
                case, "forward", *(scale * 1e-3 * (8 + n % 3 / 20 + scale * (n % 2) / 2) for n in range(20)), cold=0.25
            ),
        ]
    rates = device("xeon-platinum-8480c", matmul_fp32=1.2e12, vector_fp32=1.2e12, dram=60e9)
    return RecordSet(records, devices={rates.name: rates})


def uncounted() -> RecordSet:
    """Two operations of which one has no formula, on a device without a rate for special functions."""
    case = Case(model="odd", device="toy")
    return RecordSet(
        [
            operation(case, "a", "linear", Work(flops={"matmul.fp32": 1000, "special.fp32": 5}, bytes={"dram": 300})),
            operation(case, "b", "", Work(bytes={"dram": 100}, missing=frozenset({"my_kernel"})), name="my_kernel"),
        ],
        devices={"toy": device()},
    )


HOSTILE = (
    "=cmd|'/c calc'!A1 [red]x[/] \x1b[31m\x1b]0;t\x07 a|b\n<script>alert(1)</script> _i_ & 50% $x$ \\end{table} \u202e"
)


def hostile() -> RecordSet:
    """Text that is markup, an escape or a formula somewhere, wherever a user or a file can put text."""
    case = Case(model=HOSTILE, device=HOSTILE, batch=1, options=((HOSTILE, HOSTILE),))
    other = Case(model="[b]", device="*", batch=2, options=((HOSTILE, "@SUM(1)"),))
    work = Work(flops={"matmul.fp32": 10}, bytes={"dram": 10}, missing=frozenset({HOSTILE}))
    records = [
        Record(
            case=c,
            source="estimate",
            scope="op",
            path=f"{HOSTILE}.x",
            kind=HOSTILE,
            name=HOSTILE,
            phase="forward",
            work=work,
            notes=(HOSTILE,),
        )
        for c in (case, other)
    ]
    failures = [Failure(case=case, source="measure", stage=HOSTILE, kind="crash", message=HOSTILE)]
    return RecordSet(records, devices={HOSTILE: device(HOSTILE)}, failures=failures)
