"""Compare counted steps with what was counted of the same steps before: are the numbers reached again?

    PYTHONPATH=src:. python benchmarks/counted_again.py RECORDS... [--earlier RECORDS...] [--own FOLDER]

RECORDS are files of `rooflens counters MODEL -o`. Each is compared with the cases of results/counted-h200.json, by
phase and family, with earlier record files of the same case, by phase, and with the reports of ncu in FOLDER, as a
whole. A line for each; those with another card are shown and not judged, since caches and kernels differ. A run that
lost counters is left out. The exit code is 1 where one is beyond the limits, or nothing was there to compare.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.counted import families, lost

import rooflens as rl
from rooflens.records import Phase

FLOPS, BYTES, FAMILY_BYTES = 0.001, 0.03, 0.06
"""By so much may they differ: FLOP repeat to the last digit; in one pass DRAM has up to 2.7 % less than in several, and
a family may be a single kernel."""
SMALL = 20e-6
"""Families of less time are left out: bytes of small kernels are mostly what was in a cache."""
RESULTS = Path(__file__).parent / "results" / "counted-h200.json"
OWN = {
    ("resnet18", 1, "fp32", "inference"): "raw_resnet18_b1_fp32.csv",
    ("resnet18", 32, "tf32", "inference"): "raw_resnet18_b32_tf32.csv",
    ("alexnet", 1, "fp32", "train"): "raw_alexnet_b1_train_fp32.csv",
    ("alexnet", 4, "fp16", "inference"): "raw_alexnet_b4_fp16_nvtx.csv",
}
"""Reports by case. Training there has no optimizer: it is left out here too."""
Amounts = Mapping[str, float | None]


@dataclass(frozen=True)
class Comparison:
    """Amounts of one thing, now and before."""

    what: str
    now: Amounts
    before: Amounts
    same_card: bool
    limit: float = BYTES

    @property
    def ratios(self) -> dict[str, float]:
        """What is known of both, now over before."""
        both = {name: (self.now.get(name), self.before.get(name)) for name in self.before}
        return {name: new / old for name, (new, old) in both.items() if new and old}

    @property
    def holds(self) -> bool:
        """True if all of it is within the limits."""
        return all(abs(its - 1) <= (FLOPS if name == "FLOP" else self.limit) for name, its in self.ratios.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--earlier", nargs="*", default=[], type=Path)
    parser.add_argument("--own", type=Path)
    asked = parser.parse_args()
    made: list[Comparison] = []
    for path in asked.files:
        records = rl.read(path)
        if why := lost(records.where(source="counters")):
            print(f"left out: {path.name}: {why}")
        else:
            made += comparisons(records, asked.earlier, asked.own)
    for its in made:
        ratios = ", ".join(f"{name} {ratio:.4f}" for name, ratio in its.ratios.items())
        verdict = ("again " if its.holds else "DIFFER") if its.same_card else "other card"
        print(f"{verdict} {its.what}: {ratios}")
    judged = [its for its in made if its.same_card]
    limits = f"{FLOPS:.1%} of FLOP and {BYTES:.0%} of bytes ({FAMILY_BYTES:.0%} by family)"
    print(f"{sum(its.holds for its in judged)} of {len(judged)} comparisons on the same card are within {limits}")
    sys.exit(not judged or not all(its.holds for its in judged))


def comparisons(records: rl.RecordSet, earlier: list[Path], own: Path | None) -> Iterator[Comparison]:
    """What was counted before of the same case."""
    counted = records.where(source="counters")
    (case,) = counted.cases
    card = card_of(records)
    name = f"{case.model} batch {case.batch} {case.dtype} {case.mode}"
    key = case.model, case.batch, case.dtype, case.mode
    for its in json.loads(RESULTS.read_text())["cases"]:
        if key == (its["model"], its["batch"], its["dtype"], its["mode"]) and its["options"] == dict(case.options):
            before = {(row["phase"], row["family"]): row for row in its["families"] if row["seconds"] > SMALL}
            for row in families(records):
                if (old := before.get((row["phase"], row["family"]))) is not None:
                    what = f"{name} {row['phase']} {row['family']}"
                    yield Comparison(what, of_family(row), of_family(old), card == its["card"], FAMILY_BYTES)
    for path in earlier:
        others = rl.read(path)
        if {replace(its, device=case.device) for its in others.where(source="counters").cases} == {case}:
            for phase in counted.phases:
                then = of_phase(others.where(source="counters"), phase)
                what = f"{name} {phase} as in {path.name}"
                yield Comparison(what, of_phase(counted, phase), then, card == card_of(others))
    if own is not None and key in OWN:
        report = rl.read(own / OWN[key])
        now = Counter[str]()
        for phase in counted.phases:
            if phase != "optimizer":
                now.update({its: value for its, value in of_phase(counted, phase).items() if value})
        of_all_units = "l2"  # which is another quantity
        then = {its: value for its, value in of_phase(report, None).items() if its != of_all_units}
        yield Comparison(f"{name} as in {OWN[key]}", now, then, report.cases[0].device == case.device)


def card_of(records: rl.RecordSet) -> str | None:
    """The name of the card on which records were made."""
    return None if records.environment is None else records.environment.machine.get("card")  # type: ignore[return-value]


def of_family(row: Mapping[str, float]) -> Amounts:
    """The amounts of a row of a family."""
    return {"FLOP": row["executed_flops"], "dram": row["dram_bytes"], "l2": row["l2_bytes"]}


def of_phase(records: rl.RecordSet, phase: Phase | None) -> Amounts:
    """The amounts of a phase, or of all."""
    total = records.total(phase)
    return {"FLOP": total.flops, **total.bytes}


if __name__ == "__main__":
    main()
