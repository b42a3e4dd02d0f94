"""Write the recorded cells of the studies that were taken on an NVIDIA H200.

    python scripts/recorded_h200.py ../shared/data/own

Nothing is measured here. Four collections of this project's own measurements become record files in
studies/NAME/recorded, each under the name of the cell that it stands for:

- benchmarks/results/times-h200.jsonl: taken by rooflens, every sample kept; these come first.
- benchmarks/results/several-gpus-2xh200.jsonl: the same with two cards, and the same step on one of them alone.
- FOLDER/timing.json: 17 torchvision models, timed by a plain loop that kept median, least and most of 10 to 20 calls.
  Such a record has the median as its only sample, and so no interval; a note tells the rest.
- FOLDER/raw_*.csv: counters of Nsight Compute, one pass each, all on the same kind of card.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import rooflens as rl
from rooflens.records import Case, Environment, Phase, Record, RecordFile, Timing, read_records, write_records
from rooflens.study import Cell, cells, read_study

ROOT = Path(__file__).parents[1]
CARD = "h200-sxm-141gb"
TIMES = ROOT / "benchmarks" / "results" / "times-h200.jsonl"
TWO_CARDS = ROOT / "benchmarks" / "results" / "several-gpus-2xh200.jsonl"
OWN_SIZE = {"inception_v3": 299, "efficientnet_b7": 600}
"""Image sizes that a case does not name; 224 for the others."""
COUNTED = {
    "raw_resnet18_b1_fp32.csv": Case(model="resnet18", batch=1),
    "raw_resnet18_b32_tf32.csv": Case(model="resnet18", batch=32, dtype="tf32"),
    "raw_alexnet_b1_train_fp32.csv": Case(model="alexnet", batch=1, mode="train", options=(("optimizer", "none"),)),
}
"""What was run under ncu, as the README beside the files tells."""
PLAIN = Environment(
    rooflens="",
    created="",
    versions={"torch": "2.11.0+cu130", "torchvision": "0.26.0+cu130"},
    machine={"card": "NVIDIA H200"},
    flags={"cudnn benchmark": False},
)

TWO = replace(PLAIN, versions={}, machine={**PLAIN.machine, "cards": 2}, flags={})


def main(folder: Path) -> None:
    """Write the files, and say which cells of the studies have none."""
    # Of two measurements of a cell the later one stands: that of which every sample was kept.
    found = dict([*counted(folder), *timed(folder / "timing.json"), *sampled(), *together()])
    for study in sorted(ROOT.glob("studies/*/study.toml")):
        wanted = [cell for cell in cells_of(study) if cell.case.device == "cuda"]
        for cell in wanted:
            contents = found.get((cell.source, replace(cell.case, device=None)))
            if contents is None:
                print(f"{study.parent.name}: nothing recorded for {cell.label()}")
                continue
            write_records(study.parent / "recorded" / f"{cell.key}.jsonl", contents)


def cells_of(path: Path) -> tuple[Cell, ...]:
    """The cells of a study, whose recorded files need not be there yet."""
    text = re.sub(r"\[\[recorded\]\]\nfiles = .*\n", "", path.read_text())
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / path.name
        bare.write_text(text)
        file = read_study(bare, home=path.parent)
    return cells(file.study, file.home)


def sampled() -> Iterator[tuple[tuple[str, Case], RecordFile]]:
    """Cases that rooflens measured, as they are."""
    whole = read_records(TIMES)
    for case in dict.fromkeys(record.case for record in whole.records):
        records = tuple(record for record in whole.records if record.case == case)
        yield ("measure", replace(case, device=None)), _file(records, whole.environment)


def together() -> Iterator[tuple[tuple[str, Case], RecordFile]]:
    """Steps on two cards, and those of one card that were taken beside them."""
    whole = read_records(TWO_CARDS)
    for scaled in (record for record in whole.records if record.scaling is not None):
        assert scaled.scaling is not None
        case = replace(scaled.case, device=None)
        records = tuple(record for record in whole.records if record.case == scaled.case)
        yield ("measure", case), _file(records, TWO)
        one = tuple(option for option in case.options if option[0] != "gpus")
        alone = Record(
            case=replace(scaled.case, options=one),
            source="measure",
            scope="model",
            timing=scaled.scaling.alone,
            notes=("one of two cards, the other one idle; the whole step was timed",),
        )
        yield ("measure", replace(case, options=one)), _file([alone], TWO)


def timed(path: Path) -> Iterator[tuple[tuple[str, Case], RecordFile]]:
    """Rows of timing.json."""
    for row in json.loads(path.read_text())["rows"]:
        if row["size"] != OWN_SIZE.get(row["model"], 224):
            continue
        train = row["mode"] == "train"
        options = (("channels_last", True),) if row.get("channels_last") else ()
        case = Case(
            model=row["model"],
            device=CARD,
            batch=row["batch"],
            dtype=row["dtype"],
            mode="train" if train else "inference",
            options=(("optimizer", "none"),) if train else options,
        )
        records = tuple(_trained(case, row) if train else [_forward(case, row)])
        yield ("measure", replace(case, device=None)), _file(records, PLAIN)


def _forward(case: Case, row: Mapping[str, Any]) -> Record:
    calls = 10 if row["batch"] == 256 else 20
    return _timing(
        case,
        "forward",
        row["median_s"],
        f"median of {calls} calls from {row['min_s']:.6g} to {row['max_s']:.6g} s; the single samples were not kept",
        # In the fp32 rows FLOP were counted before the first call: it was not cold.
        None if row["dtype"] == "fp32" else row["first_call_s"],
    )


def _trained(case: Case, row: Mapping[str, Any]) -> Iterator[Record]:
    note = "median of the last 10 of 15 iterations; the single samples were not kept"
    yield _timing(case, "forward", row["forward_s"], f"{note}; with the loss")
    yield _timing(case, "backward", row["backward_s"], note)


def _timing(case: Case, phase: Phase, seconds: float, note: str, cold: float | None = None) -> Record:
    timing = Timing(samples=(seconds,), origin="cuda-events", cold=cold)
    return Record(case=case, source="measure", scope="model", phase=phase, timing=timing, notes=(note,))


def counted(folder: Path) -> Iterator[tuple[tuple[str, Case], RecordFile]]:
    """Counter files with what was run."""
    for name, case in COUNTED.items():
        found = rl.read(folder / name, device=CARD)
        on_card = replace(case, device=CARD)
        records = tuple(replace(record, case=on_card) for record in found)
        ncu = replace(PLAIN, versions={**PLAIN.versions, "ncu": "2025.3"}, flags={})
        yield ("counters", case), _file(records, ncu)


def _file(records: Iterable[Record], environment: Environment | None) -> RecordFile:
    return RecordFile(records=tuple(records), devices={CARD: rl.device(CARD)}, environment=environment)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "timing.json").is_file():
        sys.exit(f"usage: {Path(sys.argv[0]).name} FOLDER, which holds timing.json and the files of ncu")
    main(Path(sys.argv[1]))
