"""Studies for tests of reports: folders of made-up records whose numbers follow from the cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rooflens.devices import find
from rooflens.records import (
    Case,
    Environment,
    Failure,
    Memory,
    Phase,
    Record,
    RecordFile,
    Timing,
    Traffic,
    Work,
)
from rooflens.study import Cell, StudyFolder

HERE = Environment(
    rooflens="0.1.0",
    created="2026-01-02T03:04:05+00:00",
    command=("rooflens", "study", "run"),
    versions={"python": "3.11.7", "torch": "2.11.0"},
    machine={"cpu": "made up", "threads": 2},
    flags={"deterministic": False},
    commit="0123456789abcdef",
)
HOSTILE = '<script>alert(1)</script> & "quoted" | $x_1$'
SMALL = """\
title = 'A made-up study'
question = 'Does it hold? <b>really</b>'
method = 'Records made up for a test.'
devices = ["t4", "a100-sxm4-40gb"]
sources = ["estimate", "measure"]

[[exclude]]
model = "alexnet"
batch = 16
why = "it is left out to see a gap"

[[hypothesis]]
text = "An A100 needs less time than a T4"
quantity = "time"
left = { device = "a100-sxm4-40gb" }
relation = "<"
right = { device = "t4" }
for = "every model"

[[hypothesis]]
text = "This one is left to the reader"

[[grid]]
models = ["resnet18", "alexnet", "vgg11", "mobilenet_v2", "squeezenet1_0"]
batches = [1, 4, 16, 64]

[[grid]]
models = ["resnet18", "mobilenet_v2"]
batches = [32]
modes = ["train"]
"""
TINY = """\
title = "One device"
devices = ["t4"]
models = ["resnet18", "alexnet", "mobilenet_v2"]
batches = [1, 8]
sources = ["estimate", "measure"]
"""
LARGE = """\
title = "Two thousand cases"
question = "Does a report of many cases stay readable?"
devices = ["t4", "a100-sxm4-40gb"]
models = [{models}]
batches = [1, 8, 32, 128]
""".format(models=", ".join(f'"made_up_{number}"' for number in range(250)))
"""250 models, 4 batches, 2 devices: estimates only."""
FAMILIES = ("convolution", "matmul", "elementwise", "normalization")


def studied(folder: Path, text: str = SMALL, *, failing: str = "vgg11") -> StudyFolder:
    """A study whose cells are all done, but for the largest batch of one model, whose measurement failed.

    Args:
        failing: the model that runs out of memory at batch 64.
    """
    path = folder / "study.toml"
    path.write_text(text)
    opened = StudyFolder.begin(folder / "out", path)[0]
    models = list(dict.fromkeys(cell.case.model for cell in opened.cells))
    for cell in opened.cells:
        if cell.source == "measure" and cell.case.model == failing and cell.case.batch == 64:
            opened.keep(cell, _failed(cell))
        else:
            opened.keep(cell, made_up(cell, 1 + models.index(cell.case.model)))
    return opened


def made_up(cell: Cell, size: int) -> RecordFile:
    """The records of a cell: of a model `size` times as large as the first one."""
    device = find(cell.case.device or "t4")
    make = _estimated if cell.source == "estimate" else _measured
    return RecordFile(records=tuple(make(cell.case, size)), devices={device.name: device}, environment=HERE)


def _phases(case: Case) -> tuple[tuple[Phase, float], ...]:
    """Phases, and how much work each is in forward passes."""
    return (("forward", 1.0), ("backward", 2.0)) if case.mode == "train" else (("forward", 1.0),)


def _estimated(case: Case, size: int) -> Iterator[Record]:
    """Two layers of every family; products do most of the work, element-wise operations most of the traffic."""
    batch = case.batch or 1
    memory = Memory(
        peak=8_000_000 * size + 3_000_000 * batch, parameters=8_000_000 * size, temporaries=3_000_000 * batch
    )
    yield Record(
        case=case, source="estimate", scope="model", parameters=2_000_000 * size, memory=memory, notes=("made up",)
    )
    for phase, times in _phases(case):
        for layer in range(2):
            for number, family in enumerate(FAMILIES):
                yield _operation(case, phase, layer, family, times * size * batch / (1 + number))


def _operation(case: Case, phase: Phase, layer: int, family: str, amount: float) -> Record:
    flops = 1e9 * amount if family in ("convolution", "matmul") else 1e6 * amount
    unit = "matmul.fp32" if family in ("convolution", "matmul") else "vector.fp32"
    moved = 2e6 * amount
    return Record(
        case=case,
        source="estimate",
        scope="op",
        path=f"layer{layer}.{family}",
        kind=family,
        name=family,
        phase=phase,
        work=Work(flops={unit: flops}, bytes={"dram": moved}),
        traffic=Traffic(weights=0.25 * moved, inputs=0.25 * moved, outputs=0.5 * moved),
    )


def _measured(case: Case, size: int) -> Iterator[Record]:
    """Times that grow with the model and, above a floor of a millisecond, with the batch."""
    speed = 4.0 if case.device == "a100-sxm4-40gb" else 1.0
    for phase, times in _phases(case):
        seconds = times * (1e-3 * (1 + 0.01 * size) + 1e-3 * size * (case.batch or 1)) / speed
        samples = tuple(seconds * (1 + 0.01 * n) for n in (-2, -1, 0, 1, 2, 0, 1, -1))
        yield Record(
            case=case, source="measure", scope="model", phase=phase, timing=Timing(samples=samples, origin="monotonic")
        )


def _failed(cell: Cell) -> RecordFile:
    failure = Failure(
        case=cell.case, source="measure", stage="forward", kind="out of memory", message=f"no room: {HOSTILE}"
    )
    return RecordFile(records=(), failures=(failure,), environment=replace(HERE, machine={"cpu": "another"}))
