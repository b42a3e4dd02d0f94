"""Count the functions and files of rooflens that one answer runs through, its bounds, and how often it joins evidence.

    python benchmarks/path_lengths.py [--json] [--functions table]

Fixed cases: the table and the picture of resnet18 (batch 256, an A100), and the report of a small study of estimates.
Comprehensions and lambdas are lines of the function that holds them, and are not counted. Nor is the layer of
expected times: most of it are formulas, each for one kind of call, as those of costs are, which ran before. The limits
are in tests/test_path_lengths.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType

import rooflens as rl
from rooflens.records import Device, Work
from rooflens.results import RecordSet

SOURCE = f"{Path(rl.__file__).parent}/"
FORMULAS = "predict/"
STUDY = """\
title = "Two models on two devices"
question = "Which device is faster?"
devices = ["t4", "a100-sxm4-40gb"]
models = ["alexnet", "squeezenet1_1"]
batches = [16]
sources = ["estimate"]

[[hypothesis]]
text = "An A100 needs less time than a T4"
quantity = "time"
left = { device = "a100-sxm4-40gb" }
relation = "<"
right = { device = "t4" }
for = "every model"
"""


@cache
def _estimate() -> rl.RecordSet:
    return rl.estimate("resnet18", batch=256, device="a100-sxm4-40gb")


def _fresh() -> RecordSet:
    """The estimate, of which nothing is summed or joined yet."""
    estimated = _estimate()
    return RecordSet(estimated.records, devices=estimated.devices, environment=estimated.environment)


@dataclass(slots=True)
class Followed:
    """What ran for one answer.

    Attributes:
        functions: names of the functions that ran, by file.
        bounds: work and device of each call of `bound`.
        joins: how many sets of records were joined to evidence.
    """

    functions: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    bounds: list[tuple[Work, Device]] = field(default_factory=list)
    joins: int = 0

    @property
    def numbers(self) -> Mapping[str, int]:
        """The counts, by name; a bound is distinct if no other one is of the same work on the same device."""
        return {
            "functions": sum(map(len, self.functions.values())),
            "files": len(self.functions),
            "bounds": len(self.bounds),
            "distinct bounds": len({(repr(work), device.name) for work, device in self.bounds}),
            "joins": self.joins,
        }


def follow(answer: Callable[[], object]) -> Followed:
    """Run something and follow which functions of rooflens it runs."""
    followed = Followed()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE) or code.co_name.startswith("<"):
            return
        file, function = code.co_filename.removeprefix(SOURCE), code.co_qualname
        if file.startswith(FORMULAS):
            return
        followed.functions[file].add(function)
        if (file, function) == ("roofline/bound.py", "bound"):
            followed.bounds.append((frame.f_locals["work"], frame.f_locals["device"]))
        followed.joins += (file, function) == ("results/evidence.py", "_join")

    sys.setprofile(note)
    try:
        answer()
    finally:
        sys.setprofile(None)
    return followed


def table() -> Followed:
    """The table of an estimate."""
    rl.table(_estimate())  # what is loaded and registered once is no part of the path
    estimated = _fresh()
    return follow(lambda: rl.table(estimated))


def picture() -> Followed:
    """The picture of an estimate, as SVG."""
    with tempfile.TemporaryDirectory() as folder:
        rl.roofline(_estimate()).save(Path(folder) / "loaded.svg")
        estimated = _fresh()
        return follow(lambda: rl.roofline(estimated).save(Path(folder) / "picture.svg"))


def report() -> Followed:
    """The report of a study of estimates, as one page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.toml").write_text(STUDY)
        rl.run_study(folder / "study.toml", folder / "out")
        rl.study_report(folder / "out", folder / "loaded.html")
        return follow(lambda: rl.study_report(folder / "out", folder / "report.html"))


ANSWERS: Mapping[str, Callable[[], Followed]] = {"table": table, "picture": picture, "report": report}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--functions", choices=ANSWERS, help="list the functions of one answer instead")
    options = parser.parse_args()
    if options.functions:
        for file, names in sorted(ANSWERS[options.functions]().functions.items()):
            print(f"{file}: {', '.join(sorted(names))}")
        return
    rows = {name: answer().numbers for name, answer in ANSWERS.items()}
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'':10}{''.join(f'{name:>17}' for name in rows['table'])}")
    for name, numbers in rows.items():
        print(f"{name:10}{''.join(f'{number:17}' for number in numbers.values())}")


if __name__ == "__main__":
    main()
